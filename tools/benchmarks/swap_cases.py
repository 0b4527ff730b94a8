"""tools/bench swap: its programs and their virtual GPUs; what each case measures."""
import contextlib
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator

from benchmarks.asked import Asked
from benchmarks.basic import Figure
from lab import host
from lab.daemon import Daemon
from lab.guest_run import CONTEXT_MIB, native_environment
from lab.shell import Failure, step
from lab.started import Started

BANDSAW, FITS = "Bandsaw, half of it resident", "Bandsaw, all resident"
NATIVE, MANAGED = "bare driver, all resident", "bare driver, managed, half of it fits"
ANSWER_S = 300
COPIES = 8  # of a block, each way, for the rates of both directions
BESIDE_MIB = {"soft": 1, "gpu": CONTEXT_MIB}  # of a share: what a program has before it asks for memory
SLACK_MIB = 256  # host memory for moving, beside what lies there: of each virtual GPU


@dataclasses.dataclass
class Settings:
    kind: str  # soft or gpu
    pool_mib: int
    block_mib: int
    times: int
    moves: pathlib.Path | None = None  # what the sessions' logs say of each move goes there

    @property
    def device(self) -> str:
        return "cuda:0" if self.kind == "gpu" else "soft"

    def blocks(self, mib: int) -> int:
        return mib // self.block_mib


class NoMemory(Failure):
    """A program's first allocations failed for lack of room."""


class Rounder(Asked):
    """A program that goes round its blocks when it is told to."""

    def __init__(self, settings: Settings, mib: int, variables: dict[str, str], managed_of_mib: int = 0):
        words = ["managed" if managed_of_mib else "device", settings.blocks(mib), settings.block_mib, settings.times]
        program = Started(Figure("swapped").compile(), *words, managed_of_mib, variables=variables)
        super().__init__(program, "the program", ANSWER_S)
        if (line := program.stdout.readline()) != "ready\n":
            status, more = program.finish()
            error = NoMemory if "out of memory" in line + more else Failure
            raise error(f"the program did not begin: {status}: {line}{more[-2000:]}")


@contextlib.contextmanager
def rounder(*arguments) -> Iterator[Rounder]:
    one = Rounder(*arguments)
    try:
        yield one
    finally:
        one.kill()


@contextlib.contextmanager
def daemon_for(settings: Settings, swap_mib: int) -> Iterator[Daemon]:
    tables = {"swap": {"memory": f"{swap_mib}M"}}
    devices: list[str | dict] = []
    if settings.kind == "soft":
        devices = [{"name": "soft:0", "memory": f"{max(1024, 4 * settings.pool_mib)}M"}]
    with _debug_log() if settings.moves else contextlib.nullcontext():
        daemon = Daemon(settings.device, "band+", name="swap-bench", tables=tables, devices=devices)
    try:
        yield daemon
    finally:
        daemon.end()


@contextlib.contextmanager
def _debug_log() -> Iterator[None]:
    """Of what is started meanwhile."""
    before = os.environ.get("BANDSAW_LOG")
    os.environ["BANDSAW_LOG"] = "debug"
    try:
        yield
    finally:
        del os.environ["BANDSAW_LOG"]
        if before is not None:
            os.environ["BANDSAW_LOG"] = before


def _keep_moves(file: pathlib.Path, name: str, log: pathlib.Path) -> None:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    with open(file, "a") as kept:
        kept.writelines(f"{name}: {line}\n" for line in lines if "chunks" in line or "did not end" in line)


@contextlib.contextmanager
def virtual_gpu(daemon: Daemon, settings: Settings, name: str, mib: int, resident_mib: int = 0,
                programs: int = 1) -> Iterator[dict[str, str]]:
    """Memory for `mib` MiB of programs; what a program needs to run there."""
    beside = programs * BESIDE_MIB[settings.kind]
    words = ["--resident", f"{resident_mib + beside}M"] if resident_mib else []
    host.vgpuctl("create", name, "--memory", f"{mib + beside}M", *words, variables=daemon.variables)
    try:
        yield daemon.program_environment(name)
    finally:
        if settings.moves:
            _keep_moves(settings.moves, name, daemon.session_log(name))
        daemon.destroy(name)


@dataclasses.dataclass
class Moved:
    """What a virtual GPU's memory has done so far: bytes each way, and seconds in which its programs' work waited: for
    the end of earlier work, and while memory moved."""
    bytes_in: float
    bytes_out: float
    moves: float
    wait_s: float
    move_s: float
    made: float    # bytes of host memory
    mapped: float  # chunks that had left, in host memory

    def since(self, before: "Moved", parts: int = 1) -> dict[str, float]:
        """Of each of so many equal parts."""
        mine, earlier = dataclasses.asdict(self), dataclasses.asdict(before)
        return {key: (mine[key] - earlier[key]) / parts for key in mine}


def moved(daemon: Daemon, name: str) -> Moved:
    usage = daemon.control.need("GET", f"/v1/vgpus/{name}")["live"]["usage"]
    return Moved(usage["swapped_in"], usage["swapped_out"], usage["swap_moves"], usage["swap_wait_ns"] / 1e9,
                 usage["swap_move_ns"] / 1e9, usage["swap_made"], usage["swap_mapped"])


def _go_round(program: Rounder, rounds: int) -> dict:
    program.ask("rounds", 1)
    return {"seconds": program.ask("rounds", rounds)["seconds"] / rounds}


