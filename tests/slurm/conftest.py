"""One Slurm cluster for all tests here, in a root of its own: three nodes, each a slurmd and a vgpud."""
import pytest

from lab.cuda_programs import Program
from lab.paths import REPO
from lab.slurm_cluster import Cluster


@pytest.fixture(scope="session")
def cluster():
    with Cluster() as running:
        yield running


@pytest.fixture(scope="session")
def program():
    """A CUDA program that needs no arguments and says ok."""
    return Program(REPO / "tests/cuda/vector_add.cu").compile()


@pytest.fixture(autouse=True)
def nothing_left(cluster):
    """Each test ends with empty nodes."""
    yield
    cluster.try_("scancel", "--user=alice")
    cluster.await_empty()
