"""Many idle virtual GPUs: what they hold of a GPU together once they sleep, and how long the first call takes.

Each has a program in direct mode that fills some device memory and rests, and a warm runner. First calls are measured
one at a time while all others sleep, by step; and then one right after the other, while those that were called before
go to sleep again."""
import concurrent.futures
import statistics
import time

from benchmarks import gpu_memory
from benchmarks.asked import Asked
from benchmarks.basic import Figure
from benchmarks.results import columns, reaches
from lab import host
from lab.daemon import Daemon
from lab.shell import say, wait_until
from lab.started import Started

IDLE_S = 1
MIB_EACH = {"soft": 4, "gpu": 16}
MEMORY_EACH_MIB = {"soft": 16, "gpu": 1024}  # shares: on a GPU a context is a part of it
AT_ONCE = 4  # that start
FIRST_CALLS = 12  # that are asked, one after the other, and whose memory is compared
ANSWER_S = 60
SLEEP_S = 60  # until all sleep
# What a session says of its last return; `driver` is a part of `contexts`.
STEPS = ("driver", "contexts", "memory", "going_on")
WANTED_HELD_GIB, WANTED_FIRST_MS, WANTED_FOR = "<= 2", "<= 400", 64
BUS_BYTES_PER_MS = 50e6


class Idler(Asked):
    """A program that rests, and its virtual GPU."""

    def __init__(self, daemon: Daemon, name: str, mib: int, memory_mib: int):
        self.daemon, self.name = daemon, name
        host.vgpuctl("create", name, "--memory", f"{memory_mib}M", "--idle-suspend", str(IDLE_S),
                     variables=daemon.variables)
        program = Started(Figure("idle").compile(), mib, variables=daemon.program_environment(name))
        super().__init__(program, f"the program of {name}", ANSWER_S)
        program.first_line("ready")


def _views(daemon: Daemon) -> list[dict]:
    return daemon.control.need("GET", "/v1/vgpus")


def _asleep(view: dict) -> bool:
    return bool((view["live"] or {}).get("suspension", {}).get("asleep"))


def _on_device(views: list[dict]) -> int:
    return sum(view["live"]["memory_used"] - view["live"]["memory_swapped"] for view in views if view["live"])


def _start(daemon: Daemon, count: int, device: str) -> list[Idler]:
    made: list[Idler] = []
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        begun = [pool.submit(Idler, daemon, f"idle{number}", MIB_EACH[device], MEMORY_EACH_MIB[device])
                 for number in range(count)]
        for one in concurrent.futures.as_completed(begun):
            made.append(one.result())
            if len(made) % 16 == 0:
                say(f"{len(made)} of {count} programs rest")
    return made


def _await_sleep(daemon: Daemon) -> list[dict]:
    wait_until(lambda: all(map(_asleep, _views(daemon))), SLEEP_S, "the sleep of all")
    return _views(daemon)


def _first_calls(daemon: Daemon, idlers: list[Idler], quiet: bool) -> list[dict]:
    """What each says of its first call, and its session of the way there."""
    found = []
    for one in idlers:
        if quiet:
            _await_sleep(daemon)
        said = one.ask("step")
        live = daemon.control.need("GET", f"/v1/vgpus/{one.name}")["live"]
        found.append({**said, **{f"{name}_us": live["suspension"]["return_us"][name] for name in STEPS}})
        if len(found) % 4 == 0:
            say(f"{len(found)} of {len(idlers)} first calls")
    return found


def by_step(calls: list[dict]) -> dict[str, float]:
    """Medians, in ms; `other`: before the session's steps, and after them."""
    steps = {name: statistics.median(one[f"{name}_us"] for one in calls) / 1000 for name in STEPS}
    other = [one["first_us"] - sum(one[f"{name}_us"] for name in STEPS[1:]) for one in calls]
    return {**steps, "other": statistics.median(other) / 1000}


