"""tools/bench suspend --idle: what falls short."""
from benchmarks import idle

GIB = 1 << 30


def row(**fields) -> dict:
    return {"vgpus": 64, "mib_each": 16, "held": GIB, "one_awake": GIB, "accounts": 0, "warm": 0, "first_ms": 390.0,
            "first_longest_ms": 500.0, "next_ms": 0.1, "wrong": 0, **fields}


def test_what_is_wanted_of_a_gpu():
    assert idle.missed(row(), "cuda:0") == []
    assert idle.missed(row(held=3 * GIB), "cuda:0") == ["64 that sleep hold 3.00 GiB, wanted <= 2"]
    assert idle.missed(row(held=3 * GIB, vgpus=128), "cuda:0") == []
    assert "takes 401 ms" in idle.missed(row(first_ms=401.0), "cuda:0")[0]


def test_what_is_wanted_everywhere():
    assert idle.missed(row(first_ms=9000.0, held=None), "soft") == []
    assert idle.missed(row(wrong=1), "soft") == ["1 words are wrong"]
    assert "5 bytes on the device and 0 warm" in idle.missed(row(accounts=5), "soft")[0]
    assert "2 warm runners" in idle.missed(row(warm=2), "soft")[0]


def test_the_table_has_a_dash_where_nothing_was_measured():
    assert idle.table(row(held=None)).splitlines()[-1].split() == ["64", "16", "1024", "-", "0", "390.0", "500.0",
                                                                   "0.10", "0"]
