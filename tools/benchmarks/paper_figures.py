"""tools/bench paper: the figures that can be remade, with the papers' values. How each is measured says `measure`.

A paper's value is what its text or table says; where a figure is drawn only, there is none."""
import dataclasses

# Production's policies, planners and choices on simulated engines: tools/benchmarks/research/figures.
SIMULATED = "simulated"
MEASURED = "measured"    # programs on virtual GPUs
REPLAYED = "replayed"    # programs' kernels, recorded on the software device, on a model of a GPU (elf.py)


@dataclasses.dataclass
class Value:
    """One value of a figure: `series` and `at` are the names under which it is measured."""
    series: str
    at: str
    what: str
    paper: float | tuple[float, float] | None = None  # a pair: the least and the largest that the paper names
    may_lack: bool = False  # not every way of remaking the figure has it


@dataclasses.dataclass
class Figure:
    name: str      # PAPER-NUMBER, as the paper numbers it
    title: str
    unit: str
    how: str       # SIMULATED, MEASURED or REPLAYED
    source: str    # of research's program `figures`; for what is measured: the benchmark; of elf.py
    values: list[Value]
    note: str = ""
    curve: str = ""  # a series that is drawn as a line and has no values in the table
    steps: tuple[str, ...] = ()  # series that are drawn over time
    bench: str = ""       # of what is simulated: the benchmark by which it can be measured
    bench_note: str = ""  # then


_KERNELS = ("eight programs of ours, six of them named as the paper's nearest of its 26 benchmarks; instructions of "
            "PTX on a model of its GPU by table 3.1, whose other latencies are chosen")


def _by_mix(series: str, what: str, paper: tuple[float, float]) -> list[Value]:
    return [Value(series, mix, f"{what}, {mix}", paper) for mix in ("CI", "MI", "MIX", "ALL")]


def _by_bound(series: str, what: str, paper: tuple[float | None, ...]) -> list[Value]:
    return [Value(series, bound, f"{what}, bound {bound}", value, series == "switched")
            for bound, value in zip(_BOUNDS, paper)]


def _at_15(kind: str, paper: dict[str, float | None]) -> list[Value]:
    return [Value(f"{kind} {name}", "15 us", name, value, "margin" in name) for name, value in paper.items()]


def _slowdowns(actual: dict[str, float]) -> list[Value]:
    return [Value("slowdown", pair, pair, value) for pair, value in actual.items()]


def _encrypting(name: str, direction: str) -> Figure:
    sizes = {"64": "64 KiB", "256": "256 KiB", "1024": "1 MiB"}
    return Figure(
        name, f"AES-XTS of an encrypted device on a virtual GPU, {direction}: against one core", "times", MEASURED,
        "crypto", [*[Value(direction, at, f"batches of {size}, against tables", 2 if at == "1024" else None)
           for at, size in sizes.items()],
         *[Value(f"{direction} instructions", at, f"batches of {size}, against AES instructions")
           for at, size in sizes.items()]],
        "the figure is drawn only: its text says about 2, of eCryptfs on a processor without AES instructions; here "
        "the module's kernels in direct form, without a file system. The software device has the same cores")


def _windows() -> list[Value]:
    values = []
    for side in ("native", "bandsaw"):
        for direction, way, as_fast in (("in", "to the device", 4), ("out", "to the host", 1)):
            series = f"{side} {direction}"
            values += [Value(series, str(size), f"{side}, {way}, {size:g} KiB", 1 if size == as_fast else None,
                             side == "native") for size in (0.25, 1, 4, 16, 64)]
            values.append(Value(series, "threshold", f"{side}, {way}: as fast up to, KiB", as_fast, side == "native"))
    return values


def _elf(number: str, title: str, source: str, values: list[Value], note: str = _KERNELS) -> Figure:
    return Figure(f"elf-{number}", title, "%", REPLAYED, source, values, note)


_MEASURED_WRITES = ("figure 10 is drawn only; batches of 1 MiB by the kernels of the guest's module, 3 ms between two; "
                    "searches are kernels of 4 to 6 ms that are always there")
