"""tools/bench model: tables, verdicts and charts."""
import statistics

from benchmarks.charts import Axis, Chart, Scatter
from benchmarks.model_choices import choices
from benchmarks.model_data import GUESS, WAYS, error, mean
from benchmarks.results import columns

# Kernelet's bound for a pair, section 5.2: a forecast is good where it is within 20 % of the peak IPC of what was
# measured (the lines y = x +- 0.2 where the peak is 1, +- 1.6 where it is 8), however small the IPC itself is.
NEAR = 0.2
PEAK_IPC = 1.0       # ipc() is of one scheduler, which issues one instruction a cycle
SHARE_OF_PAIRS = 80  # percent of the pairs that are to be within it
CRUZ = 10            # percent of mean error, synthetic kernels
LISTED = ("mix", "half", "counts")  # of WAYS, kernel by kernel and pair by pair
JUDGED = "synthetic, waiting, all shared memory"


def _constants(result: dict) -> list[str]:
    return columns([("constant", "value"), *((name, f"{value:.5g}") for name, value in result["constants"].items())])


def _kernels(result: dict) -> list[str]:
    """Alone: how fast with few blocks, as measured and as each way says."""
    solo = result["solo"]
    rows = [("kernel", "block us", "regs", "IPC", "bytes/ns", "memory", "speed with 1, 2, 4, 6 blocks",
             *(f"{way}: delay" for way in LISTED), *(f"{way}: error at 2" for way in LISTED))]
    for kernel in result.get("kernels", []):
        name = kernel["name"]
        rates = {int(resident): rate for resident, rate in solo["measured"][name].items()}
        full = max(rates)
        speeds = [f"{rates[count] / rates[full]:.2f}" for count in (1, 2, 4, 6) if count in rates]
        fits = [solo[way][name] or {} for way in LISTED]
        delays = [f"{fit['fit']['delay']:.0f}" if fit else "" for fit in fits]
        errors = [f"{100 * error(fit['speeds'][1], rates[2] / rates[full]):+.0f} %" if fit and 2 in rates else ""
                  for fit in fits]
        rows.append((name, f"{kernel['block_ns'] * 1e-3 * full * result['constants'].get('SMs', 132):.0f}",
                     kernel["registers"], f"{kernel['ipc']:.2f}", f"{kernel['bytes_per_ns']:.0f}",
                     f"{kernel.get('memory', 0):.3f}", " ".join(speeds), *delays, *errors))
    return columns(rows)


def ipc(result: dict, pair: dict, forecast: dict | None = None) -> float:
    """Instructions per cycle of a scheduler, both kernels together."""
    alone = {kernel["name"]: kernel["ipc"] for kernel in result["kernels"]}
    speeds = forecast or pair
    return speeds["speed_a"] * alone[pair["a"]] + speeds["speed_b"] * alone[pair["b"]]


def pair_errors(result: dict, way: str) -> dict[str, list[float]]:
    """Relative, but for `ipc of peak` (as a part of the peak) and `profit`, which are differences."""
    found: dict[str, list[float]] = {"throughput": [], "ipc": [], "ipc of peak": [], "profit": [], "speed": []}
    for pair in result["pairs"]:
        said = pair["forecast"][way]
        found["throughput"].append(error(said["speed_a"] + said["speed_b"], pair["speed_a"] + pair["speed_b"]))
        found["ipc"].append(error(ipc(result, pair, said), ipc(result, pair)))
        found["ipc of peak"].append((ipc(result, pair, said) - ipc(result, pair)) / PEAK_IPC)
        found["profit"].append(said["profit"] - pair["profit"])
        found["speed"] += [error(said["speed_a"], pair["speed_a"]), error(said["speed_b"], pair["speed_b"])]
    return found


def percent_near(errors: list[float]) -> float:
    return 100 * sum(abs(each) <= NEAR for each in errors) / max(1, len(errors))


