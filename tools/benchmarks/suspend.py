"""tools/bench suspend: how long a virtual GPU takes to leave its device and to come back, by what it holds.

A program in direct mode fills so much device memory and goes on with short steps in it. Each round suspends and
resumes it twice: by vgpuctl, as a person does, and by vgpud's API, over a connection that is there. Medians of the
rounds count. What the program has in memory is checked at the end."""
import argparse
import contextlib
import json
import pathlib
import statistics
import sys
import time
import typing

from benchmarks import charts, gpu_memory, idle
from benchmarks.asked import Asked
from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, reaches
from lab import host, setup
from lab.daemon import Daemon, only_one
from lab.shell import Failure, say
from lab.started import Started

SIZES_MIB = {"soft": (16, 64), "gpu": (64, 1024, 8192)}
NAME = "sleeper"
BESIDE_MIB = {"soft": 64, "gpu": 4096}  # of the memory share: a context and what the driver adds
# What a person waits for, at the largest size on a GPU.
WANTED_MS, WANTED_MIB = "<= 500", 8192
AWAY_S = 0.1  # suspended for so long: no other step takes as long as the one in between
ANSWER_S = 120
TIMES = ("suspend_ms", "suspend_api_ms", "resume_ms", "resume_api_ms", "step_ms")
# Of those by the API, in the session: moving memory, and NVIDIA's driver's checkpoint of the process.
STEPS = {"out_ms": ("leave_us", "memory"), "checkpoint_ms": ("leave_us", "driver"),
         "in_ms": ("return_us", "memory"), "restore_ms": ("return_us", "driver")}


class Sleeper(Asked):
    """The program, and the virtual GPU that it alone uses."""

    def __init__(self, daemon: Daemon, mib: int):
        self.daemon = daemon
        program = Started(Figure("suspended").compile(), mib, variables=daemon.program_environment(NAME))
        super().__init__(program, "the program", ANSWER_S)
        program.first_line("ready")

    def steps(self) -> dict[str, dict[str, int]]:
        """What each step of its last suspension and return took."""
        said = self.daemon.control.need("GET", f"/v1/vgpus/{NAME}")["live"]["suspension"]
        return {name: said[name] for name in ("leave_us", "return_us")}

    def on_device(self) -> int:
        live = self.daemon.control.need("GET", f"/v1/vgpus/{NAME}")["live"]
        return live["memory_used"] - live["memory_swapped"]


def timed_ms(call: typing.Callable[[], object]) -> float:
    begin = time.monotonic()
    call()
    return 1000 * (time.monotonic() - begin)


def once(sleeper: Sleeper, change: typing.Callable[[str], object], device: str) -> dict:
    """Away and back; `step_ms` is from the question for its return to the end of the program's next step."""
    sleeper.ask("longest")
    before, used = sleeper.on_device(), gpu_memory.used(device)
    away = timed_ms(lambda: change("suspend"))
    freed, less = before - sleeper.on_device(), gpu_memory.used(device)
    time.sleep(AWAY_S)
    asked = time.monotonic_ns()
    back = timed_ms(lambda: change("resume"))
    step = sleeper.ask("longest")
    if not step["began_ns"] < asked < step["ended_ns"]:
        raise Failure(f"the program went on while it was suspended: its longest step was {step}, and its return was "
                      f"asked for at {asked}")
    return {"suspend_ms": away, "resume_ms": back, "step_ms": (step["ended_ns"] - asked) / 1e6, "freed": freed,
            **sleeper.steps(), "gpu_freed": None if used is None or less is None else used - less}


def one_round(sleeper: Sleeper, device: str) -> dict:
    daemon = sleeper.daemon
    typed = once(sleeper, lambda word: host.vgpuctl(word, NAME, variables=daemon.variables), device)
    by_api = once(sleeper, lambda word: daemon.control.need("POST", f"/v1/vgpus/{NAME}/{word}"), device)
    return {**typed, "suspend_api_ms": by_api["suspend_ms"], "resume_api_ms": by_api["resume_ms"],
            "leave_us": by_api["leave_us"], "return_us": by_api["return_us"]}


