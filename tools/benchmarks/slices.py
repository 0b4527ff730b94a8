"""tools/bench slices: whether kernels that are cut into grid slices do the same, and what cutting costs.

--check runs every test program whole and through grid slices of several sizes, from the first launch on, and holds
the outputs against each other. The overhead is that of long kernels at the grid slice sizes that the runner finds by
itself, against the same kernels whole."""
import argparse
import contextlib
import json
import statistics
import subprocess
import sys

from benchmarks.results import exit_status, reaches
from lab import host, setup
from lab.cuda_programs import Program
from lab.daemon import only_one
from lab.paths import REPO
from lab.shell import Failure
from lab.slicing import VGPU, Setting, SlicingDaemon, chosen_programs, mismatches

SIZES = (1, 3, 16)
VARIANTS = ("sliced", "persistent")
LAUNCHES = 24  # of each kernel: the runner measures a few, then looks for a size
WANTED_PERCENT = "<= 2"  # what runners let a size of grid slices cost
LAST = 8       # of these the fastest counts


class Figure(Program):
    def __init__(self):
        super().__init__(REPO / "tools/benchmarks/programs/slices.cu")
        self.facts.setdefault("nvcc", []).append("-O3")


def _times(daemon: SlicingDaemon, arguments: list) -> list[dict]:
    done = subprocess.run([Figure().compile(), *map(str, arguments)], env=daemon.program_environment(VGPU),
                          capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise Failure(f"slices.cu failed: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def overhead(device: str, variant: str) -> tuple[list[dict], dict]:
    """Kernel by kernel; and what was counted."""
    whole = _times(SlicingDaemon(Setting(device)), [LAUNCHES, 40])
    daemon = SlicingDaemon(Setting(device, threshold_us=1000, variant=variant))
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
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="blocks of a grid slice, with --check")
    parser.add_argument("--variant", choices=VARIANTS, default="sliced")
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
    missed = [f"{result['mismatches']} mismatches"] if result.get("mismatches") else []
    if not reaches(result["overhead_percent"], WANTED_PERCENT):
        missed.append(f"a cut kernel is slower by {result['overhead_percent']} % on average, wanted {WANTED_PERCENT}")
    return exit_status(missed)


def _measure(device: str, options) -> dict:
    result: dict = {"device": device, "variant": options.variant}
    if options.check:
        sizes = tuple(int(size) for size in options.sizes.split(","))
        bad, counted = mismatches(device, chosen_programs(device, options.name), sizes, options.variant)
        result |= {**counted, "mismatches": len(bad), "wrong": bad}
    rows, counted = overhead(device, options.variant)
    mean = statistics.mean(row["overhead_percent"] for row in rows)
    result |= {"overheads": rows, "overhead_percent": round(mean, 2), "cut": counted}
    return result
