"""tools/bench shares: one run of a case under a policy, and the figures that come of it."""
import dataclasses
import itertools
import statistics
import time

from benchmarks import shares_trace
from benchmarks.shares_cases import IDLE_OFF_MS, Case
from benchmarks.shares_math import (
    MS,
    SECOND,
    Phase,
    Task,
    Timeline,
    absent_percent,
    errors,
    idle_figures,
    in_force_ms,
    longest_gap,
    shares,
    spread_samples,
)
from benchmarks.shares_run import Kind, Sampler, Tenant, now, run_alone
from lab.daemon import Daemon
from lab.shell import Failure, say


@dataclasses.dataclass
class Setting:
    """What all runs of an invocation share."""
    device: str
    seconds: float
    sample_ms: float
    copy_mib: int
    kinds: dict[str, Kind]

    def values(self, kind: str) -> dict:
        """What a tenant program must know of this device."""
        known = {f"{name}_{field}": getattr(self.kinds[name], field)
                 for name in ("lu", "heart") if name in self.kinds for field in ("round_ns", "fixed_ns")}
        if "copy" in self.kinds:
            known |= {"copy_us": self.kinds["copy"].fixed_ns / 1000, "copy_mib": self.copy_mib}
        return {"depth": 16 if kind == "heart" else 32, **known}


@dataclasses.dataclass
class Run:
    """What was seen of one run."""
    case: Case
    begin: int
    end: int
    started: list[int]
    changed: list[int]
    tasks: list[list[Task]]
    compute: list[Timeline]
    copies: list[Timeline]
    both: list[Timeline]
    slices: list[list] | None  # the arbiter's trace by tenant, if vgpud has one
    windows: str               # how GPU time came to its windows
    notes: list[str]
    side_tasks: list[int]


@dataclasses.dataclass
class _Event:
    """At that time of the run a tenant starts, or all have new shares."""
    at: int
    tenant: int = -1
    shares: list[int] | None = None


def _events(case: Case, length: int) -> list[_Event]:
    """In their order."""
    starts = [_Event(int(plan.start * length), tenant=number) for number, plan in enumerate(case.plans)]
    changes = [_Event(int(at * length), shares=new) for at, new in case.changes]
    return sorted(starts + changes, key=lambda event: event.at)


def _names(case: Case) -> list[str]:
    return [f"tenant{number}" for number in range(len(case.plans))]


def _sleep_until(at: int) -> None:
    while (left := at - now()) > 0:
        time.sleep(left / SECOND)


def _change(daemon: Daemon, names: list[str], old: list[int], new: list[int]) -> None:
    """Those that get less first, so that the sum never exceeds the GPU."""
    for number in sorted(range(len(names)), key=lambda each: new[each] - old[each]):
        daemon.set_share(names[number], new[number])


def perform(daemon: Daemon, case: Case, setting: Setting) -> Run:
    names, tenants = _names(case), []
    for name, plan in zip(names, case.plans):
        daemon.create(name, plan.share)
    try:
        for name, plan in zip(names, case.plans):
            tenants.append(Tenant(daemon, name, plan.kind, {**setting.values(plan.kind), **plan.values}))
        for tenant in tenants:
            tenant.ready()
        return _observe(daemon, case, setting, tenants)
    finally:
        for tenant in tenants:
            tenant.kill()
        for name in names:
            daemon.destroy(name)


def _observe(daemon: Daemon, case: Case, setting: Setting, tenants: list[Tenant]) -> Run:
    every_ms = min(setting.sample_ms, 10) if case.changes else setting.sample_ms
    sampler, tracer = Sampler(daemon, every_ms), shares_trace.Tracer(daemon)
    time.sleep(0.3)
    length, names = int(setting.seconds * SECOND), _names(case)
    old, changed = [plan.share for plan in case.plans], []
    tracer.start(setting.seconds)
    begin = now()
    for event in _events(case, length):
        _sleep_until(begin + event.at)
        if event.shares is None:
            tenants[event.tenant].go()
        else:
            _change(daemon, names, old, event.shares)
            old = event.shares
            changed.append(now())
    _sleep_until(begin + length)
    end = now()
    slices = tracer.take(names)
    time.sleep(0.1)
    sampler.end()
    for tenant in tenants:
        tenant.stop()
    tasks = [tenant.finish() for tenant in tenants]
    return _collect(case, (begin, end), tenants, changed, tasks, sampler, slices, tracer.note)


