"""NCCL as PyPI has it, over virtual GPUs of two software devices: 157 MB of PTX, sums held against what is right."""
import pytest

from benchmarks import nccl

RANKS = 2


@pytest.fixture(name="started", scope="module")
def _started(device):
    if device != "soft":
        pytest.skip("tools/bench nccl measures it on GPUs")
    options = nccl.parse(["--device", "soft", "--ranks", str(RANKS), "--sizes", "4096", "--rounds", "1"])
    options.library = nccl.library(options.library)
    daemon = nccl.start(options)
    try:
        yield daemon, options
    finally:
        daemon.end()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["threads", "processes"])
@pytest.mark.parametrize("transport", [nccl.SOCKETS, nccl.ANY])
def test_all_reduce_is_right(started, mode, transport):
    daemon, options = started
    rows = nccl.measure(nccl.BANDSAW, RANKS, mode, transport, daemon, options)
    assert [(row["bytes"], row["wrong"]) for row in rows] == [(4096, 0)]
