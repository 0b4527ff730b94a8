"""Managed memory whose program dies while it moves: nothing is left behind, and others go on."""
import signal
import time

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

NAME = "managed-killed"


def _used() -> int:
    return int(host.live(NAME)["memory_used"])


@pytest.fixture(autouse=True)
def _ready(lab):
    ensure_direct(NAME, memory_for(2, 512), share=10)
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _start(name: str) -> Started:
    program = Program(REPO / f"tests/cuda/{name}.cu").compile()
    return Started(program, variables=direct_environment(NAME))


@pytest.mark.parametrize("name", ["managed_larger", "managed_stress"])
def test_a_program_killed_while_memory_moves_leaves_nothing(name):
    for milliseconds in (200, 450, 700, 1500):
        victim = _start(name)
        time.sleep(milliseconds / 1000)
        victim.send_signal(signal.SIGKILL)
        victim.wait(timeout=10)
        wait_until(lambda: _used() == 0, 5, "the return of the dead program's memory")
    status, output = _start("managed_moves").finish()
    assert status == 0, f"{status}: {output}"
