"""tools/bench segments: a dataflow of two virtual GPUs through a shared segment, against copies through the host.

After Gdev's figure 11: one program makes an array on its virtual GPU, another uses it on its own. The array stays where
it is (segment), goes through host memory that both have pinned (memory), or through a Unix socket between the programs
(socket), as it would between two machines that share no memory. Results are checked."""
import argparse
import contextlib
import json
import pathlib
import sys
import tempfile

from benchmarks import charts
from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines, reaches
from lab import host, setup
from lab.daemon import Daemon, only_one
from lab.paths import REPO
from lab.shell import Failure, say
from lab.started import Started

SEGMENT, MEMORY, SOCKET = WAYS = ("segment", "memory", "socket")
SIZES_MIB = (1, 4, 16, 64, 256)
PRODUCER, CONSUMER, NAME = "producer", "consumer", "dataflow"
# Of the hand-over through host memory against that through the segment, at the largest size on a GPU.
WANTED, WANTED_MIB = ">= 20", 256
SECONDS = 300
SHARED_SEGMENTS = REPO / "guest-driver/libcuda/api/bandsaw_shm.h"


def one_way(way: str, daemon: Daemon, options) -> list[dict]:
    """What the producer says of each size."""
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile(dir="/dev/shm") as shared:
        sizes = [mib << 20 for mib in options.sizes]
        shared.truncate(max(sizes) if way == MEMORY else 0)
        words = [f"{folder}/socket", way, shared.name if way == MEMORY else NAME, options.rounds, *sizes]
        program = Figure("dataflow", (SHARED_SEGMENTS,)).compile()
        started = [Started(program, role, *words, variables=daemon.program_environment(role))
                   for role in (CONSUMER, PRODUCER)]
        said = {}
        for role, process in reversed(list(zip((CONSUMER, PRODUCER), started))):
            status, said[role] = process.finish(SECONDS)
            if status != 0:
                for other in started:
                    other.kill()
                raise Failure(f"{way}: the {role} ended with {status}: {said[role][-2000:]}")
    return json_lines(said[PRODUCER])


def measure(daemon: Daemon, options) -> list[dict]:
    rows = []
    for way in options.ways:
        say(f"a dataflow by {way}: {', '.join(f'{mib} MiB' for mib in options.sizes)}")
        rows += one_way(way, daemon, options)
    return rows


def ratios(rows: list[dict]) -> list[dict]:
    """How many times as long each takes as by the segment."""
    segment = {row["bytes"]: row for row in rows if row["way"] == SEGMENT}
    made = []
    for row in rows:
        base = segment.get(row["bytes"])
        times = {f"{what}_times": row[f"{what}_us"] / base[f"{what}_us"] if base else None
                 for what in ("hand_over", "whole")}
        made.append({**row, **times})
    return made


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("way", "MiB", "hand-over us", "times", "whole pass us", "times", "wrong")]
    for row in rows:
        times = [f"{value:.1f}" if value is not None else "" for value in (row["hand_over_times"], row["whole_times"])]
        lines.append((row["way"], row["bytes"] >> 20, f"{row['hand_over_us']:.0f}", times[0], f"{row['whole_us']:.0f}",
                      times[1], row["wrong"]))
    return "\n".join(columns(lines))


def drawn(rows: list[dict], device: str) -> dict[str, charts.Chart]:
    made: dict[str, charts.Chart] = {}
    titles = {"hand_over": "from one program's kernel to the other's", "whole": "both kernels and what is between them"}
    for what, title in titles.items():
        series = [charts.Series(way, [(row["bytes"], row[f"{what}_us"]) for row in rows if row["way"] == way])
                  for way in WAYS]
        made[f"segments-{what.replace('_', '-')}"] = charts.Lines(
            f"A dataflow of two virtual GPUs: {title} ({device})",
            charts.Axis("size of the array", logarithmic=True, base=2, bytes=True),
            charts.Axis("microseconds", logarithmic=True), [one for one in series if one.points])
    return made


def missed(rows: list[dict], device: str) -> list[str]:
    short = [f"{row['way']}, {row['bytes']} bytes: {row['wrong']} words are wrong" for row in rows if row["wrong"]]
    for row in rows:
        if device == "soft" or row["way"] != MEMORY or row["bytes"] != WANTED_MIB << 20 or not row["hand_over_times"]:
            continue
        if not reaches(row["hand_over_times"], WANTED):
            short.append(f"copies through host memory take {row['hand_over_times']:.1f} times as long as the segment "
                         f"at {WANTED_MIB} MiB, wanted {WANTED}")
    return short


def create(daemon: Daemon, options) -> None:
    largest = max(options.sizes)
    for name in (PRODUCER, CONSUMER):
        memory = 2 * largest + (4096 if options.device == "gpu" else 64)
        daemon.create(name, 50, memory=f"{memory}M")
    host.vgpuctl("segment", "create", NAME, "--vgpu", PRODUCER, "--size", f"{largest}M", variables=daemon.variables)
    host.vgpuctl("segment", "grant", NAME, CONSUMER, "--write", variables=daemon.variables)


def _parser() -> argparse.ArgumentParser:
    def some(kind):
        return lambda text: [kind(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(prog="tools/bench segments", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--sizes", type=some(int), default=list(SIZES_MIB), help="MiB, with commas")
    parser.add_argument("--ways", type=some(str), default=list(WAYS), help=f"of {','.join(WAYS)}")
    parser.add_argument("--rounds", type=int, default=9, help="passes of each size; their median counts")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of segments.json that an earlier run has written; measure nothing")
    return parser


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    device = "cuda:0" if options.device == "gpu" else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        daemon = Daemon(device, "none" if device == "soft" else "band+", name="dataflow")
        try:
            create(daemon, options)
            rows = ratios(measure(daemon, options))
        finally:
            daemon.end()
    text, result = table(rows), {"device": device, "results": rows}
    charts.store(options.out, "segments", result, text, drawn(rows, device))
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status(missed(rows, device))
