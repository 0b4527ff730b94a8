"""tools/bench progress: from made-up times of steps to progress, errors and verdicts."""
import pytest

from benchmarks import progress_cases, progress_tables
from benchmarks.charts import Bars, Lines
from benchmarks.progress_cases import NATIVE, PRIORITY, SHARINGS, TIME_SLICED, Case, Want, Who, judge
from benchmarks.progress_math import (
    MS,
    SECOND,
    Steps,
    Tenant,
    error_points,
    percentile,
    rate,
    tenant_figures,
    whole_shares,
)


def regular(length_ms: float, seconds: float, pause_ms: float = 0) -> Steps:
    """Steps of one length from zero on."""
    steps, at = [], 0
    while at < seconds * SECOND:
        steps.append((at, at + int(length_ms * MS)))
        at = steps[-1][1] + int(pause_ms * MS)
    return Steps(steps)


def test_a_step_under_way_counts_by_its_time_that_has_passed():
    steps = Steps([(0, 100), (100, 300), (500, 600)])
    assert steps.done_by(50) == 0.5
    assert steps.done_by(100) == 1
    assert steps.done_by(150) == 1.25
    assert steps.done_by(400) == 2  # between steps nothing is done
    assert steps.done(50, 550) == 2
    assert steps.done_by(10_000) == 3


def test_steps_that_lie_over_each_other_are_refused():
    with pytest.raises(ValueError, match="over each other"):
        Steps([(0, 100), (90, 200)])
    with pytest.raises(ValueError, match="over each other"):
        Steps([(100, 90)])


def test_progress_is_the_sum_of_all_processes_against_alone():
    four = [regular(40, 3) for _ in range(4)]
    assert rate(four, 0, 2 * SECOND) == pytest.approx(100)
    assert Tenant(50, 200, four).progress(0, 2 * SECOND) == pytest.approx(0.5)


