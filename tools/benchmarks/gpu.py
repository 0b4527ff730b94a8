"""tools/bench gpu: the same programs on the GPU's own driver and on Bandsaw in direct mode, in turns in one run."""
import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import time

from benchmarks import charts
from benchmarks.charts import Axis, Bars, Lines, Series
from benchmarks.gpu_frameworks import frameworks
from benchmarks.gpu_wanted import WANTED
from benchmarks.results import exit_status
from benchmarks.torch_python import torch_python
from lab import build, host, qemu_root, setup
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, native_environment, run_in_guest
from lab.paths import REPO
from lab.plain_vm import lab_vm
from lab.shell import Failure, say, step

FOLDER = REPO / "tools/benchmarks/programs/gpu"
VGPU = "bench-gpu"
NATIVE, BANDSAW = "native", "bandsaw"
PROGRAMS = ["matrix", "lu", "bfs", "hotspot", "heart_wall", "n_body", "spmv", "reduction"]
SECTIONS = {
    "latency": ["start", "latency"],
    "bandwidth": ["bandwidth"],
    "small": ["small"],
    "managed": ["managed"],
    "programs": PROGRAMS,
    "torch": [],
    "frameworks": [],
    "vm": ["bandwidth"],
    "split": [],
}
BY_DEFAULT = ["latency", "small", "bandwidth", "programs", "torch"]
COLOURS = {NATIVE: "#666666", BANDSAW: "#0072b2"}
# A runner warmed ahead of the next program takes this long; starts are measured with one ready, and with none starting.
SETTLE_S = 1.5


class GpuFigure(Program):
    """A program under tools/benchmarks/programs/gpu, compiled for this machine's GPU where there is one."""

    def __init__(self, name: str):
        super().__init__(FOLDER / f"{name}.cu")
        arch = "native" if pathlib.Path("/dev/nvidiactl").exists() else "sm_90"
        self.facts.setdefault("nvcc", []).append(f"-O3 -arch={arch}")

    def binary(self) -> pathlib.Path:
        return self.binary_of("gpu", [FOLDER / "program.h", FOLDER.parent / "measure.h"])


@dataclasses.dataclass
class Row:
    """One figure: medians of both sides; None where a side failed or was left out."""
    name: str
    unit: str
    native: float | None
    bandsaw: float | None

    @property
    def ratio(self) -> float | None:
        return self.bandsaw / self.native if self.native and self.bandsaw is not None else None

    def verdict(self) -> str:
        wanted = WANTED.get(self.name)
        if wanted is None or self.native is None or self.bandsaw is None:
            return ""
        return "yes" if wanted.judge(self.native, self.bandsaw) else "NO"


@dataclasses.dataclass
class Samples:
    """What the runs of one program on one side said."""
    values: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    units: dict[str, str] = dataclasses.field(default_factory=dict)
    digests: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    # And how far those of the other side may be off.
    numbers: dict[str, tuple[list[float], float]] = dataclasses.field(default_factory=dict)
    error: str = ""

    def add(self, name: str, value: float, unit: str) -> None:
        self.values.setdefault(name, []).append(value)
        self.units[name] = unit

    def take(self, output: str) -> None:
        """The JSON lines of one run."""
        for line in output.splitlines():
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if "value" in said:
                self.add(said["name"], said["value"], said["unit"])
            elif "digest" in said:
                self.digests.setdefault(said["name"], []).append(said["digest"])
            elif "numbers" in said:
                self.numbers[said["name"]] = said["numbers"], said["within"]
            elif said.get("correct") is False:
                self.error = "the result is wrong"

    def renamed(self, prefix: str) -> "Samples":
        return Samples({prefix + name: values for name, values in self.values.items() if name != "wall"},
                       {prefix + name: unit for name, unit in self.units.items()})

    def median(self, name: str) -> float | None:
        return statistics.median(self.values[name]) if self.values.get(name) else None


def _last_line(text: str | bytes | None) -> str:
    """The last line, or the last that names an error: Python's explanations of one can be long."""
    text = text.decode(errors="replace") if isinstance(text, bytes) else text or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if re.match(r"[\w.]*Error:", line)] or lines
    return lines[-1][:300] if lines else "nothing on stderr"


