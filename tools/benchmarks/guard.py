"""tools/bench guard: what guarding kernels costs, kernel by kernel, and what a wild access does to a neighbour.

The same kernels run on one virtual GPU with the guard off and on, in turns; of each the fastest launch counts. Then
programs do what kernels may not do on a guarded MPS virtual GPU, each once, while another one's program runs beside
them; it must not notice."""
import argparse
import contextlib
import json
import math
import sys
import time

from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines, reaches
from lab import host, setup
from lab.cuda_programs import Program
from lab.daemon import Daemon, only_one
from lab.paths import REPO
from lab.shell import Failure, say
from lab.started import Started

ONE, TWO = "guard-one", "guard-two"
SETTINGS = {"off": ("off", "off"), "guarded": ("on", "off"), "cleared": ("off", "on")}
WANTED = "<= 1.05"  # times as long, the geometric mean of the kernels
SCALE = {"soft": 1, "gpu": 64}
LAUNCHES = {"soft": 3, "gpu": 10}
DEEDS = {"store": 700, "far": 700, "load": 700, "atomic": 700, "block": 700, "shared": 700, "wait": 700,
         "misaligned": 716, "misaligned-wide": 716, "assert": 710, "call": 718, "trap": 719, "nothing": 0}


def setting(daemon: Daemon, name: str, guard: str, clear: str) -> None:
    host.vgpuctl("set", name, "--guard", guard, "--clear-shared", clear, variables=daemon.variables)
    time.sleep(0.5)  # until its session has heard of it: runners that wait are started anew


def one_run(daemon: Daemon, guard: str, clear: str, options) -> dict[str, dict]:
    setting(daemon, ONE, guard, clear)
    program = Started(Figure("guard").compile(), options.launches, SCALE[options.device],
                      variables=daemon.program_environment(ONE))
    status, output = program.finish(120)
    if status != 0:
        raise Failure(f"guard.cu with the guard {guard} ended with {status}: {output[-1500:]}\n{daemon.evidence()}")
    return {line["kernel"]: line for line in json_lines(output)}


def costs(daemon: Daemon, options) -> list[dict]:
    runs: dict[str, list] = {name: [] for name in SETTINGS}
    for number in range(options.rounds):
        say(f"kernels, round {number + 1} of {options.rounds}")
        for name, words in SETTINGS.items():
            runs[name].append(one_run(daemon, *words, options))
    rows = []
    for kernel in runs["off"][0]:
        best = {name: min(min(run[kernel]["ms"]) for run in of) for name, of in runs.items()}
        sums = {run[kernel]["sum"] for of in runs.values() for run in of}
        rows.append({"kernel": kernel, **best, "ratio": best["guarded"] / best["off"],
                     "cleared_ratio": best["cleared"] / best["off"], "same": len(sums) == 1})
    return rows


def mean(rows: list[dict], name: str) -> float:
    return math.exp(sum(math.log(row[name]) for row in rows) / len(rows))


def deeds(daemon: Daemon) -> list[str]:
    """What went wrong."""
    wrong = []
    for name in (ONE, TWO):
        setting(daemon, name, "on", "off")
    busy = Program(REPO / "tests/direct/busy.cu").compile()
    wild = Program(REPO / "tests/direct/wild.cu").compile()
    neighbour = Started(busy, 600, 16, variables=daemon.program_environment(TWO))
    neighbour.first_line("round")
    for deed, code in DEEDS.items():
        status, output = Started(wild, deed, variables=daemon.program_environment(ONE)).finish(30)
        said = output.strip().splitlines()[-1:] or [""]
        good = status == 0 and f"code {code}" in output and neighbour.poll() is None
        say(f"  {deed}: {said[0]}, the neighbour {'goes on' if neighbour.poll() is None else 'has ended'}")
        if not good:
            wrong.append(f"{deed}: {status} {output[-300:]}")
        if neighbour.poll() is not None:
            return [*wrong, f"the neighbour ended: {neighbour.finish()}", daemon.evidence()]
    neighbour.kill()
    neighbour.wait()
    return wrong


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("kernel", "ms", "guarded", "ratio", "cleared", "ratio", "same result")]
    for row in rows:
        lines.append((row["kernel"], f"{row['off']:.4f}", f"{row['guarded']:.4f}", f"{row['ratio']:.3f}",
                      f"{row['cleared']:.4f}", f"{row['cleared_ratio']:.3f}", "yes" if row["same"] else "NO"))
    lines.append(("geometric mean", "", "", f"{mean(rows, 'ratio'):.3f}", "", f"{mean(rows, 'cleared_ratio'):.3f}", ""))
    return "\n".join(columns(lines))


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench guard", description=__doc__)
    parser.add_argument("--device", choices=list(SCALE), default="soft")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--launches", type=int, help="of each kernel in a round")
    parser.add_argument("--only", choices=["cost", "deeds"], help="one of the two parts")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    options.launches = options.launches or LAUNCHES[options.device]
    device = "cuda:0" if options.device == "gpu" else "soft"
    rows, wrong = [], []
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        daemon = Daemon(device, name="guard-bench")
        try:
            words = ("--sharing", "mps", "--group", "bench") if options.device == "gpu" else ()
            for name in (ONE, TWO):
                daemon.create(name, 40, *words, memory="8G" if options.device == "gpu" else "256M")
            daemon.await_mps()
            if options.only != "deeds":
                rows = costs(daemon, options)
            if options.only != "cost":
                wrong = deeds(daemon)
        finally:
            daemon.end()
    if options.json:
        print(json.dumps({"device": device, "kernels": rows, "wrong": wrong}, indent=1))
    elif rows:
        print(table(rows))
    wrong += [f"{row['kernel']} computes something else" for row in rows if not row["same"]]
    if rows and options.device == "gpu" and not reaches(mean(rows, "ratio"), WANTED):
        wrong.append(f"guarded kernels take {mean(rows, 'ratio'):.3f} times as long, wanted {WANTED}")
    return exit_status(wrong)
