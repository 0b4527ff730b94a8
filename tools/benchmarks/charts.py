"""Charts as data that lie in a benchmark's JSON, and their drawing by matplotlib as SVG.

A machine with a GPU may lack matplotlib: the JSON is written there, and `tools/bench NAME --from NAME.json --out DIR`
draws its charts on any other machine."""
from __future__ import annotations

import dataclasses
import importlib.util
import json
import pathlib
import typing

from lab.machine import install_packages
from lab.shell import Failure, say

if typing.TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 8.4, 4.9  # inches
# Okabe and Ito's colours, told apart by the colour-blind too.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#b8a800"]
LIMIT = "#aa0000"
FEW_POINTS = 40  # of a line: each is marked

Point = tuple[float, float]


@dataclasses.dataclass
class Series:
    """One line of a chart: its points in the order of x, and how it is drawn."""
    name: str
    points: list[Point]
    colour: str = ""
    dashed: bool = False
    stepped: bool = False  # holds a value until the next point, as shares over time do


@dataclasses.dataclass
class Axis:
    """What an axis says: its title with the unit, its scale; its range if the data do not decide."""
    title: str
    logarithmic: bool = False
    base: float = 10
    bytes: bool = False  # ticks are numbers of bytes
    low: float | None = None
    high: float | None = None


@dataclasses.dataclass
class Lines:
    """Lines over a common axis."""
    title: str
    x: Axis
    y: Axis
    series: list[Series]


@dataclasses.dataclass
class Bars:
    """A group of bars for each name in `groups`, one bar a series (None: no bar), and a dashed line at `limit`."""
    title: str
    y: Axis
    groups: list[str]
    series: dict[str, list[float | None]]
    limit: tuple[float, str] | None = None


@dataclasses.dataclass
class Scatter:
    """Points on axes of one scale, with the line where both are equal and, dashed, those that far from it."""
    title: str
    x: Axis
    y: Axis
    series: dict[str, list[Point]]
    relative: float | None = None
    absolute: float | None = None

    def bounds(self) -> list[tuple[float, float]]:
        """Slope and offset of the lines beside the one of equal values."""
        if self.relative is not None:
            return [(1 - self.relative, 0.0), (1 + self.relative, 0.0)]
        return [(1.0, -self.absolute), (1.0, self.absolute)] if self.absolute is not None else []


Chart = Lines | Bars | Scatter
_KINDS: dict[str, type] = {"lines": Lines, "bars": Bars, "scatter": Scatter}


def to_json(charts: dict[str, Chart]) -> dict[str, dict]:
    names = {kind: name for name, kind in _KINDS.items()}
    return {name: {"kind": names[type(chart)], **dataclasses.asdict(chart)} for name, chart in charts.items()}


def from_json(stored: dict[str, dict]) -> dict[str, Chart]:
    return {name: _chart(dict(fields)) for name, fields in stored.items()}


def _chart(fields: dict) -> Chart:
    kind = _KINDS[fields.pop("kind")]
    for axis in ("x", "y"):
        if axis in fields:
            fields[axis] = Axis(**fields[axis])
    if kind is Lines:
        fields["series"] = [Series(**series) for series in fields["series"]]
    return kind(**fields)


def stored_charts(path: pathlib.Path) -> dict[str, Chart]:
    """Of the JSON that a benchmark wrote."""
    try:
        stored = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{path} is not what a benchmark has written: {error}") from error
    if not isinstance(stored, dict) or "charts" not in stored:
        raise Failure(f"{path} has no charts; a benchmark with --out DIR writes them")
    return from_json(stored["charts"])


def redraw(path: pathlib.Path, folder: pathlib.Path | None) -> int:
    """What `--from` does: draws the charts that were stored, and measures nothing."""
    if folder is None:
        raise Failure("--from needs --out DIR, where the charts go")
    charts = stored_charts(path)
    need_matplotlib()
    _draw_all(charts, folder)
    return 0


