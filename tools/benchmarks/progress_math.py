"""tools/bench progress: from the times of steps to progress in windows, errors and times of steps. Nanoseconds."""
import bisect
import dataclasses
import math
from collections.abc import Sequence

MS, SECOND = 1_000_000, 1_000_000_000

Step = tuple[int, int]  # begin and end


class Steps:
    """The steps of one process, in their order, none before the end of the one before."""

    def __init__(self, steps: Sequence[Step]):
        self.steps = list(steps)
        times = [time for each in self.steps for time in each]
        if times != sorted(times):
            raise ValueError("steps lie over each other, or end before they began")
        self._ends = [end for _, end in self.steps]

    def done_by(self, time: float) -> float:
        """Steps done by then; of one under way, the part of its time that has passed."""
        whole = bisect.bisect_right(self._ends, time)
        if whole == len(self.steps):
            return float(whole)
        begin, end = self.steps[whole]
        return whole + max(0.0, (time - begin) / max(1, end - begin))

    def done(self, begin: float, end: float) -> float:
        return self.done_by(end) - self.done_by(begin)

    def lengths_ms(self, begin: int, end: int) -> list[float]:
        """Of the steps that ended in [begin, end)."""
        return [(ended - started) / MS for started, ended in self.steps if begin <= ended < end]


@dataclasses.dataclass
class Tenant:
    """What was seen of one tenant: the steps of each of its processes."""
    share: float              # percent
    alone: float              # steps a second, of all its processes, alone on the bare driver
    processes: list[Steps]
    used: int | None = None   # GPU time that it was charged, ns; None: nobody says

    def progress(self, begin: float, end: float) -> float:
        """Steps in a window against those alone: 0.75 is three quarters of its speed alone."""
        return sum(each.done(begin, end) for each in self.processes) * SECOND / (end - begin) / self.alone

    def lengths_ms(self, begin: int, end: int) -> list[float]:
        return [length for each in self.processes for length in each.lengths_ms(begin, end)]


    def charged(self, begin: int, end: int) -> float | None:
        """What it was charged for its steps against what they take alone."""
        progress = self.progress(begin, end)
        return self.used / (end - begin) / progress if self.used is not None and progress > 0 else None


def rate(processes: list[Steps], begin: int, end: int) -> float:
    """Steps a second of all of them."""
    return sum(each.done(begin, end) for each in processes) * SECOND / (end - begin)


def windows(begin: int, end: int, width: int) -> list[tuple[int, int]]:
    """Those that lie in [begin, end) as a whole, from its begin on."""
    return [(at, at + width) for at in range(begin, end - width + 1, width)]


def error_points(tenants: list[Tenant], begin: int, end: int, width: int) -> list[float] | None:
    """For each tenant the mean over all windows of |its part of the sum of progresses - its part of the shares|, in
    points. In a window without progress nobody has a part. None: not one whole window."""
    spans = windows(begin, end, width)
    if not spans:
        return None
    promised = sum(tenant.share for tenant in tenants)
    sums = [0.0] * len(tenants)
    for span in spans:
        found = [tenant.progress(*span) for tenant in tenants]
        total = sum(found)
        for number, tenant in enumerate(tenants):
            part = found[number] / total if total > 0 else 0.0
            sums[number] += 100 * abs(part - tenant.share / promised)
    return [each / len(spans) for each in sums]


def percentile(values: Sequence[float], part: float) -> float | None:
    """The least value that is at least as large as this part of all."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def whole_shares(shares: Sequence[int], others: int) -> list[int]:
    """Whole percents in just this proportion, as large as they can be with 1 % for each of so many others."""
    divisor = math.gcd(*shares)
    parts = [share // divisor for share in shares]
    factor = min(divisor, (100 - others) // sum(parts))
    if factor < 1:
        raise ValueError(f"no whole percents in the proportion {shares} leave {others} % for others")
    return [factor * part for part in parts]


def tenant_figures(tenants: list[Tenant], begin: int, end: int) -> list[dict]:
    """Of each tenant over the whole run and over windows."""
    total = sum(tenant.progress(begin, end) for tenant in tenants)
    by_second = error_points(tenants, begin, end, SECOND)
    by_tenth = error_points(tenants, begin, end, SECOND // 10)
    found = []
    for number, tenant in enumerate(tenants):
        lengths, progress = tenant.lengths_ms(begin, end), tenant.progress(begin, end)
        found.append({
            "share": tenant.share, "progress": progress, "charged": tenant.charged(begin, end),
            "part_percent": 100 * progress / total if total > 0 else 0.0,
            "error_points_1s": by_second[number] if by_second else None,
            "error_points_100ms": by_tenth[number] if by_tenth else None,
            "p50_ms": percentile(lengths, 0.5), "p99_ms": percentile(lengths, 0.99), "steps": len(lengths)})
    return found
