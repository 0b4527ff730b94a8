"""tools/bench paper: the list of figures, and vgpu-sched/papers.md, which is held to the tree and to that list."""
import json
import re

import pytest

from benchmarks import paper
from benchmarks.charts import Lines
from benchmarks.paper_figures import FIGURES, NAMES, Figure, Value
from lab.paths import REPO
from lab.shell import Failure

TABLE = REPO / "vgpu-sched/papers.md"
STATES = {"runs", "library", "research", "model", "missing", "hardware"}
ABSENT = {"missing", "hardware"}


def rows() -> list[list[str]]:
    """Mechanism, section, files, figures, state."""
    found = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in TABLE.read_text().splitlines()
             if line.startswith("|")]
    return [row for row in found if row[0] != "mechanism" and not row[0].startswith("---")]


def files_of(row: list[str]) -> list[str]:
    return re.findall(r"`([^`]+)`", row[2])


def test_each_row_says_all():
    assert len(rows()) > 30
    for row in rows():
        assert len(row) == 5 and row[4] in STATES, row


def test_files_are_there_where_a_mechanism_is():
    for row in rows():
        assert bool(files_of(row)) == (row[4] not in ABSENT), f"{row[0]}: {row[4]} with files {row[2]!r}"
        for name in files_of(row):
            assert (REPO / name).is_file(), f"{row[0]}: {name} is not there"


def test_figures_are_those_that_can_be_remade(capsys):
    named = {name for row in rows() for name in row[3].split(", ") if name}
    paper.run(["--list", "--json"])
    assert named == set(json.loads(capsys.readouterr().out))


def test_names_and_values_are_told_apart():
    assert len(NAMES) == len(FIGURES)
    for figure in FIGURES:
        places = [(value.series, value.at) for value in figure.values]
        assert len(set(places)) == len(places), figure.name


FIGURE = Figure("a-1", "A title", "%", "simulated", "a", [Value("x", "1", "one", 5), Value("x", "2", "two", (1, 3)),
                                                        Value("x", "3", "three")], "a note", curve="x")


def test_the_papers_values_stand_beside_ours():
    values = {("x", "1"): 4.0, ("x", "2"): 2.5, ("x", "3"): 7.0}
    result = {"figure": "a-1", "title": FIGURE.title, "unit": "%", "how": "simulated", "note": "a note",
              "rows": paper.rows_of(FIGURE, values)}
    lines = paper.table(result).splitlines()
    assert [line.split() for line in lines[3:6]] == [["one", "5", "4"], ["two", "1", "to", "3", "2.5"], ["three", "7"]]
    assert lines[-1] == "(a note)"
    drawn = paper.drawn(FIGURE, result, values)
    assert drawn["a-1"].series == {"paper": [5, 2.0, None], "simulated": [4.0, 2.5, 7.0]}
    curve = drawn["a-1-curve"]
    assert isinstance(curve, Lines)
    assert curve.series[0].points == [(2.5, 2.0), (4.0, 1.0), (7.0, 3.0)]


def test_what_was_not_measured_is_an_error():
    with pytest.raises(Failure, match="a-1: nothing was measured for one, three"):
        paper.rows_of(FIGURE, {("x", "2"): 1.0})


def test_unknown_figures_are_refused():
    with pytest.raises(Failure, match="no figure gdev-99"):
        paper.chosen(["gdev-11", "gdev-99"])
    with pytest.raises(Failure, match="which figure"):
        paper.chosen([])
