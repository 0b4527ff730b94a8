"""tools/bench shares: from measured GPU time to shares in windows and their errors. Times are nanoseconds."""
import bisect
import dataclasses
import itertools

MS, SECOND = 1_000_000, 1_000_000_000
BUCKET = MS


class Timeline:
    """GPU time of one tenant on one engine over a run, kept in buckets of a millisecond."""

    def __init__(self, begin: int, end: int):
        self.begin = begin
        self._buckets = [0.0] * (max(0, end - begin) // BUCKET + 2)
        self._sums: list[float] | None = None

    def add(self, begin: int, end: int, used: float) -> None:
        """Spreads `used` evenly over [begin, end); what lies outside the run is left out."""
        self._sums = None
        length = max(1, end - begin)
        last = len(self._buckets) - 1
        at = max(begin, self.begin)
        while at < end:
            bucket = (at - self.begin) // BUCKET
            if bucket > last:
                return
            until = min(end, self.begin + (bucket + 1) * BUCKET)
            self._buckets[bucket] += used * (until - at) / length
            at = until

    def add_all(self, other: "Timeline") -> None:
        """What another timeline of the same run has."""
        self._sums = None
        self._buckets = [mine + more for mine, more in zip(self._buckets, other._buckets)]

    def replace(self, other: "Timeline", begin: int, end: int) -> None:
        """Takes [begin, end), in whole buckets, from another timeline of the same run."""
        self._sums = None
        first, last = (max(0, time - self.begin) // BUCKET for time in (begin, end))
        self._buckets[first:last] = other._buckets[first:last]

    def used(self, begin: int, end: int) -> float:
        """Of [begin, end)."""
        return self._up_to(end) - self._up_to(begin)

    def _up_to(self, time: int) -> float:
        if self._sums is None:
            self._sums = [0.0]
            for value in self._buckets:
                self._sums.append(self._sums[-1] + value)
        place = min(max(0.0, (time - self.begin) / BUCKET), len(self._buckets) - 1e-9)
        bucket = int(place)
        return self._sums[bucket] + self._buckets[bucket] * (place - bucket)


def spread_samples(timeline: Timeline, samples: list[tuple[int, int]]) -> None:
    """Adds a counter that was sampled as (time, value). A task is counted when it ends, so growth that is larger than
    the time between two samples began before the first of them."""
    for (before, low), (now, high) in itertools.pairwise(samples):
        if high > low:
            timeline.add(min(before, now - (high - low)), now, high - low)


@dataclasses.dataclass
class Phase:
    """A part of a run in which the same tenants are backlogged with the same targets (percent, by tenant)."""
    begin: int
    end: int
    targets: dict[int, float]


@dataclasses.dataclass
class Errors:
    mean: float | None
    max: float | None
    windows: int


def windows(begin: int, end: int, width: int) -> list[tuple[int, int]]:
    """Those that lie in [begin, end) as a whole, from its begin on."""
    return [(at, at + width) for at in range(begin, end - width + 1, width)]


def shares(timelines: list[Timeline], begin: int, end: int) -> list[float] | None:
    """Each tenant's part of what all of them used, in percent."""
    used = [timeline.used(begin, end) for timeline in timelines]
    total = sum(used)
    return [100 * each / total for each in used] if total > 0 else None


def errors(timelines: list[Timeline], phases: list[Phase], width: int) -> Errors:
    """|share - target| over all windows of phases in which at least two tenants are backlogged. A window without any
    GPU time is nobody's share: its error is the target."""
    found, count = [], 0
    for phase in phases:
        if len(phase.targets) < 2:
            continue
        for begin, end in windows(phase.begin, phase.end, width):
            now = shares(timelines, begin, end) or [0.0] * len(timelines)
            found += [abs(now[tenant] - target) for tenant, target in phase.targets.items()]
            count += 1
    if not found:
        return Errors(None, None, 0)
    return Errors(sum(found) / len(found), max(found), count)


def longest_gap(times: list[int], begin: int, end: int) -> float:
    """The longest time within [begin, end) without any of the events, in ms."""
    inside = [time for time in sorted(times) if begin <= time < end]
    edges = [begin, *inside, end]
    return max(later - earlier for earlier, later in itertools.pairwise(edges)) / MS


def absent_percent(spans: list[tuple[int, int]], begin: int, end: int) -> float:
    """The part of [begin, end) that no span covers: a tenant that neither waited for a time slice nor had one."""
    covered, at = 0, begin
    for opens, closes in sorted(spans):
        first, last = max(opens, at), min(closes, end)
        if last > first:
            covered, at = covered + last - first, last
    return 100 * (1 - covered / max(1, end - begin))


def in_force_ms(timelines: list[Timeline], change: int, until: int, tenant: int, target: float) -> float | None:
    """How long after `change` the share is the new one and stays: the next 100 ms within 5 points, the next second (or
    what is left of it) within 2. None: never."""
    for at in range(change, until - 200 * MS, 5 * MS):
        near = shares(timelines, at, at + 100 * MS)
        far = shares(timelines, at, min(at + SECOND, until))
        if near and far and abs(near[tenant] - target) <= 5 and abs(far[tenant] - target) <= 2:
            return (at - change) / MS
    return None


@dataclasses.dataclass
class Task:
    """One line of a tenant's log."""
    launched: int
    ended: int
    nominal_us: float
    engine: str


@dataclasses.dataclass
class IdleFigures:
    """What a tenant that rests now and then costs another one, and waits for."""
    rests: int
    lost_ms_mean: float = 0.0  # GPU time nobody used in a rest
    lost_ms_max: float = 0.0
    back_ms_mean: float = 0.0  # the first task after a rest, beyond its own length
    back_ms_max: float = 0.0


def idle_figures(stayer: list[Task], comer: list[Task], rest: int) -> IdleFigures:
    """`rest`: the least length of a rest. Lost is the time from the last task's end until the next of the one who stays
    begins, by its end and its length: GPU time is counted when work ends, too late to tell."""
    lost, back = [], []
    ended = sorted(stayer, key=lambda task: task.ended)
    ends = [task.ended for task in ended]
    for last, first in itertools.pairwise(comer):
        if first.launched - last.ended < rest:
            continue
        after = ended[min(bisect.bisect(ends, last.ended), len(ended) - 1)]
        lost.append(max(0.0, (after.ended - last.ended) / MS - after.nominal_us / 1000))
        back.append(max(0.0, (first.ended - first.launched) / MS - first.nominal_us / 1000))
    if not lost:
        return IdleFigures(0)
    return IdleFigures(len(lost), sum(lost) / len(lost), max(lost), sum(back) / len(back), max(back))
