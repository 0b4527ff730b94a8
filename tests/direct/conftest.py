"""Programs of this host need vgpud alone."""
import pathlib

import pytest


@pytest.fixture(scope="session", autouse=True)
def lab(vgpud):
    """Every test here finds it running."""


@pytest.fixture(name="file")
def _file(tmp_path) -> pathlib.Path:
    """That a virtual GPU is saved in; it is not there yet."""
    return tmp_path / "sleeper.save"
