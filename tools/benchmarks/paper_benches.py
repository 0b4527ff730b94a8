"""tools/bench paper: the benchmarks that measure figures: what each is told, and its results in the figure's terms."""
import dataclasses
import math
from collections.abc import Callable, Mapping

from benchmarks import window
from benchmarks.paper_figures import Figure

Values = Mapping[tuple[str, str], float | None]  # None: this device does not have it
_Found = dict[tuple[str, str], float | None]


@dataclasses.dataclass
class Bench:
    """`words`: of the command line, for a figure; `meaning`: of its results."""
    words: Callable[[Figure, int], list[str]]
    meaning: Callable[[list[dict]], Values]


def _sized(*told: str) -> Callable[[Figure, int], list[str]]:
    def words(figure: Figure, rounds: int) -> list[str]:
        sizes = sorted({value.at for value in figure.values}, key=int)
        return [*told, "--sizes", ",".join(sizes), "--rounds", str(rounds)]
    return words


def _fixed(by_figure: dict[str, list[str]]) -> Callable[[Figure, int], list[str]]:
    return lambda figure, _: by_figure[figure.name]


def _of_segments(rows: list[dict]) -> Values:
    """How much longer the same takes through host memory."""
    found: _Found = {}
    for row in rows:
        if row["way"] == "memory":
            size = str(row["bytes"] >> 20)
            found["whole", size] = 100 * (row["whole_times"] - 1)
            found["hand-over", size] = 100 * (row["hand_over_times"] - 1)
    return found


def _of_crypto(rows: list[dict]) -> Values:
    """How many times as fast as a core."""
    found: _Found = {}
    for row in rows:
        size = str(row["batch"] >> 10)
        found[row["direction"], size] = row["times"]
        found[f"{row['direction']} instructions", size] = row["times_instructions"]
    return found


def _of_transfers(rows: list[dict]) -> Values:
    """How much longer the other ways take than copies that overlap and kernels that are planned."""
    found: _Found = {}
    for row in rows:
        for at in [f"sf {row['sf']:g}"] * (row["mix"] == "MIX") + [row["mix"]] * (row["sf"] == 1):
            for way in ("N,Y", "Y,N", "N,N"):
                found[f"Y,Y against {way}", at] = 100 * (row["seconds"][way] / row["seconds"]["Y,Y"] - 1)
            found["hidden", at] = 100 * row["hidden"]
    return found


def _of_mixes(rows: list[dict]) -> Values:
    total = {(row["case"], row["mode"]): row.get("total_s") for row in rows}
    found: _Found = {}
    for mix in {case for case, _ in total}:
        base, ours, best = (total.get((mix, mode)) for mode in ("consolidation", "kernelet", "opt"))
        found["against Base", mix] = 100 * (base / ours - 1) if base and ours else None
        found["OPT against it", mix] = 100 * (ours / best - 1) if ours and best else None
    return found


def _mean(values: list[float]) -> float | None:
    """Geometric, as % above 1."""
    return 100 * (math.exp(sum(map(math.log, values)) / len(values)) - 1) if values and min(values) > 0 else None


def _of_partitions(rows: list[dict]) -> Values:
    found: _Found = {}
    for way in dict.fromkeys(row["way"] for row in rows):
        measured = [row for row in rows if row["way"] == way and row.get("antt")]
        found[f"ANTT {way}", "all"] = _mean([row["antt"] for row in measured])
        found[f"STP {way}", "all"] = _mean([row["stp"] for row in measured])
        more = [100 * (row["stp"] - 1) for row in rows if row["way"] == way and "stp" in row]
        if more:
            found[way, "mean"], found[way, "best"] = sum(more) / len(more), max(more)
    for row in rows:
        found[row["way"], row["pair"]] = 100 * (row["stp"] - 1) if "stp" in row else None
        seen = [each for each in row.get("blocks", []) if any(each[1:])]
        if row["way"] != "Maestro":
            continue
        for side, kernel in enumerate(row["pair"].split("+"), 1):
            series = f"{row['pair']}: {kernel}"
            # A plan that is in force for a moment only may not have been seen.
            found[series, "begin"], found[series, "end"] = (seen[0][side], seen[-1][side]) if seen else (None, None)
            found |= {(series, str(each[0])): each[side] for each in seen}
    return found


