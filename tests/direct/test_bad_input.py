"""Programs that give CUDA whatever is wrong, beside one that does everything right: it and their session go on."""
import os
import subprocess
import tempfile

import pytest

from lab import cuda_programs, host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until

NAME = "bad-input"


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


# Each brings other things to the host side; tests/cuda has more of each kind.
PROGRAMS = ["bad_copy_addresses", "bad_frees", "bad_launches", "corrupt_images", "fault_illegal_address", "fault_trap",
            "out_of_memory_kinds", "stale_handles"]


def test_bad_input_harms_nobody_else():
    ensure_direct(NAME, memory_for(2, 1024), share=5)
    chosen = [program for program in cuda_programs.programs() if program.name in PROGRAMS]
    busy = Program(REPO / "tests/direct/busy.cu").compile()
    cuda_programs.compile_all(chosen)
    environment = direct_environment(NAME)
    with tempfile.TemporaryFile("w+") as said:
        neighbour = subprocess.Popen([busy, "600", "1"], stdout=said, stderr=subprocess.STDOUT, env=environment)
        try:
            wait_until(lambda: os.fstat(said.fileno()).st_size > 0, 20, "the neighbour's first round")
            session = host.live(NAME)["pid"]
            for program in chosen:
                status, output = program.run(environment, 60)
                wrong = program.judge(status, output)
                assert not wrong, f"{program.name}: {wrong}\n{output[-500:]}"
                assert host.live(NAME)["pid"] == session, f"{program.name} took the session away"
            rounds = os.fstat(said.fileno()).st_size
            wait_until(lambda: os.fstat(said.fileno()).st_size > rounds, 20, "one more round of the neighbour")
        finally:
            neighbour.kill()  # it ends by itself only when something is wrong
            neighbour.wait()
    wait_until(lambda: not host.live(NAME)["processes"], 10, "the runners' end")
    wait_until(lambda: int(host.live(NAME)["memory_used"]) == 0, 10, "the return of all memory")
