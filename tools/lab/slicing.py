"""CUDA programs through a vgpud of their own that cuts their kernels into grid slices: whether they do the
same, and what it counted."""
import collections
import concurrent.futures
import dataclasses
import json
import os
import subprocess
import time

from lab import cuda_programs, host
from lab.cuda_programs import Program
from lab.daemon import Daemon, Tables
from lab.shell import say, wait_until
from lab.started import COMPILES

VGPU = "slices0"
COUNTERS = ("kernels", "sliceable", "launches", "grid_slices", "fallbacks")
CLOCK = {"streams", "events"}  # a busy machine may make them late: they run alone, and get a second chance
WORKERS = 8  # programs at once, if there are as many cores


@dataclasses.dataclass
class Setting:
    """What [slices] and [lab] of the configuration say. With `force_blocks` all launches are cut, else those that take
    longer than `threshold_us`; with neither, none."""
    device: str
    force_blocks: int = 0
    threshold_us: int = 0
    variant: str = "sliced"
    drop_us: int = -1
    resize: bool = False
    take_us: int = -1

    @property
    def memory(self) -> str:
        """On a GPU, each program's context alone takes half a GiB."""
        return "2G" if self.device == "soft" else "32G"

    def tables(self) -> Tables:
        return {"session": {"warm_runners": 2},
                "slices": {"enabled": bool(self.force_blocks or self.threshold_us), "threshold_us": self.threshold_us,
                           "variant": self.variant, "drop_us": self.drop_us, "resize": self.resize,
                           "take_us": self.take_us},
                "lab": {"force_blocks": self.force_blocks}}


@dataclasses.dataclass
class Outcome:
    program: str
    wrong: str  # empty: as it should be
    output: str
    seconds: float

    @property
    def lines(self) -> list[str]:
        """What it printed. CUDA gives the lines of two blocks no order, and only where it takes long is it said that
        kernels are compiled."""
        return sorted(line for line in self.output.splitlines()
                      if not line.startswith(COMPILES))


class SlicingDaemon(Daemon):
    """One vgpud with one virtual GPU; the code that it has compiled stays for the next one."""

    def __init__(self, setting: Setting):
        super().__init__(setting.device, "band", name="slices", tables=setting.tables(), keep=True)
        if self._ask("show", VGPU, "--json", check=False).returncode != 0:
            self._ask("create", VGPU, "--memory", setting.memory, "--compute", "100", "--copy", "100")
        self._before = self._usage()

    def _ask(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        return host.vgpuctl(*arguments, check=check, variables=self.variables)

    def _usage(self) -> dict:
        wait_until(lambda: self._live().get("processes") == [], 20, "the end of the programs' runners")
        return self._live()["usage"]["slicing"]

    def _live(self) -> dict:
        """Empty while its session is still starting."""
        return json.loads(self._ask("show", VGPU, "--json").stdout).get("live") or {}

    def counted(self) -> dict:
        """Since the last time: how many kernels there were, and why some ran whole."""
        now, before = self._usage(), self._before
        self._before = now
        refused = {reason: number - before["refused"].get(reason, 0) for reason, number in now["refused"].items()}
        return {**{name: now[name] - before[name] for name in COUNTERS},
                "refused": {reason: number for reason, number in refused.items() if number}}

    def run_program(self, program: Program, seconds: float = 300) -> Outcome:
        begin = time.monotonic()
        status, output = program.run(self.program_environment(VGPU), seconds)
        return Outcome(program.name, program.judge(status, output), output, time.monotonic() - begin)


def chosen_programs(device: str, only: str = "") -> list[Program]:
    on_gpu = device != "soft"
    found = [program for program in cuda_programs.programs() if only in program.name
             and (program.on_gpu if on_gpu else program.on_soft)]
    cuda_programs.compile_all(found)
    return found


def _alone(program: Program) -> bool:
    return program.is_alone or program.name in CLOCK


def _run_alone(daemon: SlicingDaemon, program: Program) -> Outcome:
    outcome = daemon.run_program(program)
    return daemon.run_program(program) if outcome.wrong and program.name in CLOCK else outcome


def run_all(daemon: SlicingDaemon, programs: list[Program]) -> dict[str, Outcome]:
    with concurrent.futures.ThreadPoolExecutor(min(WORKERS, os.cpu_count() or 1)) as pool:
        outcomes = list(pool.map(daemon.run_program, [program for program in programs if not _alone(program)]))
    outcomes += [_run_alone(daemon, program) for program in programs if _alone(program)]
    return {outcome.program: outcome for outcome in outcomes}


def _same(whole: Outcome, cut: Outcome, again) -> str:
    """Empty if the cut program's output is what a whole one prints; `again` runs it whole once more."""
    if cut.wrong:
        return cut.wrong
    if cut.lines == whole.lines or whole.lines != again().lines:  # of the latter nothing can be said
        return ""
    return "its output differs"


def _run_cut(daemon: SlicingDaemon, programs: list[Program], size: int, variant: str) -> tuple[list[Outcome], dict]:
    """What they did, and the counters."""
    outcomes = list(run_all(daemon, programs).values())
    counted = daemon.counted()
    say(f"  {variant} of {size}: {counted['launches']} launches as {counted['grid_slices']} grid slices")
    return outcomes, counted


def wrong_when_cut(device: str, programs: list[Program], size: int, variant: str) -> tuple[list[str], dict]:
    """What programs that check their results say was wrong, in words, and the counters."""
    daemon = SlicingDaemon(Setting(device, size, variant=variant))
    try:
        outcomes, counted = _run_cut(daemon, programs, size, variant)
    finally:
        daemon.end()
    bad = [f"{outcome.program}: {outcome.wrong}\n{outcome.output[-500:]}" for outcome in outcomes if outcome.wrong]
    return bad, counted


def mismatches(device: str, programs: list[Program], sizes: tuple[int, ...], variant: str) -> tuple[list[str], dict]:
    """The same of several sizes, and whose output differs from what it is uncut; `kernels` and `refused` are those of
    one size."""
    daemon = SlicingDaemon(Setting(device))
    whole = run_all(daemon, programs)
    bad = [f"{outcome.program}: fails uncut: {outcome.wrong}" for outcome in whole.values() if outcome.wrong]
    sound = [program for program in programs if not whole[program.name].wrong]
    suspects: list[tuple[int, Outcome]] = []
    totals: collections.Counter[str] = collections.Counter()
    refused: dict[str, int] = {}
    for size in sizes:
        daemon = SlicingDaemon(Setting(device, size, variant=variant))
        outcomes, counted = _run_cut(daemon, sound, size, variant)
        suspects += [(size, outcome) for outcome in outcomes
                     if outcome.wrong or outcome.lines != whole[outcome.program].lines]
        totals.update({name: counted[name] for name in COUNTERS})
        totals["kernels"], totals["sliceable"], refused = counted["kernels"], counted["sliceable"], counted["refused"]
    daemon = SlicingDaemon(Setting(device))
    by_name = {program.name: program for program in programs}
    for size, outcome in suspects:
        wrong = _same(whole[outcome.program], outcome, lambda name=outcome.program: daemon.run_program(by_name[name]))
        if wrong:
            bad.append(f"{outcome.program} in {variant} of {size}: {wrong}\n{outcome.output[-500:]}")
    daemon.end()
    return bad, {**totals, "refused": refused}
