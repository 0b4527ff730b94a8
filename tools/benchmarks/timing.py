"""tools/bench timing: the timing model of the software device against a GPU.

Small kernels, most of which do one thing over and over, and programs in small: their cycles on an H200 (--device gpu,
nothing of Bandsaw between; --out keeps them in timing-measured.json), and what the model makes of the same kernels,
recorded on the software device (--from timing-measured.json, on a machine that has that one)."""
import argparse
import json
import math
import pathlib
import shutil
import subprocess

from benchmarks.basic import Figure
from benchmarks.results import columns, exit_status, json_lines
from lab import setup, timing
from lab.guest_run import direct_environment, native_environment
from lab.paths import lab_dir
from lab.shell import Failure, say

GPU = "h200"
RUNS = 5  # on a GPU, of each kernel
MOST_CYCLES = 4_000_000  # of a launch, that are simulated
MEASURED = "timing-measured.json"
# What each is for; the rest are programs in small.
SINGLE = {"add_chain": "latency of integers", "fma_chain": "of floats", "double_chain": "of doubles",
          "special_chain": "of ex2", "fma_many": "throughput of floats", "double_many": "of doubles",
          "special_many": "of ex2", "barriers": "barriers of 8 warps", "shared_chase": "latency of shared memory",
          "shared_banks_1": "loads of it, no conflict", "shared_banks_4": "4 turns", "shared_banks_32": "32 turns",
          "chase_l1": "latency of L1", "chase_l2": "of L2", "chase_dram": "of DRAM", "read_stream": "bandwidth, reads",
          "copy_stream": "reads and writes", "read_sectors": "a sector a lane", "atomics_one": "one address",
          "atomics_spread": "64 K addresses"}


def measure() -> list[dict]:
    """On a GPU, as it is."""
    done = subprocess.run([Figure("timing").compile(), str(RUNS)], env=native_environment(), capture_output=True,
                          text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise Failure(f"timing.cu ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return json_lines(done.stdout)


def record() -> pathlib.Path:
    """Runs the kernels once on a software device that records them; the folder of their traces."""
    binary = Figure("timing").compile()
    say("recording the kernels on the software device")
    ours = timing.start(1, GPU)
    done = subprocess.run([binary, "1"], env={**direct_environment(timing.NAME), **ours}, capture_output=True,
                          text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise Failure(f"timing.cu on the software device ended with {done.returncode}: {done.stdout[-1000:]}")
    folder = lab_dir() / "timing" / "kernels"
    shutil.rmtree(folder, ignore_errors=True)
    if timing.collect(folder) == 0:
        raise Failure("nothing was recorded")
    return folder


def replay(folder: pathlib.Path) -> dict[str, dict]:
    kernels = timing.replayed(["--gpu", GPU, "--cycles", str(MOST_CYCLES), str(folder)])
    return {kernel["kernel"]: kernel for kernel in kernels}


def compare(measured: list[dict], model: dict[str, dict]) -> dict:
    rows = []
    for one in measured:
        forecast = model.get(one["kernel"])
        if forecast is None:
            raise Failure(f"{one['kernel']} was not recorded")
        rows.append({**one, "model": forecast["launch_cycles"], "cut": forecast["cut"],
                     "ratio": forecast["launch_cycles"] / one["cycles"], "single": one["kernel"] in SINGLE})
    return {"kernels": rows, "single": errors([row for row in rows if row["single"]]),
            "programs": errors([row for row in rows if not row["single"]])}


def errors(rows: list[dict]) -> dict:
    """By how much the model is wrong, as factors: 1.1 is a tenth too many or too few cycles."""
    logs = [abs(math.log(row["ratio"])) for row in rows]
    return {"mean": math.exp(sum(logs) / len(logs)), "most": math.exp(max(logs))} if logs else {}


def table(result: dict) -> str:
    rows = [("kernel", "what", "H200", "model", "ratio")]
    for row in result["kernels"]:
        rows.append((row["kernel"], SINGLE.get(row["kernel"], "a program in small"), str(row["cycles"]),
                     f"{row['model']:.0f}", f"{row['ratio']:.2f}{' (trace was cut)' if row['cut'] else ''}"))
    said = [f"{name}: wrong by a factor of {result[key]['mean']:.2f} in the geometric mean, "
            f"{result[key]['most']:.2f} at most"
            for key, name in (("single", "one thing each"), ("programs", "programs in small")) if result[key]]
    return "\n".join([*columns(rows), "", *said])


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench timing", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft",
                        help="gpu: measures, and compares nothing")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE", help=f"{MEASURED} of a GPU")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="measurements or tables go there")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    options = parser.parse_args(arguments)
    if options.device == "soft" and not options.stored:
        parser.error(f"--from what? {MEASURED} is made by --device gpu --out DIR on an H200")
    return options


def _save(folder: pathlib.Path | None, files: dict[str, str]) -> None:
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    if options.device == "gpu":
        lines = measure()
        _save(options.out, {MEASURED: json.dumps(lines, indent=1)})
        if options.json:
            print(json.dumps(lines))
        else:
            rows = [(line["kernel"], line["cycles"], line["least"], line["most"]) for line in lines]
            print("\n".join(columns([("kernel", "cycles", "least", "most"), *rows])))
        return exit_status([])
    if not options.no_build:
        setup.prepare(lab=False)
    result = compare(json.loads(options.stored.read_text()), replay(record()))
    _save(options.out, {"timing.json": json.dumps(result, indent=1), "timing.txt": table(result)})
    print(json.dumps(result) if options.json else table(result))
    return exit_status([])