_MEASURED_PAIRS = ("tenants of tools/bench partitions: six pairs of Kernelet's kernels; the speed of each is of it "
                   "alone on the whole GPU")
_MEASURED_BLOCKS = ("tenants of tools/bench partitions: pairs of Kernelet's kernels, by whether one of them waits for "
                    "memory; throughput is of each alone on the whole GPU")
_MEASURED_REQUESTS = ("tenants of tools/bench preemption: four of Kernelet's kernels, a task that fills half of the "
                      "SMs; a request is measured from the program's launch to its end, less the same alone on so many "
                      "SMs; those that were taken are kept for 4 ms, which is lost too")
_PAIRS = ("PC+TEA", "PC+MM", "SPMV+TEA", "MM+SAD", "SPMV+ST", "ST+SAD")
_DIVIDED = ("PC+TEA", "MM+SAD")
_MEASURED_COPIES = ("tenants of tools/bench transfers, whose copies take a tenth of their kernels; not overlapped: the "
                    "copies' time alone is added")


def _shared(metric: str, paper: dict[str, float | None]) -> list[Value]:
    names = {"Spatial": "half of the SMs each", "SMK": "half of each SM", "MPS": "MPS as it is",
             "Kernelet": "Kernelet's plan", "Maestro": "Maestro, for turnaround",
             "Maestro for STP": "Maestro, for throughput",
             "searched": "searched, with half of the SMs among the trials"}
    return [Value(f"{metric} {way}", "all", f"{metric}, {what}", paper.get(way), way in ("MPS", "searched"))
            for way, what in names.items()]


def _by_pair() -> list[Value]:
    return [Value(way, pair, f"{pair}, {way}", None, way in ("MPS", "searched")) for pair in _PAIRS
            for way in ("Spatial", "SMK", "MPS", "Kernelet", "Maestro", "Maestro for STP")]


def _variants(scales: tuple[str, ...], paper: dict[str, dict[str, float | tuple[float, float]]]) -> list[Value]:
    whats = {"N,Y": "not overlapped", "Y,N": "not planned", "N,N": "neither"}
    return [Value(f"Y,Y against {way}", at, f"{what}, {at}", paper.get(at, {}).get(way)) for at in scales
            for way, what in whats.items()]


def _faster(paper: dict[str, float | None]) -> list[Value]:
    return [Value(way, "mean", f"{way}: mean", value) for way, value in paper.items()]


def _by_program(series: str) -> list[Value]:
    return [Value(series, label, f"{series}: {label}") for label in
            ("BFS", "HW", "HS", "LUD", "SGEMM", "Spmv", "n-body", "reduction")]


_TABLE_42 = "the paper's kernels by table 4.2 on a simulated GPU with 30 SMs; chosen by vgpu-sched/slice/preemption"
_TABLE_3 = ("its seven kernels by table 3 on a simulated K40c without caches; one of low utilisation is held up by "
            "bandwidth, which half of its blocks use up")
_K40 = "the model's forecast for the paper's K40"
_BOUNDS = ("5 us", "10 us", "15 us", "20 us")

