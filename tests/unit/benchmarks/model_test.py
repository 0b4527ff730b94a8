"""tools/bench model: how forecasts are judged, on made-up measurements."""
import re

import pytest

from benchmarks import model_tables as tables
from benchmarks.charts import Scatter
from benchmarks.model_choices import choices
from benchmarks.model_data import WAYS, guess, issue_alone

KERNELS = [{"name": "slow", "ipc": 0.01}, {"name": "fast", "ipc": 0.8}]


def pair(a, b, measured, said):
    """Speeds of a and b."""
    forecast = {"speed_a": said[0], "speed_b": said[1], "profit": 0.1}
    made = {"a": a, "b": b, "resident_a": 6, "resident_b": 2, "speed_a": measured[0], "speed_b": measured[1],
            "profit": 0.1}
    return {**made, "forecast": {**dict.fromkeys(WAYS, forecast), "guess": guess(made)}}


def launch(first, second, said, measured, lasting=True, carveout=100, group="synthetic"):
    """Forecast and measurement differ by equation 2 if `lasting`, else with times; the other way they are the same."""
    figures, key = {"slowdown": 1.0, "slowdown_timed": 1.0}, "slowdown" if lasting else "slowdown_timed"
    busy = {"slowdown_busy": said if not lasting else 1.0}
    return {"set": group, "carveout": carveout, "lasting": lasting, "kind": f"{first}-{second}",
            "first": {"name": first, "blocks": 1, "threads": 32},
            "second": {"name": second, "blocks": 1, "threads": 32},
            "case": "A", **figures, key: measured, "forecast": {"case": "A", **figures, **busy, key: said}}


def result(pairs=(), overlaps=()):
    return {"constants": {}, "kernels": KERNELS, "solo": {}, "errors": [], "pairs": list(pairs),
            "overlaps": list(overlaps)}


def verdict(judged, part):
    found = [reached for what, reached in tables.verdicts(judged).items() if part in what]
    assert len(found) == 1, part
    return found[0]


class TestChoicesOfRatios:
    def test_what_was_forecast_wrongly_is_not_chosen_again(self):
        # At the ratio that is said to be best the two lose; at the second they gain; the third is said to be nothing.
        found = choices([pair("a", "b", (0.5, 0.4), (0.8, 0.8)), pair("a", "b", (0.6, 0.6), (0.7, 0.7)),
                         pair("a", "b", (0.7, 0.7), (0.5, 0.6))], "mix")
        assert found.first == pytest.approx(0.9)
        assert found.losing == 1
        assert found.learnt == pytest.approx(1.2)
        assert found.tries == 2
        assert found.best == pytest.approx(1.4)

    def test_without_a_gain_they_run_one_after_the_other(self):
        found = choices([pair("a", "b", (0.9, 0.9), (0.5, 0.5)), pair("c", "d", (0.3, 0.3), (0.9, 0.9))], "mix")
        assert found.first == pytest.approx((1 + 0.6) / 2)
        assert found.learnt == pytest.approx(1)
        assert found.best == pytest.approx((1.8 + 1) / 2)


