"""tools/bench mps: a short kernel beside a long one, and mixes of kernels under a mode."""
import contextlib
import dataclasses
import math
import os
import time

from benchmarks.mps_cases import (
    LATENCY,
    LONG,
    NOT_THERE,
    TIME_SLICED,
    Outcome,
    Row,
    counts,
    figures,
    kernels_of,
    kernels_of_all,
    of_alone,
    percentile,
    variant_of,
    vgpud_mode,
    why_no_partition,
)
from benchmarks.mps_run import BenchTenant, calibrate, check, soon
from benchmarks.shares_run import now
from lab.daemon import BenchDaemon
from lab.guest_run import native_environment
from lab.shell import Failure, say

POLICY = "none"  # of mixes: they judge the planning mode alone
SEED = 1
LOAD = 2.0       # arrivals: twice what the GPU gets done one after the other, so that several are always pending
EVERY_US = 300   # between short kernels, on average
SETTLE_SECONDS = 1.2  # the runner measures some launches, then looks for a size of grid slices
# Of each kernel before the mixes: a planner knows it then. Runners look at some launches whole, then at a dozen in
# different numbers of persistent blocks and in grid slices.
WARM_LAUNCHES = 20


@dataclasses.dataclass
class Setting:
    """What all runs of an invocation share."""
    device: str
    mix_seconds: float     # of work in a mix, if one after the other
    beside_seconds: float  # of short kernels beside the long one
    log_words: int
    mix_ms: float
    long_ms: float
    waves: int
    cold: bool = False  # mixes of kernels that have not run before
    # By name: blocks, rounds and alone_ns of a launch.
    kernels: dict[str, dict] = dataclasses.field(default_factory=dict)
    long: dict = dataclasses.field(default_factory=dict)
    long_rate: float = 0.0  # of the long kernel alone, whole, on a GPU of its own; launches a second


def setting_of(device: str, seconds: float) -> Setting:
    """For "soft" or "gpu"; `seconds`: of work in a mix, and beside the long kernel."""
    if device == "soft":
        return Setting(device, seconds, seconds, 20, 10, 28, 2)
    return Setting(os.environ.get("BANDSAW_LAB_DEVICE", "cuda:0"), seconds, seconds, 26, 20, 28, 100)


def prepare(setting: Setting, names: list[str], with_latency: bool) -> None:
    """Lengths on this device, each kernel checked against the host and measured alone."""
    daemon = BenchDaemon(setting.device)
    values = {"waves": setting.waves, "log_words": setting.log_words,
              "warm_ms": 0 if setting.device == "soft" else 200}
    try:
        if names:
            setting.kernels = calibrate(daemon, names, {**values, "ms": setting.mix_ms})
        if with_latency:
            found = calibrate(daemon, [LONG, "short"], {**values, "ms": setting.long_ms})
            setting.long, setting.kernels["short"] = found[LONG], found["short"]
    except Failure as failure:
        raise Failure(f"{failure}\n{daemon.evidence()}") from failure
    finally:
        daemon.end()
    for row in [*setting.kernels.values(), *([setting.long] if setting.long else [])]:
        say(f"  {row['kernel']:5} alone {row['alone_ns'] / 1e6:8.3f} ms: {row['blocks']} blocks of {row['rounds']} "
            f"rounds, {row['resident']} resident on each of {row['sms']} SMs")


