"""tools/bench sandbox: what the sandbox of sessions and runners costs.

Two vgpuds, one with `sandbox.mode` = "off" and one with "auto", each with a virtual GPU; the same programs run on both
in turns. A program's start is measured with a runner that is ready, and with none. Of each figure the median counts."""
import argparse
import contextlib
import functools
import json
import pathlib
import statistics
import subprocess
import sys
import time

from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines, reaches
from lab import host, setup
from lab.daemon import Daemon, only_one
from lab.shell import Failure, say, wait_until

MODES = ("off", "auto")
VGPU = "sandboxed"
WANTED = "<= 1.03"  # times as long
ROUNDS = {"soft": 15, "gpu": 11}
START, CALLS = "gpu/start", "gpu/latency"
FIRST_CALL = "program start to first completed call"
# Of the program's figures.
WHICH = {"issue of a launch": "issue of a call", "launch + device synchronize": "round trip"}


def _runners(daemon: Daemon) -> dict:
    live = daemon.control.need("GET", f"/v1/vgpus/{VGPU}")["live"] or {}
    return live.get("runners", {})


def _ready(daemon: Daemon) -> bool:
    runners = _runners(daemon)
    return runners.get("warm", 0) == 1 and runners.get("starting", 0) == 0


def _run(daemon: Daemon, program: pathlib.Path, argument: str) -> dict[str, float]:
    done = subprocess.run([program, argument], env=daemon.program_environment(VGPU), capture_output=True, text=True,
                          check=False, timeout=120)
    if done.returncode != 0:
        raise Failure(f"{program.name} ended with {done.returncode}: {done.stderr[-1000:]}\n{daemon.evidence()}")
    return {line["name"]: line["value"] for line in json_lines(done.stdout) if "value" in line}


def _first_call(daemon: Daemon, program: pathlib.Path) -> float:
    return _run(daemon, program, str(time.monotonic_ns()))[FIRST_CALL]


def _round(daemon: Daemon, start: pathlib.Path, calls: pathlib.Path, scale: str) -> dict[str, float]:
    wait_until(functools.partial(_ready, daemon), 60, "a runner that is ready")
    found = {"first call, a runner is ready, ms": _first_call(daemon, start)}
    found["first call, none is, ms"] = _first_call(daemon, start)  # the next one has only begun
    wait_until(functools.partial(_ready, daemon), 60, "a runner that is ready")
    values = _run(daemon, calls, scale)
    return found | {f"{WHICH[name]}, us": value for name, value in values.items() if name in WHICH}


def measure(device: str, rounds: int) -> list[dict]:
    start, calls = Figure(START).compile(), Figure(CALLS).compile()
    scale = "0.05" if device == "soft" else "1"
    runs: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    with contextlib.ExitStack() as stack:
        daemons = {}
        for mode in MODES:
            daemon = Daemon(device, name=f"sandbox-{mode}", tables={"sandbox": {"mode": mode}})
            stack.callback(daemon.end)
            daemon.create(VGPU, 40)
            daemons[mode] = daemon
        said = daemons["auto"].control.need("GET", f"/v1/vgpus/{VGPU}")["session"]["sandbox"]
        say(f"runners have {said['runners']}" + (f"; not {said['runners_lack']}" if said["runners_lack"] else ""))
        for number in range(rounds):
            say(f"round {number + 1} of {rounds}")
            for mode in MODES if number % 2 == 0 else reversed(MODES):
                runs[mode].append(_round(daemons[mode], start, calls, scale))
    rows = []
    for name in runs["off"][0]:
        off, auto = (statistics.median(run[name] for run in runs[mode]) for mode in MODES)
        rows.append({"figure": name, "off": off, "auto": auto, "ratio": auto / off})
    return rows


def table(rows: list[dict]) -> str:
    cells: list[tuple] = [("figure", "off", "auto", "ratio", "wanted")]
    for row in rows:
        verdict = "yes" if reaches(row["ratio"], WANTED) else "NO"
        cells.append((row["figure"], f"{row['off']:.3f}", f"{row['auto']:.3f}", f"{row['ratio']:.3f}",
                      f"{WANTED} {verdict}"))
    return "\n".join(columns(cells))


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench sandbox", description=__doc__)
    parser.add_argument("--device", choices=("soft", "gpu"), default="soft")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    device = "cuda:0" if options.device == "gpu" else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        rows = measure(device, options.rounds or ROUNDS[options.device])
    print(json.dumps(rows) if options.json else table(rows))
    return exit_status([f"{row['figure']} takes {row['ratio']:.3f} times as long, wanted {WANTED}" for row in rows
                        if not reaches(row["ratio"], WANTED)])
