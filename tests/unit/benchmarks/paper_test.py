"""tools/bench paper: the list of figures, and vgpu-sched/papers.md, which is held to the tree and to that list."""
import json
import re

import pytest

from benchmarks import paper, priorities, window
from benchmarks.charts import Lines
from benchmarks.paper_benches import BENCHES
from benchmarks.paper_figures import FIGURES, MEASURED, NAMES, Figure, Value
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


def test_what_one_way_lacks_may_be_left_out_and_what_a_device_lacks_is_said():
    one, two = Value("x", "1", "one"), Value("y", "1", "two", None, True)
    figure = Figure("a-2", "A title", "%", "simulated", "a", [one, two], steps=("x",), bench="b")
    rows = paper.rows_of(figure, {("x", "1"): None})
    result = {"figure": "a-2", "title": "", "unit": "%", "how": "measured", "note": "", "rows": rows}
    assert paper.table(result).splitlines()[3].split() == ["one", "not", "there"]
    values = {("x", "begin"): 4, ("x", "12.5"): 5.0, ("x", "0.5"): 4.0, ("y", "1"): 1.0}
    steps = paper.drawn(figure, result, values)["a-2-steps"]
    assert isinstance(steps, Lines) and steps.series[0].points == [(0.5, 4.0), (12.5, 5.0)]


def test_each_figure_that_can_be_measured_has_its_benchmark():
    for figure in FIGURES:
        name = figure.source if figure.how == MEASURED else figure.bench
        if name:
            assert BENCHES[name].words(figure, 3) is not None, figure.name


def test_what_a_program_has_beside_nonsense():
    bench = BENCHES["hostile"]
    assert bench.words(NAMES["gdev-7"], 1) == ["--only", "broken images,streams,contexts,faults,endless kernel"]
    assert bench.meaning([{"deed": "streams", "part": 0.5}]) == {("done", "streams"): 50}


def test_transfers_in_the_figures_terms():
    rows = [{"mix": "MIX", "sf": sf, "seconds": {"Y,Y": 2.0, "N,Y": 2.2, "Y,N": 2.5, "N,N": 3.0}, "hidden": 0.9}
            for sf in (1.0, 2.5)]
    found = BENCHES["transfers"].meaning(rows)
    assert found["Y,Y against N,Y", "sf 2.5"] == pytest.approx(10)
    assert found["Y,Y against N,N", "MIX"] == pytest.approx(50) and found["hidden", "sf 1"] == pytest.approx(90)
    assert ("hidden", "CI") not in found


def test_windows_in_the_figures_terms():
    def row(direction: str, way: str, size: int, us: float) -> dict:
        return {"side": "bandsaw", "direction": direction, "way": way, "bytes": size, "us": us, "wrong": 0}
    times = {256: (8, 4), 1024: (8, 8), 4096: (8, 16), 16384: (16, 8)}
    rows = [row("in", way, size, us) for size, both in times.items() for way, us in zip(("engine", "window"), both)]
    rows += [row("out", "engine", 256, 2), row("out", "window", 256, 4)]
    found = BENCHES["window"].meaning(window.speeds(rows))
    assert found["bandsaw in", "0.25"] == 2 and found["bandsaw in", "4"] == 0.5
    assert found["bandsaw in", "threshold"] == 1, "what is faster again beyond is not counted"
    assert found["bandsaw out", "threshold"] == 0
    wrong = [row("in", "window", 256, 1) | {"wrong": 3}]
    assert window.missed(rows) == [] and len(window.missed(wrong)) == 1


def test_a_case_that_was_left_out_for_want_of_time_is_said():
    rows: list[dict] = [{"series": "fifo", "priority": "no priority", "part": 0.4, "mb_per_s": 80.0, "right": True},
                        {"series": "band", "priority": "no priority", "part": None}]
    found = BENCHES["priorities"].meaning(rows)
    assert found["fifo", "no priority"] == 40 and found["band", "no priority"] is None
    assert "not measured" in priorities.table(rows) and priorities.missed(rows) == []
    assert len(priorities.missed([rows[0] | {"right": False}])) == 1


def test_partitions_in_the_figures_terms():
    blocks = [[0, 0, 0], [1, 4, 4], [9, 6, 2], [20, 0, 0]]
    pair = {"pair": "PC+TEA", "way": "Maestro", "stp": 1.5, "antt": 1.4, "blocks": blocks}
    found = BENCHES["partitions"].meaning([pair, {"pair": "PC+TEA", "way": "Spatial", "left_out": "not there"}])
    assert found["STP Maestro", "all"] == pytest.approx(50) and found["ANTT Maestro", "all"] == pytest.approx(40)
    assert found["STP Spatial", "all"] is None and found["Spatial", "PC+TEA"] is None
    assert (found["PC+TEA: PC", "begin"], found["PC+TEA: TEA", "end"]) == (4, 2)
    assert found["PC+TEA: PC", "9"] == 6 and ("PC+TEA: PC", "0") not in found
    unseen = BENCHES["partitions"].meaning([pair | {"blocks": [[0, 0, 0]]}])
    assert unseen["PC+TEA: PC", "begin"] is None and unseen["PC+TEA: TEA", "end"] is None


def test_what_was_not_measured_is_an_error():
    with pytest.raises(Failure, match="a-1: nothing was measured for one, three"):
        paper.rows_of(FIGURE, {("x", "2"): 1.0})


def test_unknown_figures_are_refused():
    with pytest.raises(Failure, match="no figure gdev-99"):
        paper.chosen(["gdev-11", "gdev-99"])
    with pytest.raises(Failure, match="which figure"):
        paper.chosen([])