FIGURES = [
    Figure(
        "gdev-4", "Small copies through a window that the GPU maps, against its copy engine", "times as fast; KiB",
        MEASURED, "window", _windows(),
        "the paper's window is its GPU's memory, mapped by the processor; here it is host memory, mapped by the GPU. "
        "The paper says only where both are as fast; native is measured on a GPU"),
    Figure(
        "gdev-7", "What a program gets done while another tenant submits nonsense", "% of alone", MEASURED, "hostile",
        [Value("done", deed, deed) for deed in ("broken images", "streams", "contexts", "faults")]
        + [Value("done", "endless kernel", "endless kernel, which has its share")],
        "the figure is drawn only, of commands that pass the library by; here no command of a program reaches the GPU, "
        "so its calls are what can be nonsense"),
    _encrypting("gdev-8", "read"), _encrypting("gdev-9", "write"),
    Figure(
        "gdev-10", "An encrypting file system beside three searches: what it gets through", "% of alone", SIMULATED,
        "gdev-10", [
            Value("fifo", "no priority", "FIFO"), Value("band", "no priority", "BAND"),
            Value("band+", "no priority", "band+"), Value("band+", "highest priority", "band+, highest priority"),
            Value("processes", "no priority", "programs of one virtual GPU", may_lack=True),
            Value("processes", "highest priority", "programs of one virtual GPU, searches of nice value 10",
                  may_lack=True)],
        "figure 10 is drawn only; priority orders those that are owed time: it shortens waits, not the others' shares",
        bench="priorities", bench_note=_MEASURED_WRITES),
    Figure(
        "gdev-11", "A dataflow by shared memory of the GPU, against copies through the host", "% faster", MEASURED,
        "segments", [
            Value("whole", "4", "1024x1024 array: both kernels and the hand-over", 49),
            Value("hand-over", "4", "1024x1024 array: the hand-over alone")],
        "the paper's is a tree of 62 hand-overs of an array of that size; here one, as often as is asked for"),
    Figure(
        "gdev-12", "Tasks beside a large one, more than have room: makespan", "times that of one task", MEASURED,
        "swap", [Value("fit", "all", "tasks that have room without swapping", 3)]
        + [Value("tasks", str(count), f"{count} tasks") for count in (2, 3, 4, 6, 8)],
        "makespans are drawn only; the paper's GPU has 1.6 GB and its tasks 128 MB beside one of 1 GB, ours the same "
        "parts of the pool; NVIDIA's software ran 1 of them"),
    Figure(
        "gdev-13", "Tasks on one of several virtual GPUs, more than have room: makespan", "times that of one task",
        MEASURED, "swap", [Value(f"of {parts}", str(count), f"{count} tasks, 1 of {parts} virtual GPUs")
                           for parts in (1, 2, 4) for count in (2, 4, 8)],
        "the figure is drawn only: makespans grow earlier the more virtual GPUs there are, and all tasks end"),
    Figure(
        "gdev-14", "Equal shares, short tasks against long ones: mean error of the share", "points", SIMULATED,
        "gdev-14", [
            Value("fifo", "error of the share", "FIFO"), Value("credit", "error of the share", "Credit"),
            Value("band", "error of the share", "BAND", 7), Value("band+", "error of the share", "band+")]),
    Figure(
        "kernelet-6", "Kernelet's mixes: total time against other ways", "% longer", SIMULATED, "kernelet-6", [
            *_by_mix("against Base", "consolidation", (5, 31)),
            *_by_mix("OPT against it", "kernelet, than OPT", (1, 15))],
        "the paper's values are the least and the largest over mixes and its two GPUs", bench="mps",
        bench_note="tenants of tools/bench mps; the paper's values are as above"),
    Figure(
        "kernelet-7", "Random schedules of the mix ALL, against kernelet", "% of schedules, times", SIMULATED,
        "kernelet-7", [
            Value("faster than kernelet", "ALL", "faster than kernelet, % of schedules", 0),
            Value("cumulated", "0", "the fastest, of kernelet's time"),
            Value("cumulated", "50", "the median, of kernelet's time"),
            Value("cumulated", "100", "the slowest, of kernelet's time")],
        curve="cumulated"),
    Figure(
        "kernelet-8", "Mixes with copies: what overlapping them and planning kernels gain", "% longer", SIMULATED,
        "kernelet-8", [*_variants(("CI", "MI", "MIX", "ALL"), {"CI": {"N,N": 9.2}, "MI": {"N,N": 13.0},
                                                               "MIX": {"N,N": 16.8}, "ALL": {"N,N": 17.5}}),
                       *[Value("hidden", mix, f"copies that are hidden, {mix}, % of them", paper) for mix, paper in
                         (("CI", 99), ("MI", 95), ("MIX", 97), ("ALL", 97))]],
        "a copy takes a tenth of its kernel's time, which was chosen by the paper's 9 %", bench="transfers",
        bench_note=_MEASURED_COPIES),
    Figure(
        "kernelet-9", "Mix MIX with copies, by scale factor: what overlapping and planning gain", "% longer", SIMULATED,
        "kernelet-9", _variants(("sf 1", "sf 2.5"), {"sf 1": {"N,Y": 9, "Y,N": (5, 12), "N,N": 16.8}}),
        "a copy takes a tenth of its kernel's time, which was chosen by the paper's 9 %", bench="transfers",
        bench_note=_MEASURED_COPIES),
    Figure(
        "cruz-3", "Table 3: slowdown of a synthetic kernel beside another, forecast against the paper's measurement",
        "times", SIMULATED, "cruz", _slowdowns({
            "S1-S2": 11.312, "S3-S4": 3.018, "S5-S6": 1.998, "S7-S8": 3.937, "S9-S10": 1.333, "S11-S12": 1.494}), _K40),
    Figure(
        "cruz-5", "Table 5: slowdown of Rodinia's kernels beside PFL, forecast against the paper's measurement",
        "times", SIMULATED, "cruz", _slowdowns({
            "PFL-kNN": 1.185, "PFL-PF": 1.252, "PFL-HS3": 2.409, "PFL-BFS": 1.357, "PFL-HS2": 1.260, "PFL-SRAD": 1.117,
            "PFL-LUD": 1.004}), _K40),
    Figure(
        "bashizade-10", "Pairs with a kernel of low issue slot utilisation: STP against one after the other", "% more",
        SIMULATED, "bashizade-10", [
            Value("PT", "mean", "persistent blocks, unplanned: mean", 5.3),
            Value("SiM", "mean", "greedy allocation: mean", 9.8),
            Value("SiM", "best", "greedy allocation: best", 22.4)], _TABLE_3, bench="partitions",
        bench_note=_MEASURED_BLOCKS),
    Figure(
        "bashizade-11", "Pairs of kernels of high issue slot utilisation: STP against one after the other", "% more",
        SIMULATED, "bashizade-11", [
            Value("PT", "mean", "persistent blocks, unplanned: mean", -0.5),
            Value("SiM", "mean", "greedy allocation: mean", 0.3)], _TABLE_3, bench="partitions",
        bench_note=_MEASURED_BLOCKS),
    Figure(
        "chimera-4.5", "Requests that miss a bound of 15 us", "%", SIMULATED, "chimera-bounds",
        _at_15("missed", {"switch": 56.0, "drain": 61.3, "flush": 7.3, "chimera": 0.2, "chimera with a margin": None}),
        _TABLE_42 + "; lengths of blocks vary by 1 %, the margin is 3 %", bench="preemption",
        bench_note=_MEASURED_REQUESTS),
    Figure(
        "chimera-4.6", "Lost throughput with a bound of 15 us", "%", SIMULATED, "chimera-bounds",
        _at_15("overhead", {
            "switch": 12.2, "drain": 8.9, "flush": 19.3, "chimera": 10.1, "chimera with a margin": None}),
        _TABLE_42 + ". A tenth is the task's own: half of the SMs for a fifth of the time", bench="preemption",
        bench_note=_MEASURED_REQUESTS),
    Figure(
        "chimera-4.7", "Chimera by bound: misses, lost throughput, technique", "%", SIMULATED, "chimera-bounds", [
            *_by_bound("missed chimera", "missed", (2.0, 1.08, 0.24, 0.0)),
            *_by_bound("overhead chimera", "lost throughput", (16.5, 12.2, 10.0, 9.0)),
            *_by_bound("drained", "blocks that drain", (19, 19, 19, 19)),
            *_by_bound("flushed", "blocks that are flushed", (None, None, None, None)),
            *_by_bound("switched", "blocks that are switched", (None, None, None, None))], _TABLE_42,
        bench="preemption", bench_note=_MEASURED_REQUESTS),
    Figure(
        "chimera-4.8", "Flushing alone: requests that miss a bound of 15 us, by what counts as idempotent", "%",
        SIMULATED, "chimera-idempotence", [
            Value("missed", "strict", "the whole kernel", 50.0),
            Value("missed", "relaxed", "the block until now", 0.2)], _TABLE_42, bench="preemption",
        bench_note=_MEASURED_REQUESTS),
    Figure(
        "maestro-5.10", "Pairs of kernels by how they share the SMs: more turnaround, more throughput than alone", "%",
        SIMULATED, "maestro-5.10", [*_shared("ANTT", {"Spatial": 72.2, "SMK": 99.1, "Maestro": 57.6}),
                                    *_shared("STP", {"Spatial": 20.7, "SMK": 27.3, "Maestro": 45.0})],
        "pairs of Kernelet's eight kernels on its simulated GPU, planned by production's planners", bench="partitions",
        bench_note=_MEASURED_PAIRS),
    Figure(
        "maestro-5.13", "How Maestro divides the SMs of two pairs", "blocks on an SM", SIMULATED, "maestro-5.13",
        [Value(f"{pair}: {kernel}", at, f"{pair}: {kernel}, at the {at}") for pair in _DIVIDED
         for kernel in pair.split("+") for at in ("begin", "end")],
        "the figure is drawn only, of ST/TPACF and LBM/TPACF",
        steps=tuple(f"{pair}: {kernel}" for pair in _DIVIDED for kernel in pair.split("+")), bench="partitions",
        bench_note="the figure is drawn only, of ST/TPACF and LBM/TPACF; begin: the first plan that was seen"),
    Figure(
        "maestro-5.15", "Throughput of single pairs by how they share the SMs", "% more than alone", SIMULATED,
        "maestro-5.15", _by_pair(), "the figure is drawn only; two pairs of each category", bench="partitions",
        bench_note=_MEASURED_PAIRS),
    _elf("3.2", "Cycles in which a scheduler with GTO issues nothing, by why", "stalls", [
        Value("conflict", "mean", "memory conflict", 27.2), Value("memory", "mean", "memory dependency", 17.5),
        Value("fetch", "mean", "fetch", 6.0), Value("other", "mean", "other", 8.4),
        Value("barrier", "mean", "barrier"), Value("empty", "mean", "no warp")]),
    _elf("3.6", "NewCAR, instruction prefetch, ELF and all of them: faster than GTO", "performance",
         _faster({"NewCAR": 2.5, "prefetch": 4.9, "ELF": 4.1, "ELF++": 11.9}) + _by_program("ELF")
         + _by_program("ELF++")),
    _elf("3.7", "Look-ups of priorities that ELF saves", "look-ups",
         [Value("saved", "mean", "mean", 91.4), *_by_program("saved")]),
    _elf("3.8", "ELF++ by program points and by the threshold of prefetch: faster than GTO", "sensitivity", [
        *[Value("points", at, what, value) for at, what, value in (
            ("16", "16 program points", 11.9), ("32", "32", 11.9), ("48", "48", 11.9),
            ("0", "as many as there are", 12.1))],
        *[Value("threshold", at, f"threshold {at}", value) for at, value in (
            ("0", 6.7), ("4", 10.8), ("8", 11.2), ("12", 11.4), ("16", 11.9), ("20", 11.9), ("24", 11.9))]]),
    _elf("3.9", "Schedulers: faster than GTO", "schedulers",
         _faster({"LRR": None, "2-LV": -3.2, "CCWS": 0.1, "DYNCTA": -2.3, "ELF++": 11.9}), _KERNELS),
    _elf("3.10", "Schedulers with 48 KiB of L1: faster than GTO with as much", "large L1",
         _faster({"LRR": None, "2-LV": -3.6, "CCWS": -1.4, "DYNCTA": -2.6, "ELF++": 9.5}), _KERNELS),
]
NAMES = {figure.name: figure for figure in FIGURES}
