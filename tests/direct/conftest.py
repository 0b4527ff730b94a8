"""Programs of this host need vgpud alone."""
import pathlib

import pytest

from lab import nvml_tools
from lab.paths import BUILD
from lab.shell import Failure


@pytest.fixture(scope="session", autouse=True)
def lab(vgpud):
    """Every test here finds it running."""


@pytest.fixture(autouse=True)
def _no_program_stays(request):
    """Of a test that failed: the next one counts its own only."""
    yield
    if "tenant" in request.fixturenames:
        request.getfixturevalue("tenant").kill_programs()


@pytest.fixture(name="file")
def _file(tmp_path) -> pathlib.Path:
    """That a virtual GPU is saved in; it is not there yet."""
    return tmp_path / "sleeper.save"


@pytest.fixture(scope="session")
def nvidia_smi(device) -> pathlib.Path:
    """Debian's; the Python tools that watch GPUs are there too."""
    if not (BUILD / "guest-driver/nvml/libnvidia-ml.so.1").exists():
        pytest.skip("built without nvml.h")
    try:
        nvml_tools.python()
        return nvml_tools.nvidia_smi()
    except (Failure, OSError) as failure:
        if device == "soft":
            raise
        pytest.skip(f"needs programs from PyPI and Debian, and a machine with a GPU may have no network: {failure}")