def run_once(command: list, variables: dict[str, str], samples: Samples, timeout: float) -> None:
    """One run; what it printed and how long it took as a whole goes into the samples."""
    spawned = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    words = [str(spawned) if part == "SPAWNED" else str(part) for part in command]
    try:
        done = subprocess.run(words, env=variables, capture_output=True, text=True, errors="replace", check=False,
                              stdin=subprocess.DEVNULL, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        samples.error = f"not done after {timeout:.0f} s ({_last_line(late.stderr)})"
        return
    wall = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - spawned) / 1e9
    samples.take(done.stdout)
    if done.returncode != 0:
        samples.error = f"exit {done.returncode}: {_last_line(done.stderr)}"
    elif not samples.error:
        samples.add("wall", wall, "s")


class Bench:
    """The sides to compare, and everything measured so far."""

    def __init__(self, options):
        self.options = options
        self.rounds = options.rounds or (1 if options.quick else 3)
        self.rows: list[Row] = []
        self.failures: list[str] = []
        self.raw: dict[str, dict] = {}
        self.charts: dict[str, charts.Chart] = {}
        self.bandwidths: dict[str, Samples] = {}
        self.largest = 4 if options.software else 1024  # MiB, of a copy
        self.sides: dict[str, dict[str, str]] = {NATIVE: native_environment()}
        if not options.native:
            self.sides[BANDSAW] = direct_environment(VGPU)
        if options.software:
            self.sides[NATIVE] = direct_environment(VGPU)

    def compare(self, name: str, command: list, rounds: int, timeout: float = 90, warm_up: bool = False,
                settle: float = 0) -> dict[str, Samples]:
        """Runs a program on every side in turns; a side that fails is not run again."""
        samples = {side: Samples() for side in self.sides}
        if warm_up:
            for variables in self.sides.values():
                run_once(command, variables, Samples(), timeout)
        for _ in range(rounds):
            for side, variables in self.sides.items():
                if samples[side].error:
                    continue
                time.sleep(settle)
                run_once(command, variables, samples[side], timeout)
        for side, got in samples.items():
            if got.error:
                self.failures.append(f"{name}, {side}: {got.error}")
            wall = f"{got.median('wall'):.2f} s a run" if got.values.get("wall") else "no run was right"
            say(f"  {name:12} {side:8} {wall}{'; FAILED: ' + got.error if got.error else ''}")
        self.raw[name] = {side: {"values": got.values, "digests": got.digests, "error": got.error}
                          for side, got in samples.items()}
        return samples

    def row(self, name: str, samples: dict[str, Samples], of: str = "") -> Row:
        """The row `name` from the value `of` (the same name if left out)."""
        medians = {side: got.median(of or name) for side, got in samples.items()}
        unit = next((got.units[of or name] for got in samples.values() if (of or name) in got.units), "")
        row = Row(name, unit, medians.get(NATIVE), medians.get(BANDSAW))
        self.rows.append(row)
        return row

    def all_rows(self, program: str, samples: dict[str, Samples]) -> list[Row]:
        """A row for each value that a side said; one for the program if none said anything."""
        names = dict.fromkeys(name for got in samples.values() for name in got.values if name != "wall") or [program]
        return [self.row(name, samples) for name in names]


def _curves(rows: list[Row], pattern: str) -> list[Series]:
    """A line for each side and direction through the rows whose names match (size, unit, direction)."""
    factors = {"B": 1, "KiB": 2**10, "MiB": 2**20}
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        match = re.fullmatch(pattern, row.name)
        if not match:
            continue
        size = float(match.group(1)) * factors[match.group(2)]
        for side, value in ((NATIVE, row.native), (BANDSAW, row.bandsaw)):
            if value is not None:
                found.setdefault((side, match.group(3)), []).append((size, value))
    words = {"H2D": "to the device", "D2H": "to the host"}
    return [Series(f"{side}, {words[direction]}", sorted(points), COLOURS[side], dashed=direction == "D2H")
            for (side, direction), points in found.items()]


