"""tools/bench progress: programs, sharings, cases, and what is wanted. Shares are percent."""
import dataclasses

from benchmarks.results import reaches

NATIVE, NATIVE_MPS, NATIVE_PRIORITY = "native", "native-mps", "native-mps-priority"
NONE, TIME_SLICED, MPS, PRIORITY = "none", "time-sliced", "mps", "mps-priority"
SHARINGS = {
    NATIVE: "the driver's own time slices",
    NATIVE_MPS: "the driver's MPS",
    NATIVE_PRIORITY: "the same, with CUDA_MPS_CLIENT_PRIORITY=1 for those without priority",
    NONE: "virtual GPUs that are time-sliced, with no policy",
    TIME_SLICED: "virtual GPUs that are time-sliced, with band+",
    MPS: "virtual GPUs that are mps, with band+",
    PRIORITY: "the same, with a priority where the case has one",
}
OURS = [NONE, TIME_SLICED, MPS, PRIORITY]
WITH_PRIORITY = [NATIVE_PRIORITY, PRIORITY]
PRIORITY_VALUE = 50
LATENCY_US = 250


@dataclasses.dataclass(frozen=True)
class Size:
    """What a program is told, and the memory share (MiB) of a virtual GPU for one process of it."""
    words: str
    memory: int


@dataclasses.dataclass(frozen=True)
class ProgramKind:
    """How a tenant's program is started: `source` is tenant, blas or torch. None: not on that kind of device."""
    source: str
    gpu: Size | None
    soft: Size | None = None
    kind: str = ""  # how the source names it, if otherwise


# PyTorch programs that nobody tuned anything for (tenants/progress/torch_variety.py), and what memory they need, MiB.
VARIETY = {"resnet": 6000, "perceptron": 1500, "lstm": 2500, "fourier": 4000, "unique": 3000, "solver": 2500,
           "captured": 1500, "ahead": 2500, "naps": 2000, "feeding": 2000, "uploads": 1500, "products": 3500,
           "embedding": 2500, "threads": 2000}

PROGRAMS = {
    "training": ProgramKind("torch", Size("", 30000)),
    "inference": ProgramKind("torch", Size("", 3000)),
    "decoding": ProgramKind("torch", Size("", 3000)),
    "convolution": ProgramKind("torch", Size("", 8000)),
    "sgemm": ProgramKind("blas", Size("size=16384", 4500)),
    "step": ProgramKind("blas", Size("layers=14 width=2048 tokens=8192", 4000)),
    "kernel": ProgramKind("tenant", Size("blocks=29568 rounds=31000", 1000), Size("blocks=16 rounds=20000", 64)),
    "graph": ProgramKind("tenant", Size("blocks=1056 rounds=1500 nodes=200", 1000),
                         Size("blocks=4 rounds=200 nodes=40", 64)),
    "short": ProgramKind("tenant", Size("blocks=8 rounds=600 every_us=700", 1000),
                         Size("blocks=1 rounds=100 every_us=5000", 64)),
    "steps": ProgramKind("tenant", Size("blocks=264 rounds=4000", 1000), Size("blocks=2 rounds=200", 64), kind="short"),
    "copies": ProgramKind("tenant", Size("bytes=2147483648", 3500), Size("bytes=8388608", 64)),
    "small-copies": ProgramKind("tenant", Size("bytes=65536 every_us=700", 1000),
                                Size("bytes=65536 every_us=5000", 64), kind="copies"),
    **{name: ProgramKind("torch", Size("", memory)) for name, memory in VARIETY.items()},
}


@dataclasses.dataclass(frozen=True)
class Who:
    """One tenant of a case: so many processes of a program. `number` tells two of the same apart."""
    program: str
    share: int
    processes: int = 1
    priority: bool = False
    latency_us: int = 0
    number: int = 1

    @property
    def kind(self) -> tuple[str, int]:
        """What it does alone is measured once for each."""
        return self.program, self.processes

    @property
    def name(self) -> str:
        text = self.program if self.processes == 1 else f"{self.processes}-{self.program}"
        return text if self.number == 1 else f"{text}-{self.number}"


