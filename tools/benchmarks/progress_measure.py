"""tools/bench progress: tenants alone, and beside each other."""
import dataclasses
import statistics
import time

from benchmarks.progress_cases import (
    ALONE,
    ALONE_LIMIT,
    ALONE_PROGRAMS,
    NATIVE,
    OURS,
    PROGRAMS,
    Case,
    Who,
)
from benchmarks.progress_math import SECOND, Steps, Tenant, rate, tenant_figures, windows
from benchmarks.progress_pools import Pool
from benchmarks.progress_run import Group, LeftOut
from benchmarks.results import reaches
from benchmarks.shares_run import now
from lab.shell import Failure, say

LAST_STEPS = 3  # seconds
TURNS, TURN_SECONDS = 4, 1.0


@dataclasses.dataclass
class Setting:
    """What all runs of an invocation share."""
    device: str
    seconds: float
    alone_seconds: float
    settle_seconds: float  # after all have begun, before anything is counted
    baseline: str          # the sharing under which speeds alone are measured
    alone: dict[tuple[str, int], float] = dataclasses.field(default_factory=dict)  # steps a second, by Who.kind


@dataclasses.dataclass
class _Observed:
    begin: int  # of what is counted, as `end`
    end: int
    steps: list[list[Steps]]  # of each tenant's processes
    used: list[int | None]    # GPU time that vgpud has charged each tenant meanwhile, ns


def _observe(pool: Pool, groups: list[Group], seconds: float, settle: float, last_steps: float = 0) -> _Observed:
    """`last_steps`: the time that steps need which are under way at the end. They are ended beside the others, too."""
    processes = [process for group in groups for process in group.processes]
    names = [group.who.name for group in groups]
    for process in processes:
        process.go()
    time.sleep(settle)
    before, begin = pool.used(names), now()
    time.sleep(seconds)
    after, end = pool.used(names), now()
    time.sleep(last_steps)
    for process in processes:
        process.stop()
    used = [None if one is None or other is None else other - one for one, other in zip(before, after)]
    return _Observed(begin, end, [[process.steps() for process in group.processes] for group in groups], used)


def _failed(pool: Pool, tenants: list[Who], failure: Exception) -> dict:
    """What becomes of a run that did not end well: its tenants are started again for the next one."""
    if isinstance(failure, LeftOut):
        return {"left_out": str(failure)}
    say(f"{failure}\n{pool.evidence()}")
    for who in tenants:
        pool.drop(who.name)
    return {"failed": str(failure)}


def alone(pool: Pool, who: Who, sharing: str, setting: Setting) -> dict:
    """One tenant by itself; under the baseline, what others are held against."""
    result = {"case": ALONE, "sharing": sharing, "tenants": [{"name": who.name, "share": 100}]}
    case = Case(ALONE, (dataclasses.replace(who, share=100),))
    try:
        groups = pool.ready(case, sharing)
        seen = _observe(pool, groups, setting.alone_seconds, setting.settle_seconds)
    except (Failure, OSError, ValueError, LeftOut) as failure:
        return result | _failed(pool, [who], failure)
    speed = rate(seen.steps[0], seen.begin, seen.end)
    if speed <= 0:
        return result | {"failed": f"not one step in {setting.alone_seconds} s"}
    if sharing == setting.baseline:
        setting.alone[who.kind] = speed
    if (base := setting.alone.get(who.kind)) is None:
        return result | {"left_out": f"its speed alone under {setting.baseline} is not known"}
    tenants = tenant_figures([Tenant(100, base, seen.steps[0], seen.used[0])], seen.begin, seen.end)
    result |= {"tenants": [{"name": who.name, **tenants[0], "steps_per_s": speed}], "sum": tenants[0]["progress"]}
    return result | {"time_of_alone": base / speed, "verdict": _alone_verdict(who, sharing, base / speed, setting)}


