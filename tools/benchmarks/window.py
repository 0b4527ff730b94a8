"""tools/bench window: small copies through host memory that the GPU maps, against its copy engine.

After Gdev's figure 4: from what size on a copy by the engine is the faster one, for each direction. The window is
pinned host memory that a kernel reads or writes; `driver` is a copy of pageable memory, of which the driver makes what
it likes. On the GPU the bare driver comes first, then Bandsaw. Data are checked."""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys

from benchmarks import charts
from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines
from lab import host, setup
from lab.daemon import Daemon, only_one
from lab.guest_run import native_environment
from lab.shell import Failure, say

ENGINE, DRIVER, WINDOW = WAYS = ("engine", "driver", "window")
NATIVE, BANDSAW = "native", "bandsaw"
SIZES = (64, 256, 1024, 4096, 16384, 65536)
NAME = "window"
SECONDS = 40  # of one side


def one_side(side: str, variables: dict[str, str], options) -> list[dict]:
    say(f"small copies: {side}, {', '.join(map(str, options.sizes))} bytes")
    program = Figure("window").compile()
    done = subprocess.run([program, str(options.runs), *map(str, options.sizes)], env=variables, capture_output=True,
                          text=True, check=False, timeout=SECONDS)
    if done.returncode != 0:
        raise Failure(f"{side}: {program} ended with {done.returncode}: {done.stderr[-1000:]}")
    return [{"side": side, **row} for row in json_lines(done.stdout)]


def speeds(rows: list[dict]) -> list[dict]:
    """How many times as fast each is as the copy engine."""
    engine = {(row["side"], row["direction"], row["bytes"]): row["us"] for row in rows if row["way"] == ENGINE}
    return [{**row, "speed": engine[row["side"], row["direction"], row["bytes"]] / row["us"]} for row in rows]


def thresholds(rows: list[dict]) -> list[dict]:
    """The largest size up to which the window is as fast as the engine at each; 0: at none."""
    found = []
    for side, direction in dict.fromkeys((row["side"], row["direction"]) for row in rows):
        largest = 0
        for row in sorted((row for row in rows if (row["side"], row["direction"], row["way"])
                           == (side, direction, WINDOW)), key=lambda row: row["bytes"]):
            if row["speed"] < 1:
                break
            largest = row["bytes"]
        found.append({"side": side, "direction": direction, "threshold": largest})
    return found


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("side", "direction", "bytes", *(f"{way} us" for way in WAYS), "window, of engine",
                           "driver, of engine")]
    by_way = {(row["side"], row["direction"], row["bytes"], row["way"]): row for row in rows}
    for side, direction, size in dict.fromkeys((row["side"], row["direction"], row["bytes"]) for row in rows):
        each = [by_way[side, direction, size, way] for way in WAYS]
        lines.append((side, direction, size, *(f"{row['us']:.1f}" for row in each),
                      *(f"{by_way[side, direction, size, way]['speed']:.2f}" for way in (WINDOW, DRIVER))))
    more = [("side", "direction", "window is as fast up to, bytes")]
    more += [(one["side"], one["direction"], one["threshold"]) for one in thresholds(rows)]
    return "\n".join([*columns(lines), "", *columns(more)])


def drawn(rows: list[dict], device: str) -> dict[str, charts.Chart]:
    series = []
    for side, direction in dict.fromkeys((row["side"], row["direction"]) for row in rows):
        series.append(charts.Series(f"{side}, {direction}", [
            (row["bytes"], row["speed"]) for row in rows
            if (row["side"], row["direction"], row["way"]) == (side, direction, WINDOW)]))
    return {"window": charts.Lines(
        f"Small copies through a window, of the copy engine's speed ({device})",
        charts.Axis("bytes", logarithmic=True, base=2, bytes=True), charts.Axis("times", low=0), series)}


def missed(rows: list[dict]) -> list[str]:
    return [f"{row['side']}, {row['direction']}, {row['way']}, {row['bytes']} bytes: {row['wrong']} are wrong"
            for row in rows if row["wrong"]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench window", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")], default=list(SIZES),
                        help="bytes, multiples of 16, with commas")
    parser.add_argument("--runs", type=int, default=201, help="copies of each size; their median counts")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of window.json that an earlier run has written; measure nothing")
    return parser


def measure(device: str, options) -> list[dict]:
    rows: list[dict] = []
    if options.device == "gpu":
        rows += one_side(NATIVE, native_environment(), options)
    daemon = Daemon(device, "none" if device == "soft" else "band+", name="window")
    try:
        daemon.create(NAME, 100)
        rows += one_side(BANDSAW, daemon.program_environment(NAME), options)
    finally:
        daemon.end()
    return speeds(rows)


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    device = "cuda:0" if options.device == "gpu" else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        if not options.no_build:
            setup.prepare_for(device)
        rows = measure(device, options)
    text, result = table(rows), {"device": device, "results": rows, "thresholds": thresholds(rows)}
    charts.store(options.out, "window", result, text, drawn(rows, device))
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status(missed(rows))
