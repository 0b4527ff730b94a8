"""tools/bench model: tables, verdicts and charts."""
from lab import svg
from lab.bench_model_data import WAYS, error, mean

NEAR = 0.2           # Kernelet's bound for a pair
SHARE_OF_PAIRS = 80  # percent of the pairs that are to be within it
CRUZ = 10            # percent of mean error, synthetic kernels


def columns(rows: list[tuple]) -> list[str]:
    rows = [tuple(str(cell) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def _constants(result: dict) -> list[str]:
    return columns([("constant", "value"), *((name, f"{value:.5g}") for name, value in result["constants"].items())])


def _kernels(result: dict) -> list[str]:
    """Alone: how fast with few blocks, as measured and as each way says."""
    solo = result["solo"]
    rows = [("kernel", "block us", "regs", "IPC", "bytes/ns", "memory", "speed with 1, 2, 4, 6 blocks",
             *(f"{way}: delay" for way in WAYS), *(f"{way}: error at 2" for way in WAYS))]
    for kernel in result.get("kernels", []):
        name = kernel["name"]
        rates = {int(resident): rate for resident, rate in solo["measured"][name].items()}
        full = max(rates)
        speeds = [f"{rates[count] / rates[full]:.2f}" for count in (1, 2, 4, 6) if count in rates]
        fits = [solo[way][name] or {} for way in WAYS]
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
    found: dict[str, list[float]] = {"throughput": [], "ipc": [], "profit": [], "speed": []}
    for pair in result["pairs"]:
        said = pair["forecast"][way]
        found["throughput"].append(error(said["speed_a"] + said["speed_b"], pair["speed_a"] + pair["speed_b"]))
        found["ipc"].append(error(ipc(result, pair, said), ipc(result, pair)))
        found["profit"].append(said["profit"] - pair["profit"])
        found["speed"] += [error(said["speed_a"], pair["speed_a"]), error(said["speed_b"], pair["speed_b"])]
    return found


def percent_near(errors: list[float]) -> float:
    return 100 * sum(abs(each) <= NEAR for each in errors) / max(1, len(errors))


def _pairs(result: dict) -> list[str]:
    rows = [("pair", "blocks", "found", "speeds measured", *(f"by {way}" for way in WAYS), "profit measured",
             *(f"by {way}" for way in WAYS))]
    for pair in result["pairs"]:
        said = [pair["forecast"][way] for way in WAYS]
        rows.append((f"{pair['a']}-{pair['b']}", f"{pair['resident_a']}+{pair['resident_b']}",
                     f"{pair['found_a']:.2f}+{pair['found_b']:.2f}", f"{pair['speed_a']:.2f} {pair['speed_b']:.2f}",
                     *(f"{each['speed_a']:.2f} {each['speed_b']:.2f}" for each in said), f"{pair['profit']:+.2f}",
                     *(f"{each['profit']:+.2f}" for each in said)))
    lines = columns(rows)
    rows = [("forecast", "pairs", *(f"{name}: within 20 %, mean error" for name in ("throughput", "ipc", "speed")),
             "profit: within 0.2, mean error")]
    for way, text in WAYS.items():
        errors = pair_errors(result, way)
        rows.append((text, len(result["pairs"]),
                     *(f"{percent_near(errors[key]):.0f} %, {100 * mean([abs(each) for each in errors[key]]):.1f} %"
                       for key in ("throughput", "ipc", "speed")),
                     f"{percent_near(errors['profit']):.0f} %, {mean([abs(each) for each in errors['profit']]):.3f}"))
    return [*lines, "", *columns(rows)]


def timed_error(overlap: dict) -> float:
    """Of the slowdown with the times of both: the model's forecast, whether the first lasts or not."""
    return error(overlap["forecast"]["slowdown_timed"], overlap["slowdown_timed"])


def overlap_error(overlap: dict) -> float:
    """Of the slowdown: by the paper's equation 2 where the first lasts, else with the times."""
    key = "slowdown" if overlap["lasting"] else "slowdown_timed"
    return error(overlap["forecast"][key], overlap[key])


def overlap_errors(group: list[dict]) -> tuple[list[float], ...]:
    """Of launches whose first outlasts the second (equation 2's own case; then with the times), and of the others."""
    lasting = [each for each in group if each["lasting"]]
    return ([abs(overlap_error(each)) for each in lasting], [abs(timed_error(each)) for each in lasting],
            [abs(timed_error(each)) for each in group if not each["lasting"]])


def overlap_groups(result: dict) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for overlap in result["overlaps"]:
        split = "all shared memory" if overlap["carveout"] == 100 else "the driver's split"
        found.setdefault(f"{overlap['set']}, {split}", []).append(overlap)
    return found


def _overlaps(result: dict) -> list[str]:
    rows = [("set", "first-second", "blocks", "case measured", "said", "slowdown measured", "said", "error")]
    for overlap in result["overlaps"]:
        key = "slowdown" if overlap["lasting"] else "slowdown_timed"
        first, second = overlap["first"], overlap["second"]
        rows.append((f"{overlap['set']} {overlap['carveout']}", overlap["kind"],
                     f"{first['blocks']}x{first['threads']} {second['blocks']}x{second['threads']}",
                     overlap["case"], overlap["forecast"]["case"],
                     f"{overlap[key]:.2f}" + ("" if overlap["lasting"] else " timed"),
                     f"{overlap['forecast'][key]:.2f}", f"{100 * overlap_error(overlap):+.1f} %"))
    lines = columns(rows)
    rows = [("overlaps", "pairs", "case as said", "first lasts: equation 2", "first lasts: with times",
             "first may end: with times")]
    for name, group in overlap_groups(result).items():
        same = sum(each["case"] == each["forecast"]["case"] for each in group)
        rows.append((name, len(group), f"{100 * same / len(group):.0f} %",
                     *(f"{100 * mean(errors):.1f} %" for errors in overlap_errors(group))))
    return [*lines, "", *columns(rows)]


def verdicts(result: dict) -> dict[str, bool]:
    found = {}
    if result["pairs"]:
        best = max(percent_near(pair_errors(result, way)["ipc"]) for way in WAYS)
        found[f">= {SHARE_OF_PAIRS} % of the pairs' IPC within 20 %"] = best >= SHARE_OF_PAIRS
        best = max(percent_near(pair_errors(result, way)["profit"]) for way in WAYS)
        found[f">= {SHARE_OF_PAIRS} % of the pairs' profit within 0.2"] = best >= SHARE_OF_PAIRS
    group = [each for each in result["overlaps"] if each["set"] == "synthetic" and each["carveout"] == 100]
    if group:
        equation, lasting, others = overlap_errors(group)
        found[f"synthetic, first may end, with times: <= {CRUZ} % mean"] = 100 * mean(others) <= CRUZ
        found[f"synthetic, first lasts, equation 2: <= {CRUZ} % mean"] = 100 * mean(equation) <= CRUZ
        found[f"synthetic, first lasts, with times: <= {CRUZ} % mean"] = 100 * mean(lasting) <= CRUZ
    return found


def missed(result: dict) -> bool:
    return not all(verdicts(result).values())


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


def charts(result: dict) -> dict[str, str]:
    found = {}
    if result["pairs"]:
        points = {text: [(ipc(result, pair), ipc(result, pair, pair["forecast"][way])) for pair in result["pairs"]]
                  for way, text in WAYS.items()}
        found["ipc"] = svg.scatter_chart("IPC of pairs", svg.Axis("measured, of a scheduler"),
                                         svg.Axis("predicted"), points, relative=NEAR)
        points = {text: [(pair["profit"], pair["forecast"][way]["profit"]) for pair in result["pairs"]]
                  for way, text in WAYS.items()}
        found["profit"] = svg.scatter_chart("Co-scheduling profit of pairs", svg.Axis("measured"),
                                            svg.Axis("predicted"), points, absolute=NEAR)
    for name, group in overlap_groups(result).items():
        points = {"the first lasts": [(each["slowdown"], each["forecast"]["slowdown"]) for each in group
                                      if each["lasting"]],
                  "with times": [(each["slowdown_timed"], each["forecast"]["slowdown_timed"]) for each in group
                                 if not each["lasting"]]}
        key = name.replace(", ", "-").replace(" ", "-").replace("'", "")
        found[f"slowdown-{key}"] = svg.scatter_chart(f"Slowdown of the second kernel: {name}", svg.Axis("measured"),
                                                     svg.Axis("predicted"), points, relative=CRUZ / 100)
    return found