@contextlib.contextmanager
def ready_tenants(daemon: BenchDaemon, log_words: int, sharing: str, kernels: list[dict], sms: tuple[int, ...] = ()):
    """A virtual GPU and a program for each, ready and checked; `sms`: of their own, in the same order."""
    names = [f"tenant{number}" for number in range(len(kernels))]
    tenants: list[BenchTenant] = []
    try:
        for name, own in zip(names, [*sms, *[0] * len(names)]):
            daemon.create(name, max(1, 100 // len(names)), "--sharing", sharing, *(("--sms", str(own)) if own else ()))
        if sharing == "mps":
            daemon.await_mps()
        tenants = [BenchTenant(daemon.program_environment(name), name, kernel, log_words)
                   for name, kernel in zip(names, kernels)]
        for tenant in tenants:
            tenant.ready()
        check(tenants)
        yield tenants
        for tenant in tenants:
            tenant.end()
    finally:
        for tenant in tenants:
            tenant.kill()
        with contextlib.suppress(OSError):  # a daemon that is not there any more
            for name in names:
                daemon.destroy(name)


def keep_busy(tenants: list[BenchTenant], seconds: float) -> None:
    """All at once, each with launches back to back."""
    begin = soon()
    for tenant in tenants:
        tenant.start("backlog", begin, seconds, 2)
    for tenant in tenants:
        tenant.instances(60 + 20 * seconds)


def rate(instances: list[tuple[int, int, int]], begin: int, end: int) -> float:
    """Ends a second between two times."""
    ends = [ended for _, _, ended in instances if begin <= ended <= end]
    if len(ends) < 2:
        raise Failure(f"only {len(ends)} long kernels ended in {(end - begin) / 1e9:.1f} s")
    return 1e9 * (len(ends) - 1) / (ends[-1] - ends[0])


def took_us(tenant: BenchTenant, timeout: float) -> list[float]:
    return [(end - begin) / 1000 for begin, _, end in tenant.instances(timeout)]


def _beside(daemon: BenchDaemon, setting: Setting, row: Row) -> dict:
    settle, alone_for, seconds = SETTLE_SECONDS, 1.0, setting.beside_seconds
    sms = (0, daemon.status()["mps"]["partitions"]["step"]) if row.partition else ()
    kernels = [setting.long, setting.kernels["short"]]
    with ready_tenants(daemon, setting.log_words, row.sharing, kernels, sms) as (long, short):
        short.start("short", soon(), 1.0, EVERY_US)
        quiet = took_us(short, 30)
        begin = soon()
        beside = begin + int((settle + alone_for) * 1e9)
        long.start("backlog", begin, settle + alone_for + seconds, 2)
        short.start("short", beside, seconds, EVERY_US)
        said = took_us(short, seconds + 60)
        launches = long.instances(60)
        cut, planned = daemon.cut(long.vgpu), daemon.planned()
    alone = rate(launches, begin + int(settle * 1e9), beside)
    setting.long_rate = setting.long_rate or alone  # the first row has it whole, on a GPU of its own
    both = rate(launches, beside, beside + int(seconds * 1e9))
    return {"p50_us": percentile(said, 0.5), "p99_us": percentile(said, 0.99), "max_us": max(said),
            "samples": len(said), "quiet_p50_us": percentile(quiet, 0.5), "quiet_p99_us": percentile(quiet, 0.99),
            "long_percent": 100 * both / setting.long_rate, "long_there_percent": 100 * both / alone,
            "long_quiet_percent": 100 * alone / setting.long_rate, "long_ms": 1000 / alone, "cut": cut,
            "planned": planned}


def _bare(setting: Setting) -> dict:
    """The short kernel alone on the GPU's own driver: what pauses between launches cost whoever makes them."""
    if setting.device == "soft":
        return {"left_out": f"{NOT_THERE}: no GPU has a driver of its own here"}
    short = BenchTenant(native_environment(), "bare metal", setting.kernels["short"], setting.log_words)
    try:
        short.ready()
        short.start("short", soon(), setting.beside_seconds, EVERY_US)
        said = took_us(short, setting.beside_seconds + 60)
        short.end()
    finally:
        short.kill()
    return {"samples": len(said), "quiet_p50_us": percentile(said, 0.5), "quiet_p99_us": percentile(said, 0.99)}


def latency(setting: Setting, row: Row) -> dict:
    """A short kernel, waited for, beside long ones launched back to back."""
    result = {"case": LATENCY, "mode": row.name}
    if row.bare:
        return result | _bare(setting)
    daemon = BenchDaemon(setting.device, row.policy, row.slices, row.mode, cut=row.cut)
    try:
        if row.partition and (why := why_no_partition(daemon.status())):
            return result | {"left_out": why}
        result |= _beside(daemon, setting, row)
    except (Failure, OSError) as failure:
        result["failed"] = str(failure)
        say(daemon.evidence())
    finally:
        daemon.end()
    return result


def run_mix(daemon: BenchDaemon, setting: Setting, tenants: dict[str, BenchTenant], mix: str,
            brings: dict[str, int] | None = None, times: float = 1) -> dict:
    """All kernels of a mix with the same rate and number of arrivals. `brings`: bytes of input that each instance has
    copied first; `times`: how much longer each is."""
    names = kernels_of(mix)
    alone = {name: times * setting.kernels[name]["alone_ns"] for name in names}
    count = max(2, math.ceil(setting.mix_seconds * 1e9 / sum(alone.values())))
    rate = LOAD * 1e9 / sum(alone.values())
    before = {name: daemon.cut(tenants[name].vgpu) for name in names}
    planned = daemon.planned()
    begin = soon()
    for number, name in enumerate(names):
        tenants[name].start("poisson", begin, SEED + number, rate, count, (brings or {}).get(name, 0), times)
    limit, outcomes = now() + int((60 + 20 * setting.mix_seconds) * 1e9), []
    for name in names:
        for each in tenants[name].instances(max(1.0, (limit - now()) / 1e9)):
            outcomes.append(Outcome(name, *each, alone[name]))
    after = {name: daemon.cut(tenants[name].vgpu) for name in names}
    counters = ("launches", "grid_slices", "fallbacks")
    cut = {name: {**{key: after[name].get(key, 0) - before[name].get(key, 0) for key in counters},
                  "refused": after[name].get("refused", {})} for name in names}
    by_kernel = {name: figures([each for each in outcomes if each.kernel == name]) for name in names}
    return {**figures(outcomes), "count": count, "rate_per_s": rate, "cut": cut, "by_kernel": by_kernel,
            "planned": {key: count - planned.get(key, 0) for key, count in daemon.planned().items()},
            "outcomes": [dataclasses.astuple(each) for each in outcomes]}


def drawn_by_lot(setting: Setting, mode: str, chosen: list[str], seeds: int) -> list[dict]:
    """As mixes(), with so many seeds: of each mix the run in the middle, and what all took."""
    runs = [mixes(setting, mode, chosen, seed) for seed in range(1, seeds + 1)]
    results = []
    for of_mix in zip(*runs):
        if failed := [each for each in of_mix if "total_s" not in each]:
            results.append(failed[0])
            continue
        ordered = sorted(of_mix, key=of_alone)
        results.append(ordered[len(ordered) // 2] | {"of_seeds": [of_alone(each) for each in ordered]})
    return results


def mixes(setting: Setting, mode: str, chosen: list[str], seed: int = 1) -> list[dict]:
    """All chosen mixes under one mode, with the same tenants."""
    results = [{"case": mix, "mode": mode} for mix in chosen]
    daemon = BenchDaemon(setting.device, POLICY, variant_of(mode), vgpud_mode(mode), seed, counts(mode))
    try:
        needed = kernels_of_all(chosen)
        begin = time.monotonic()
        kernels = [setting.kernels[name] for name in needed]
        sharing = "time-sliced" if mode == TIME_SLICED else "mps"
        with ready_tenants(daemon, setting.log_words, sharing, kernels) as ready:
            if not setting.cold:
                keep_busy(ready, WARM_LAUNCHES * sum(kernel["alone_ns"] for kernel in kernels) / 1e9)
            say(f"  {len(needed)} tenants ready after {time.monotonic() - begin:.1f} s")
            by_name = dict(zip(needed, ready))
            for result in results:
                result |= {"policy": POLICY, **run_mix(daemon, setting, by_name, result["case"])}
            for name, tenant in by_name.items():
                for found in daemon.found(tenant.vgpu):
                    say(f"  {name}: {found}")
            check(ready)
    except (Failure, OSError) as failure:
        for result in results:
            if "total_s" not in result:
                result["failed"] = str(failure)
        say(f"{failure}\n{daemon.evidence()}")
    finally:
        daemon.end()
    return results
