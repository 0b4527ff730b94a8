"""Programs of this host need vgpud alone."""
import pytest


@pytest.fixture(scope="session", autouse=True)
def lab(vgpud):
    """Every test here finds it running."""
