"""tools/bench swap: several tasks at once, more of them than have room (Gdev's figures 12 and 13).

The sizes are the paper's, by the pool: of a GPU of 1.6 GB, a task with 1 GB runs all the time while tasks with 128 MB
have a number of rounds to do; or the tasks with 128 MB alone, where one of so many equal virtual GPUs is theirs."""
import contextlib
import time

from benchmarks.swap_cases import (
    BESIDE_MIB,
    SLACK_MIB,
    NoMemory,
    Rounder,
    Settings,
    daemon_for,
    moved,
    rounder,
    virtual_gpu,
)
from lab.daemon import Daemon
from lab.shell import step

GPU_MB, LARGE_MB, SMALL_MB = 1600, 1000, 128
COUNTS = (1, 2, 3, 4, 6, 8)  # of tasks
PARTS = (1, 2, 4)            # virtual GPUs
LENGTH = 10                  # rounds of a task, by those that were asked for
NAME = "tasks"


def sized(settings: Settings, mb: int) -> int:
    """MiB of the pool, in whole blocks."""
    return max(1, round(settings.pool_mib * mb / GPU_MB / settings.block_mib)) * settings.block_mib


def _makespan(programs: list[Rounder], rounds: int) -> float:
    begin = time.monotonic()
    for program in programs:
        program.tell("rounds", rounds)
    for program in programs:
        program.answer("rounds")
    return time.monotonic() - begin


def _tasks(daemon: Daemon, settings: Settings, variables: dict[str, str], count: int, rounds: int) -> dict:
    small = sized(settings, SMALL_MB)
    with contextlib.ExitStack() as stack:
        programs = [stack.enter_context(rounder(settings, small, variables)) for _ in range(count)]
        _makespan(programs, 1)
        before = moved(daemon, NAME)
        seconds = _makespan(programs, LENGTH * rounds)
        return {"tasks": count, "seconds": seconds, **moved(daemon, NAME).since(before),
                "wrong": sum(program.end() for program in programs)}


def _room(settings: Settings) -> int:
    """Memory for all that a case may have."""
    return sized(settings, LARGE_MB) + max(COUNTS) * (sized(settings, SMALL_MB) + BESIDE_MIB[settings.kind])


def _have_room(daemon: Daemon, settings: Settings, count: int) -> bool:
    with virtual_gpu(daemon, settings, NAME, settings.pool_mib, programs=count + 1) as variables:
        with contextlib.ExitStack() as stack:
            stack.enter_context(rounder(settings, sized(settings, LARGE_MB), variables))
            try:
                for _ in range(count):
                    stack.enter_context(rounder(settings, sized(settings, SMALL_MB), variables))
            except NoMemory:
                return False
    return True


def _that_fit(daemon: Daemon, settings: Settings) -> int:
    """Tasks beside the large one, where all memory is on the device."""
    return next((count - 1 for count in range(1, max(COUNTS) + 1) if not _have_room(daemon, settings, count)),
                max(COUNTS))


def beside_a_large_one(settings: Settings, rounds: int) -> list[dict]:
    rows = []
    with daemon_for(settings, _room(settings) + SLACK_MIB) as daemon:
        with step("how many tasks fit without swapping"):
            fit = _that_fit(daemon, settings)
        for count in COUNTS:
            with step(f"{count} tasks beside a large one"), virtual_gpu(
                    daemon, settings, NAME, _room(settings), settings.pool_mib, count + 1) as variables:
                with rounder(settings, sized(settings, LARGE_MB), variables) as large:
                    large.tell("turn", 3_600_000)  # until it is killed
                    rows.append({"fit": fit, **_tasks(daemon, settings, variables, count, rounds)})
    return rows


def on_a_part(settings: Settings, rounds: int) -> list[dict]:
    rows = []
    with daemon_for(settings, _room(settings) + SLACK_MIB) as daemon:
        for parts in PARTS:
            for count in COUNTS:
                with step(f"{count} tasks on one of {parts} virtual GPUs"), virtual_gpu(
                        daemon, settings, NAME, _room(settings), settings.pool_mib // parts, count) as variables:
                    rows.append({"parts": parts, **_tasks(daemon, settings, variables, count, rounds)})
    return rows
