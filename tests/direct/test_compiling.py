"""What a program says while the software device compiles its kernels."""
import os
import secrets
import subprocess

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO

NAME = "compiling"
LINE = "libcuda (bandsaw): compiling 1 kernel"
STEPS = 3000  # of some seconds


@pytest.fixture(scope="module", autouse=True)
def _vgpu(lab):
    if os.environ.get("BANDSAW_LAB_DEVICE", "soft") != "soft":
        pytest.skip("a GPU's driver compiles by itself")
    ensure_direct(NAME, memory_for(1, 64), share=5)
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _run(seed: int, steps: int, **variables: str) -> tuple[str, str]:
    program = Program(REPO / "tests/direct/compiling.cu").compile()
    done = subprocess.run([program, str(seed), str(steps)], capture_output=True, text=True, check=False, timeout=120,
                          env={**direct_environment(NAME), **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_a_compilation_that_takes_long_is_said_once():
    seed = secrets.randbits(31)
    first, said = _run(seed, STEPS)
    assert said.count(LINE) == 1, said
    again, said = _run(seed, STEPS)
    assert (again, said) == (first, ""), "what is in the cache is not compiled"


def test_nothing_is_said_of_a_short_one_or_if_the_log_is_off():
    assert _run(secrets.randbits(31), 10)[1] == ""
    assert _run(secrets.randbits(31), STEPS, BANDSAW_LOG="off")[1] == ""