def _swapped_rounds(daemon: Daemon, settings: Settings, mib: int, rounds: int) -> dict:
    with virtual_gpu(daemon, settings, "half", mib + settings.block_mib, settings.pool_mib) as variables:
        with rounder(settings, mib, variables) as program:
            program.ask("rounds", 1)
            before = moved(daemon, "half")
            seconds = program.ask("rounds", rounds)["seconds"] / rounds
            return {"seconds": seconds, **moved(daemon, "half").since(before, rounds), "wrong": program.end()}


def _fitting_rounds(variables: dict[str, str], settings: Settings, mib: int, rounds: int,
                    managed_of_mib: int = 0) -> dict:
    with rounder(settings, mib, variables, managed_of_mib) as program:
        return {**_go_round(program, rounds), "wrong": program.end()}


def rounds(settings: Settings, count: int) -> dict:
    """One program, with twice what is resident; the times are of one round."""
    mib = 2 * settings.pool_mib
    ways: dict[str, dict] = {}
    with daemon_for(settings, mib + SLACK_MIB) as daemon:
        with step(f"{mib} MiB, {settings.pool_mib} MiB resident, {count} rounds"):
            ways[BANDSAW] = _swapped_rounds(daemon, settings, mib, count)
        room = mib + 3 * settings.block_mib
        with step(f"{mib} MiB, all resident"), virtual_gpu(daemon, settings, "all", room) as its:
            ways[FITS] = _fitting_rounds(its, settings, mib, count)
            own = native_environment() if settings.kind == "gpu" else its
            with rounder(settings, settings.block_mib, own) as copier:
                copies = copier.ask("copies", COPIES)
    if settings.kind == "gpu":
        with step("the bare driver, all resident"):
            ways[NATIVE] = _fitting_rounds(native_environment(), settings, mib, count)
        with step("the bare driver, managed memory"):
            ways[MANAGED] = _fitting_rounds(native_environment(), settings, mib, count, settings.pool_mib)
    one = ways[BANDSAW]
    bound = max(one["bytes_in"] / copies["in_bytes_per_s"], one["bytes_out"] / copies["out_bytes_per_s"])
    if bound == 0:
        raise Failure("nothing was moved")
    return {"working_set": mib << 20, "resident": settings.pool_mib << 20, "bound_s": bound, "copies": copies,
            "ways": ways}


def _rate(turns: list[dict]) -> float:
    return sum(one["steps"] for one in turns) / sum(one["seconds"] for one in turns)


def _alone(daemon: Daemon, settings: Settings, mib: int, count: int, milliseconds: int) -> list[dict]:
    room = mib + settings.block_mib
    with virtual_gpu(daemon, settings, "alone", room) as variables, rounder(settings, mib, variables) as program:
        program.ask("rounds", 1)
        turns_alone = [program.ask("turn", milliseconds) for _ in range(count)]
        if wrong := program.end():
            raise Failure(f"alone, {wrong} words are wrong")
        return turns_alone


def turns(settings: Settings, count: int, seconds: float) -> dict:
    """Two programs, each on a virtual GPU of 0.75 of the pool's memory and half of the pool for certain. Each goes
    round its memory once before the first turn, as alone: host memory for what leaves is made then. What one does alone
    is measured before and after them."""
    mib = settings.pool_mib * 3 // 4 // settings.block_mib * settings.block_mib
    milliseconds = round(1000 * seconds)
    half = (count + 1) // 2
    with daemon_for(settings, 2 * (mib + SLACK_MIB)) as daemon:
        with step(f"{mib} MiB alone, {half} turns"):
            turns_alone = _alone(daemon, settings, mib, half, milliseconds)
        tenants = _in_turns(daemon, settings, mib, count, milliseconds)
        with step(f"{mib} MiB alone, {half} turns more"):
            alone = _rate(turns_alone + _alone(daemon, settings, mib, half, milliseconds))
    for one in tenants.values():
        one |= {"alone_per_s": alone, "lost": 100 * (1 - one["per_s"] / alone)}
    return {"pool": settings.pool_mib << 20, "working_set": mib << 20, "turns": count, "turn_s": seconds,
            "tenants": tenants}


def _in_turns(daemon: Daemon, settings: Settings, mib: int, count: int, milliseconds: int) -> dict[str, dict]:
    names = ("first", "second")
    found: dict[str, list[dict]] = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        with step(f"two programs of {mib} MiB in a pool of {settings.pool_mib} MiB begin"):
            programs = {name: stack.enter_context(rounder(
                settings, mib, stack.enter_context(virtual_gpu(daemon, settings, name, mib + settings.block_mib,
                                                               settings.pool_mib // 2))))
                        for name in names}
            for program in programs.values():
                program.ask("rounds", 1)
        before = {name: moved(daemon, name) for name in names}
        turn: dict[str, list[Moved]] = {name: [] for name in names}
        with step(f"{count} turns of each", count) as progress:
            for _ in range(count):
                for name, program in programs.items():
                    found[name].append(program.ask("turn", milliseconds))
                    turn[name].append(moved(daemon, name))
                progress.advance()
        after = {name: moved(daemon, name) for name in names}
        wrong = {name: program.end() for name, program in programs.items()}
    return {name: {"per_s": _rate(found[name]), **after[name].since(before[name]), "wrong": wrong[name],
                   "rates": [one["steps"] / one["seconds"] for one in found[name]],
                   "made_in_turn": [now.made - last.made
                                    for last, now in itertools.pairwise([before[name], *turn[name]])]}
            for name in names}
