"""tools/bench preemption: SMs taken from a kernel that runs, by technique (Chimera's figures 4.5 to 4.8).

One tenant has launches of a long kernel queued. Another launches a task now and then that fills half of the SMs, and
waits for it: a request. Requests come so seldom that each has to take the SMs anew. A request misses a bound if its
task ends later than it does alone on so many SMs by more than that. Techniques: the hardware's time slices (switch),
persistent blocks that end what they run (drain) or drop it (flush), and Chimera's choice of these two for each block
against a bound; if asked for, flushing of kernels only that are idempotent as a whole (strict)."""
import argparse
import dataclasses
import itertools
import math
import re
import statistics

from benchmarks import mps_measure, mps_waves
from benchmarks.mps_cases import KERNELS, percentile
from benchmarks.mps_measure import Setting
from benchmarks.mps_run import calibrate, check, soon
from benchmarks.results import columns
from lab.daemon import BenchDaemon
from lab.shell import say

VICTIMS = ["TEA", "MM", "PC", "SPMV"]
TECHNIQUES = ["switch", "drain", "flush", "chimera", "strict"]
IF_ASKED = ["strict"]
BOUNDS_US = (5, 10, 15, 20, 100, 1000, 4000)
EVERY_US = 60_000    # between requests, half to one and a half times; SMs that were taken are kept for 4 ms
QUIET_SECONDS, QUIET_EVERY_US = 0.3, 2000
SETTLE_SECONDS = 0.8
TASK_US = 50         # of one block of the task on each SM; with all SMs' room filled it takes longer

_STEPS = [("see_us", "seen in"), ("choose_us", "chosen in"), ("tell_us", "told in")]  # of a request


@dataclasses.dataclass
class Way:
    name: str
    sharing: str = "mps"
    slices: str = "persistent"
    cut: dict = dataclasses.field(default_factory=dict)


def ways_of(techniques: list[str], bounds: list[int]) -> list[Way]:
    chimera = [Way("chimera" if bound == 15 else f"chimera at {bound} us", cut={"take_us": bound, "drop_us": bound})
               for bound in bounds]
    all_ways = [Way("switch", "time-sliced", ""), Way("drain", cut={"take_us": 15}),
                Way("flush", cut={"take_us": 0, "drop_us": 0}), *chimera,
                Way("strict", cut={"take_us": 0, "drop_us": 0, "drop_strict": True})]
    return [way for way in all_ways if way.name.split(" ")[0] in techniques]


def _told(log: str) -> tuple[int, int, int]:
    """Single SMs that were left; and of the blocks there, and of all where all stopped, those that ended what they ran,
    and those that dropped it. By the session's log."""
    found = re.findall(r"leaves (\d+) SMs, \d+ later than \d+ us; (\d+) blocks end what they run, (\d+) drop it", log)
    left, drained, dropped = (sum(int(each[i]) for each in found) for i in range(3))
    for gone, all_blocks in re.findall(r"(\d+) of (\d+) persistent blocks dropped theirs", log):
        drained, dropped = drained + int(all_blocks) - int(gone), dropped + int(gone)
    return left, drained, dropped


def _steps(log: str, requests_us: list[float]) -> dict[str, float]:
    """How long after a request the runner saw that SMs are wanted, and then took to see where blocks are and to choose,
    and to tell them: medians."""
    looks = [int(at) for at in re.findall(r"seen at (\d+) us", log)]
    firsts = [min((at - asked for at in looks if asked <= at < following), default=None)
              for asked, following in itertools.pairwise([*requests_us, math.inf])]
    found: dict[str, list[float]] = {
        "see_us": [first for first in firsts if first is not None],
        "choose_us": [int(each) for each in re.findall(r"chosen within (\d+) us", log)],
        "tell_us": [int(each) for each in re.findall(r"told (\d+) us later", log)]}
    return {name: statistics.median(times) for name, times in found.items() if times}


