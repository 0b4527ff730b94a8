"""tools/bench mps: mixes, modes, what is wanted, and the figures' definitions."""
import dataclasses
import statistics

# Kernelet, table 2.
MIXES = {
    "CI": ["BS", "MM", "TEA", "MRIQ"],
    "MI": ["PC", "SPMV", "ST", "SAD"],
    "MIX": ["PC", "BS", "TEA", "SAD"],
    "ALL": ["PC", "SPMV", "ST", "BS", "MM", "TEA", "MRIQ", "SAD"],
}
LATENCY = "latency"
LONG = "MM"
TIME_SLICED = "time-sliced"
# Of MPS virtual GPUs, as vgpud names them.
PLANNING_MODES = ["mps", "consolidation", "slices-fifo", "kernelet", "persistent-greedy", "maestro-antt", "maestro-stp",
                  "opt", "random", "even"]
# Modes that plan how many blocks lie on an SM have persistent blocks, which keep to it, where a kernel can have them;
# the same plans are followed with grid slices alone too.
SLICES = "-slices"
# Planned by the static instruction mix and times alone, without what grid slices have counted and half the blocks have
# shown.
MIX_ONLY = "-mix"
MODES = [TIME_SLICED, *PLANNING_MODES, "kernelet" + SLICES, "opt" + SLICES, "kernelet" + MIX_ONLY]
KERNELS = MIXES["ALL"]
NOT_THERE = "not there"


def kernels_of(case: str) -> list[str]:
    """Of a mix by its name, or by its kernels: PC+TEA. Empty: there is no such mix."""
    names = MIXES.get(case) or case.split("+")
    return names if len(names) > 1 and set(names) <= set(KERNELS) and len(set(names)) == len(names) else []


def kernels_of_all(cases: list[str]) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(name for case in cases for name in kernels_of(case)))


def variant_of(mode: str) -> str:
    """How vgpud cuts long kernels; empty: it does not."""
    if mode in (TIME_SLICED, "mps", "consolidation"):
        return ""
    return "sliced" if mode.endswith(SLICES) else "auto"


def vgpud_mode(mode: str) -> str:
    return "mps" if mode == TIME_SLICED else mode.removesuffix(SLICES).removesuffix(MIX_ONLY)


def counts(mode: str) -> bool:
    return not mode.endswith(MIX_ONLY)


def why_no_partition(status: dict) -> str:
    """Empty if virtual GPUs can have SMs of their own."""
    return "" if (status.get("mps") or {}).get("partitions") else f"{NOT_THERE}: no virtual GPU has SMs of its own"


@dataclasses.dataclass
class Row:
    """One way of letting a short kernel run beside a long one."""
    name: str
    sharing: str = "time-sliced"
    slices: str = ""  # how long kernels are cut; empty: not at all
    policy: str = "none"
    mode: str = "mps"
    bare: bool = False       # the short kernel alone, on the GPU's own driver
    cut: dict | None = None  # more of how long kernels are cut
    partition: bool = False  # the short kernel's tenant has SMs of its own, the least number; the long one's the rest
    # Of the short kernel's p99, in us, and of the long one's throughput, in percent of it alone on the whole GPU; where
    # that has not all of the GPU, in percent of it alone on the SMs that it has.
    p99_us: float | None = None
    long_percent: float | None = None

    def long_figure(self) -> tuple[str, str]:
        """The key of what is judged, and what it is called."""
        return ("long_there_percent", "long, of alone there") if self.partition else ("long_percent", "long")


LATENCY_ROWS = [
    Row("bare metal, alone", bare=True),
    Row("time slicing"),
    Row("mps", "mps"),
    Row("mps + grid slices", "mps", "sliced", p99_us=700, long_percent=97),
    Row("mps + grid slices, band+", "mps", "sliced", "band+"),
    Row("mps + persistent blocks", "mps", "persistent"),
    Row("kernelet", "mps", "auto", mode="kernelet"),
    Row("kernelet, single SMs", "mps", "auto", mode="kernelet", cut={"take_us": 15}),
    Row("kernelet, single SMs, drops", "mps", "auto", mode="kernelet", cut={"take_us": 15, "drop_us": 15}),
    Row("SM partition", "mps", partition=True, p99_us=40, long_percent=97),
    Row("SM partition, band+", "mps", policy="band+", partition=True, p99_us=40, long_percent=97),
]


@dataclasses.dataclass
class Outcome:
    """An instance; times in nanoseconds."""
    kernel: str
    arrived: int
    started: int
    ended: int
    alone: float


def figures(outcomes: list[Outcome]) -> dict:
    """As vgpu-sched/slice/metrics.h defines them (Eyerman and Eeckhout; total time as Kernelet has it)."""
    begin, end = min(each.arrived for each in outcomes), max(each.ended for each in outcomes)
    waits = [max(1, each.ended - each.arrived) for each in outcomes]
    return {"total_s": (end - begin) / 1e9, "alone_s": sum(each.alone for each in outcomes) / 1e9,
            "stp": sum(each.alone / wait for each, wait in zip(outcomes, waits)),
            "antt": statistics.fmean(wait / each.alone for each, wait in zip(outcomes, waits)),
            "instances": len(outcomes)}


def of_alone(result: dict) -> float:
    """The total time of a mix, of its kernels' one by one."""
    return result["total_s"] / result["alone_s"]


def percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def verdict(result: dict) -> dict[str, str]:
    """yes or NO for each figure that something is wanted of."""
    if result["case"] == LATENCY:
        row = next(row for row in LATENCY_ROWS if row.name == result["mode"])
        found = {}
        if row.p99_us is not None and "p99_us" in result:
            found[f"p99 <= {row.p99_us:g} us"] = "yes" if result["p99_us"] <= row.p99_us else "NO"
        key, name = row.long_figure()
        if row.long_percent is not None and key in result:
            found[f"{name} >= {row.long_percent:g} %"] = "yes" if result[key] >= row.long_percent else "NO"
        return found
    return {}


def judge_mixes(results: list[dict]) -> None:
    """Kernelet's plans against time slicing, consolidation and OPT in the same variant, where they were measured."""
    total = {(each["case"], each["mode"]): each["total_s"] for each in results if "total_s" in each}
    for each in results:
        if vgpud_mode(each["mode"]) != "kernelet" or "total_s" not in each:
            continue
        found = {}
        for other in (TIME_SLICED, "consolidation"):
            if (against := total.get((each["case"], other))) is not None:
                found[f"< {other}"] = "yes" if each["total_s"] < against else "NO"
        if (best := total.get((each["case"], each["mode"].replace("kernelet", "opt")))) is not None:
            found["<= 1.1 opt"] = "yes" if each["total_s"] <= 1.1 * best else "NO"
        each["verdict"] = found