def _copy_charts(bench: Bench, rows: list[Row], what: str, unit: str, place: str = "") -> None:
    """`place` is the rows' common prefix: where Bandsaw's side ran, if not in direct mode."""
    for kind in ("pinned", "pageable"):
        series = _curves(rows, rf"{place}{kind} (\d+) (B|KiB|MiB) (H2D|D2H)")
        if series:
            size = Axis("size of the copy", logarithmic=True, base=2, bytes=True)
            title = f"{place}{what} of copies, {kind} host memory"
            name = f"{place.lower().replace(': ', '-')}{what}-{kind}"
            bench.charts[name] = Lines(title[0].upper() + title[1:], size, Axis(f"{what}, {unit}"), series)


def latency(bench: Bench, binaries: dict[str, pathlib.Path]) -> None:
    if "start" in binaries:
        rounds = 3 if bench.options.quick else 7
        bench.all_rows("start", bench.compare("start", [binaries["start"], "SPAWNED"], rounds, warm_up=True,
                                              settle=SETTLE_S))
    if "latency" in binaries:
        samples = bench.compare("latency", [binaries["latency"], bench.options.scale], bench.rounds)
        rows = bench.all_rows("latency", samples)
        _copy_charts(bench, rows, "latency", "us")


def small(bench: Bench, binaries: dict[str, pathlib.Path]) -> None:
    if "small" in binaries:
        rows = bench.all_rows("small", bench.compare("small", [binaries["small"], bench.options.scale], bench.rounds))
        if not bench.options.native:
            _geometric_mean(bench, "geometric mean of small calls", rows, "us")


def managed(bench: Bench, binaries: dict[str, pathlib.Path]) -> None:
    if "managed" in binaries:
        samples = bench.compare("managed", [binaries["managed"], bench.options.scale], bench.rounds, timeout=180)
        bench.all_rows("managed", samples)


def bandwidth(bench: Bench, binaries: dict[str, pathlib.Path]) -> None:
    if "bandwidth" in binaries:
        bench.bandwidths = bench.compare("bandwidth", [binaries["bandwidth"], bench.largest], bench.rounds,
                                         timeout=180)
        _copy_charts(bench, bench.all_rows("bandwidth", bench.bandwidths), "bandwidth", "GB/s")


def vm(bench: Bench, binaries: dict[str, pathlib.Path]) -> None:
    """The copies once more from inside a VM; its processor may be emulated, the copies are the host's work."""
    if "bandwidth" not in binaries or bench.options.native:
        return
    command = [binaries["bandwidth"], bench.largest]
    native = bench.bandwidths.get(NATIVE, Samples())
    if not native.values:
        run_once(command, bench.sides[NATIVE], native, timeout=90)
    host.vgpuctl("destroy", VGPU, check=False)  # its shares are the VM's now
    inside, parts = Samples(), list[bytes]()
    guest = lab_vm("bench-gpu", "bench-gpu-vm", memory_mib=3 * bench.largest + 1024)
    try:
        if qemu_root.has_libvirt():
            host.start_libvirt()
        guest.up(memory="512M" if bench.options.software else "8G")
        status = run_in_guest(guest.agent(), binaries["bandwidth"], [str(bench.largest)], parts.append, parts.append,
                              timeout=400)
        inside.take(b"".join(parts).decode(errors="replace"))
        inside.error = inside.error or (f"exit {status}: {_last_line(b''.join(parts))}" if status else "")
    except (Failure, OSError) as failure:
        inside.error = str(failure)
    finally:
        guest.remove()
    if inside.error:
        bench.failures.append(f"bandwidth in the VM: {inside.error}")
    bench.raw["vm bandwidth"] = {NATIVE: native.values, BANDSAW: inside.values}
    both = {side: got.renamed("VM: ") for side, got in ((NATIVE, native), (BANDSAW, inside))}
    _copy_charts(bench, bench.all_rows("VM: bandwidth", both), "bandwidth", "GB/s", "VM: ")


def _geometric_mean(bench: Bench, name: str, rows: list[Row], unit: str = "s") -> None:
    both = [row for row in rows if row.ratio]
    if not both or (len(both) < len(rows) and not bench.options.native):
        bench.failures.append(f"{name}: {len(rows) - len(both)} of {len(rows)} programs have no ratio")
    if both:
        bench.rows.append(Row(name, unit, statistics.geometric_mean(row.native or 0 for row in both),
                              statistics.geometric_mean(row.bandsaw or 0 for row in both)))


