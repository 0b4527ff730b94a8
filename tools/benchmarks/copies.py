"""tools/bench copies: how long a copy of 64 KiB takes beside another tenant's long copies, and what long copies reach.

Two tenants that are always there, each alone and both together, on the GPU's own driver and on Bandsaw in turns. The
long copies and the short ones are of pinned memory and in one direction. --device soft measures Bandsaw alone."""
import argparse
import contextlib
import json
import pathlib
import statistics
import sys

from benchmarks.results import columns, exit_status, reaches
from lab import host, setup
from lab.cuda_programs import Program
from lab.daemon import Daemon, only_one
from lab.guest_run import native_environment
from lab.paths import REPO
from lab.shell import Failure, say
from lab.started import Started

SHORT_KIB = 64
PAUSE_US = 1000  # after each short copy: it comes at any moment of the long ones
LONG, SHORT = "long", "short"
NATIVE, BANDSAW = "native", "bandsaw"
# Long copies alone against native; the p99 of short ones beside them: a piece, and what is in flight.
ALONE_WANTED, P99_WANTED_MS = ">= 0.99", "<= 6"


class Copier(Program):
    def __init__(self):
        super().__init__(REPO / "tools/benchmarks/tenants/copies/copier.cu")
        self.facts.setdefault("nvcc", []).append("-O3")

    def binary(self) -> pathlib.Path:
        return self.binary_of("copies", [REPO / "tools/benchmarks/programs/measure.h"])


def together(names: tuple[str, ...], environments: dict[str, dict], way: str, options) -> dict[str, dict]:
    """What each of them says of its copies, when all have begun at once."""
    sizes = {LONG: options.long_mib << 10, SHORT: SHORT_KIB}
    started = {name: Started(Copier().compile(), way, sizes[name], options.seconds, PAUSE_US if name == SHORT else 0,
                             variables=environments[name]) for name in names}
    for process in started.values():
        process.first_line("ready")
    for process in started.values():
        process.say()
    said = {}
    for name, process in started.items():
        status, output = process.finish(options.seconds + 120)
        if status != 0:
            raise Failure(f"the {name} copies: {status}: {output}")
        said[name] = json.loads(output.splitlines()[-1])
    return said


def one_round(environments: dict[str, dict], way: str, options) -> dict[str, float]:
    alone = {name: together((name,), environments, way, options)[name] for name in (LONG, SHORT)}
    beside = together((LONG, SHORT), environments, way, options)
    return {"long_alone_gb_per_s": alone[LONG]["gb_per_s"], "short_alone_p50_us": alone[SHORT]["p50_us"],
            "short_alone_p99_us": alone[SHORT]["p99_us"], "long_beside_gb_per_s": beside[LONG]["gb_per_s"],
            "short_beside_p50_us": beside[SHORT]["p50_us"], "short_beside_p99_us": beside[SHORT]["p99_us"]}


def measure(daemon: Daemon, sides: dict[str, dict], options) -> list[dict]:
    rows = []
    for way in options.ways.split(","):
        found: dict[str, list[dict]] = {side: [] for side in sides}
        for number in range(options.rounds):
            for side, environments in sides.items():
                say(f"copies {way}, round {number + 1} of {options.rounds}: {side}")
                found[side].append(one_round(environments, way, options))
        for side, rounds in found.items():
            rows.append({"way": way, "side": side,
                         **{key: statistics.median(each[key] for each in rounds) for key in rounds[0]}})
    return rows


def missed(rows: list[dict]) -> list[str]:
    short = []
    native = {row["way"]: row for row in rows if row["side"] == NATIVE}
    for row in rows:
        if row["side"] != BANDSAW or row["way"] not in native:
            continue
        ratio = row["long_alone_gb_per_s"] / native[row["way"]]["long_alone_gb_per_s"]
        if not reaches(ratio, ALONE_WANTED):
            short.append(f"long copies {row['way']} alone reach {ratio:.3f} of native, wanted {ALONE_WANTED}")
        if not reaches(row["short_beside_p99_us"] / 1000, P99_WANTED_MS):
            short.append(f"short copies {row['way']} beside long ones have a p99 of "
                         f"{row['short_beside_p99_us'] / 1000:.2f} ms, wanted {P99_WANTED_MS}")
    return short


def _create(daemon: Daemon, options) -> None:
    daemon.create(SHORT, 50)
    memory = max(192, 2 * options.long_mib + (2048 if options.device == "gpu" else 64))
    host.vgpuctl("create", LONG, "--memory", f"{memory}M", "--compute", "50", "--copy", "50",
                 variables=daemon.variables)


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench copies", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--long-mib", type=int, help="of a long copy (default: 8192; 64 on the software device)")
    parser.add_argument("--seconds", type=float, default=5, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="in,out", help="of in, out, inside")
    parser.add_argument("--policy", default="band+")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    device = "cuda:0" if options.device == "gpu" else "soft"
    options.long_mib = options.long_mib or (8192 if options.device == "gpu" else 64)
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        daemon = Daemon(device, options.policy, name="copies")
        try:
            _create(daemon, options)
            sides = {BANDSAW: {name: daemon.program_environment(name) for name in (LONG, SHORT)}}
            if options.device == "gpu":
                sides = {NATIVE: {name: native_environment() for name in (LONG, SHORT)}} | sides
            rows = measure(daemon, sides, options)
        finally:
            daemon.end()
    if options.json:
        print(json.dumps({"device": device, "long_mib": options.long_mib, "results": rows}, indent=1))
    else:
        head = tuple(rows[0])
        print("\n".join(columns([head, *[tuple(f"{v:.4g}" if isinstance(v, float) else v for v in row.values())
                                         for row in rows]])))
    return exit_status(missed(rows))
