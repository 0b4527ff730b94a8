"""tools/bench shares: what is run. Shares and targets are percent; times within a run are parts of its length."""
import dataclasses

from benchmarks.results import reaches

POLICIES = ["fifo", "credit", "band", "band+"]
IDLE_ON_MS, IDLE_OFF_MS = 1200, 1200


@dataclasses.dataclass
class Plan:
    """One tenant: what it runs, its share, when it starts; `values` go to the tenant program."""
    kind: str
    share: int
    start: float = 0.0
    values: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Case:
    name: str
    text: str
    plans: list[Plan]
    policies: list[str]
    queues: str = "mrq"
    changes: list[tuple[float, list[int]]] = dataclasses.field(default_factory=list)  # when, everybody's new share
    measure: str = "shares"  # shares, engines, idle, change, alone
    # What is wanted of band+, by the name of the figure: "<= 2" or ">= 97".
    wanted: dict[str, str] = dataclasses.field(default_factory=dict)


def _duel(short: int) -> Case:
    return Case(f"{short}:{100 - short}", "short tasks against long ones", [
        Plan("lu", short), Plan("heart", 100 - short, 1 / 3)], POLICIES,
        wanted={"mean_error_points": "<= 2", "utilisation_percent": ">= 97"})


def _equal(name: str, count: int, share: int) -> Case:
    plans = [Plan("lu", share, number / (2 * count), {"seed": number + 1}) for number in range(count)]
    return Case(name, f"{count} equal tenants that start in turn", plans, ["band", "band+"],
                wanted={"mean_error_points": "<= 1", "longest_gap_ms": "<= 100"})


def _copies(queues: str, wanted: dict[str, str]) -> Case:
    return Case(f"copy-{queues}", f"compute against copies, {queues.upper()}", [
        Plan("compute-mix", 50), Plan("copy-mix", 50)], ["band+"], queues=queues, measure="engines",
        wanted=wanted)


def _turns() -> list[tuple[float, list[int]]]:
    turns = [[80, 20], [20, 80], [50, 50], [75, 25], [25, 75], [90, 10], [10, 90]]
    return [((number + 1) / (len(turns) + 1), shares) for number, shares in enumerate(turns)]


CASES = {case.name: case for case in [
    _duel(50), _duel(75), _duel(10),
    _equal("4-equal", 4, 25),
    _equal("16-equal", 16, 6),
    _copies("sdq", {}),
    _copies("mrq", {"summed_percent": ">= 130", "heavy_percent": ">= 50"}),
    Case("idle-half", "one tenant rests half of the time", [
        Plan("heart", 50), Plan("lu", 50, 0.05, {"depth": 8, "on_ms": IDLE_ON_MS, "off_ms": IDLE_OFF_MS})],
        ["band+"], measure="idle", wanted={"lost_tasks": "<= 1", "back_tasks": "<= 1"}),
    Case("live-change", "shares changed while running", [
        Plan("lu", 50), Plan("lu", 50, 0, {"seed": 2})], ["band+"], changes=_turns(), measure="change",
        wanted={"in_force_ms": "<= 100"}),
    Case("alone", "one tenant alone, with and without the gate", [Plan("lu", 50), Plan("tiny", 50)], ["band+"],
         measure="alone", wanted={"throughput_loss_percent": "<= 1", "us_per_launch": "<= 1"}),
]}


def verdict(case: Case, policy: str, result: dict) -> dict[str, str]:
    """For every wanted figure of band+: "yes", "NO", or "?" where it could not be measured."""
    if policy != "band+":
        return {}
    said = {}
    for name, wanted in case.wanted.items():
        value = result.get(name)
        said[name] = "?" if value is None else "yes" if reaches(value, wanted) else "NO"
    return said
