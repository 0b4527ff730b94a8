"""The memory share of a virtual GPU between its processes: together they never pass it, and whoever dies leaves it."""
import os
import signal

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import CONTEXT_MIB, direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

NAME = "memory-shares"
SHARE = int(memory_for(4, 256)[:-1]) << 20
BLOCK = 4 << 20


def _start(*arguments) -> Started:
    program = Program(REPO / "tests/direct/fill.cu").compile()
    return Started(program, *arguments, variables=direct_environment(NAME))


def _start_together(programs: list[tuple]) -> list[Started]:
    """Each with its context made before any takes memory: a full share has no room for another context."""
    processes = [_start(*arguments, "wait") for arguments in programs]
    for process in processes:
        process.first_line("ready\n")
    for process in processes:
        process.say()
    return processes


def _running(process: Started) -> list[int]:
    """Waits until the program says that it runs; the numbers it says."""
    return [int(word) for word in process.first_line("running").split()[1:]]


def _finish(process: Started) -> None:
    status, output = process.finish()
    assert status == 0, f"{status}: {output}"


def _used() -> int:
    return int(host.live(NAME)["memory_used"])


@pytest.fixture(autouse=True)
def _ready():
    ensure_direct(NAME, str(SHARE), share=5)
    wait_until(lambda: _used() == 0, 5, "the return of all memory")


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def test_racing_processes_share_what_there_is():
    racing = _start_together([("hold", 3, BLOCK >> 10)] * 4)
    blocks = [_running(process)[0] for process in racing]
    used = _used()
    for process in racing:
        _finish(process)
    assert sum(blocks) * BLOCK <= used <= SHARE, f"{blocks} blocks, {used} bytes in use"
    assert used > SHARE - BLOCK, f"{SHARE - used} bytes are free, and four processes were refused {BLOCK}"
    wait_until(lambda: _used() == 0, 3, "the return of all memory")


def test_the_sum_never_passes_the_share():
    churning = _start_together([("churn", 4, size) for size in (4096, 1024, 256)])
    for process in churning:
        _running(process)
    most = 0
    while any(process.poll() is None for process in churning):
        most = max(most, _used())
        assert most <= SHARE, f"{most} bytes in use of {SHARE}"
    for process in churning:
        _finish(process)
    assert most > SHARE // 2, f"at most {most} bytes were seen in use: no race"
    wait_until(lambda: _used() == 0, 3, "the return of all memory")


def test_free_memory_is_the_whole_virtual_gpus():
    holder = _start("hold", 3, SHARE >> 11)  # half of the share
    taken, before = _running(holder)
    other = _start("hold", 0, SHARE >> 10)
    _, left = _running(other)
    assert taken == 1 and before < SHARE, f"{taken} blocks, {before} bytes free in the beginning"
    assert left <= before - taken * (SHARE >> 1), f"{left} bytes free, while another process holds half of {SHARE}"
    _finish(other)
    _finish(holder)


def test_a_larger_share_is_there_at_once():
    holder = _start("hold", 6, BLOCK >> 10)
    blocks, _ = _running(holder)
    host.vgpuctl("set", NAME, "--memory", str(2 * SHARE))
    try:
        other = _start("hold", 0, BLOCK >> 10)
        more, left = _running(other)
        lost = 2 * BLOCK + (CONTEXT_MIB << 20 if SHARE > 256 << 20 else 0)
        assert more >= (SHARE - lost) // BLOCK and left >= SHARE - lost, f"{more} blocks more, {left} bytes free"
        assert blocks + more <= 2 * SHARE // BLOCK
        _finish(other)
    finally:
        _finish(holder)
        wait_until(lambda: _used() == 0, 5, "the return of all memory")
        host.vgpuctl("set", NAME, "--memory", str(SHARE))


def test_a_killed_processs_memory_is_free_at_once():
    for signal_number in (signal.SIGKILL, signal.SIGTERM):
        holder = _start("hold", 30, BLOCK >> 10)
        blocks, _ = _running(holder)
        assert _used() >= blocks * BLOCK
        holder.send_signal(signal_number)
        holder.wait(timeout=10)
        wait_until(lambda: _used() == 0, 3, "the return of the dead process's memory")
        again = _start("hold", 0, BLOCK >> 10)
        assert _running(again)[0] == blocks, "a fresh program gets less than the dead one had"
        _finish(again)


def test_a_killed_runners_memory_is_free_at_once():
    holder = _start("hold", 4, SHARE >> 11)
    assert _running(holder)[0] > 0
    sibling = _start("churn", 4, 1024)
    _running(sibling)
    runner = next(entry["runner"] for entry in host.live(NAME)["processes"] if entry["pid"] == holder.pid)
    os.kill(runner, signal.SIGKILL)
    holder.wait(timeout=20)
    assert holder.returncode == 3, f"expected a CUDA error, got {holder.returncode}"
    _finish(sibling)
    wait_until(lambda: _used() == 0, 3, "the return of all memory")