def _beside(daemon: BenchDaemon, setting: Setting, way: Way, victim: str, seconds: float) -> dict:
    short = setting.kernels["short"]
    kernels = [setting.kernels[victim], short, {**short, "blocks": 2 * short["blocks"]}]
    with mps_measure.ready_tenants(daemon, setting.log_words, way.sharing, kernels) as (long, task, on_all):
        on_all.start("short", soon(), QUIET_SECONDS, QUIET_EVERY_US)  # as long as the half on half of the SMs
        quiet = statistics.median(mps_measure.took_us(on_all, 60))
        begin = soon()
        settled = begin + int(SETTLE_SECONDS * 1e9)
        beside = settled + int(SETTLE_SECONDS * 1e9)
        long.start("backlog", begin, 2 * SETTLE_SECONDS + seconds, 2)
        task.start("short", beside, seconds, EVERY_US)
        most = 60 + 20 * seconds
        requests = task.instances(most)
        waits = [max(0.0, (end - begin) / 1000 - quiet) for begin, _, end in requests]
        launches = long.instances(most)
        check([long, task])
        log = daemon.session_log(long.vgpu).read_text(errors="replace")
    steps = _steps(log, [begin / 1000 for begin, _, _ in requests])
    left, drained, dropped = _told(log)
    alone = mps_measure.rate(launches, settled, beside)
    both = mps_measure.rate(launches, beside, beside + int(seconds * 1e9))
    return {"way": way.name, "victim": victim, "requests": len(waits), "quiet_us": quiet,
            "wait_p50_us": percentile(waits, 0.5), "wait_p99_us": percentile(waits, 0.99), "lost": 1 - both / alone,
            "missed": {f"{bound} us": sum(wait > bound for wait in waits) for bound in BOUNDS_US},
            "sms_left": left, "drained": drained, "dropped": dropped, **steps}


def measure(options, setting: Setting) -> list[dict]:
    rows = []
    for way in ways_of(options.techniques, options.bounds):
        say(f"SMs taken: {way.name}")
        daemon = BenchDaemon(setting.device, mps_measure.POLICY, way.slices,
                             "mps" if way.sharing == "time-sliced" else "kernelet", cut=way.cut, log="debug")
        try:
            if "short" not in setting.kernels:
                setting.kernels["short"] = _task(daemon, setting)
            for victim in options.victims:
                rows.append(_beside(daemon, setting, way, victim, options.seconds))
                say(f"  {victim:5} {_said(rows[-1])}")
        finally:
            daemon.end()
    return rows


def _said(row: dict) -> str:
    steps = [f", {name} {row[step]:.0f} us" for step, name in _STEPS if step in row]
    return f"waits {row['wait_p50_us']:8.0f} us (p50){''.join(steps)}; loses {100 * row['lost']:.1f} %"


def _task(daemon: BenchDaemon, setting: Setting) -> dict:
    """As many blocks as fill half of the SMs."""
    found = calibrate(daemon, ["short"], {"log_words": setting.log_words, "short_us": TASK_US})["short"]
    return {**found, "blocks": max(1, found["sms"] // 2) * found["resident"]}


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("way", "victim", "requests", "wait p50", "p99", *(f"> {bound} us" for bound in BOUNDS_US),
                           "lost", *(said for _, said in _STEPS), "SMs left", "blocks that end", "that drop")]
    for row in rows:
        lines.append((row["way"], row["victim"], row["requests"], f"{row['wait_p50_us']:.0f} us",
                      f"{row['wait_p99_us']:.0f} us", *row["missed"].values(), f"{100 * row['lost']:.1f} %",
                      *(f"{row[step]:.0f} us" if step in row else "" for step, _ in _STEPS),
                      row["sms_left"], row["drained"], row["dropped"]))
    return "\n".join(columns(lines))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench preemption", description=__doc__)
    parser.add_argument("--victims", default=",".join(VICTIMS), help=f"of {','.join(KERNELS)}")
    parser.add_argument("--techniques", default=",".join(one for one in TECHNIQUES if one not in IF_ASKED),
                        help=f"of {','.join(TECHNIQUES)}")
    parser.add_argument("--bounds", default="15", help="of Chimera's choice, in us")
    mps_waves.add_options(parser, 2.2, "of requests to each victim")
    options = parser.parse_args(arguments)
    options.victims, options.techniques = options.victims.split(","), options.techniques.split(",")
    options.bounds = [int(bound) for bound in options.bounds.split(",")]
    if unknown := sorted(set(options.techniques) - set(TECHNIQUES)):
        parser.error(f"no technique {', '.join(unknown)}; there are {', '.join(TECHNIQUES)}")
    if unknown := sorted(set(options.victims) - set(KERNELS)):
        parser.error(f"no kernel {', '.join(unknown)}; there are {', '.join(KERNELS)}")
    return options


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    return mps_waves.run("preemption", options, options.victims, measure, table)
