"""Charts as SVG text, with nothing but the standard library: lines over one axis (plain or logarithmic), and bars."""
import dataclasses
import math
from collections.abc import Callable
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 78, 24, 76, 66
# Okabe and Ito's colours, told apart by the colour-blind too.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#b8a800"]
STYLE = """text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#222}
.title{font-size:16px;font-weight:bold}.axis{font-size:13px}.small{font-size:10px}.grid{stroke:#ddd;stroke-width:1}
.frame{fill:none;stroke:#555;stroke-width:1}.line{fill:none;stroke-width:2}.limit{stroke:#a00;stroke-dasharray:5 4}"""


@dataclasses.dataclass
class Series:
    """One line of a chart: its points in the order of x, and how it is drawn."""
    name: str
    points: list[tuple[float, float]]
    colour: str = ""
    dashed: bool = False
    stepped: bool = False  # holds a value until the next point, as shares over time do


@dataclasses.dataclass
class Axis:
    """What an axis says: its title with the unit, its scale, its ticks' text; its range if the data do not decide."""
    title: str
    logarithmic: bool = False
    base: float = 10
    text: Callable[[float], str] | None = None
    low: float | None = None
    high: float | None = None


class _Scale:
    """Values of an axis to pixels."""

    def __init__(self, axis: Axis, values: list[float], first: float, last: float):
        self.axis, self.first, self.last = axis, first, last
        values = [value for value in values if not axis.logarithmic or value > 0] or [1.0]
        low = min(values) if axis.low is None else axis.low
        high = max(values) if axis.high is None else axis.high
        if low == high:
            low, high = (low / 2, high * 2) if axis.logarithmic else (low - 0.5, high + 0.5)
        self.low, self.high = low, high

    def at(self, value: float) -> float:
        if self.axis.logarithmic:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.first + min(1.0, max(0.0, part)) * (self.last - self.first)

    def ticks(self) -> list[float]:
        return self._powers() if self.axis.logarithmic else self._round_numbers()

    def _powers(self) -> list[float]:
        base = self.axis.base
        first, last = math.ceil(math.log(self.low, base) - 1e-9), math.floor(math.log(self.high, base) + 1e-9)
        step = max(1, -(-(last - first + 1) // 11))
        powers = [base**power for power in range(first, last + 1, step)]
        if base == 10 and last - first <= 1:
            powers = [part * base**power for power in range(first - 1, last + 1) for part in (1, 2, 5)]
        return [value for value in powers if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]

    def _round_numbers(self) -> list[float]:
        step = 10 ** math.floor(math.log10((self.high - self.low) / 5))
        step = next(step * by for by in (1, 2, 5, 10) if (self.high - self.low) / (step * by) <= 7)
        count = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        return [round(number * step, 12) for number in count]

    def text(self, value: float) -> str:
        return self.axis.text(value) if self.axis.text else f"{value:g}"


def byte_size(value: float) -> str:
    """The text of a tick that is a number of bytes."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= factor:
            return f"{value / factor:g} {unit}"
    return f"{value:g} B"


def _text(x: float, y: float, text: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {extra}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, name: str, extra: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{name}" {extra}/>'


def _document(title: str, body: list[str]) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', _text(WIDTH / 2, 26, title, extra='class="title"'),
        *body, "</svg>", ""])


def _frame(y: _Scale) -> list[str]:
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{width}" height="{height}" class="frame"/>']
    for value in y.ticks():
        parts.append(_line(LEFT, y.at(value), WIDTH - RIGHT, y.at(value), "grid"))
        parts.append(_text(LEFT - 8, y.at(value) + 4, y.text(value), "end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(_text(20, middle, y.axis.title, extra=f'class="axis" transform="rotate(-90 20 {middle})"'))
    return parts


def _legend(entries: list[tuple[str, str, bool]]) -> list[str]:
    """Names beside a piece of their line, in one row above the plot (two when there are many)."""
    parts = []
    long = len(entries) > 4 or sum(len(name) for name, _, _ in entries) > 72
    per_row = -(-len(entries) // 2) if long else len(entries)
    width = (WIDTH - LEFT - RIGHT) / max(1, per_row)
    for number, (name, colour, dashed) in enumerate(entries):
        x, y = LEFT + number % per_row * width, 48 + number // per_row * 16
        dash = 'stroke-dasharray="6 4"' if dashed else ""
        parts.append(_line(x, y, x + 24, y, "line", f'stroke="{colour}" {dash}'))
        parts.append(_text(x + 30, y + 4, name, "start"))
    return parts


def _path(series: Series, x: _Scale, y: _Scale) -> list[str]:
    colour, places = series.colour, [(x.at(px), y.at(py)) for px, py in series.points]
    commands = [f"M{places[0][0]:.1f} {places[0][1]:.1f}"]
    for px, py in places[1:]:
        commands.append(f"H{px:.1f} V{py:.1f}" if series.stepped else f"L{px:.1f} {py:.1f}")
    dash = 'stroke-dasharray="6 4"' if series.dashed else ""
    parts = [f'<path d="{" ".join(commands)}" class="line" stroke="{colour}" {dash}/>']
    if len(places) <= 40:
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in places]
    return parts


def line_chart(title: str, x_axis: Axis, y_axis: Axis, series: list[Series]) -> str:
    """Lines over a common axis. Series without points are left out; those without a colour get the next one."""
    series = [dataclasses.replace(each, colour=each.colour or COLOURS[number % len(COLOURS)])
              for number, each in enumerate(series) if each.points]
    if not y_axis.logarithmic and y_axis.low is None:
        y_axis = dataclasses.replace(y_axis, low=min([0.0, *(py for each in series for _, py in each.points)]))
    if not y_axis.logarithmic and y_axis.high is None:
        y_axis = dataclasses.replace(y_axis, high=1.06 * max([1e-9, *(py for each in series for _, py in each.points)]))
    x = _Scale(x_axis, [px for each in series for px, _ in each.points], LEFT, WIDTH - RIGHT)
    y = _Scale(y_axis, [py for each in series for _, py in each.points], HEIGHT - BOTTOM, TOP)
    body = _frame(y)
    for value in x.ticks():
        body.append(_line(x.at(value), TOP, x.at(value), HEIGHT - BOTTOM, "grid"))
        body.append(_text(x.at(value), HEIGHT - BOTTOM + 18, x.text(value)))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, x_axis.title, extra='class="axis"'))
    for each in series:
        body += _path(each, x, y)
    return _document(title, body + _legend([(each.name, each.colour, each.dashed) for each in series]))


def bar_chart(title: str, y_axis: Axis, groups: list[str], series: dict[str, list[float | None]],
              limit: tuple[float, str] | None = None) -> str:
    """A group of bars for each name in `groups`, one bar a series (None: no bar), and a dashed line at `limit`."""
    values = [value for row in series.values() for value in row if value is not None]
    top = max([*values, *([limit[0]] if limit else [])], default=1.0) * 1.12
    y = _Scale(dataclasses.replace(y_axis, low=y_axis.low or 0, high=y_axis.high or top), values, HEIGHT - BOTTOM, TOP)
    body = _frame(y)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    width = min(46.0, slot * 0.8 / max(1, len(series)))
    for place, group in enumerate(groups):
        centre = LEFT + (place + 0.5) * slot
        body.append(_text(centre, HEIGHT - BOTTOM + (18 if place % 2 == 0 or slot > 90 else 34), group))
        for number, (row, colour) in enumerate(zip(series.values(), COLOURS)):
            if row[place] is None:
                continue
            x, height = centre + (number - len(series) / 2) * width, HEIGHT - BOTTOM - y.at(row[place])
            body.append(f'<rect x="{x:.1f}" y="{y.at(row[place]):.1f}" width="{width - 2:.1f}" height="{height:.1f}" '
                        f'fill="{colour}"/>')
            body.append(_text(x + width / 2 - 1, y.at(row[place]) - 5, f"{row[place]:.2f}", extra='class="small"'))
    entries = [(name, colour, False) for name, colour in zip(series, COLOURS)]
    if limit:
        body.append(_line(LEFT, y.at(limit[0]), WIDTH - RIGHT, y.at(limit[0]), "limit"))
        entries.append((limit[1], "#aa0000", True))
    return _document(title, body + _legend(entries))


def scatter_chart(title: str, x_axis: Axis, y_axis: Axis, series: dict[str, list[tuple[float, float]]],
                  relative: float | None = None, absolute: float | None = None) -> str:
    """Points on axes of one scale, with the line where both are equal and, dashed, those that far from it."""
    values = [value for points in series.values() for point in points for value in point] or [0.0, 1.0]
    low, high = min([0.0, *values]), 1.04 * max([1e-9, *values])
    x = _Scale(dataclasses.replace(x_axis, low=low, high=high), values, LEFT, WIDTH - RIGHT)
    y = _Scale(dataclasses.replace(y_axis, low=low, high=high), values, HEIGHT - BOTTOM, TOP)
    body = _frame(y)
    for value in x.ticks():
        body.append(_line(x.at(value), TOP, x.at(value), HEIGHT - BOTTOM, "grid"))
        body.append(_text(x.at(value), HEIGHT - BOTTOM + 18, x.text(value)))
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 18, x_axis.title, extra='class="axis"'))
    body.append(_line(x.at(low), y.at(low), x.at(high), y.at(high), "frame"))
    for slope, offset in _bounds(relative, absolute):
        # From edge to edge of the frame: neither value leaves the axes.
        begin = max(low, (low - offset) / slope)
        end = min(high, (high - offset) / slope)
        if begin < end:
            body.append(_line(x.at(begin), y.at(slope * begin + offset), x.at(end), y.at(slope * end + offset), "limit"))
    for points, colour in zip(series.values(), COLOURS):
        body += [f'<circle cx="{x.at(px):.1f}" cy="{y.at(py):.1f}" r="3.5" fill="{colour}" fill-opacity="0.6"/>'
                 for px, py in points]
    return _document(title, body + _legend([(name, colour, False) for name, colour in zip(series, COLOURS)]))


def _bounds(relative: float | None, absolute: float | None) -> list[tuple[float, float]]:
    """Slope and offset of the lines beside the one of equal values."""
    if relative is not None:
        return [(1 - relative, 0.0), (1 + relative, 0.0)]
    return [(1.0, -absolute), (1.0, absolute)] if absolute is not None else []
