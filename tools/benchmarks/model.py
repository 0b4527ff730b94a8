"""tools/bench model: the models of vgpu-sched/slice against a GPU.

Runs research/pairs on the GPU itself (nothing of Bandsaw between): its constants, the eight kernels alone by blocks
on an SM, all pairs of them by ratio, and launches one right after the other. Forecasts of the same are held against it:
pairs by Kernelet's chain, from the static instruction mix alone, with the speed at half the occupancy, and with counts;
overlaps and slowdowns by Cruz's model. --from judges measurements that were stored before, without a GPU; of several
files, each kind of line counts as the last file has it that has any."""
import argparse
import contextlib
import datetime
import json
import pathlib
import subprocess
import sys

from benchmarks import charts, model_tables
from benchmarks.model_data import Measured, forecast, guess, overlaps, pairs, profiles
from benchmarks.results import exit_status, json_lines
from lab import setup
from lab.cuda_programs import Program
from lab.guest_run import native_environment
from lab.paths import BUILD, REPO
from lab.shell import Failure, say

FOLDER = REPO / "tools/benchmarks/research/pairs"
TENANTS = REPO / "tools/benchmarks/tenants"
KERNELS = {"PC": "pointer_chasing", "SPMV": "sparse_matrix_vector", "ST": "stencil", "BS": "black_scholes",
           "MM": "matrix_multiply", "TEA": "tea", "MRIQ": "mri_q", "SAD": "sum_of_differences"}


class PairsProgram(Program):
    """research/pairs/pairs.cu, with PTX for the analysis."""

    def __init__(self):
        super().__init__(FOLDER / "pairs.cu")
        self.facts["nvcc"] = ["-O3 -gencode arch=compute_90,code=[sm_90,compute_90]"]

    def binary(self) -> pathlib.Path:
        return self.binary_of("model", [*sorted(FOLDER.glob("*.h")), *sorted(TENANTS.glob("*/*.h"))])


def measure(parts: str, words: list[str], timeout: float) -> list[dict]:
    """The lines of the program; what it said before it failed is kept, with a line that says so."""
    command = [str(PairsProgram().compile()), "measure", parts, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=native_environment(),
                              timeout=timeout)
        output, failed = done.stdout, "" if done.returncode == 0 else f"exit status {done.returncode}: {done.stderr}"
    except subprocess.TimeoutExpired as expired:
        output, failed = (expired.stdout or b"").decode(), f"took longer than {timeout:.0f} s"
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]
    return lines + ([{"what": "error", "of": "the program", "error": failed.strip()}] if failed else [])


def instruction_mixes() -> dict[str, dict]:
    """Of each kernel's PTX: accesses of global memory, of all instructions."""
    tool = BUILD / "tools/ptx/ptx"
    if not tool.exists():
        raise Failure(f"there is no {tool}: the static instruction mix is had by it")
    done = subprocess.run([tool, "--json", PairsProgram().compile()], capture_output=True, text=True, check=True)
    found = {}
    for row in json.loads(done.stdout)["kernels"]:
        for name, function in KERNELS.items():
            if function in row["name"]:
                mix = row["instruction_mix"]
                memory = sum(mix[kind] for kind in ("load.global", "store.global", "atomic"))
                found[name] = {"memory": memory / max(1, sum(mix.values())),
                               "uncoalesced": row["scattered"] / memory if memory else 0, "instruction_mix": mix}
    return found


def judge(stored: dict) -> dict:
    """Measurements and forecasts side by side."""
    measured = Measured(stored["lines"])
    found: dict = {"constants": measured.constants(), "times": measured.of("time"), "errors": measured.of("error")}
    if measured.of("alone"):
        found["kernels"] = profiles(measured, stored.get("instruction_mixes", stored.get("mixes", {})))
    found["pairs"], found["overlaps"] = pairs(measured), overlaps(measured)
    question = {"gpu": stored.get("gpu", {}), "kernels": found.get("kernels", []), "pairs": found["pairs"],
                "overlaps": found["overlaps"]}
    said = forecast(question)
    found["solo"] = {"measured": measured.rates(), **said["solo"]}
    for number, pair in enumerate(found["pairs"]):
        pair["forecast"] = {**{way: rows[number] for way, rows in said["pairs"].items()}, "guess": guess(pair)}
    for overlap, row in zip(found["overlaps"], said["overlaps"]):
        overlap["forecast"] = row
    return found


def _save(folder: pathlib.Path, stored: dict, result: dict, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model-measured.json").write_text(json.dumps(stored) + "\n")
    (folder / "model.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "model.txt").write_text(text + "\n")
    found = {f"model-{name}": chart for name, chart in model_tables.charts(result).items()}
    charts.draw(found, folder, folder / "model-measured.json", "model")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench model", description=__doc__)
    parser.add_argument("--device", choices=["gpu"], default="gpu")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE", nargs="+",
                        help="model-measured.json of an earlier run, or the program's own output")
    parser.add_argument("--parts", default="constants,alone,pairs,overlap", help="what is measured; all if left out")
    parser.add_argument("--ratios", type=int, default=7, help="of blocks, for each pair")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of tables")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="measurements, tables and SVG charts go there")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    return parser.parse_args(arguments)


def merged(files: list[list[dict]]) -> list[dict]:
    """Lines of several runs: of each kind those of the last run that has any, so that rates and what they are held
    against are of one run."""
    kinds: dict[str, list[dict]] = {}
    for lines in files:
        for kind in dict.fromkeys(line.get("what", "") for line in lines):
            kinds[kind] = [line for line in lines if line.get("what", "") == kind]
    return [line for lines in kinds.values() for line in lines]


def _load_all(paths: list[pathlib.Path]) -> dict:
    loaded = [_load(path) for path in paths]
    return {**loaded[-1], "lines": merged([each["lines"] for each in loaded])}


def _load(path: pathlib.Path) -> dict:
    text = path.read_text()
    if text.startswith('{"lines"'):
        return json.loads(text)
    lines = json_lines(text)
    return {"lines": lines, "instruction_mixes": instruction_mixes()}


def run(arguments: list[str]) -> int:
    """Exit status 0 if everything was measured, and reached what is wanted of it."""
    options = _options(arguments)
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        if options.stored:
            stored = _load_all(options.stored)
        else:
            if not options.no_build:
                setup.prepare_for("gpu")
            say("measuring on the GPU itself")
            lines = measure(options.parts, [f"ratios={options.ratios}"], 240)
            stored = {"lines": lines, "date": datetime.datetime.now().isoformat(timespec="seconds"),
                      "instruction_mixes": instruction_mixes()}
        result = judge(stored)
        text = model_tables.text(result)
        if options.out:
            _save(options.out, stored, result, text)
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status(model_tables.missed(result))
