"""tools/bench slices: whether kernels that are cut into slices do the same, and what cutting costs.

--check runs every test program whole and through slices of several sizes, from the first launch on, and holds the outputs
against each other. The overhead is that of long kernels at the slice sizes that the runner finds by itself, against the
same kernels whole."""
import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import statistics
import subprocess
import sys

from lab import cuda_programs, host, setup
from lab.bench_shares_run import only_one
from lab.bench_slices_run import COUNTERS, Outcome, Setting, SlicingDaemon
from lab.cuda_programs import Program
from lab.paths import REPO
from lab.shell import Failure, say

SIZES = (1, 3, 16)
FORMS = ("slice", "persistent")
LAUNCHES = 24  # of each kernel: the runner measures a few, then looks for a size
LAST = 8       # of these the fastest counts


def chosen_programs(device: str, only: str = "") -> list[Program]:
    on_gpu = device != "soft"
    found = [program for program in cuda_programs.programs() if only in program.name
             and (program.on_gpu if on_gpu else program.on_soft)]
    cuda_programs.compile_all(found)
    return found


CLOCK = {"streams", "events"}  # a busy machine may make them late: they get a second chance


def _alone(program: Program) -> bool:
    """Some take all memory there is, or look at the clock."""
    return "memory" in program.name or program.name in CLOCK


def _run_alone(daemon: SlicingDaemon, program: Program) -> Outcome:
    outcome = daemon.run(program)
    return daemon.run(program) if outcome.wrong and program.name in CLOCK else outcome


WORKERS = 8  # programs at once, if there are as many cores


def run_all(daemon: SlicingDaemon, programs: list[Program]) -> dict[str, Outcome]:
    with concurrent.futures.ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        outcomes = list(pool.map(daemon.run, [program for program in programs if not _alone(program)]))
    outcomes += [_run_alone(daemon, program) for program in programs if _alone(program)]
    return {outcome.program: outcome for outcome in outcomes}


def _same(whole: Outcome, cut: Outcome, again) -> str:
    """Empty if the cut program's output is what a whole one prints; `again` runs it whole once more."""
    if cut.wrong:
        return cut.wrong
    if cut.output == whole.output or whole.output != again().output:  # of the latter nothing can be said
        return ""
    return "its output differs"


def mismatches(device: str, programs: list[Program], sizes: tuple[int, ...], form: str) -> tuple[list[str], dict]:
    """What was wrong, in words, and the counters of all sizes together; `kernels` and `refused` are those of one."""
    daemon = SlicingDaemon(Setting(device))
    whole = run_all(daemon, programs)
    bad = [f"{outcome.program}: fails uncut: {outcome.wrong}" for outcome in whole.values() if outcome.wrong]
    sound = [program for program in programs if not whole[program.name].wrong]
    suspects, totals = [], collections.Counter()
    refused: dict[str, int] = {}
    for size in sizes:
        daemon = SlicingDaemon(Setting(device, size, form=form))
        for name, outcome in run_all(daemon, sound).items():
            if outcome.wrong or outcome.output != whole[name].output:
                suspects.append((size, outcome))
        counted = daemon.counted()
        totals.update({name: counted[name] for name in COUNTERS})
        totals["kernels"], totals["sliceable"], refused = counted["kernels"], counted["sliceable"], counted["refused"]
        say(f"  {form} of {size}: {counted['launches']} launches as {counted['slices']} slices")
    daemon = SlicingDaemon(Setting(device))
    by_name = {program.name: program for program in programs}
    for size, outcome in suspects:
        wrong = _same(whole[outcome.program], outcome, lambda name=outcome.program: daemon.run(by_name[name]))
        if wrong:
            bad.append(f"{outcome.program} in {form} of {size}: {wrong}\n{outcome.output[-500:]}")
    daemon.end()
    return bad, {**totals, "refused": refused}


class Figure(Program):
    def __init__(self):
        super().__init__(REPO / "tools/figures/slices.cu")
        self.facts.setdefault("nvcc", []).append("-O3")


def _times(daemon: SlicingDaemon, arguments: list) -> list[dict]:
    done = subprocess.run([Figure().compile(), *map(str, arguments)], env=daemon.environment(), capture_output=True,
                          text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise Failure(f"slices.cu failed: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def overhead(device: str, form: str) -> tuple[list[dict], dict]:
    """Kernel by kernel; and what was counted."""
    whole = _times(SlicingDaemon(Setting(device)), [LAUNCHES, 40])
    daemon = SlicingDaemon(Setting(device, threshold_us=1000, form=form))
    cut = _times(daemon, [LAUNCHES, 0, *(row["rounds"] for row in whole)])
    counted = daemon.counted()
    daemon.end()
    rows = []
    for before, after in zip(whole, cut):
        best, now = min(before["ms"]), min(after["ms"][-LAST:])
        rows.append({"kernel": before["kernel"], "whole_ms": best, "cut_ms": now,
                     "overhead_percent": round(100 * (now / best - 1), 2)})
    return rows, counted


def _print(result: dict) -> None:
    for row in result["overheads"]:
        print(f"{row['kernel']:10} whole {row['whole_ms']:8.2f} ms, cut {row['cut_ms']:8.2f} ms: "
              f"{row['overhead_percent']:+.2f} %")
    if "kernels" not in result:
        return
    print(f"{result['sliceable']} of {result['kernels']} kernels can be cut; {result['mismatches']} mismatches; "
          f"{result['fallbacks']} launches ran whole after all")
    for reason, kernels in sorted(result["refused"].items(), key=lambda item: -item[1]):
        print(f"  {kernels} not: {reason}")


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench slices", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--check", action="store_true", help="run the test programs too")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="blocks of a slice, with --check")
    parser.add_argument("--form", choices=FORMS, default="slice")
    parser.add_argument("--name", default="", help="only programs whose names contain this")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    device = "cuda:0" if options.device == "gpu" else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        result = _measure(device, options)
    for wrong in result.get("wrong", []):
        print(wrong, file=sys.stderr)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        _print(result)
    return 1 if result.get("mismatches") else 0


def _measure(device: str, options) -> dict:
    result: dict = {"device": device, "form": options.form}
    if options.check:
        sizes = tuple(int(size) for size in options.sizes.split(","))
        bad, counted = mismatches(device, chosen_programs(device, options.name), sizes, options.form)
        result |= {**counted, "mismatches": len(bad), "wrong": bad}
    rows, counted = overhead(device, options.form)
    result |= {"overheads": rows, "overhead_percent": round(statistics.mean(row["overhead_percent"] for row in rows), 2),
               "cut": counted}
    return result
