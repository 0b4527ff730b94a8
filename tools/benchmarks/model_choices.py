"""tools/bench model: what planners make of forecasts.

Of each two kernels the ratio is chosen whose throughput is forecast best, if that is a gain; else they run one after
the other. A planner that measures what it has chosen chooses again, until the best that it knows has been measured."""
import dataclasses

from benchmarks.model_data import mean

LEAST = 1.02  # as PlannerOptions::least_profit has it: what gains less is not worth a plan
ALONE = 1.0


@dataclasses.dataclass
class Choices:
    """Means over all two kernels; throughputs, of one after the other."""
    first: float   # of what is chosen by forecast
    losing: int    # of these, below ALONE
    learnt: float  # of what is chosen when what was chosen before has been measured
    tries: float   # until then
    best: float    # that there is


def _throughput(speeds: dict) -> float:
    return speeds["speed_a"] + speeds["speed_b"]


def _choose(pairs: list[dict], way: str) -> tuple[float, float, int]:
    """Of two kernels at all ratios: the throughput chosen first, the one chosen at last, and how many were tried."""
    measured = [_throughput(pair) for pair in pairs]
    known = [_throughput(pair["forecast"][way]) for pair in pairs]
    tried: list[int] = []
    while True:
        best = max(range(len(pairs)), key=lambda index: known[index])
        if known[best] < LEAST or best in tried:
            break
        tried.append(best)
        known[best] = measured[best]
    last = measured[best] if known[best] >= LEAST else ALONE
    return measured[tried[0]] if tried else ALONE, last, len(tried)


def choices(pairs: list[dict], way: str) -> Choices:
    groups: dict[tuple, list[dict]] = {}
    for pair in pairs:
        groups.setdefault((pair["a"], pair["b"]), []).append(pair)
    found = [_choose(group, way) for group in groups.values()]
    return Choices(mean([first for first, _, _ in found]), sum(first < ALONE for first, _, _ in found),
                   mean([last for _, last, _ in found]), mean([tries for _, _, tries in found]),
                   mean([max(ALONE, *map(_throughput, group)) for group in groups.values()]))
