"""Programs with more memory than their virtual GPU has on the device."""
import functools
import os
import signal
import time

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

NAME = "swap"
ROOM_MIB = 64  # beside the contexts of two programs
RESIDENT = int(memory_for(2, ROOM_MIB)[:-1]) << 20
BLOCK = 8 << 20
BLOCKS = 2 * RESIDENT // BLOCK
MEMORY = RESIDENT + BLOCKS * BLOCK


def _live() -> dict:
    return host.live(NAME)


@pytest.fixture(autouse=True)
def _ready(lab):
    ensure_direct(NAME, str(MEMORY), share=10)
    host.vgpuctl("set", NAME, "--memory", str(MEMORY), "--resident", str(RESIDENT))
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _has_moved(before: int) -> bool:
    return _live()["usage"]["swapped_out"] > before


def _start(*arguments) -> Started:
    return Started(Program(REPO / "tests/direct/swap.cu").compile(), *arguments, variables=direct_environment(NAME))


def _finish(process: Started) -> None:
    status, output = process.finish()
    assert (status, output.endswith("ok\n")) == (0, True), f"{status}: {output}"


def test_twice_what_is_resident_is_right():
    program = _start(BLOCKS, BLOCK >> 20, 9, "wait")
    program.first_line("ready")
    before = _live()
    assert before["memory_used"] >= BLOCKS * BLOCK and before["memory_swapped"] >= BLOCKS * BLOCK - RESIDENT
    assert before["memory_used"] - before["memory_swapped"] <= RESIDENT == before["memory_resident"]
    program.say()
    most = 0
    while program.poll() is None:
        live = _live()
        most = max(most, live["memory_used"] - live["memory_swapped"])
        time.sleep(0.01)
    _finish(program)
    assert most <= RESIDENT, f"{most} bytes were on the device, and {RESIDENT} may be"
    usage = _live()["usage"]
    assert usage["swapped_in"] >= BLOCK and usage["swapped_out"] >= BLOCK, f"{usage}"
    wait_until(lambda: _live()["memory_used"] == _live()["memory_swapped"] == 0, 5, "the return of all memory")


def test_memory_that_has_left_is_reached_in_every_way():
    program = Program(REPO / "tests/direct/swap_reach.cu").compile()
    _finish(Started(program, BLOCKS, BLOCK >> 20, variables=direct_environment(NAME)))
    usage = _live()["usage"]
    assert usage["swap_mapped"] > 0, f"nothing had left with nothing at its addresses: {usage}"


def test_what_only_its_parameters_point_into_is_not_mapped_in_host_memory():
    program = Started(Program(REPO / "tools/benchmarks/programs/swapped.cu").compile(), "device", BLOCKS, BLOCK >> 20,
                      1, 0, variables=direct_environment(NAME))
    program.first_line("ready")

    def goes_round_unmapped() -> bool:
        before = _live()["usage"]
        program.say("rounds 1")
        assert program.line(30).startswith("{")
        after = _live()["usage"]
        assert after["swapped_out"] > before["swapped_out"]
        return after["swap_mapped"] == before["swap_mapped"]

    wait_until(goes_round_unmapped, 30, "what its kernel reaches is known")
    assert goes_round_unmapped()
    program.say("end")
    assert program.finish() == (0, '{"wrong":0}\n')


def test_what_fits_does_not_move():
    before = _live()["usage"]
    _finish(_start((ROOM_MIB << 20) // BLOCK // 2, BLOCK >> 20, 9))
    after = _live()["usage"]
    assert (after["swapped_in"], after["swapped_out"]) == (before["swapped_in"], before["swapped_out"])


def test_more_than_was_promised_is_out_of_memory():
    status, output = _start(MEMORY // BLOCK + 1, BLOCK >> 20, 1).finish()
    assert (status, output) == (3, "cudaMalloc: cudaErrorMemoryAllocation\n")
    _finish(_start(BLOCKS, BLOCK >> 20, 1))


def test_a_full_host_loses_nothing():
    """Both sides are full: the next allocation fails as on a full GPU, and what there is stays right and moves on."""
    _finish(_start(2 * MEMORY // BLOCK, BLOCK >> 20, 9, "full"))
    wait_until(lambda: _live()["memory_used"] == _live()["memory_swapped"] == 0, 5, "the return of all memory")


def test_two_programs_stay_within_what_is_resident_together():
    programs = [_start(BLOCKS // 2, BLOCK >> 20, 9, "wait") for _ in range(2)]
    for program in programs:
        program.first_line("ready")
    for program in programs:
        program.say()
    most = 0
    while any(program.poll() is None for program in programs):
        live = _live()
        most = max(most, live["memory_used"] - live["memory_swapped"])
        time.sleep(0.01)
    for program in programs:
        _finish(program)
    assert most <= RESIDENT, f"{most} bytes were on the device, and {RESIDENT} may be"


def test_a_program_that_rests_makes_room_for_what_can_lie_nowhere_else():
    """Of another program: it fills the device, and 48 MiB of a pool come beside it."""
    resting = _start(BLOCKS, BLOCK >> 20, 9, "wait")
    resting.first_line("ready")
    before = _live()
    kept_free = 2 * min(RESIDENT // 16, 32 << 20)  # for chunks that change places
    assert before["memory_used"] - before["memory_swapped"] > RESIDENT - kept_free - 2 * BLOCK
    other = Started(Program(REPO / "tests/direct/pool_room.cu").compile(), 48, variables=direct_environment(NAME))
    _finish(other)
    assert _live()["usage"]["swapped_out"] > before["usage"]["swapped_out"]
    resting.say()
    _finish(resting)


def test_a_program_killed_while_memory_moves_leaves_nothing():
    for milliseconds in (20, 60, 150, 400):
        victim = _start(BLOCKS, BLOCK >> 20, 1000, "wait")
        victim.first_line("ready")
        victim.say()
        time.sleep(milliseconds / 1000)
        victim.send_signal(signal.SIGKILL)
        victim.wait(timeout=10)
        wait_until(lambda: _live()["memory_used"] == _live()["memory_swapped"] == 0, 5, "the dead program's memory")
    _finish(_start(BLOCKS, BLOCK >> 20, 5))


def test_a_runner_killed_while_memory_moves_leaves_nothing():
    for milliseconds in (20, 60, 150):
        program = _start(BLOCKS, BLOCK >> 20, 1000, "wait")
        program.first_line("ready")
        (process,) = _live()["processes"]
        moved = functools.partial(_has_moved, _live()["usage"]["swapped_out"])
        program.say()
        wait_until(moved, 10, "a move")
        time.sleep(milliseconds / 1000)
        os.kill(process["runner"], signal.SIGKILL)
        status, output = program.finish(20)
        assert status == 3 and "cudaErrorDevicesUnavailable" in output, f"{status}: {output}"
        wait_until(lambda: _live()["memory_used"] == _live()["memory_swapped"] == 0, 5, "the dead runner's memory")
    _finish(_start(BLOCKS, BLOCK >> 20, 5))


def test_bad_sizes_are_refused_with_their_cause():
    for arguments, cause in ((("--resident", str(MEMORY + 1)), "more than the memory that programs may allocate"),
                             (("--resident", "1M"), "below the least"),
                             (("--memory", "100T", "--resident", "64M"), "that 'swap.memory' allows")):
        refused = host.vgpuctl("set", NAME, *arguments, check=False)
        assert refused.returncode == 1 and cause in refused.stderr + refused.stdout, refused