def _collect(case: Case, times: tuple[int, int], tenants: list[Tenant], changed: list[int], tasks: list[list[Task]],
             sampler: Sampler, slices: list[list] | None, note: str) -> Run:
    begin, end = times
    run = Run(case, begin, end, [tenant.started for tenant in tenants], changed, tasks, [], [], [], slices, "",
              [note] if note else [], [tenant.summary.get("side_tasks", 0) for tenant in tenants])
    for number, tenant in enumerate(tenants):
        both = Timeline(begin, end)
        for engine, into in (("compute", run.compute), ("copy", run.copies)):
            into.append(Timeline(begin, end))
            spread_samples(into[-1], sampler.of(tenant.vgpu, engine))
            if slices:
                into[-1] = _by_trace(run, number, engine, into[-1])
            both.add_all(into[-1])
        run.both.append(both)
    run.windows = run.windows or ("spread back from samples" if slices is None else "placed by the trace")
    if (pause := sampler.longest_pause_ms()) > 100:
        run.notes.append(f"sampling paused for {pause:.0f} ms")
    return run


def _by_trace(run: Run, number: int, engine: str, counted: Timeline) -> Timeline:
    """What the arbiter charged, at its time slices' places, if that agrees with the device's count; else `counted`."""
    placed = Timeline(run.begin, run.end)
    for each in (run.slices or [])[number]:
        if each.engine == engine:
            placed.add(each.ended - each.charged, each.ended, each.charged)
    begin, end = _contended(run)
    device, charged = counted.used(begin, end), placed.used(begin, end)
    if abs(device - charged) <= 0.02 * max(device, charged) + 50 * MS:
        counted.replace(placed, begin, end)  # who is alone is not asked for every time slice
        return counted
    run.notes.append(f"tenant {number}, {engine}: the arbiter charged {charged / SECOND:.2f} s, the device counted "
                     f"{device / SECOND:.2f} s: windows are from samples")
    run.windows = "spread back from samples"
    return counted


def phases(run: Run) -> list[Phase]:
    """From one start, change or end to the next: who is backlogged, and their shares of what is left to them."""
    if run.case.measure == "idle":
        return _phases_between_rests(run)
    edges = sorted({*run.started, *run.changed, run.end})
    found = []
    for begin, end in itertools.pairwise(edges):
        now_shares = [plan.share for plan in run.case.plans]
        for at, (_, new) in zip(run.changed, run.case.changes):
            if at <= begin:
                now_shares = new
        active = [number for number, start in enumerate(run.started) if start <= begin]
        total = sum(now_shares[number] for number in active)
        found.append(Phase(begin, end, {number: 100 * now_shares[number] / total for number in active}))
    return found


def _phases_between_rests(run: Run) -> list[Phase]:
    """Both are backlogged from the first launch after a rest to the last end before the next one."""
    found, tasks = [], run.tasks[1]
    total = sum(plan.share for plan in run.case.plans)
    targets = {number: 100 * plan.share / total for number, plan in enumerate(run.case.plans)}
    first = 0
    for number in range(1, len(tasks) + 1):
        if number == len(tasks) or tasks[number].launched - tasks[number - 1].ended > IDLE_OFF_MS * MS // 2:
            found.append(Phase(tasks[first].launched, min(tasks[number - 1].ended, run.end), targets))
            first = number
    return found


def _contended(run: Run) -> tuple[int, int]:
    """From when every tenant runs."""
    return max(run.started), run.end


def _busy(timelines: list[Timeline], begin: int, end: int) -> float:
    return 100 * sum(line.used(begin, end) for line in timelines) / (end - begin)


def _gaps(run: Run) -> list[float]:
    """The longest time each tenant went without a grant (known from a trace) and without the end of a task, from when
    it has to share."""
    found, second = [], sorted(run.started)[1]
    for number, started in enumerate(run.started):
        times = [each.ended for each in run.tasks[number]]
        times += [each.granted for each in run.slices[number]] if run.slices else []
        spans = [(max(started, second), run.end)]
        if run.case.measure == "idle":
            spans = [(phase.begin, phase.end) for phase in _phases_between_rests(run)]
        found.append(max(longest_gap(times, *span) for span in spans))
    return found


def _kind_of(plan_kind: str) -> str:
    return {"compute-mix": "lu", "copy-mix": "copy"}.get(plan_kind, plan_kind)


def _tenant_rows(run: Run, kinds: dict[str, Kind]) -> list[dict]:
    begin, end = _contended(run)
    now_shares = shares(run.both, begin, end) or [0.0] * len(run.both)
    gaps, rows = _gaps(run), []
    absent: list[float | None] = [None] * len(run.both)
    if run.slices:
        absent = [absent_percent([(each.asked, each.ended) for each in slices], begin, end) for slices in run.slices]
    for number, plan in enumerate(run.case.plans):
        ended = [task for task in run.tasks[number] if begin <= task.ended < end]
        work = sum(task.nominal_us for task in ended) * 1000 / (end - begin)
        rows.append({"tenant": number, "kind": plan.kind, "share": plan.share, "share_got_percent": now_shares[number],
                     "gpu_seconds": run.both[number].used(begin, end) / SECOND, "tasks": len(ended),
                     "work_of_alone_percent": 100 * work / kinds[_kind_of(plan.kind)].rate,
                     "longest_gap_ms": gaps[number], "absent_percent": absent[number]})
    return rows