def store(folder: pathlib.Path | None, benchmark: str, result: dict, text: str, charts: dict[str, Chart]) -> None:
    """What `--out` does, if it was given: the result with its charts as JSON, the table, and the charts drawn."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / f"{benchmark}.json"
    stored.write_text(json.dumps({**result, "charts": to_json(charts)}, indent=1) + "\n")
    (folder / f"{benchmark}.txt").write_text(text + "\n")
    draw(charts, folder, stored, benchmark)


def draw(charts: dict[str, Chart], folder: pathlib.Path, stored: pathlib.Path, benchmark: str) -> None:
    """Draws them, or says how that is done elsewhere; `stored` is the JSON that holds them."""
    if not charts:
        return
    if importlib.util.find_spec("matplotlib") is None:
        say(f"no charts: python3-matplotlib is missing here. Where it is there, tools/bench {benchmark} --from "
            f"{stored} --out {folder} draws them")
        return
    _draw_all(charts, folder)


def need_matplotlib() -> None:
    """For a machine with a network; one with a GPU may have none."""
    if importlib.util.find_spec("matplotlib") is None:
        install_packages(["python3-matplotlib"])
        importlib.invalidate_caches()


def _draw_all(charts: dict[str, Chart], folder: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in charts.items():
        _draw(chart, folder / f"{name}.svg")
    say(f"{len(charts)} charts in {folder}")


def _draw(chart: Chart, path: pathlib.Path) -> None:
    import matplotlib  # pylint: disable=import-outside-toplevel  # only those who draw need it
    matplotlib.use("svg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    # Text stays text, and the same chart is the same file.
    style = {"svg.fonttype": "none", "svg.hashsalt": "bandsaw", "font.size": 10, "axes.axisbelow": True}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(WIDTH, HEIGHT))
        axes.grid(color="#dddddd")
        if isinstance(chart, Lines):
            _draw_lines(axes, chart)
        elif isinstance(chart, Bars):
            _draw_bars(axes, chart)
        else:
            _draw_scatter(axes, chart)
        figure.suptitle(chart.title, fontsize=13, fontweight="bold")
        handles, labels = axes.get_legend_handles_labels()
        if labels:
            axes.legend(handles, labels, ncol=min(4, len(labels)), loc="lower center", bbox_to_anchor=(0.5, 1.0),
                        frameon=False, fontsize=8)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _byte_size(value: float, _place: int = 0) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g} B"


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    axes.set(**{f"{which}label": axis.title})
    line = axes.xaxis if which == "x" else axes.yaxis
    if axis.logarithmic:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=axis.base)
    if axis.bytes:
        line.set_major_formatter(_byte_size)
    (axes.set_xlim if which == "x" else axes.set_ylim)(axis.low, axis.high)


def _draw_lines(axes: Axes, chart: Lines) -> None:
    for number, series in enumerate(each for each in chart.series if each.points):
        x, y = zip(*series.points)
        style = {"color": series.colour or COLOURS[number % len(COLOURS)], "label": series.name, "linewidth": 1.6,
                 "linestyle": "--" if series.dashed else "-",
                 "drawstyle": "steps-post" if series.stepped else "default",
                 "marker": "o" if len(series.points) <= FEW_POINTS and not series.stepped else "", "markersize": 4}
        axes.plot(x, y, **style)
    _set_axis(axes, "x", chart.x)
    # Sizes begin at zero, so that their lengths can be compared.
    low = 0.0 if chart.y.low is None and not chart.y.logarithmic and axes.get_ylim()[0] > 0 else chart.y.low
    _set_axis(axes, "y", dataclasses.replace(chart.y, low=low))


def _draw_bars(axes: Axes, chart: Bars) -> None:
    width = 0.8 / max(1, len(chart.series))
    for number, (name, values) in enumerate(chart.series.items()):
        places = [place + (number - (len(chart.series) - 1) / 2) * width for place in range(len(values))]
        there = [(place, value) for place, value in zip(places, values) if value is not None]
        bars = axes.bar([place for place, _ in there], [value for _, value in there], 0.92 * width, label=name,
                        color=COLOURS[number % len(COLOURS)])
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=2)
    if chart.limit:
        axes.axhline(chart.limit[0], color=LIMIT, linestyle="--", linewidth=1, label=chart.limit[1])
    axes.set_xticks(range(len(chart.groups)), chart.groups, fontsize=8,
                    rotation=20 if sum(map(len, chart.groups)) > 70 else 0)
    axes.grid(visible=False, axis="x")
    axes.margins(y=0.1)
    _set_axis(axes, "y", chart.y)


def _draw_scatter(axes: Axes, chart: Scatter) -> None:
    values = [value for points in chart.series.values() for point in points for value in point] or [0.0, 1.0]
    low, high = min([0.0, *values]), 1.04 * max([1e-9, *values])
    axes.plot([low, high], [low, high], color="#555555", linewidth=1)
    for slope, offset in chart.bounds():
        axes.plot([low, high], [slope * low + offset, slope * high + offset], color=LIMIT, linestyle="--", linewidth=1)
    for number, (name, points) in enumerate(chart.series.items()):
        if points:
            axes.scatter(*zip(*points), s=14, alpha=0.6, color=COLOURS[number % len(COLOURS)], label=name)
    _set_axis(axes, "x", dataclasses.replace(chart.x, low=low, high=high))
    _set_axis(axes, "y", dataclasses.replace(chart.y, low=low, high=high))
