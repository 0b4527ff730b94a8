"""tools/bench model: what was measured, what is forecast of it, and how far the two are apart."""
import dataclasses
import json
import math
import pathlib
import statistics
import subprocess

from lab.paths import BUILD
from lab.shell import Failure

WAYS = {"mix": "static instruction mix alone", "scattered": "and which accesses are scattered",
        "half": "and half_speed", "bandwidth": "static instruction mix, and bandwidth by it and times",
        "described": "as runners tell it, and plans reckon",
        "three": "the same, with three states (slices.three_states)",
        "counts": "counts, half_speed, one_speed"}
GUESS = {"guess": "no model: shares of the blocks"}
COALESCED = 128    # bytes of a warp's access
SECTORS = 32 * 32  # bytes that a warp's access takes if every lane reads a sector of its own
# Of a warp in one round of the kernel's loop: instructions as compiled for sm_90 by CUDA 13.0 (read from the machine
# code; of BS what runs without the slow ways of division and root), accesses of global memory, those of 32 sectors, and
# bytes that have to come from DRAM or go there with 256 MiB of input (what other warps have just had lies in L2).
COUNTS = {
    "PC": (2.25, 1, 1, SECTORS),
    "SPMV": (198, 48, 16, 16 * 2 * 128),
    "ST": (56, 8, 0, 2 * 128),
    "BS": (430, 3, 0, 3 * 128),
    "MM": (58, 2, 0, 0),
    "TEA": (323, 0, 0, 0),
    "MRIQ": (225, 32, 0, 0),
    "SAD": (103, 3, 0, 4 * 128 + 128),
}


# The same of synthetic kernels (research/pairs/overlaps.h), by their registers: a multiply-add for each number that is
# kept, and a little more where the loop is not unrolled.
BUSY = {16: 9, 48: 41, 104: 97}
WAITS = 6


@dataclasses.dataclass
class Measured:
    """The lines of research/pairs."""
    lines: list[dict]

    def of(self, what: str) -> list[dict]:
        return [line for line in self.lines if line.get("what") == what]

    def constants(self) -> dict[str, float]:
        return {line["name"]: line["value"] for line in self.of("constant")}

    def kernels(self) -> dict[str, dict]:
        return {line["kernel"]: line for line in self.of("kernel")}

    def rates(self) -> dict[str, dict[int, float]]:
        """Blocks per nanosecond alone, by blocks on an SM."""
        found: dict[str, dict[int, float]] = {}
        for line in self.of("alone"):
            found.setdefault(line["kernel"], {})[line["wanted"]] = line["rate"]
        return found


