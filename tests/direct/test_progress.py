"""What tools/bench progress says of two programs that share a GPU, in a short run of it."""
import pytest

from benchmarks import progress_measure
from benchmarks.progress_cases import MPS, NONE, TIME_SLICED, Case, Who
from benchmarks.progress_measure import Setting
from benchmarks.progress_pools import BandsawPool

CASE = Case("kernel+graph 75:25", (Who("kernel", 75), Who("graph", 25, processes=2)))
SECONDS = 2.5
# Whether shares hold is tools/bench progress' to say: a machine that runs tests is not idle.
LEAST_PROGRESS, MOST_PROGRESS = 0.02, 2.0


def alone(setting: Setting) -> list[dict]:
    """What they are held against here, on a GPU too: tests leave its own driver alone."""
    pool = BandsawPool(setting.device, "none", "time-sliced")
    try:
        return [progress_measure.alone(pool, who, NONE, setting) for who in progress_measure.kinds([CASE])]
    finally:
        pool.end()


@pytest.mark.parametrize("sharing", [TIME_SLICED, MPS])
def test_two_programs_beside_each_other_both_make_progress(device, sharing):
    setting = Setting(device, SECONDS, 1, 0.3, NONE)
    assert [row["failed"] for row in alone(setting) if "failed" in row] == []
    pool = BandsawPool(device, "band+", sharing)
    try:
        result = progress_measure.beside(pool, CASE, sharing, setting)
    finally:
        pool.end()
    assert "failed" not in result, result["failed"]
    for row in result["tenants"]:
        assert LEAST_PROGRESS <= row["progress"] <= MOST_PROGRESS, row
        assert 0 <= row["error_points_1s"] <= 100
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert row["steps"] > 2
    assert result["sum"] == pytest.approx(sum(row["progress"] for row in result["tenants"]))