@dataclasses.dataclass(frozen=True)
class Want:
    """What is wanted of a figure under a sharing: of tenant number `tenant`, or of all, or of the sum (-1). With
    `over`, the limit is added to the same figure under that sharing."""
    sharing: str
    figure: str
    limit: str                # "<= 2" or ">= 0.75"
    tenant: int | None = None
    over: str = ""

    def text(self) -> str:
        return f"{self.figure} {self.limit}" + (f" over {self.over}" if self.over else "")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    tenants: tuple[Who, ...]
    wanted: tuple[Want, ...] = ()
    native: bool = True  # not where another case has the same programs: the driver knows no shares

    def sharings(self) -> list[str]:
        """All, but those with priorities where somebody has one."""
        prior = any(who.priority for who in self.tenants)
        return [name for name in SHARINGS if name != NONE and (prior or name not in WITH_PRIORITY)
                and (self.native or name in OURS)]


ERRORS = (Want(TIME_SLICED, "error_points_1s", "<= 2"), Want(TIME_SLICED, "error_points_100ms", "<= 5"))


def _kept(who: tuple[Who, ...]) -> tuple[Want, ...]:
    """What each is promised is its share of its speed alone."""
    return tuple(Want(TIME_SLICED, "progress", f">= {0.97 * one.share / 100:.4g}", number)
                 for number, one in enumerate(who))


def _busy(*tenants: tuple[str, int]) -> Case:
    """Tenants that always want the GPU: what is promised is the share of their speed alone."""
    programs = [program for program, _ in tenants]
    who = tuple(Who(program, share, number=1 + programs[:place].count(program))
                for place, (program, share) in enumerate(tenants))
    shares = ":".join(str(share) for _, share in tenants)
    return Case(f"{'+'.join(programs)} {shares}", who, _kept(who) + ERRORS, native=tenants[0][1] == 75)


def _beside_inference(first: str, second: str) -> Case:
    """One that is always busy, promised 75 %, and one that is not: it gets what is left."""
    return Case(f"{first}+{second} 75:25", (Who(first, 75), Who(second, 25, priority=True)), (
        Want(TIME_SLICED, "progress", ">= 0.75", 0), Want(TIME_SLICED, "sum", ">= 0.05", -1, NATIVE),
        Want(PRIORITY, "progress", ">= 0.95", 0), Want(PRIORITY, "progress", ">= 0.55", 1),
        Want(PRIORITY, "p99_ms", "<= 3.2", 1)))


def _latency(first: str) -> Case:
    return Case(f"short+{first}", (Who("short", 25, priority=True, latency_us=LATENCY_US), Who(first, 75)), (
        Want(TIME_SLICED, "p99_ms", "<= 0.23", 0), Want(PRIORITY, "p99_ms", "<= 0.025", 0),
        Want(PRIORITY, "progress", ">= 0.98", 1)))


def _processes(program: str, count: int) -> Case:
    return Case(f"{program}+{count} processes 50:50", (Who(program, 50), Who(program, 50, processes=count)),
                (Want(TIME_SLICED, "error_points_1s", "<= 2"),))


def _four(*programs: str) -> Case:
    who = tuple(Who(program, share, number=1 + programs[:place].count(program))
                for place, (program, share) in enumerate(zip(programs, (40, 30, 20, 10))))
    return Case("four 40:30:20:10", who, (Want(TIME_SLICED, "error_points_1s", "<= 2"),))


def _pairs(programs: list[str]) -> list[Case]:
    return [_busy((first, share), (second, 100 - share)) for place, first in enumerate(programs)
            for second in programs[place + 1:] for share in (90, 75, 50)]


MIXES = [("training", "resnet", "solver"), ("inference", "perceptron", "threads"), ("lstm", "feeding", "embedding"),
         ("sgemm", "lstm", "fourier", "feeding"), ("training", "unique", "captured", "products")]
MIX_SHARES = {3: (50, 30, 20), 4: (40, 30, 20, 10)}