class TestPairs:
    def test_ipc_is_judged_by_the_peak(self):
        # Twice what was measured, but next to nothing of the peak.
        slow = pair("slow", "slow", (0.5, 0.5), (1, 1))
        # 0.3 of the peak too much.
        fast = pair("slow", "fast", (0.0, 0.5), (0.0, 0.875))
        errors = tables.pair_errors(result([slow, fast]), "mix")
        assert errors["ipc of peak"][0] == pytest.approx(0.01)
        assert errors["ipc"][0] == pytest.approx(1)
        assert errors["ipc of peak"][1] == pytest.approx(0.3)
        assert verdict(result([slow] * 8 + [fast] * 2), "of the peak")
        assert not verdict(result([slow] * 7 + [fast] * 3), "of the peak")

    def test_a_guess_reaches_nothing(self):
        wrong = pair("fast", "fast", (0.1, 0.1), (1, 1))
        right = pair("fast", "fast", (0.75, 0.25), (1, 1))  # as the blocks are, so only the guess is right
        judged = result([wrong, *[right] * 9])
        assert tables.percent_near(tables.pair_errors(judged, "guess")["ipc of peak"]) == 90
        assert not verdict(judged, "of the peak")

    def test_the_verdict_says_what_a_guess_reaches(self):
        pairs = [pair("fast", "fast", (0.0, 0.0), (0, 0)), pair("fast", "fast", (0.2, 0.2), (0, 0)),
                 pair("fast", "fast", (0.5, 0.5), (0, 0))]
        said = next(what for what in tables.verdicts(result(pairs)) if "of the peak" in what)
        # IPCs of 0, 0.32 and 0.8: one is within 0.2 of their mean, 0.373, and one of 0.8, which the blocks say of all.
        assert "33 % by always the mean, 33 % by shares of the blocks" in said

    def test_the_chart_has_lines_at_a_distance_of_the_peak(self):
        chart = tables.charts(result([pair("fast", "fast", (0.5, 0.5), (0.5, 0.5))]))["ipc"]
        assert isinstance(chart, Scatter)
        distance = tables.NEAR * tables.PEAK_IPC
        assert chart.bounds() == [(1, -distance), (1, distance)]


class TestOverlaps:
    def test_groups(self):
        groups = {
            "synthetic, waiting, all shared memory": launch("waits", "waits", 1, 1),
            "synthetic, waiting, the driver's split": launch("waits", "waits", 1, 1, carveout=-1),
            "synthetic, busy, all shared memory": launch("waits", "busy", 1, 1),
            "synthetic, busy, the driver's split": launch("busy", "waits", 1, 1, carveout=-1),
            "real, all shared memory": launch("PC", "ST", 1, 1, group="real"),
        }
        assert list(tables.overlap_groups(result(overlaps=groups.values()))) == list(groups)

    def test_only_waiting_kernels_with_all_shared_memory_are_held_against_ten_percent(self):
        far = [launch("busy", "busy", 1, 50), launch("busy", "waits", 1, 50), launch("waits", "busy", 4, 1),
               launch("waits", "waits", 1, 50, carveout=-1), launch("PC", "ST", 1, 50, group="real")]
        near = launch("waits", "waits", 1.05, 1)
        assert verdict(result(overlaps=[*far, near]), "waiting")
        assert not verdict(result(overlaps=[near, launch("waits", "waits", 1.2, 1)]), "waiting")

    def test_equation_2_is_for_a_first_that_lasts(self):
        for lasting in (True, False):
            assert tables.overlap_error(launch("waits", "waits", 3, 2, lasting)) == pytest.approx(0.5)
            assert not verdict(result(overlaps=[launch("waits", "waits", 3, 2, lasting)]), "waiting")

    def test_all_synthetic_ones_are_judged_by_times_and_issue_slots(self):
        near, far = launch("waits", "waits", 1, 1, lasting=False), launch("busy", "busy", 3, 2, lasting=False)
        assert verdict(result(overlaps=[near]), "all synthetic")
        assert not verdict(result(overlaps=[near, far]), "all synthetic")
        other = [launch("busy", "busy", 3, 2, lasting=False, carveout=-1),
                 launch("PC", "ST", 3, 2, False, group="real")]
        assert verdict(result(overlaps=[near, *other]), "all synthetic")

    def test_issue_slots_are_those_of_the_sm_that_has_most_blocks(self):
        half = {"name": "busy", "registers": 16, "blocks": 133, "threads": 128, "rounds": 1000, "alone_ns": 10000}
        # Two blocks, so two warps of a scheduler with nine instructions a round.
        assert issue_alone(half, 132, 2.0) == pytest.approx(9 * 1000 * 2 / 20000)
        assert issue_alone({**half, "name": "who"}, 132, 2.0) == 0
        assert issue_alone({**half, "alone_ns": 1}, 132, 2.0) == 1

    def test_the_table_has_estimated_actual_and_error(self):
        listing = tables.text({**result(overlaps=[launch("waits", "waits", 3, 2)]), "kernels": []})
        assert re.search(r"estimated +actual +error", listing)
        assert re.search(r"waits-waits .* 3\.00 +2\.00 +\+50\.0 %", listing)
