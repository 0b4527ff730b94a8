"""tools/bench partitions: two kernels at once by how they share the SMs (GPU Maestro's figures 5.10, 5.13 and 5.15,
Bashizade's 10 and 11).

Each of a pair's two tenants always has two launches queued. The speed of each is what it gets done, of what it does
alone. Ways: SMs of its own for each (Spatial), half of each SM (SMK), MPS as it is, Kernelet's plan, and what Maestro
finds by trying, for turnaround or for throughput; if asked for, persistent blocks that nobody plans (PT) and those of a
greedy plan (SiM). Outputs are checked."""
import argparse
import time

from benchmarks import mps_measure, mps_waves
from benchmarks.mps_cases import kernels_of, kernels_of_all, why_no_partition
from benchmarks.mps_measure import Setting
from benchmarks.mps_run import BenchTenant, check, soon
from benchmarks.results import columns
from lab.daemon import BenchDaemon
from lab.shell import say

SPATIAL, MAESTRO = "Spatial", "Maestro"
# By planning mode. Spatial has none.
MODES = {"SMK": "even", "MPS": "mps", "Kernelet": "kernelet", MAESTRO: "maestro-antt", "Maestro for STP": "maestro-stp",
         "PT": "mps", "SiM": "persistent-greedy"}
VARIANTS = {"MPS": "", "PT": "persistent"}  # how long kernels are cut; in all others as the runner finds best
WAYS = [SPATIAL, *MODES]
IF_ASKED = ("PT", "SiM")
# Two of each category of figure 5.10, of which the paper's are those that compute, and those that wait for memory.
PAIRS = ["PC+TEA", "PC+MM", "SPMV+TEA", "MM+SAD", "SPMV+ST", "ST+SAD"]
SETTLE = 0.3        # of the time of a pair, before what counts: the other kernel's tail, the first epochs
WATCH_SECONDS = 0.01


def _speed(instances: list[tuple[int, int, int]], alone_ns: float, begin: int, end: int) -> float:
    """By the launches that ended in the window; the first of them began before it."""
    ends = [ended for _, _, ended in instances if begin <= ended <= end]
    if len(ends) < 2:
        return 0.0
    return (len(ends) - 1) * alone_ns / (ends[-1] - ends[0])


def _parts(daemon: BenchDaemon) -> dict[str, int]:
    """Blocks on each SM of the plan in force, by virtual GPU."""
    plan = (daemon.status().get("mps") or {}).get("plan") or {}
    return {part["vgpu"]: part["resident"] for part in plan.get("parts", [])}


def _watch(daemon: BenchDaemon, tenants: list[BenchTenant], until: float) -> list[list[float]]:
    """Lines of milliseconds and blocks of each, whenever these change."""
    seen: list[list[float]] = []
    begin = time.monotonic()
    while time.monotonic() < until:
        parts = _parts(daemon)
        blocks = [float(parts.get(tenant.vgpu, 0)) for tenant in tenants]
        if not seen or seen[-1][1:] != blocks:
            seen.append([round(1000 * (time.monotonic() - begin), 1), *blocks])
        time.sleep(WATCH_SECONDS)
    return seen


def _run_pair(daemon: BenchDaemon, setting: Setting, pair: str, way: str, tenants: list[BenchTenant]) -> dict:
    alone = [setting.kernels[name]["alone_ns"] for name in kernels_of(pair)]
    before = daemon.planned()
    begin = soon()
    for tenant in tenants:
        tenant.start("backlog", begin, setting.mix_seconds, 2)
    blocks = _watch(daemon, tenants, time.monotonic() + setting.mix_seconds)
    said = [tenant.instances(60 + 20 * setting.mix_seconds) for tenant in tenants]
    first, last = begin + int(SETTLE * setting.mix_seconds * 1e9), begin + int(setting.mix_seconds * 1e9)
    speeds = [_speed(instances, each, first, last) for instances, each in zip(said, alone)]
    planned = {key: count - before.get(key, 0) for key, count in daemon.planned().items()}
    result = {"pair": pair, "way": way, "speeds": speeds, "stp": sum(speeds), "blocks": blocks,
              "planned": planned,
              "antt": sum(1 / speed for speed in speeds) / 2 if min(speeds) > 0 else None}
    antt = f"{result['antt']:.2f}" if result["antt"] else "one of them starved"
    say(f"  {pair:9} {way}: {speeds[0]:.2f} + {speeds[1]:.2f} = {result['stp']:.2f}, ANTT {antt}")
    return result