def programs(bench: Bench, binaries: dict[str, pathlib.Path]) -> None:
    steady, whole = [], []
    for name in [name for name in PROGRAMS if name in binaries]:
        samples = bench.compare(name, [binaries[name], bench.options.scale], bench.rounds)
        steady.append(bench.row(f"{name}, steady work", samples, "steady"))
        whole.append(bench.row(f"{name}, whole run", samples, "wall"))
    if bench.options.native or not steady:
        return
    _geometric_mean(bench, "geometric mean of steady work", steady)
    _geometric_mean(bench, "geometric mean of whole runs", whole)
    ratios = {"steady work": [row.ratio for row in steady], "whole run": [row.ratio for row in whole]}
    names = [row.name.split(",")[0].replace("_", " ") for row in steady]
    for found in ratios.values():
        both = [ratio for ratio in found if ratio]
        found.append(statistics.geometric_mean(both) if both else None)
    bench.charts["programs"] = Bars("Whole programs: time on Bandsaw over time on bare metal",
                                             Axis("ratio (less is better)"), [*names, "geom. mean"], ratios,
                                             (1.03, "wanted: at most 1.03"))


def torch(bench: Bench, _binaries: dict[str, pathlib.Path]) -> None:
    python = torch_python()
    if python is None:
        bench.failures.append("torch: no python with torch is here (set BANDSAW_TORCH_PYTHON)")
        return
    command = [python, FOLDER / "torch_model.py", *(["--quick"] if bench.options.quick else [])]
    samples = bench.compare("torch", command, 1 if bench.options.quick else 2, timeout=200)
    rows = bench.all_rows("torch", samples)
    if BANDSAW not in samples:
        return
    for name in samples[NATIVE].digests:
        native, bandsaw = set(samples[NATIVE].digests[name]), set(samples[BANDSAW].digests.get(name, []))
        if len(native) > 1:
            bench.failures.append(f"torch: {name}: bare metal does not repeat its own results")
        elif bandsaw and native != bandsaw:
            bench.failures.append(f"torch: {name}: Bandsaw's results differ from bare metal's")
        elif bandsaw:
            say(f"  torch: {name}: the same results to the last bit")
    chosen = [row for row in rows if row.ratio and row.unit in ("ms", "us")]
    if not chosen:
        return
    bench.charts["torch"] = Bars("PyTorch: time on Bandsaw over time on bare metal",
                                          Axis("ratio (less is better)"),
                                          [row.name.removeprefix("torch: ") for row in chosen],
                                          {"time": [row.ratio for row in chosen]}, (1.05, "wanted: at most 1.05"))


def split(bench: Bench, _binaries: dict[str, pathlib.Path]) -> None:
    """Copies of host memory that is not registered, by the size of the chunk; native is the driver's own staging."""
    build.build("tools/benchmarks/split_figure")
    samples = Samples()
    run_once([build.BUILD / "tools/benchmarks/split_figure"], native_environment(), samples, timeout=90)
    if samples.error:
        bench.failures.append(f"split: {samples.error}")
    bench.raw["split"] = samples.values
    chunks = [name for name in samples.values if name.endswith("KiB H2D")]
    bench.rows += [Row(f"split in {name}", "GB/s", samples.median("driver H2D"), samples.median(name))
                   for name in chunks]
    curves = [Series("to the device", [(1024.0 * int(name.split()[0]), samples.median(name) or 0) for name in chunks],
                         COLOURS[BANDSAW])]
    size = Axis("size of the chunk", logarithmic=True, base=2, bytes=True)
    bench.charts["split"] = Lines("Bandwidth of split copies, unregistered host memory", size,
                                           Axis("bandwidth, GB/s"), curves)


MEASURES = {"latency": latency, "small": small, "managed": managed, "bandwidth": bandwidth, "programs": programs,
            "torch": torch, "frameworks": frameworks, "vm": vm, "split": split}


def _cell(value: float | None, unit: str, there: bool) -> str:
    return f"{value:.4g} {unit}" if value is not None else "failed" if there else ""


def table(bench: Bench) -> str:
    rows = [("figure", "native", "bandsaw", "ratio", "wanted", "")]
    for row in bench.rows:
        rows.append((row.name, _cell(row.native, row.unit, True), _cell(row.bandsaw, row.unit, BANDSAW in bench.sides),
                     f"{row.ratio:.3f}" if row.ratio is not None else "",
                     WANTED[row.name].text if row.name in WANTED and BANDSAW in bench.sides else "", row.verdict()))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:4], widths[1:4])),
                        row[4].ljust(widths[4]), row[5]]).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths[:5]))
    return "\n".join([*lines, *(f"FAILED  {failure}" for failure in bench.failures)])


