"""tools/bench suspend --idle: what falls short."""
from benchmarks import idle

GIB = 1 << 30


STEPS = {"driver": 254.0, "contexts": 260.0, "memory": 5.0, "going_on": 0.1, "other": 2.0}


def row(**fields) -> dict:
    return {"vgpus": 64, "mib_each": 16, "held": GIB, "one_awake": GIB, "accounts": 0, "warm": 0, "first_ms": 390.0,
            "first_longest_ms": 500.0, "next_ms": 0.1, "wrong": 0, "by_step_ms": STEPS, "hurried_ms": 500.0,
            "hurried_by_step_ms": STEPS, **fields}


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
    assert idle.table(row(held=None)).splitlines()[2].split() == ["64", "16", "1024", "-", "0", "390.0", "500.0",
                                                                  "0.10", "0"]


def test_steps_of_a_first_call():
    calls = [{"first_us": 1000.0 * first, "driver_us": 250, "contexts_us": 300, "memory_us": 100, "going_on_us": 50}
             for first in (1, 2, 9)]
    assert idle.by_step(calls) == {"driver": 0.25, "contexts": 0.3, "memory": 0.1, "going_on": 0.05, "other": 1.55}
    assert idle.table(row()).splitlines()[-1].split()[-6:] == ["500.0", "254.0", "260.0", "5.0", "0.1", "2.0"]