def variety() -> list[Case]:
    """Each of VARIETY beside training, which is promised more, and beside one whose kernels are long; then some of them
    in threes and fours."""
    def mix(programs: tuple[str, ...], shares: tuple[int, ...]) -> Case:
        who = tuple(Who(program, share) for program, share in zip(programs, shares))
        return Case(f"{'+'.join(programs)} {':'.join(str(share) for share in shares)}", who, _kept(who))
    pairs = [mix((name, other), (share, 100 - share)) for other, share in (("training", 25), ("sgemm", 50))
             for name in VARIETY]
    return pairs + [mix(programs, MIX_SHARES[len(programs)]) for programs in MIXES]


def _copies() -> list[Case]:
    return [Case("copies+copies 75:25", (Who("copies", 75), Who("copies", 25, number=2)), ERRORS[:1]),
            Case("small-copies+copies", (Who("small-copies", 50), Who("copies", 50)))]


def cases(gpu: bool, torch: bool) -> list[Case]:
    """All that there are programs for, in an order in which programs are started seldom."""
    if not gpu:
        return [_busy(("kernel", 75), ("graph", 25)), _busy(("kernel", 50), ("graph", 50)), _latency("kernel"),
                _processes("kernel", 4), _four("kernel", "graph", "kernel", "graph"), *_copies()]
    main = "training" if torch else "step"
    found = _pairs([main, "sgemm", *(["convolution"] if torch else []), "graph"])
    found += [_busy(("kernel", 75), ("sgemm", 25)), _processes("graph", 8), _four(main, "sgemm", "graph", "kernel")]
    found += [_latency("sgemm"), *_copies()]
    found += [_busy(("steps", share), ("sgemm", 100 - share)) for share in (75, 50, 25)]
    if torch:
        found += [_busy(("inference", 75), ("sgemm", 25)), _busy(("steps", 50), ("training", 50))]
        found += [_beside_inference("training", "inference"), _beside_inference("training", "decoding")]
    return found


def quick(gpu: bool, torch: bool) -> list[str]:
    """Names of the few cases that say most."""
    if not gpu:
        return ["kernel+graph 75:25", "short+kernel"]
    if torch:
        return ["training+sgemm 75:25", "training+inference 75:25", "short+sgemm"]
    return ["step+sgemm 75:25", "step+graph 75:25", "short+sgemm"]


# Of these, alone on a virtual GPU, the time of a step is to be at most 1.01 of the driver's own.
ALONE_PROGRAMS = ["training", "sgemm", "inference", "decoding", "convolution", "graph", "step", "kernel", "steps"]
ALONE = "alone"
ALONE_LIMIT = "<= 1.01"


def figures_of(want: Want, result: dict) -> list[float | None]:
    if want.tenant == -1:
        return [result.get(want.figure)]
    rows = result.get("tenants", [])
    chosen = rows if want.tenant is None else rows[want.tenant:want.tenant + 1]
    return [row.get(want.figure) for row in chosen]


def _reached(want: Want, result: dict, other: dict | None) -> str:
    values = figures_of(want, result)
    against = figures_of(want, other or {}) if want.over else [0.0] * len(values)
    if not values or len(against) != len(values):
        return "?"
    said = []
    for value, base in zip(values, against):
        if value is None or base is None:
            return "?"
        said.append(reaches(value - base, want.limit))
    return "yes" if all(said) else "NO"


def judge(case: Case, sharing: str, results: list[dict]) -> dict[str, str]:
    """For all that is wanted of this case under this sharing: yes, NO, or "?" where it could not be measured."""
    by_sharing = {result["sharing"]: result for result in results if result["case"] == case.name}
    said = {}
    for want in case.wanted:
        if want.sharing == sharing and "left_out" not in by_sharing[sharing]:
            name = case.tenants[want.tenant].name + " " if want.tenant is not None and want.tenant >= 0 else ""
            said[name + want.text()] = _reached(want, by_sharing[sharing], by_sharing.get(want.over))
    return said