def save(bench: Bench, facts: dict) -> None:
    """After every section, so that a run that is cut short leaves what it has."""
    folder = bench.options.out
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    results = [{**dataclasses.asdict(row), "ratio": row.ratio, "verdict": row.verdict(),
                "wanted": WANTED[row.name].text if row.name in WANTED else ""} for row in bench.rows]
    (folder / "gpu.json").write_text(json.dumps({"facts": facts, "results": results, "failures": bench.failures,
                                                 "samples": bench.raw,
                                                 "charts": charts.to_json(bench.charts)}, indent=1) + "\n")
    (folder / "gpu.txt").write_text(table(bench) + "\n")


def _facts(bench: Bench) -> dict:
    try:
        gpu = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], check=False,
                             capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        gpu = ""
    return {"gpu": gpu, "cores": os.cpu_count(), "rounds": bench.rounds, "sides": list(bench.sides),
            "software": bench.options.software, "date": datetime.datetime.now().isoformat(timespec="seconds")}


def _compile(bench: Bench, names: list[str]) -> dict[str, pathlib.Path]:
    """Compiles what is needed; a program that does not compile is reported and left out."""
    def one(name: str) -> pathlib.Path | Failure:
        try:
            return GpuFigure(name).compile()
        except Failure as failure:
            return failure

    with step(f"compiling {len(names)} programs with nvcc", len(names)) as progress:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            made = dict(zip(names, pool.map(progress.counted(one), names)))
    bench.failures += [f"{name}: {made}" for name, made in made.items() if isinstance(made, Failure)]
    return {name: path for name, path in made.items() if not isinstance(path, Failure)}


def _virtual_gpu(options) -> None:
    """A vgpud with the right device, and a virtual GPU on it."""
    host.start_vgpud(device="soft" if options.software else "cuda")
    host.ensure_vgpu(VGPU, options.memory or ("2G" if options.software else "48G"), 40, 40)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench gpu", description=__doc__)
    parser.add_argument("--only", default=",".join(BY_DEFAULT), metavar="LIST",
                        help=f"of {','.join(SECTIONS)}; all but managed, frameworks, vm and split if left out")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--quick", action="store_true", help="each program once")
    parser.add_argument("--rounds", type=int, help="how often each side runs each program (3)")
    parser.add_argument("--native", action="store_true", help="bare metal only")
    parser.add_argument("--memory", help="memory share of the virtual GPU (48G)")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of gpu.json that an earlier run has written; measure nothing")
    # For the harness itself: both sides on the software device, everything small.
    parser.add_argument("--software", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    chosen = set(options.only.split(","))
    unknown = chosen - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    options.only = [name for name in SECTIONS if name in chosen]
    options.scale = options.scale or (0.01 if options.software else 1)
    return options


def run(arguments: list[str]) -> int:
    """Exit status 0 if everything ran and every target is met."""
    options = _options(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    if not options.no_build and not options.native:
        prepare = setup.prepare if options.software else setup.prepare_gpu
        prepare(lab="vm" in options.only)
    bench = Bench(options)
    binaries = _compile(bench, list(dict.fromkeys(name for section in options.only for name in SECTIONS[section])))
    if not options.native or options.software:
        _virtual_gpu(options)
    facts = _facts(bench)
    say(f"{facts['gpu'] or 'no GPU here'}; {bench.rounds} rounds of {', '.join(bench.sides)}")
    for name in options.only:
        say(name)
        MEASURES[name](bench, binaries)
        save(bench, facts)
    if not options.native:
        host.vgpuctl("destroy", VGPU, check=False)
    print(table(bench))
    if options.out:
        charts.draw(bench.charts, options.out, options.out / "gpu.json", "gpu")
    missed = [f"{row.name} is {_cell(row.bandsaw, row.unit, True)}, wanted {WANTED[row.name].text}"
              for row in bench.rows if row.verdict() == "NO"]
    return exit_status([*missed, *bench.failures])
