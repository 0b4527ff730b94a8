"""tools/bench suspend: what falls short, and what is drawn."""
from benchmarks import charts, suspend

MIB = 1 << 20


def row(mib: int, **fields) -> dict:
    times = dict.fromkeys(suspend.TIMES, 400.0) | dict.fromkeys(suspend.STEPS, 150.0)
    return {"bytes": mib * MIB, **times, "freed": (mib + 1) * MIB, "gpu_freed": None, "wrong": 0, **fields}


def test_bounds_are_those_of_a_gpu_at_8_gib():
    slow = [row(mib, suspend_ms=501.0, resume_ms=499.0) for mib in (1024, 8192)]
    assert suspend.missed(slow, "cuda:0") == ["suspend takes 501 ms at 8192 MiB, wanted <= 500"]
    assert suspend.missed(slow, "soft") == []
    assert "resume" in suspend.missed([row(8192, resume_ms=900.0)], "cuda:0")[0]


def test_wrong_words_and_memory_that_stays_fall_short():
    assert suspend.missed([row(16, wrong=3)], "soft") == ["16 MiB: 3 words are wrong"]
    assert suspend.missed([row(16, freed=15 * MIB)], "soft") == ["16 MiB: 15 MiB were freed"]


def test_table_and_chart_have_each_size():
    rows = [row(64), row(1024, gpu_freed=1500 * MIB)]
    lines = suspend.table(rows).splitlines()
    assert lines[2].split() == ["64", *["400.0"] * 5, *["150.0"] * 4, "65", "0"]
    assert lines[3].split()[-3:] == ["1025", "1500", "0"]
    (chart,) = charts.from_json(charts.to_json(suspend.drawn(rows, "cuda:0"))).values()
    assert isinstance(chart, charts.Lines)
    assert [series.points for series in chart.series] == 3 * [[(64.0 * MIB, 400.0), (1024.0 * MIB, 400.0)]]
