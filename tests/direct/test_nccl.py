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


# What NCCL says of its ways between ranks.
SAID = {("threads", nccl.SOCKETS): "via NET/Socket/", ("processes", nccl.SOCKETS): "via NET/Socket/",
        ("threads", nccl.ANY): "via P2P/direct pointer", ("processes", nccl.ANY): "via P2P/CUMEM"}


@pytest.mark.full
@pytest.mark.parametrize("mode", ["threads", "processes"])
@pytest.mark.parametrize("transport", [nccl.SOCKETS, nccl.ANY])
def test_all_reduce_is_right(started, monkeypatch, tmp_path, mode, transport):
    daemon, options = started
    options.debug = tmp_path
    monkeypatch.setenv("NCCL_P2P_LEVEL", "SYS")  # by itself it does so on hosts of one vendor's CPUs
    rows = nccl.measure(nccl.BANDSAW, RANKS, mode, transport, daemon, options)
    assert [(row["bytes"], row["wrong"]) for row in rows] == [(4096, 0)]
    said = [path.read_text() for path in tmp_path.iterdir()]
    assert len(said) == (1 if mode == "threads" else RANKS)
    assert all(SAID[mode, transport] in text and "NCCL WARN" not in text for text in said)