def measure(device: str, count: int, kind: str) -> dict:
    """`kind`: soft or gpu."""
    tables = {"swap": {"memory": f"{count * MEMORY_EACH_MIB[kind]}M"}}
    devices: list[str | dict] = []
    if kind == "soft":
        devices = [{"name": "soft:0", "memory": f"{count * MEMORY_EACH_MIB[kind]}M", "sms": 1}]
    daemon = Daemon(device, "band+", name="idle-bench", tables=tables, devices=devices)
    idlers: list[Idler] = []
    try:
        base = gpu_memory.used(device)
        idlers = _start(daemon, 1, kind)
        awake, alone = gpu_memory.used(device), _on_device(_views(daemon))
        for one in idlers:
            one.end()
        daemon.destroy("idle0")
        idlers = _start(daemon, count, kind)
        begin = time.monotonic()
        views = _await_sleep(daemon)
        settled, held = time.monotonic() - begin, gpu_memory.used(device)
        say(f"all sleep, {settled:.1f} s after the last program has come to rest")
        steps = _first_calls(daemon, idlers[:FIRST_CALLS], quiet=True)
        _await_sleep(daemon)
        hurried = _first_calls(daemon, idlers[:FIRST_CALLS], quiet=False)
        wrong = sum(one.end() for one in idlers[:FIRST_CALLS])
    finally:
        for one in idlers:
            one.kill()
        daemon.end()
    less = lambda used: None if base is None or used is None else used - base  # noqa: E731
    return {"vgpus": count, "mib_each": MIB_EACH[kind], "held": less(held), "one_awake": less(awake),
            "one_awake_accounts": alone, "accounts": _on_device(views),
            "warm": sum(view["live"]["runners"]["warm"] for view in views), "settled_s": settled,
            "first_ms": statistics.median(one["first_us"] for one in steps) / 1000,
            "first_longest_ms": max(one["first_us"] for one in steps) / 1000,
            "by_step_ms": by_step(steps), "steps": steps,
            "hurried_ms": statistics.median(one["first_us"] for one in hurried) / 1000,
            "hurried_by_step_ms": by_step(hurried),
            "next_ms": statistics.median(one["next_us"] for one in steps) / 1000, "wrong": wrong}


def table(row: dict) -> str:
    def mib(value: int | None) -> str:
        return "-" if value is None else f"{value / 2**20:.0f}"
    def way(name: str, first_ms: float, steps: dict[str, float]) -> tuple:
        return (name, *[f"{value:.1f}" for value in (first_ms, *[steps[one] for one in (*STEPS, "other")])])
    steps = columns([("first call, ms", "all", "the driver", "contexts", "memory", "going on", "the rest"),
                     way("all others sleep", row["first_ms"], row["by_step_ms"]),
                     way("one after the other", row["hurried_ms"], row["hurried_by_step_ms"])])
    return "\n".join([*columns([("virtual GPUs", "MiB each", "one awake MiB", "all asleep MiB", "by the accounts",
                               "first call ms", "longest", "next ms", "wrong"),
                              (row["vgpus"], row["mib_each"], mib(row["one_awake"]), mib(row["held"]),
                               mib(row["accounts"]), f"{row['first_ms']:.1f}", f"{row['first_longest_ms']:.1f}",
                               f"{row['next_ms']:.2f}", row["wrong"])]), "", *steps])


def missed(row: dict, device: str) -> list[str]:
    short = []
    if row["wrong"]:
        short.append(f"{row['wrong']} words are wrong")
    if row["accounts"] or row["warm"]:
        short.append(f"asleep, they have {row['accounts']} bytes on the device and {row['warm']} warm runners")
    if device == "soft":
        return short
    if row["held"] is not None and row["vgpus"] <= WANTED_FOR and not reaches(row["held"] / 2**30, WANTED_HELD_GIB):
        short.append(f"{row['vgpus']} that sleep hold {row['held'] / 2**30:.2f} GiB, wanted {WANTED_HELD_GIB}")
    beside = row["mib_each"] * 2**20 / BUS_BYTES_PER_MS
    if not reaches(row["first_ms"] - beside, WANTED_FIRST_MS):
        short.append(f"the first call takes {row['first_ms']:.0f} ms, wanted {WANTED_FIRST_MS} and {beside:.1f} for "
                     f"its memory")
    return short