# Of Kernelet's kernels: who waits for memory with all of the others, and those that compute among themselves.
_LOW_UTILISATION = ("PC+TEA", "PC+MM", "SPMV+TEA", "SPMV+ST", "ST+SAD", "MM+SAD")
_HIGH_UTILISATION = ("BS+MM", "BS+TEA", "MM+TEA", "MM+MRIQ", "TEA+MRIQ", "BS+MRIQ")


def _by_blocks(pairs: tuple[str, ...]) -> list[str]:
    return ["--ways", "PT,SiM", "--pairs", ",".join(pairs), "--resize"]


_IDEMPOTENCE = {"strict": "strict", "flush": "relaxed"}


def _of_preemption(rows: list[dict]) -> Values:
    """Of all victims together; a bound of the search is part of the way's name."""
    found: _Found = {}
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        requests = sum(row["requests"] for row in own)
        name, at = way.split(" at ") if " at " in way else (way, "15 us")
        found[f"missed {name}", at] = 100 * sum(row["missed"][at] for row in own) / requests
        if way in _IDEMPOTENCE:
            found["missed", _IDEMPOTENCE[way]] = found[f"missed {name}", at]
        found[f"overhead {name}", at] = 100 * sum(row["lost"] for row in own) / len(own)
        if blocks := sum(row["drained"] + row["dropped"] for row in own):
            found["drained", at] = 100 * sum(row["drained"] for row in own) / blocks
            found["flushed", at] = 100 * sum(row["dropped"] for row in own) / blocks
    return found


def _of_windows(rows: list[dict]) -> Values:
    """How many times as fast as the copy engine, and up to what size."""
    by_side: dict[str, list[dict]] = {}
    for row in rows:
        if row["way"] == window.WINDOW:
            by_side.setdefault(f"{row['side']} {row['direction']}", []).append(row)
    found: _Found = {(series, f"{row['bytes'] / 1024:g}"): row["speed"] for series, own in by_side.items()
                     for row in own}
    for one in window.thresholds(rows):
        found[f"{one['side']} {one['direction']}", "threshold"] = one["threshold"] / 1024
    return found


def _of_priorities(rows: list[dict]) -> Values:
    return {(row["series"], row["priority"]): row["part"] and 100 * row["part"] for row in rows}


def _of_hostile(rows: list[dict]) -> Values:
    return {("done", row["deed"]): 100 * row["part"] for row in rows}


def _of_swapping(rows: list[dict]) -> Values:
    """Makespans by that of the fewest tasks, on the same virtual GPU."""
    found: _Found = {}
    for row in rows:
        series = f"of {row['parts']}" if "parts" in row else "tasks"
        first = next(one for one in rows if one.get("parts") == row.get("parts"))
        found[series, str(row["tasks"])] = row["seconds"] / first["seconds"]
        if "fit" in row:
            found["fit", "all"] = row["fit"]
    return found


def _deeds(figure: Figure, _: int) -> list[str]:
    return ["--only", ",".join(value.at for value in figure.values)]


BENCHES = {
    "hostile": Bench(_deeds, _of_hostile),
    "priorities": Bench(_fixed({"gdev-10": []}), _of_priorities),
    "window": Bench(_fixed({"gdev-4": []}), _of_windows),
    "segments": Bench(_sized("--ways", "segment,memory"), _of_segments),
    "crypto": Bench(_sized(), _of_crypto),
    "transfers": Bench(_fixed({"kernelet-8": ["--mixes", "CI,MI,MIX,ALL", "--scales", "1"],
                               "kernelet-9": ["--mixes", "MIX", "--scales", "1,2.5"]}), _of_transfers),
    "mps": Bench(_fixed({"kernelet-6": ["--case", "CI,MI,MIX,ALL", "--mode", "consolidation,kernelet,opt",
                                        "--seconds", "1"]}), _of_mixes),
    "swap": Bench(_fixed({"gdev-12": ["--only", "tasks"], "gdev-13": ["--only", "parts"]}), _of_swapping),
    # One run shows all three.
    "partitions": Bench(_fixed({"maestro-5.10": [], "maestro-5.13": [], "maestro-5.15": [],
                                "bashizade-10": _by_blocks(_LOW_UTILISATION),
                                "bashizade-11": _by_blocks(_HIGH_UTILISATION)}), _of_partitions),
    "preemption": Bench(_fixed({"chimera-4.5": [], "chimera-4.6": [],
                                "chimera-4.7": ["--techniques", "chimera", "--bounds", "5,10,15,20"],
                                "chimera-4.8": ["--techniques", "flush,strict"]}), _of_preemption),
}