def _pairs(result: dict) -> list[str]:
    rows = [("pair", "blocks", "found", "speeds measured", *(f"by {way}" for way in LISTED), "profit measured",
             *(f"by {way}" for way in LISTED))]
    for pair in result["pairs"]:
        said = [pair["forecast"][way] for way in LISTED]
        rows.append((f"{pair['a']}-{pair['b']}", f"{pair['resident_a']}+{pair['resident_b']}",
                     f"{pair['found_a']:.2f}+{pair['found_b']:.2f}", f"{pair['speed_a']:.2f} {pair['speed_b']:.2f}",
                     *(f"{each['speed_a']:.2f} {each['speed_b']:.2f}" for each in said), f"{pair['profit']:+.2f}",
                     *(f"{each['profit']:+.2f}" for each in said)))
    lines = columns(rows)
    parts = {"ipc of peak": "IPC: within 20 % of peak, mean of peak", "ipc": "IPC: within 20 %, mean error",
             "throughput": "throughput: the same", "speed": "speed of each: the same"}
    rows = [("forecast", "pairs", *parts.values(), "profit: within 0.2, mean error")]
    for way, text in {**WAYS, **GUESS}.items():
        errors = pair_errors(result, way)
        rows.append((text, f"{len(result['pairs'])}",
                     *(f"{percent_near(errors[key]):.0f} %, {100 * mean([abs(each) for each in errors[key]]):.1f} %"
                       for key in parts),
                     f"{percent_near(errors['profit']):.0f} %, {mean([abs(each) for each in errors['profit']]):.3f}"))
    return [*lines, "", *columns(rows), "", *_choices(result)]


def _choices(result: dict) -> list[str]:
    rows = [("choice by", "throughput of it", "losing", "when measured", "tries", "best")]
    for way, text in {**WAYS, **GUESS}.items():
        found = choices(result["pairs"], way)
        rows.append((text, f"{found.first:.3f}", f"{found.losing}", f"{found.learnt:.3f}", f"{found.tries:.1f}",
                     f"{found.best:.3f}"))
    return columns(rows)


def timed_error(overlap: dict) -> float:
    """Of the slowdown with the times of both: the model's forecast, whether the first lasts or not."""
    return error(overlap["forecast"]["slowdown_timed"], overlap["slowdown_timed"])


def busy_error(overlap: dict) -> float:
    """The same where it is known what each uses of the issue slots alone."""
    return error(overlap["forecast"]["slowdown_busy"], overlap["slowdown_timed"])


def overlap_error(overlap: dict) -> float:
    """Of the slowdown: by the paper's equation 2 where the first lasts, else with the times."""
    key = "slowdown" if overlap["lasting"] else "slowdown_timed"
    return error(overlap["forecast"][key], overlap[key])


def overlap_errors(group: list[dict]) -> tuple[list[float], ...]:
    """Of launches whose first outlasts the second (equation 2's own case; then with the times), and of the others."""
    lasting = [each for each in group if each["lasting"]]
    return ([abs(overlap_error(each)) for each in lasting], [abs(timed_error(each)) for each in lasting],
            [abs(timed_error(each)) for each in group if not each["lasting"]])


def overlap_group(overlap: dict) -> str:
    """Equation 2 counts room and nothing else: its premise is that a block takes as long whatever is beside it. So it
    is with kernels that wait (for loads from L2). On an H200 a few warps of busy ones fill the issue slots, and those
    of the older kernel go first: beside a busy first the second starves, and a busy second needs little room."""
    split = "all shared memory" if overlap["carveout"] == 100 else "the driver's split"
    if overlap["set"] != "synthetic":
        return f"{overlap['set']}, {split}"
    waiting = overlap["first"]["name"] == overlap["second"]["name"] == "waits"
    return f"synthetic, {'waiting' if waiting else 'busy'}, {split}"


def overlap_groups(result: dict) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for overlap in result["overlaps"]:
        found.setdefault(overlap_group(overlap), []).append(overlap)
    return found


def _mean_and_median(errors: list[float]) -> str:
    return f"{100 * mean(errors):.1f} %, {100 * statistics.median(errors):.1f} %"


def _overlaps(result: dict) -> list[str]:
    """A line a launch, as Cruz's table 3 has them, and the groups."""
    rows = [("set", "first-second", "blocks", "case measured", "said", "estimated", "actual", "error")]
    for overlap in result["overlaps"]:
        key = "slowdown" if overlap["lasting"] else "slowdown_timed"
        first, second = overlap["first"], overlap["second"]
        rows.append((overlap_group(overlap), overlap["kind"],
                     f"{first['blocks']}x{first['threads']} {second['blocks']}x{second['threads']}",
                     overlap["case"], overlap["forecast"]["case"], f"{overlap['forecast'][key]:.2f}",
                     f"{overlap[key]:.2f}" + ("" if overlap["lasting"] else " timed"),
                     f"{100 * overlap_error(overlap):+.1f} %"))
    lines = columns(rows)
    rows = [("overlaps", "pairs", "case as said", "all: mean, median error", "first lasts: equation 2",
             "first lasts: with times", "first may end: with times", "all: times and issue slots, median")]
    groups: list[tuple] = []
    for name, group in overlap_groups(result).items():
        same = sum(each["case"] == each["forecast"]["case"] for each in group)
        errors = [abs(overlap_error(each)) for each in group]
        groups.append((name, len(group), f"{100 * same / len(group):.0f} %",
                     _mean_and_median(errors),
                     *(f"{100 * mean(part):.1f} %" for part in overlap_errors(group)),
                     _mean_and_median([abs(busy_error(each)) for each in group])))
    return [*lines, "", *columns([*rows, *groups]), "all: equation 2 where the first lasts, else with times"]


