"""What programs of a virtual GPU may hold together, beside memory."""
import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO

NAME = "limits"


@pytest.fixture(autouse=True)
def _cleaned_up(lab):
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def test_streams_are_limited_for_all_programs_together():
    ensure_direct(NAME, memory_for(2, 64), share=5)
    program = Program(REPO / "tests/direct/holdings.cu")
    program.compile()

    def streams() -> int:
        status, output = program.run(direct_environment(NAME), 60)
        assert status == 0, f"{status}: {output}"
        count, error = output.split()[:2]
        assert error == ("cudaSuccess" if int(count) == 1000 else "cudaErrorMemoryAllocation")
        return int(count)

    assert streams() == 1000
    host.vgpuctl("set", NAME, "--limit", "streams=40")
    before = host.live(NAME)["limits"]["streams"]
    assert before["most"] == 40
    few = streams()
    assert 30 <= few <= 40
    assert streams() == few, "a program that has ended holds nothing"