def test_who_gets_just_what_was_promised_has_no_error():
    # 75:25 of what they do alone, one of them in steps that take longer than a window.
    tenants = [Tenant(75, 100, [regular(10 / 0.75, 4)]), Tenant(25, 1000 / 163, [regular(163 / 0.25, 4)])]
    assert error_points(tenants, 0, 3 * SECOND, SECOND) == pytest.approx([0, 0], abs=0.1)
    assert error_points(tenants, 0, 3 * SECOND, SECOND // 10) == pytest.approx([0, 0], abs=1)


def test_shares_turned_round_are_fifty_points_off():
    tenants = [Tenant(75, 100, [regular(40, 4)]), Tenant(25, 100, [regular(10 / 0.75, 4)])]
    assert error_points(tenants, 0, 3 * SECOND, SECOND) == pytest.approx([50, 50], abs=0.2)


def test_errors_are_of_parts_so_that_what_all_lose_is_no_error():
    halved = [Tenant(75, 200, [regular(10 / 0.75, 4)]), Tenant(25, 200, [regular(40, 4)])]
    assert error_points(halved, 0, 3 * SECOND, SECOND) == pytest.approx([0, 0], abs=0.1)
    figures = tenant_figures(halved, 0, 3 * SECOND)
    assert sum(row["progress"] for row in figures) == pytest.approx(0.5, abs=0.01)
    assert [row["part_percent"] for row in figures] == pytest.approx([75, 25], abs=0.1)


def test_a_window_in_which_nobody_does_anything_is_as_wrong_as_the_shares_are_large():
    late = Steps([(2 * SECOND, 3 * SECOND)])
    assert error_points([Tenant(75, 1, [late]), Tenant(25, 1, [late])], 0, SECOND, SECOND) == pytest.approx([75, 25])


def test_bursts_show_in_short_windows_and_not_in_long_ones():
    # Each has 200 ms of the GPU in turn.
    def turns(first: int) -> Steps:
        return Steps([(at + each * 10 * MS, at + (each + 1) * 10 * MS)
                      for at in range(first * 200 * MS, 4 * SECOND, 400 * MS) for each in range(20)])

    tenants = [Tenant(50, 100, [turns(0)]), Tenant(50, 100, [turns(1)])]
    assert error_points(tenants, 0, 4 * SECOND, 2 * SECOND) == pytest.approx([0, 0], abs=0.01)
    assert error_points(tenants, 0, 4 * SECOND, SECOND // 10) == pytest.approx([50, 50], abs=0.01)


def test_less_than_a_window_has_no_error():
    figures = tenant_figures([Tenant(100, 10, [regular(10, 1)])], 0, SECOND // 2)
    assert figures[0]["error_points_1s"] is None
    assert figures[0]["error_points_100ms"] == pytest.approx(0)


def test_times_of_steps():
    steps = Steps([(at * 10 * MS, (at * 10 + (9 if at == 50 else 1)) * MS) for at in range(100)])
    row = tenant_figures([Tenant(100, 100, [steps])], 0, 2 * SECOND)[0]
    assert (row["p50_ms"], row["p99_ms"], row["steps"]) == (1, 1, 100)
    assert percentile([1, 2, 3, 4], 1.0) == 4
    assert percentile([1, 2, 3, 4], 0.5) == 2
    assert percentile([], 0.5) is None


@pytest.mark.parametrize(("shares", "others", "whole"), [
    ([75, 25], 0, [75, 25]), ([75, 25], 7, [69, 23]), ([90, 10], 3, [81, 9]), ([40, 30, 20, 10], 5, [36, 27, 18, 9]),
    ([50, 50], 1, [49, 49]), ([100], 4, [96])])
def test_shares_keep_their_proportion_beside_idle_virtual_gpus(shares, others, whole):
    assert whole_shares(shares, others) == whole
    assert sum(whole) + others <= 100


def test_a_proportion_for_which_there_is_no_room_is_refused():
    with pytest.raises(ValueError, match="no whole percents"):
        whole_shares([97, 3], 50)


PAIR = Case("a+b", (Who("step", 75), Who("graph", 25)), (
    Want(TIME_SLICED, "progress", ">= 0.7", 0), Want(TIME_SLICED, "error_points_1s", "<= 2"),
    Want(TIME_SLICED, "sum", ">= 0.05", -1, NATIVE)))


def result(sharing, first, second, error=1.0):
    rows = [{"progress": progress, "error_points_1s": error} for progress in (first, second)]
    return {"case": "a+b", "sharing": sharing, "tenants": rows, "sum": first + second}


def test_verdicts_are_of_one_tenant_of_all_and_against_another_sharing():
    good = [result(NATIVE, 0.45, 0.45), result(TIME_SLICED, 0.72, 0.24)]
    assert list(judge(PAIR, TIME_SLICED, good).values()) == ["yes", "yes", "yes"]
    bad = [result(NATIVE, 0.48, 0.45), result(TIME_SLICED, 0.24, 0.72, error=50)]
    assert list(judge(PAIR, TIME_SLICED, bad).values()) == ["NO", "NO", "NO"]
    assert judge(PAIR, NATIVE, bad) == {}


def test_what_was_not_measured_is_not_judged():
    assert judge(PAIR, TIME_SLICED, [result(TIME_SLICED, 0.72, 0.24)])["sum >= 0.05 over native"] == "?"
    left_out = {"case": "a+b", "sharing": TIME_SLICED, "tenants": [], "left_out": "why"}
    assert judge(PAIR, TIME_SLICED, [left_out]) == {}
    failed = {"case": "a+b", "sharing": TIME_SLICED, "tenants": [], "failed": "why"}
    assert set(judge(PAIR, TIME_SLICED, [failed]).values()) == {"?"}


@pytest.mark.parametrize(("gpu", "torch"), [(False, False), (True, False), (True, True)])
def test_cases_are_consistent(gpu, torch):
    there = progress_cases.cases(gpu, torch)
    names = [case.name for case in there]
    assert len(set(names)) == len(names)
    assert set(progress_cases.quick(gpu, torch)) <= set(names)
    for case in there:
        assert len({who.name for who in case.tenants}) == len(case.tenants), case.name
        assert all(want.sharing in SHARINGS for want in case.wanted)
        for who in case.tenants:
            size = progress_cases.PROGRAMS[who.program].gpu if gpu else progress_cases.PROGRAMS[who.program].soft
            assert size is not None, f"{case.name}: {who.program}"
        assert (PRIORITY in case.sharings()) == any(who.priority for who in case.tenants)


def test_what_was_charged_is_held_against_what_its_steps_take_alone():
    steps = Steps([(number * 20 * MS, (number + 1) * 20 * MS) for number in range(50)])  # half as fast as alone
    tenant = Tenant(50, 100, [steps], used=490 * MS)
    assert tenant.charged(0, SECOND) == pytest.approx(0.98)
    assert Tenant(50, 100, [steps]).charged(0, SECOND) is None


def test_a_table_has_a_row_for_each_tenant_and_says_what_is_left_out():
    rows = [{"name": "step", "share": 75, "progress": 0.7, "p99_ms": None}, {"name": "graph", "share": 25}]
    shown = progress_tables.table([{"case": "a+b", "sharing": NATIVE, "tenants": rows, "sum": 0.9},
                            {"case": "a+b", "sharing": TIME_SLICED, "tenants": [], "left_out": "no such GPU"}])
    lines = shown.splitlines()
    assert len(lines) == 6
    assert "0.700" in lines[2] and "graph" in lines[3]
    assert lines[-1] == "a+b, time-sliced: left out: no such GPU"


def test_charts_show_each_case_and_how_steady_ours_are():
    rows = [{"name": name, "share": 50, "progress": 0.5, "windows_100ms": [0.5, 0.4]} for name in ("step", "graph")]
    measured = [{"case": "a+b 50:50", "sharing": sharing, "tenants": rows, "sum": 1.0}
                for sharing in (NATIVE, TIME_SLICED)]
    failed = {"case": "c", "sharing": NATIVE, "tenants": [], "failed": "why"}
    found = progress_tables.all_charts([*measured, failed])
    assert list(found) == ["progress-a-b-50-50", "progress-a-b-50-50-time-sliced"]
    bars, lines = found.values()
    assert isinstance(bars, Bars)
    assert bars.groups == [NATIVE, TIME_SLICED]
    assert isinstance(lines, Lines)
    assert lines.series[0].points == [(0, 0.5), (0.1, 0.4), (0.2, 0.4)]