def figures(run: Run, setting: Setting) -> dict:
    """What every case has."""
    kinds = setting.kinds
    begin, end = _contended(run)
    rows = _tenant_rows(run, kinds)
    # With a queue for each engine nobody is promised a part of the engines' sum.
    judged = [] if run.case.measure == "engines" and run.case.queues == "mrq" else phases(run)
    wide, narrow = errors(run.both, judged, SECOND), errors(run.both, judged, SECOND // 10)
    busy = _busy(run.both, begin, end)
    alone = sum(row["share_got_percent"] * kinds[_kind_of(row["kind"])].busy for row in rows)  # percent
    return {"mean_error_points": wide.mean, "max_error_points": wide.max, "windows_1s": wide.windows,
            "mean_error_points_100ms": narrow.mean, "max_error_points_100ms": narrow.max,
            "windows_100ms": narrow.windows, "busy_percent": busy,
            "utilisation_percent": 100 * busy / alone if alone else None,
            "work_percent": sum(row["work_of_alone_percent"] for row in rows),
            "longest_gap_ms": max(row["longest_gap_ms"] for row in rows), "windows": run.windows,
            "notes": run.notes, "tenants": rows}


def engines(run: Run, _setting: Setting) -> dict:
    begin, end = _contended(run)
    compute, copies = _busy(run.compute, begin, end), _busy(run.copies, begin, end)
    per = [{"compute_percent": _busy([run.compute[number]], begin, end),
            "copy_percent": _busy([run.copies[number]], begin, end), "side_tasks": run.side_tasks[number]}
           for number in range(len(run.case.plans))]
    # What each has of the engine that it wants all the time; the other wants it now and then.
    heavy = min(per[0]["compute_percent"], per[1]["copy_percent"])
    return {"compute_percent": compute, "copy_percent": copies, "summed_percent": compute + copies,
            "heavy_percent": heavy, "by_tenant": per}


def idle(run: Run, _setting: Setting) -> dict:
    found = idle_figures(run.tasks[0], run.tasks[1], IDLE_OFF_MS * MS // 2)
    if found.rests == 0:
        return {"rests": 0}
    task_ms = statistics.fmean(task.nominal_us for task in run.tasks[0]) / 1000 if run.tasks[0] else 32.5
    return {"rests": found.rests, "task_ms": task_ms, "lost_ms": found.lost_ms_mean, "lost_ms_max": found.lost_ms_max,
            "lost_tasks": found.lost_ms_max / task_ms, "back_ms": found.back_ms_mean, "back_ms_max": found.back_ms_max,
            "back_tasks": found.back_ms_max / task_ms}


def change(run: Run, _setting: Setting) -> dict:
    took = []
    for number, (at, (_, new)) in enumerate(zip(run.changed, run.case.changes)):
        until = run.changed[number + 1] if number + 1 < len(run.changed) else run.end
        took.append(in_force_ms(run.both, at, until, 0, 100 * new[0] / sum(new)))
    known = [each for each in took if each is not None]
    return {"in_force_ms": max(known) if known and len(known) == len(took) else None, "in_force_ms_each": took}


MORE = {"engines": engines, "idle": idle, "change": change}


def alone(setting: Setting, gate: Daemon, free: Daemon) -> dict:
    """The gate's cost: the same tenant with and without it in turns; the best of the rounds."""
    rounds = 5 if setting.seconds >= 10 else 3
    seconds = max(0.4, setting.seconds / (4 * rounds))
    rates: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        sides = [("gate", gate), ("free", free)]
        for side, daemon in sides if number % 2 == 0 else sides[::-1]:
            for kind in ("lu", "tiny"):
                said = run_alone(daemon, kind, setting.values(kind), seconds)
                rates.setdefault((side, kind), []).append(said["rate" if kind == "lu" else "tasks_per_s"])
    best = {key: max(values) for key, values in rates.items()}  # the machine's other work only ever slows down
    if not all(best.values()):
        raise Failure("a tenant alone got nothing done")
    ratio = best["gate", "lu"] / best["free", "lu"]
    return {"throughput_ratio": ratio, "throughput_loss_percent": 100 * (1 - ratio),
            "us_per_launch": 1e6 / best["gate", "tiny"] - 1e6 / best["free", "tiny"],
            "launches_per_s": {"gate": best["gate", "tiny"], "free": best["free", "tiny"]},
            "rounds": rounds, "rates": {f"{side} {kind}": values for (side, kind), values in rates.items()}}


def baseline(daemon: Daemon, setting: Setting, kinds: list[str], seconds: float) -> None:
    """What one tenant alone gets of the GPU with each kind of tasks, unscheduled."""
    for name in kinds:
        said = run_alone(daemon, name, setting.values(name), seconds)
        setting.kinds[name].busy, setting.kinds[name].rate = said["busy"], said["rate"]
        say(f"  {name} alone: {100 * said['busy']:.1f} % of the time busy, {100 * said['rate']:.1f} % of nominal work")
