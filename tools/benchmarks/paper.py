"""tools/bench paper: figures of the five papers that Bandsaw builds on, remade; their values and ours side by side.

vgpu-sched/papers.md says which mechanism each figure shows. Simulated figures run production's own policies, planners
and choices on simulated engines; their values say what these decide, not how fast a GPU is."""
import argparse
import contextlib
import functools
import json
import pathlib
import subprocess
import sys

from benchmarks import charts, elf
from benchmarks.paper_benches import BENCHES, Values
from benchmarks.paper_figures import FIGURES, MEASURED, NAMES, REPLAYED, SIMULATED, Figure
from benchmarks.results import columns, json_lines
from lab import build, setup
from lab.shell import Failure, say

TOOL = "tools/benchmarks/research/figures"
SECONDS = 900


def simulated(figure: Figure, schedules: int) -> Values:
    tool = build.BUILD / TOOL
    if not tool.exists():
        raise Failure(f"there is no {tool}: leave --no-build out")
    done = subprocess.run([tool, figure.source, str(schedules)], capture_output=True, text=True, check=False,
                          timeout=SECONDS)
    if done.returncode != 0:
        raise Failure(f"{tool} {figure.source} ended with {done.returncode}: {done.stderr}")
    return {(line["series"], line["at"]): line["value"] for line in json_lines(done.stdout)}


@functools.cache
def _results(*words: str) -> list[dict]:
    """Of a benchmark; one may show several figures."""
    done = subprocess.run([sys.executable, "-m", "benchmarks", *words], stdout=subprocess.PIPE, text=True, check=False,
                          timeout=SECONDS)
    # 1 with results: some fell short of what is wanted of them.
    if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
        raise Failure(f"tools/bench {' '.join(words)} ended with {done.returncode}")
    said = json.loads(done.stdout)
    return said["deeds"] if "deeds" in said else said["results"]


def measured(figure: Figure, options) -> Values:
    name = figure.source if figure.how == MEASURED else figure.bench
    bench = BENCHES[name]
    built = ["--no-build"] * (options.no_build and name not in ("segments", "crypto", "hostile", "swap"))
    return bench.meaning(_results(name, "--json", "--device", options.device, *bench.words(figure, options.rounds),
                                  *built))


def spelling(value: float | tuple[float, float] | None, absent: str = "") -> str:
    if value is None:
        return absent
    return f"{value[0]:g} to {value[1]:g}" if isinstance(value, tuple) else f"{value:.4g}"


def rows_of(figure: Figure, values: Values) -> list[dict]:
    missing = [value.what for value in figure.values if (value.series, value.at) not in values and not value.may_lack]
    if missing:
        raise Failure(f"{figure.name}: nothing was measured for {', '.join(missing)}")
    return [{"what": value.what, "paper": value.paper, "measured": values[value.series, value.at]}
            for value in figure.values if (value.series, value.at) in values]


def table(result: dict) -> str:
    lines: list[tuple] = [(f"{result['figure']}, {result['unit']}", "paper", result["how"])]
    lines += [(row["what"], spelling(row["paper"]), spelling(row["measured"], "not there")) for row in result["rows"]]
    notes = [f"({result['note']})"] if result["note"] else []
    return "\n".join([result["title"], *columns(lines), *notes])


def drawn(figure: Figure, result: dict, values: Values) -> dict[str, charts.Chart]:
    """Bars beside each other; of a range that the paper names, its middle."""
    def one(value):
        return sum(value) / 2 if isinstance(value, tuple) else value
    rows = result["rows"]
    made: dict[str, charts.Chart] = {figure.name: charts.Bars(
        figure.title, charts.Axis(figure.unit), [row["what"] for row in rows],
        {"paper": [one(row["paper"]) for row in rows], result["how"]: [row["measured"] for row in rows]})}
    if figure.curve:
        points = sorted((value, float(at)) for (series, at), value in values.items()
                        if series == figure.curve and value is not None)
        made[f"{figure.name}-curve"] = charts.Lines(
            figure.title, charts.Axis("total time, of kernelet's"), charts.Axis("% of the schedules", low=0, high=100),
            [charts.Series("random schedules", points), charts.Series("kernelet", [(1, 0), (1, 100)], dashed=True)])
    if figure.steps:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in figure.steps}
        for (series, at), value in values.items():
            if series in found and value is not None and at not in ("begin", "end"):
                found[series].append((float(at), value))
        made[f"{figure.name}-steps"] = charts.Lines(
            figure.title, charts.Axis("ms" if result["how"] == MEASURED else "epoch"), charts.Axis(figure.unit, low=0),
            [charts.Series(name, sorted(points), stepped=True) for name, points in found.items()])
    return made


def remake(figure: Figure, options) -> tuple[dict, dict[str, charts.Chart]]:
    say(f"{figure.name}: {figure.title}")
    how = MEASURED if options.measured and figure.bench else figure.how
    if how == MEASURED:
        values = measured(figure, options)
    else:
        values = dict(elf.FIGURES[figure.source]() if how == REPLAYED else simulated(figure, options.schedules))
    note = figure.note if how == figure.how else figure.bench_note
    result = {"figure": figure.name, "title": figure.title, "unit": figure.unit, "how": how, "note": note,
              "rows": rows_of(figure, values)}
    if how == MEASURED:
        result["device"] = options.device
    return result, drawn(figure, result, values)


def listing() -> str:
    def how(one: Figure) -> str:
        return f"{one.how}, {MEASURED}" if one.bench else one.how
    return "\n".join(columns([("figure", "how", "title"), *[(one.name, how(one), one.title) for one in FIGURES]]))


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench paper", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="PAPER-NUMBER, as --list has them; or all")
    parser.add_argument("--list", action="store_true", help="which figures there are")
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft", help="for figures that are measured")
    parser.add_argument("--measured", action="store_true", help="figures that are simulated, but can be measured, are")
    parser.add_argument("--rounds", type=_positive, default=9, help="passes of what is measured; their median counts")
    parser.add_argument("--schedules", type=_positive, default=1000, help="random schedules (kernelet-7)")
    parser.add_argument("--no-build", action="store_true", help="what simulates and records is built already")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of tables")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, tables and SVG charts go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of paper.json that an earlier run has written; measure nothing")
    return parser


def chosen(names: list[str]) -> list[Figure]:
    if names == ["all"]:
        return FIGURES
    if not names:
        raise Failure("which figure? tools/bench paper --list names them")
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise Failure(f"no figure {', '.join(unknown)} can be remade; tools/bench paper --list names those that can")
    return [NAMES[name] for name in names]


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.list:
        print(json.dumps([figure.name for figure in FIGURES]) if options.json else listing())
        return 0
    if options.stored:
        return charts.redraw(options.stored, options.out)
    figures = chosen(options.figures)
    results: list[dict] = []
    pictures: dict[str, charts.Chart] = {}
    with contextlib.redirect_stdout(sys.stderr):
        if not options.no_build and any(figure.how == SIMULATED for figure in figures):
            build.build(TOOL)
        if not options.no_build and any(figure.how == REPLAYED for figure in figures):
            setup.prepare(lab=False)
        for figure in figures:
            result, found = remake(figure, options)
            results.append(result)
            pictures |= found
    text = "\n\n".join(table(result) for result in results)
    charts.store(options.out, "paper", {"results": results}, text, pictures)
    print(json.dumps(results, indent=1) if options.json else text)
    return 0
