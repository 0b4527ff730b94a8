"""Charts: what is stored is what is drawn."""
import json
import xml.etree.ElementTree

import pytest

from benchmarks import charts
from benchmarks.charts import Axis, Bars, Lines, Scatter, Series
from lab.shell import Failure

SCATTER = Scatter("Slowdown", Axis("measured"), Axis("predicted"), {"all": [(1.0, 1.1), (2.0, 1.9)], "none": []},
                  relative=0.1)
ALL: dict[str, charts.Chart] = {
    "lines": Lines("Shares & targets", Axis("time, s"), Axis("share, %", low=0, high=105), [
        Series("lu", [(0, 40), (1, 60)], stepped=True), Series("target", [(0, 50), (1, 50)], dashed=True),
        Series("nobody", [])]),
    "copies": Lines("Bandwidth", Axis("size", logarithmic=True, base=2, bytes=True), Axis("GB/s"),
                    [Series("pinned", [(4096.0, 1.5), (2.0**30, 55.0)])]),
    "bars": Bars("Whole programs", Axis("ratio"), ["lu", "bfs"], {"steady": [1.01, None], "whole": [0.8, 0.9]},
                 (1.03, "wanted: at most 1.03")),
    "scatter": SCATTER,
}


def written(folder):
    """As a benchmark stores them."""
    path = folder / "some.json"
    path.write_text(json.dumps({"results": [], "charts": charts.to_json(ALL)}))
    return path


def test_stored_charts_come_back(tmp_path):
    assert charts.to_json(charts.stored_charts(written(tmp_path))) == json.loads(json.dumps(charts.to_json(ALL)))


def test_bounds_of_a_scatter_chart():
    assert SCATTER.bounds() == [(0.9, 0.0), (1.1, 0.0)]


def test_what_no_benchmark_wrote_is_refused(tmp_path):
    for text in ("", "[]", '{"results": []}'):
        (tmp_path / "other.json").write_text(text)
        with pytest.raises(Failure, match=r"other\.json"):
            charts.stored_charts(tmp_path / "other.json")


def test_charts_are_drawn_from_what_is_stored(tmp_path):
    pytest.importorskip("matplotlib", reason="python3-matplotlib is not installed: charts are drawn where it is")
    assert charts.redraw(written(tmp_path), tmp_path / "out") == 0
    for name, chart in ALL.items():
        text = (tmp_path / "out" / f"{name}.svg").read_text()
        root = xml.etree.ElementTree.fromstring(text)
        assert root.tag.endswith("svg") and chart.title in "".join(root.itertext())