def _guessed(result: dict) -> str:
    """What is within the same bound without any model: what a model is worth is what it adds to that."""
    measured = [ipc(result, pair) for pair in result["pairs"]]
    middle = percent_near([(mean(measured) - each) / PEAK_IPC for each in measured])
    blocks = percent_near(pair_errors(result, "guess")["ipc of peak"])
    return f"without one: {middle:.0f} % by always the mean, {blocks:.0f} % by shares of the blocks"


def verdicts(result: dict) -> dict[str, bool]:
    found = {}
    if result["pairs"]:
        best = max(percent_near(pair_errors(result, way)["ipc of peak"]) for way in WAYS)
        found[f">= {SHARE_OF_PAIRS} % of the pairs' IPC within 20 % of the peak: {best:.0f} % by the best model "
              f"({_guessed(result)})"] = best >= SHARE_OF_PAIRS
        best = max(percent_near(pair_errors(result, way)["profit"]) for way in WAYS)
        found[f">= {SHARE_OF_PAIRS} % of the pairs' profit within 0.2"] = best >= SHARE_OF_PAIRS
    waiting = overlap_groups(result).get(JUDGED, [])
    if waiting:
        off = 100 * mean([abs(overlap_error(each)) for each in waiting])
        found[f"{JUDGED}, by equation 2: <= {CRUZ} % mean"] = off <= CRUZ
    synthetic = [abs(busy_error(each)) for each in result["overlaps"]
                 if each["set"] == "synthetic" and each["carveout"] == 100]
    if synthetic:
        found[f"all synthetic, all shared memory, with times and issue slots: <= {CRUZ} % mean"] = (
            100 * mean(synthetic) <= CRUZ)
    return found


def missed(result: dict) -> list[str]:
    failed = [f"{each['of']} failed: {each['error']}" for each in result["errors"]]
    return [what for what, reached in verdicts(result).items() if not reached] + failed


def text(result: dict) -> str:
    parts = []
    if result["constants"]:
        parts.append(_constants(result))
    if result.get("kernels"):
        parts.append(_kernels(result))
    if result["pairs"]:
        parts.append(_pairs(result))
    if result["overlaps"]:
        parts.append(_overlaps(result))
    parts.append([f"{what}: {'yes' if reached else 'NO'}" for what, reached in verdicts(result).items()]
                 + [f"FAILED: {each['of']}: {each['error']}" for each in result["errors"]])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def charts(result: dict) -> dict[str, Chart]:
    found: dict[str, Chart] = {}
    if result["pairs"]:
        points = {text: [(ipc(result, pair), ipc(result, pair, pair["forecast"][way])) for pair in result["pairs"]]
                  for way, text in WAYS.items()}
        found["ipc"] = Scatter("IPC of pairs", Axis("measured, of a scheduler"),
                                         Axis("predicted"), points, absolute=NEAR * PEAK_IPC)
        points = {text: [(pair["profit"], pair["forecast"][way]["profit"]) for pair in result["pairs"]]
                  for way, text in WAYS.items()}
        found["profit"] = Scatter("Co-scheduling profit of pairs", Axis("measured"),
                                            Axis("predicted"), points, absolute=NEAR)
    for name, group in overlap_groups(result).items():
        points = {"the first lasts": [(each["slowdown"], each["forecast"]["slowdown"]) for each in group
                                      if each["lasting"]],
                  "with times": [(each["slowdown_timed"], each["forecast"]["slowdown_timed"]) for each in group
                                 if not each["lasting"]]}
        key = name.replace(", ", "-").replace(" ", "-").replace("'", "")
        found[f"slowdown-{key}"] = Scatter(f"Slowdown of the second kernel: {name}", Axis("measured"),
                                                     Axis("predicted"), points, relative=CRUZ / 100)
    return found
