"""tools/bench progress: tenants alone, and beside each other."""
import dataclasses
import time

from benchmarks.progress_cases import (
    ALONE,
    ALONE_LIMIT,
    ALONE_PROGRAMS,
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


@dataclasses.dataclass
class Setting:
    """What all runs of an invocation share."""
    device: str
    seconds: float
    alone_seconds: float
    settle_seconds: float  # after all have begun, before anything is counted
    baseline: str          # the sharing under which speeds alone are measured
    alone: dict[tuple[str, int], float] = dataclasses.field(default_factory=dict)  # steps a second, by Who.kind


def _observe(groups: list[Group], seconds: float, settle: float) -> tuple[int, int, list[list[Steps]]]:
    """Begin and end of what is counted, and the steps of each tenant's processes."""
    processes = [process for group in groups for process in group.processes]
    for process in processes:
        process.go()
    time.sleep(settle)
    begin = now()
    time.sleep(seconds)
    end = now()
    for process in processes:
        process.stop()
    return begin, end, [[process.steps() for process in group.processes] for group in groups]


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
        begin, end, steps = _observe(groups, setting.alone_seconds, setting.settle_seconds)
    except (Failure, OSError, ValueError, LeftOut) as failure:
        return result | _failed(pool, [who], failure)
    speed = rate(steps[0], begin, end)
    if speed <= 0:
        return result | {"failed": f"not one step in {setting.alone_seconds} s"}
    if sharing == setting.baseline:
        setting.alone[who.kind] = speed
    if (base := setting.alone.get(who.kind)) is None:
        return result | {"left_out": f"its speed alone under {setting.baseline} is not known"}
    tenants = tenant_figures([Tenant(100, base, steps[0])], begin, end)
    result |= {"tenants": [{"name": who.name, **tenants[0], "steps_per_s": speed}], "sum": tenants[0]["progress"]}
    return result | {"time_of_alone": base / speed, "verdict": _alone_verdict(who, sharing, base / speed, setting)}


def _alone_verdict(who: Who, sharing: str, ratio: float, setting: Setting) -> dict[str, str]:
    judged = sharing in OURS and who.program in ALONE_PROGRAMS and who.processes == 1
    if not judged or setting.device == "soft":
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
        begin, end, steps = _observe(groups, setting.seconds, setting.settle_seconds)
    except (Failure, OSError, ValueError, LeftOut) as failure:
        return result | _failed(pool, list(case.tenants), failure)
    tenants = [Tenant(who.share, setting.alone[who.kind], taken) for who, taken in zip(case.tenants, steps)]
    found = tenant_figures(tenants, begin, end)
    for who in case.tenants:
        if who.latency_us and sharing in OURS:
            pool.drop(who.name)  # its bound is of this case alone
    return result | {"tenants": [{"name": who.name, **row, "windows_100ms": _windows(tenant, begin, end)}
                                 for who, row, tenant in zip(case.tenants, found, tenants)],
                     "sum": sum(row["progress"] for row in found), "seconds": setting.seconds}


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