def in_turns(pool: Pool, native: Pool, who: Who, sharing: str, setting: Setting) -> dict:
    """One tenant by itself, and the same program on the bare driver, in turns: what a program that waits for the
    processor does differs more from minute to minute than between the two."""
    result: dict = {"case": ALONE, "sharing": sharing, "tenants": [{"name": who.name, "share": 100}]}
    case = Case(ALONE, (dataclasses.replace(who, share=100),))
    speeds: list[list[float]] = [[], []]
    try:
        both = [native.ready(case, NATIVE), pool.ready(case, sharing)]
        for _ in range(TURNS):
            for which, groups in enumerate(both):
                seen = _observe(pool if which else native, groups, TURN_SECONDS, setting.settle_seconds / 4)
                speeds[which].append(rate(seen.steps[0], seen.begin, seen.end))
    except (Failure, OSError, ValueError, LeftOut) as failure:
        return result | _failed(pool, [who], failure)
    base, speed = (statistics.median(each) for each in speeds)
    if base <= 0 or speed <= 0:
        return result | {"failed": f"not one step in {TURN_SECONDS} s"}
    tenants = tenant_figures([Tenant(100, base, seen.steps[0], seen.used[0])], seen.begin, seen.end)
    tenants[0]["progress"] = speed / base
    result |= {"tenants": [{"name": who.name, **tenants[0], "steps_per_s": speed}], "sum": speed / base}
    return result | {"time_of_alone": base / speed, "verdict": _alone_verdict(who, sharing, base / speed, setting)}


def is_judged_alone(who: Who, sharing: str, setting: Setting) -> bool:
    return setting.device != "soft" and sharing in OURS and who.program in ALONE_PROGRAMS and who.processes == 1


def _alone_verdict(who: Who, sharing: str, ratio: float, setting: Setting) -> dict[str, str]:
    if not is_judged_alone(who, sharing, setting):
        return {}
    return {f"{who.name} time {ALONE_LIMIT} of alone": "yes" if reaches(ratio, ALONE_LIMIT) else "NO"}


def beside(pool: Pool, case: Case, sharing: str, setting: Setting) -> dict:
    """All tenants of a case at once."""
    result: dict = {"case": case.name, "sharing": sharing,
                    "tenants": [{"name": who.name, "share": who.share} for who in case.tenants]}
    unknown = [who.name for who in case.tenants if who.kind not in setting.alone]
    if unknown:
        return result | {"left_out": f"what {', '.join(unknown)} does alone is not known"}
    try:
        groups = pool.ready(case, sharing)
        seen = _observe(pool, groups, setting.seconds, setting.settle_seconds, _last_steps(case, setting))
    except (Failure, OSError, ValueError, LeftOut) as failure:
        return result | _failed(pool, list(case.tenants), failure)
    tenants = [Tenant(who.share, setting.alone[who.kind], steps, used)
               for who, steps, used in zip(case.tenants, seen.steps, seen.used)]
    begin, end = seen.begin, seen.end
    found = tenant_figures(tenants, begin, end)
    for who in case.tenants:
        if who.latency_us and sharing in OURS:
            pool.drop(who.name)  # its bound is of this case alone
    return result | {"tenants": [{"name": who.name, **row, "windows_100ms": _windows(tenant, begin, end)}
                                 for who, row, tenant in zip(case.tenants, found, tenants)],
                     "sum": sum(row["progress"] for row in found), "seconds": setting.seconds}


def _last_steps(case: Case, setting: Setting) -> float:
    """Seconds in which each tenant does a step, or nearly so, if it has its share."""
    return min(LAST_STEPS, 1.2 * max(100 * who.processes / who.share / setting.alone[who.kind] for who in case.tenants))


def _windows(tenant: Tenant, begin: int, end: int) -> list[float]:
    """Its progress in each window of 100 ms."""
    return [round(tenant.progress(*span), 4) for span in windows(begin, end, SECOND // 10)]


def kinds(chosen: list[Case]) -> list[Who]:
    """Each program once that these cases have, by number of processes."""
    found: dict[tuple[str, int], Who] = {}
    for case in chosen:
        for who in case.tenants:
            found.setdefault(who.kind, dataclasses.replace(who, share=100, number=1, priority=False, latency_us=0))
    order = list(PROGRAMS)
    return sorted(found.values(), key=lambda who: (order.index(who.program), who.processes))
