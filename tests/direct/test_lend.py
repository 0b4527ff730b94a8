"""Virtual GPUs whose programs have more memory than they have on the device, and that lend each other some of it."""
import time

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

LENDER, BORROWER = NAMES = ("lender", "borrower")
ROOM_MIB = 64  # beside a program's context
RESIDENT = int(memory_for(1, ROOM_MIB)[:-1]) << 20
BLOCK_MIB = 8
BLOCKS = 3 * ROOM_MIB // 2 // BLOCK_MIB
MEMORY = RESIDENT + (ROOM_MIB << 20)
ROUNDS = 80  # a second or more


@pytest.fixture(autouse=True)
def _ready(lab):
    for name in NAMES:
        ensure_direct(name, str(MEMORY), share=10)
        host.vgpuctl("set", name, "--memory", str(MEMORY), "--resident", str(RESIDENT))
    yield
    for name in NAMES:
        host.vgpuctl("destroy", name, "--force", check=False)


def _start(name: str, rounds: int) -> Started:
    program = Started(Program(REPO / "tests/direct/swap.cu").compile(), BLOCKS, BLOCK_MIB, rounds, "wait",
                      variables=direct_environment(name))
    program.first_line("ready")
    return program


def _finish(process: Started) -> None:
    status, output = process.finish()
    assert (status, output.endswith("ok\n")) == (0, True), f"{status}: {output}"


def _on_device(live: dict) -> int:
    return live["memory_used"] - live["memory_swapped"]


def _together() -> int:
    """On the device at one moment: what one has grows while what the other has shrinks."""
    before, other, after = (_on_device(host.live(name)) for name in (LENDER, BORROWER, LENDER))
    return min(before, after) + other


def _has_all(name: str) -> bool:
    """But for what is small and not in use."""
    live = host.live(name)
    return live["memory_swapped"] < 1 << 20 and live["memory_borrowed"] > 0


def test_who_rests_lends_and_has_it_back_when_it_works():
    lender, borrower = _start(LENDER, 9), _start(BORROWER, ROUNDS)
    borrower.say()
    wait_until(lambda: _has_all(BORROWER), 5, "the borrower's memory on the device")
    lent, borrowed = host.live(LENDER)["memory_lent"], host.live(BORROWER)["memory_borrowed"]
    assert lent >= borrowed > 0
    assert "borrowed)" in host.vgpuctl("show", BORROWER).stdout and "lent)" in host.vgpuctl("show", LENDER).stdout
    lender.say()
    wait_until(lambda: host.live(LENDER)["memory_lent"] == 0, 5, "the lender's memory")
    _finish(lender)
    _finish(borrower)


def test_together_they_have_no_more_than_is_reserved():
    programs = [_start(name, ROUNDS // 10) for name in NAMES]
    most = 0
    for _ in range(2):
        for program in programs:
            program.say()
        while any(program.poll() is None for program in programs):
            # Memory that goes there and back between the three readings seems to be more, but not twice in a row.
            most = max(most, min(_together() for _ in range(2)))
            time.sleep(0.005)
        for program in programs:
            _finish(program)
        programs = [_start(name, 3) for name in NAMES]
    for program in programs:
        program.kill()
    assert most <= 2 * RESIDENT, f"{most} bytes were on the device, and {2 * RESIDENT} may be"
