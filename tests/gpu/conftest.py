"""The lab's vgpud, on the GPU."""
import pytest


@pytest.fixture(scope="session", autouse=True)
def lab(vgpud):
    """Every test here finds it running."""