def _planned(way: str, options, setting: Setting) -> list[dict]:
    """All pairs under a planning mode."""
    mode, rows = MODES[way], []
    daemon = BenchDaemon(setting.device, mps_measure.POLICY, VARIANTS.get(way, "auto"), mode,
                         cut={"resize": options.resize})
    try:
        names = kernels_of_all(options.pairs)
        kernels = [setting.kernels[name] for name in names]
        with mps_measure.ready_tenants(daemon, setting.log_words, "mps", kernels) as ready:
            tenants = dict(zip(names, ready))
            mps_measure.keep_busy(ready, mps_measure.WARM_LAUNCHES * sum(one["alone_ns"] for one in kernels) / 1e9)
            for pair in options.pairs:
                rows.append(_run_pair(daemon, setting, pair, way, [tenants[name] for name in kernels_of(pair)]))
            check(ready)
    finally:
        daemon.end()
    return rows


def _halves(sms: int, step: int) -> tuple[int, int]:
    """About half of the SMs for each of two, in steps: one step stays for all other virtual GPUs."""
    steps = sms // step - 1
    return (steps + 1) // 2 * step, steps // 2 * step


def _spatial(options, setting: Setting) -> list[dict]:
    """Each pair on tenants with about half of the SMs each."""
    rows = []
    daemon = BenchDaemon(setting.device, mps_measure.POLICY)
    try:
        if why := why_no_partition(daemon.status()):
            return [{"pair": pair, "way": SPATIAL, "left_out": why} for pair in options.pairs]
        for pair in options.pairs:
            kernels = [setting.kernels[name] for name in kernels_of(pair)]
            halves = _halves(kernels[0]["sms"], daemon.status()["mps"]["partitions"]["step"])
            with mps_measure.ready_tenants(daemon, setting.log_words, "mps", kernels, halves) as tenants:
                rows.append(_run_pair(daemon, setting, pair, SPATIAL, tenants))
                check(tenants)
    finally:
        daemon.end()
    return rows


def measure(options, setting: Setting) -> list[dict]:
    rows = []
    for way in options.ways:
        say(f"two kernels at once: {way}")
        rows += _spatial(options, setting) if way == SPATIAL else _planned(way, options, setting)
    return rows


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("pair", "way", "speeds", "STP", "ANTT", "blocks at last")]
    for row in rows:
        if "left_out" in row:
            lines.append((row["pair"], row["way"], row["left_out"], "", "", ""))
            continue
        last: list[float] = next((seen[1:] for seen in reversed(row["blocks"]) if any(seen[1:])), [])
        lines.append((row["pair"], row["way"], " + ".join(f"{speed:.2f}" for speed in row["speeds"]),
                      f"{row['stp']:.2f}", f"{row['antt']:.2f}" if row["antt"] else "starved",
                      ":".join(f"{blocks:.0f}" for blocks in last)))
    return "\n".join(columns(lines))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench partitions", description=__doc__)
    parser.add_argument("--pairs", default=",".join(PAIRS), help="of Kernelet's kernels, as PC+TEA")
    parser.add_argument("--ways", default=",".join(way for way in WAYS if way not in IF_ASKED),
                        help=f"of {','.join(WAYS)}")
    mps_waves.add_options(parser, 0.7, "for each pair and way")
    parser.add_argument("--resize", action="store_true", help="persistent blocks are made more or fewer while they "
                        "run, rather than stopped and launched again ([slices] resize)")
    options = parser.parse_args(arguments)
    options.pairs, options.ways = options.pairs.split(","), options.ways.split(",")
    if unknown := [pair for pair in options.pairs if len(kernels_of(pair)) != 2]:
        parser.error(f"no two kernels: {', '.join(unknown)}")
    if unknown := sorted(set(options.ways) - set(WAYS)):
        parser.error(f"no way {', '.join(unknown)}; there are {', '.join(WAYS)}")
    return options


def run(arguments: list[str]) -> int:
    options = _options(arguments)
    return mps_waves.run("partitions", options, kernels_of_all(options.pairs), measure, table)