def one_size(daemon: Daemon, mib: int, device: str, options) -> dict:
    daemon.create(NAME, 50, memory=f"{mib + BESIDE_MIB[options.device]}M")
    sleeper = Sleeper(daemon, mib)
    try:
        rounds = []
        for number in range(options.rounds):
            say(f"{mib} MiB, round {number + 1} of {options.rounds}")
            rounds.append(one_round(sleeper, device))
        wrong = sleeper.end()
    finally:
        sleeper.kill()
        daemon.destroy(NAME)
    gpu_freed = [one["gpu_freed"] for one in rounds if one["gpu_freed"] is not None]
    return {"bytes": mib << 20, **{name: statistics.median(one[name] for one in rounds) for name in TIMES},
            **{name: statistics.median(one[way][step] for one in rounds) / 1000 for name, (way, step) in STEPS.items()},
            "freed": min(one["freed"] for one in rounds), "gpu_freed": min(gpu_freed, default=None), "wrong": wrong,
            "rounds": rounds}


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("MiB", "suspend ms", "by the API", "resume ms", "by the API", "to the next step ms",
                           "memory out", "driver", "memory in", "driver", "MiB freed", "of the GPU", "wrong")]
    for row in rows:
        gpu = "" if row["gpu_freed"] is None else row["gpu_freed"] >> 20
        lines.append((row["bytes"] >> 20, *[f"{row[name]:.1f}" for name in (*TIMES, *STEPS)], row["freed"] >> 20, gpu,
                      row["wrong"]))
    return "\n".join(columns(lines))


def drawn(rows: list[dict], device: str) -> dict[str, charts.Chart]:
    names = {"suspend": "suspend_ms", "resume": "resume_ms", "from resume to the next step": "step_ms"}
    series = [charts.Series(title, [(row["bytes"], row[name]) for row in rows]) for title, name in names.items()]
    return {"suspend-times": charts.Lines(f"Suspending and resuming a virtual GPU ({device})",
                                          charts.Axis("device memory", logarithmic=True, base=2, bytes=True),
                                          charts.Axis("milliseconds", low=0), series)}


def missed(rows: list[dict], device: str) -> list[str]:
    short = []
    for row in rows:
        mib = row["bytes"] >> 20
        if row["wrong"]:
            short.append(f"{mib} MiB: {row['wrong']} words are wrong")
        if row["freed"] < row["bytes"]:
            short.append(f"{mib} MiB: {row['freed'] >> 20} MiB were freed")
        for what in ("suspend", "resume") if device != "soft" and mib == WANTED_MIB else ():
            if not reaches(row[f"{what}_ms"], WANTED_MS):
                short.append(f"{what} takes {row[f'{what}_ms']:.0f} ms at {mib} MiB, wanted {WANTED_MS}")
    return short


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench suspend", description=__doc__)
    parser.add_argument("--device", choices=list(SIZES_MIB), default="soft")
    usual = "; ".join(f"{','.join(map(str, sizes))} on {name}" for name, sizes in SIZES_MIB.items())
    parser.add_argument("--sizes", type=lambda text: [int(word) for word in text.split(",")],
                        help=f"MiB, with commas (default: {usual})")
    parser.add_argument("--idle", type=int, metavar="N", help="instead: what N virtual GPUs that are asleep hold "
                        "together, and how long the first call of one takes (of interest: 64)")
    parser.add_argument("--rounds", type=int, default=5, help="of each size")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and an SVG chart go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the chart of suspend.json that an earlier run has written; measure nothing")
    return parser


def run_idle(device: str, options: argparse.Namespace) -> int:
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        row = idle.measure(device, options.idle, options.device)
    text = json.dumps({"device": device, **row}, indent=1)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "idle.json").write_text(text + "\n")
        (options.out / "idle.txt").write_text(idle.table(row) + "\n")
    print(text if options.json else idle.table(row))
    return exit_status(idle.missed(row, device))


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    device = "cuda:0" if options.device == "gpu" else "soft"
    if options.idle:
        return run_idle(device, options)
    sizes = options.sizes or SIZES_MIB[options.device]
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        tables = {"swap": {"memory": f"{max(sizes) + BESIDE_MIB[options.device]}M"}}
        daemon = Daemon(device, "band+", name="suspend-bench", tables=tables)
        try:
            rows = [one_size(daemon, mib, device, options) for mib in sizes]
        finally:
            daemon.end()
    text, result = table(rows), {"device": device, "results": rows}
    charts.store(options.out, "suspend", result, text, drawn(rows, device))
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status(missed(rows, device))
