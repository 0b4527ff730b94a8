"""Park's ELF (chapter 3) on kernels of ours: recorded once on the software device, then replayed on the model of the
paper's GPU by scheduler and by what else is changed. tools/bench paper elf-3.6 and so on."""
import functools
import math
import pathlib
import shutil
import subprocess

from benchmarks.gpu import GpuFigure
from lab import timing
from lab.guest_run import direct_environment
from lab.paths import lab_dir
from lab.shell import Failure, say

GPU = "gtx480"
SECONDS = 40  # of a program: what is recorded of each kernel are its first launches
# By the paper's label; the others have no counterpart there. Programs of tools/benchmarks/programs/gpu, their scales,
# and launches of each kernel: a search begins with few nodes.
PROGRAMS = {"BFS": ("bfs", 0.03, 8), "HW": ("heart_wall", 0.02, 2), "HS": ("hotspot", 0.25, 2), "LUD": ("lu", 0.1, 2),
            "SGEMM": ("matrix", 0.1, 2), "Spmv": ("spmv", 0.03, 2), "n-body": ("n_body", 0.02, 2),
            "reduction": ("reduction", 0.02, 2)}
CYCLES = 200_000  # of a launch, that are simulated at most
WARM_UP = "keep_busy"  # a kernel of each program that does nothing of its work

GTO = ("--policy", "gto")
ELF = ("--policy", "elf")
CAR = ("--requeue", "32")


def _prefetch(threshold: int) -> tuple[str, ...]:
    return ("--prefetch", str(threshold))


ALL = (*ELF, *CAR, *_prefetch(16))  # the paper's ELF++
WAYS = {"NewCAR": (*GTO, *CAR), "prefetch": (*GTO, *_prefetch(16)), "ELF": ELF, "ELF++": ALL,
        "LRR": ("--policy", "lrr"), "2-LV": ("--policy", "two-level"),
        "CCWS": ("--policy", "ccws"), "DYNCTA": ("--policy", "dyncta")}
COMPARED = ("LRR", "2-LV", "CCWS", "DYNCTA", "ELF++")
LARGE_L1 = ("--l1", "48")


@functools.cache
def _folder() -> pathlib.Path:
    return lab_dir() / "timing" / "elf"


@functools.cache
def traces(label: str) -> str:
    """Records a program; its folder. A program that takes longer is ended: its first launches are there by then."""
    name, scale, launches = PROGRAMS[label]
    binary = GpuFigure(name).compile()
    say(f"recording {label}: {name} at {scale:g}")
    ours = timing.start(launches, GPU)
    variables = {**direct_environment(timing.NAME), **ours}
    try:
        done = subprocess.run([binary, str(scale)], env=variables, stdout=subprocess.DEVNULL, check=False,
                              timeout=SECONDS)
        if done.returncode != 0:
            raise Failure(f"{name} ended with {done.returncode}")
    except subprocess.TimeoutExpired:
        pass
    folder = _folder() / name
    shutil.rmtree(folder, ignore_errors=True)
    if timing.collect(folder) == 0:
        raise Failure(f"nothing of {name} was recorded")
    return str(folder)


@functools.cache
def replayed(label: str, *how: str) -> list[dict]:
    return timing.replayed(["--gpu", GPU, "--without", WARM_UP, "--cycles", str(CYCLES), *how, traces(label)])


def _sum(label: str, how: tuple[str, ...], field: str) -> float:
    return sum(kernel[field] for kernel in replayed(label, *how))


def _ipc(label: str, how: tuple[str, ...]) -> float:
    return _sum(label, how, "instructions") / _sum(label, how, "cycles")


def faster(label: str, how: tuple[str, ...], than: tuple[str, ...] = GTO) -> float:
    """By how many percent more instructions are issued in a cycle."""
    return 100 * (_ipc(label, how) / _ipc(label, than) - 1)


def mean_faster(how: tuple[str, ...], than: tuple[str, ...] = GTO) -> float:
    """The geometric mean of the programs."""
    logs = [math.log1p(faster(label, how, than) / 100) for label in PROGRAMS]
    return 100 * math.expm1(sum(logs) / len(logs))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _part(label: str, how: tuple[str, ...], field: str, of: str) -> float:
    return 100 * _sum(label, how, field) / _sum(label, how, of)


Values = dict[tuple[str, str], float]


def stalls() -> Values:
    return {(field, "mean"): _mean([_part(label, GTO, field, "scheduler_cycles") for label in PROGRAMS])
            for field in ("conflict", "memory", "fetch", "barrier", "other", "empty")}


def performance() -> Values:
    ways = ("NewCAR", "prefetch", "ELF", "ELF++")
    return {**{(way, "mean"): mean_faster(WAYS[way]) for way in ways},
            **{(way, label): faster(label, WAYS[way]) for way in ways for label in PROGRAMS}}


def look_ups() -> Values:
    saved = {label: 100 - _part(label, ELF, "look_ups", "instructions") for label in PROGRAMS}
    return {("saved", "mean"): _mean(list(saved.values())),
            **{("saved", label): value for label, value in saved.items()}}


def sensitivity() -> Values:
    found = {("points", str(slots)): mean_faster((*ALL, "--points", str(slots))) for slots in (16, 32, 48, 0)}
    for threshold in (0, 4, 8, 12, 16, 20, 24):
        found["threshold", str(threshold)] = mean_faster((*ELF, *CAR, *_prefetch(threshold)))
    return found


def schedulers() -> Values:
    return {(way, "mean"): mean_faster(WAYS[way]) for way in COMPARED}


def large_l1() -> Values:
    return {(way, "mean"): mean_faster((*WAYS[way], *LARGE_L1), (*GTO, *LARGE_L1)) for way in COMPARED}


FIGURES = {"stalls": stalls, "performance": performance, "look-ups": look_ups, "sensitivity": sensitivity,
           "schedulers": schedulers, "large L1": large_l1}
