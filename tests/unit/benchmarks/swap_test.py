"""tools/bench swap: what falls short, and the sizes of its tasks."""
import dataclasses

from benchmarks import swap, swap_tasks
from benchmarks.swap_cases import BANDSAW, Moved, Settings

MOVED = dataclasses.asdict(Moved(1 << 30, 1 << 30, 40, 0.1, 0.2, 1 << 30, 3))


def rounds(seconds: float, **fields) -> dict:
    ways = {BANDSAW: {"seconds": seconds, "wrong": 0, **MOVED, **fields}, "other": {"seconds": 0.5, "wrong": 0}}
    return {"case": swap.ROUNDS, "working_set": 2 << 30, "resident": 1 << 30, "bound_s": 1.0, "ways": ways,
            "copies": {"in_bytes_per_s": 5e10, "out_bytes_per_s": 5e10}}


def turns(*lost: float) -> dict:
    tenants = {str(number): {"per_s": 1.0, "alone_per_s": 2.0, "lost": one, "wrong": 0, "rates": [1.0],
                             "made_in_turn": [1 << 30], **MOVED}
               for number, one in enumerate(lost)}
    return {"case": swap.TURNS, "pool": 4 << 30, "working_set": 3 << 30, "turns": 4, "turn_s": 1.0, "tenants": tenants}


def test_what_is_wanted_of_a_gpu():
    assert swap.missed([rounds(1.2), turns(10, 20)], "cuda:0") == []
    assert "takes 1.30 of the transfer bound" in swap.missed([rounds(1.3)], "cuda:0")[0]
    assert "lose 16.0 %" in swap.missed([turns(12, 20)], "cuda:0")[0]


def test_what_is_wanted_everywhere():
    assert swap.missed([rounds(9), turns(90, 90)], "soft") == []
    assert swap.missed([rounds(1, wrong=3)], "soft") == [f"{BANDSAW}: 3 words are wrong"]
    assert swap.missed([rounds(1, bytes_in=0)], "soft") == ["nothing was moved"]
    tasks = {"case": swap.TASKS, "tasks": 4, "seconds": 1.0, "fit": 3, "wrong": 2, **MOVED}
    assert swap.missed([tasks], "soft") == ["4 tasks: 2 words are wrong"]
    assert swap.table([rounds(1), turns(1, 1), tasks]).splitlines()[-1].startswith("(without swapping 3 have room")


def test_tasks_have_the_papers_parts_of_the_pool():
    settings = Settings("gpu", 16000, 10, 1)
    assert (swap_tasks.sized(settings, 1000), swap_tasks.sized(settings, 128)) == (10000, 1280)
    assert swap_tasks.sized(Settings("soft", 128, 2, 1), 128) == 10
