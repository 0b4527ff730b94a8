"""Shares hold between two programs that always want the GPU: a short run of tools/bench shares' 75:25."""
from benchmarks import shares_measure
from benchmarks.shares_cases import CASES
from benchmarks.shares_math import SECOND, errors
from benchmarks.shares_measure import Setting
from benchmarks.shares_run import calibrate
from lab.daemon import Daemon

SECONDS = 12  # both run for eight of them
SHORT_SHARE = 75  # percent, of the program with the short tasks
# A machine that runs tests is not idle: on two cores that seven programs wanted, 13 points were seen in six seconds,
# once of ten. Equal shares are 25 points off, and were never nearer than 24; none at all (fifo) are 72. How well shares
# hold is tools/bench shares' to say.
POINTS = 17          # over the whole run
WINDOW_POINTS = 20   # over windows of 1 s, on average
LONGEST_GAP_MS = 5000


def test_shares_of_75_to_25_hold(device):
    daemon = Daemon(device, "band+", name="shares-test")
    try:
        kinds = {name: calibrate(daemon, name, 0) for name in ("lu", "heart")}
        setting = Setting(device, SECONDS, 20, 0, kinds)
        run = shares_measure.perform(daemon, CASES["75:25"], setting)
    finally:
        daemon.end()
    found = errors(run.both, shares_measure.phases(run), SECOND)
    said = shares_measure.figures(run, setting)
    got = [round(row["share_got_percent"], 1) for row in said["tenants"]]
    assert found.mean is not None and found.windows >= 3, f"only {found.windows} windows"
    assert abs(got[0] - SHORT_SHARE) <= POINTS, f"75:25 became {got}, at most {POINTS} points off are wanted"
    assert found.mean <= WINDOW_POINTS, f"windows are {found.mean:.1f} points off, at most {WINDOW_POINTS} are wanted"
    assert said["longest_gap_ms"] < LONGEST_GAP_MS, f"a tenant waited for {said['longest_gap_ms']:.0f} ms"