def profiles(measured: Measured, mixes: dict[str, dict]) -> list[dict]:
    """What the model is told of each kernel; a way leaves out what it is not to know."""
    sms, rates, found = measured.constants().get("SMs", 132), measured.rates(), []
    for name, kernel in measured.kernels().items():
        full = max(rates[name])
        rate = rates[name][full]
        instructions, accesses, scattered, dram = COUNTS[name]
        warps, rounds = kernel["threads"] // 32, kernel["rounds"]
        found.append({
            "name": name, "threads": kernel["threads"], "registers": kernel["registers"], "shared": kernel["shared"],
            "block_ns": 1 / rate, "half_speed": rates[name].get(full // 2, 0) / rate if full > 1 else 0,
            "one_speed": rates[name].get(1, 0) / rate,
            "instructions": instructions * rounds * warps, "counted_memory": accesses / instructions,
            "counted_uncoalesced": scattered / accesses if accesses else 0,
            "bytes_per_ns": max(1e-3, dram * rounds * warps * rate),  # 0 would say that it is not known
            "instruction_mix_bytes_per_ns": max(1e-3, accesses * COALESCED * rounds * warps * rate),
            "ipc": instructions * rounds * warps * rate
            / (4 * sms * _clock(measured, name)), **mixes.get(name, {})})
    return found


def _clock(measured: Measured, name: str) -> float:
    found = [line["clock"] for line in measured.of("alone") if line["kernel"] == name]
    return found[-1] or 1.0


def pairs(measured: Measured) -> list[dict]:
    """Measured pairs: speeds relative to the kernel alone on a full SM."""
    rates, kernels, found = measured.rates(), measured.kernels(), []
    for line in measured.of("pair"):
        a, b = line["a"], line["b"]
        if line["window_ns"] <= 0 or not line["rate_a"] or not line["rate_b"]:
            continue
        speeds = [line[f"rate_{side}"] / rates[name][max(rates[name])] for side, name in (("a", a), ("b", b))]
        resident_b = min(kernels[b]["fits"], kernels[a]["fits"] - line["wanted_a"])
        found.append({"a": a, "b": b, "resident_a": line["wanted_a"], "resident_b": resident_b,
                      "found_a": line["resident_a"], "found_b": line["resident_b"], "speed_a": speeds[0],
                      "speed_b": speeds[1], "profit": 1 - 1 / sum(speeds), "clock": line["clock_a"],
                      "window_ms": line["window_ns"] / 1e6})
    return found


def guess(pair: dict) -> dict[str, float]:
    """Without a model: each kernel is as fast as its part of the blocks. What a forecast is worth is what it adds."""
    blocks = pair["resident_a"] + pair["resident_b"]
    return {"speed_a": pair["resident_a"] / blocks, "speed_b": pair["resident_b"] / blocks, "profit": 0.0}


def overlap_case(line: dict) -> str:
    """Cruz's cases, by when the second's first block began. A tenth of a round of the first counts as its end."""
    first, begins = line["first_end_ns"], line["second_begin_ns"]
    if begins >= first - 2000:
        return "C"
    # Together from the beginning: while the first had not yet given back anything.
    return "A" if begins < 0.1 * first or begins < 30000 else "B"


def issue_alone(half: dict, sms: float, clock: float) -> float:
    """Of the issue slots of the SM that has most of its blocks, what a launch uses; 0: not known."""
    counted = {"busy": BUSY.get(half["registers"], 0), "waits": WAITS}
    instructions = counted[half["name"]] if half["name"] in counted else COUNTS.get(half["name"], [0])[0]
    if half["alone_ns"] <= 0:
        return 0.0
    warps = math.ceil(half["blocks"] / sms) * half["threads"] / 32 / 4  # of a scheduler
    return min(1.0, instructions * half["rounds"] * warps / (half["alone_ns"] * clock))


def overlaps(measured: Measured) -> list[dict]:
    found = []
    constants = measured.constants()
    sms, clock = constants.get("SMs", 132), constants.get("clock", 1.98)
    for line in measured.of("overlap"):
        alone = line["second"]["alone_ns"]
        if alone <= 0 or line["second_end_ns"] <= line["second_begin_ns"]:
            continue
        first = dict(line["first"])
        first["alone_ns"] = round(first["alone_ns"] or line["first_end_ns"])
        first["issue"] = issue_alone(first, sms, clock)
        second = {**line["second"], "alone_ns": round(alone), "issue": issue_alone(line["second"], sms, clock)}
        found.append({"set": line["set"], "carveout": line["carveout"], "lasting": line["lasting"],
                      "kind": f"{first['name']}-{line['second']['name']}", "first": first,
                      "second": second, "launch_ns": 5000,
                      "case": overlap_case(line), "begins_ns": line["second_begin_ns"],
                      "slowdown": (line["second_end_ns"] - line["second_begin_ns"]) / alone,
                      "slowdown_timed": line["second_end_ns"] / alone})
    return found


def forecast(question: dict, program: pathlib.Path | None = None) -> dict:
    """What vgpu-sched/slice says."""
    program = program or BUILD / "tools/benchmarks/research/forecast"
    if not program.exists():
        raise Failure(f"there is no {program}: build it with ninja tools/benchmarks/research/forecast")
    done = subprocess.run([program], input=json.dumps(question), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"forecast failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def mean(values: list[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def error(predicted: float, measured: float) -> float:
    """Relative, as a part of what was measured."""
    return predicted / measured - 1 if measured else 0.0
