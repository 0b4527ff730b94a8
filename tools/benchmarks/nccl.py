"""tools/bench nccl: NCCL's all-reduce over virtual GPUs of different GPUs, checked, against the bare driver's.

Each number of ranks runs as threads of one process that has all devices, and as a process for each rank; by sockets
alone, and as NCCL chooses its way. --device soft measures Bandsaw alone, on software devices; each reads NCCL's
157 MB of PTX first: half a minute for two ranks on two idle cores, minutes for four. From some 64 KiB on, NCCL uses
functions that take minutes more to compile."""
import argparse
import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from benchmarks.results import columns, exit_status, json_lines, reaches
from lab import host, setup
from lab.cuda_programs import Program
from lab.daemon import Daemon, only_one
from lab.guest_run import native_environment
from lab.paths import REPO, cache
from lab.shell import Failure, say, step
from lab.shell import run as run_command
from lab.started import Started

NATIVE, BANDSAW = "native", "bandsaw"
SOCKETS, ANY = "sockets", "any"
WANTED = ">= 0.95"  # of native, from this size on
WANTED_FROM = 64 << 20
# The newest wheel whose kernels PTX for compute capability 9.0 comes with, which the software device needs.
WHEEL = "nvidia-nccl-cu12==2.25.1"
SOFT_SIZES, GPU_SIZES = (1 << 10, 4 << 10), (1 << 20, 16 << 20, 256 << 20, 1 << 30)
SOFT_DEVICE = {"memory": "2G", "sms": 8}


class AllReduce(Program):
    def __init__(self):
        super().__init__(REPO / "tools/benchmarks/programs/nccl/all_reduce.cu")

    def binary(self) -> pathlib.Path:
        return self.binary_of("nccl", [])


def library(asked: str) -> pathlib.Path:
    """The library named, what Python or the system has, or the wheel, which is fetched once."""
    if asked:
        return pathlib.Path(asked).resolve()
    place = cache() / WHEEL.replace("==", "-")
    found = place / "nvidia/nccl/lib/libnccl.so.2"
    if not found.exists():
        with step(f"fetching {WHEEL} from PyPI"):
            run_command(["/usr/bin/env", "python3", "-m", "pip", "install", "-q", "--no-deps", "--target", place,
                         WHEEL])
    return found


def ways(transport: str) -> dict[str, str]:
    return {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"} if transport == SOCKETS else {}


def told(folder: pathlib.Path | None, *words: object) -> dict[str, str]:
    """Makes NCCL write into files of this folder how it plans, one for each process of a run."""
    if not folder:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,P2P,SHM,NET,TUNING",
            "NCCL_DEBUG_FILE": str(folder.resolve() / "-".join(str(word) for word in words)) + ".%p"}


def threads(ranks: int, variables: dict[str, str], options) -> str:
    process = Started(AllReduce().compile(), "threads", ranks, options.rounds, *options.sizes, variables=variables)
    return finished([process], options)


def processes(each: list[dict[str, str]], options) -> str:
    """`each`: the environment of each rank."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank, variables in enumerate(each):
            own = {"NCCL_RANK": str(rank), "NCCL_ID_FILE": f"{folder}/id"}
            started.append(Started(AllReduce().compile(), "process", len(each), options.rounds, *options.sizes,
                                   variables={**variables, **own}))
        return finished(started, options)


def finished(started: list[Started], options) -> str:
    """What the first one has said; fails if one of them has."""
    said = []
    for process in started:
        status, output = process.finish(options.seconds)
        if status != 0:
            for other in started:
                other.kill()
            raise Failure(f"a rank has failed: {status}: {output[-2000:]}")
        said.append(output)
    return said[0]


def rows_of(output: str, **facts) -> list[dict]:
    return [{**facts, **line} for line in json_lines(output)]


def measure(side: str, ranks: int, mode: str, transport: str, daemon: Daemon | None, options) -> list[dict]:
    common = {**ways(transport), **told(options.debug, side, ranks, mode, transport),
              "NCCL_LIBRARY": str(options.library)}
    names = [f"rank{i}" for i in range(ranks)]
    if side == NATIVE:
        whole, each = native_environment(), [(native_environment(), i) for i in range(ranks)]
    else:
        assert daemon
        whole = daemon.program_environment(",".join(names))
        each = [(daemon.program_environment(name), 0) for name in names]
    say(f"{side}: {ranks} ranks, {mode}, {transport}")
    if mode == "threads":
        output = threads(ranks, {**whole, **common}, options)
    else:
        output = processes([{**one, **common, "NCCL_DEVICE": str(device)} for one, device in each], options)
    return rows_of(output, side=side, mode=mode, transport=transport)


def gpus(options) -> int:
    found = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    count = sum(line.startswith("GPU ") for line in found.splitlines())
    if count < max(options.ranks):
        raise Failure(f"{max(options.ranks)} ranks need as many GPUs; nvidia-smi lists {count}")
    return count


def start(options) -> Daemon:
    """A virtual GPU for each rank, rank I on device I; software devices are two, whatever their number."""
    if options.device == "soft":
        devices: list[str | dict] = [{"name": f"soft:{i}", **SOFT_DEVICE} for i in range(2)]
        daemon = Daemon("soft", "none", name="nccl", devices=devices)
        shares, memory, on = 40, "900M", lambda i: f"soft:{i % 2}"
    else:
        daemon = Daemon("cuda:0", "band+", name="nccl", devices=[f"cuda:{i}" for i in range(gpus(options))])
        shares, memory, on = 100, "24G", lambda i: f"cuda:{i}"
    for i in range(max(options.ranks)):
        daemon.create(f"rank{i}", shares, "--gpu", on(i), memory=memory)
    return daemon


def verdicts(rows: list[dict]) -> tuple[list[tuple], list[str]]:
    """The table, and what fell short."""
    key = ("ranks", "mode", "transport", "bytes")
    native = {tuple(row[name] for name in key): row for row in rows if row["side"] == NATIVE}
    table: list[tuple] = [(*key, "native GB/s", "bandsaw GB/s", "ratio", "wrong")]
    missed = []
    for row in rows:
        where = tuple(row[name] for name in key)
        if row["wrong"]:
            missed.append(f"{row['side']} {where}: {row['wrong']} sums are wrong")
        if row["side"] == NATIVE:
            continue
        ratio = row["busbw"] / native[where]["busbw"] if where in native else None
        if ratio is not None and row["bytes"] >= WANTED_FROM and not reaches(ratio, WANTED):
            missed.append(f"{where} reaches {ratio:.3f} of native, wanted {WANTED}")
        table.append((*where, f"{native[where]['busbw']:.3g}" if where in native else "", f"{row['busbw']:.3g}",
                      f"{ratio:.3f}" if ratio is not None else "", row["wrong"]))
    return table, missed


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench nccl", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="gpu")
    parser.add_argument("--ranks", default="2", help="numbers of ranks, with commas between them")
    parser.add_argument("--mode", default="threads,processes")
    parser.add_argument("--transport", default=f"{SOCKETS},{ANY}")
    parser.add_argument("--sizes", default="", help="bytes of a buffer, with commas between them")
    parser.add_argument("--rounds", type=int, default=0, help="all-reduces that are timed, of each size")
    parser.add_argument("--seconds", type=float, default=300, help="that one run may take")
    parser.add_argument("--library", default=os.environ.get("NCCL_LIBRARY", ""), help=f"libnccl.so.2; else {WHEEL}")
    parser.add_argument("--side", default="", help=f"{NATIVE}, {BANDSAW} or both; soft has no {NATIVE}")
    parser.add_argument("--debug", type=pathlib.Path, help="a folder for what NCCL says of its plans (NCCL_DEBUG=INFO)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows there, too")
    options = parser.parse_args(arguments)
    soft = options.device == "soft"
    options.ranks = [int(one) for one in options.ranks.split(",")]
    sizes = SOFT_SIZES if soft else GPU_SIZES
    options.sizes = [int(one) for one in options.sizes.split(",")] if options.sizes else sizes
    options.rounds = options.rounds or (3 if soft else 20)
    options.sides = options.side.split(",") if options.side else [BANDSAW] if soft else [NATIVE, BANDSAW]
    return options


def measure_all(daemon: Daemon | None, options) -> tuple[list[dict], list[str]]:
    """All rows, and the runs that failed."""
    rows: list[dict] = []
    failed = []
    every = itertools.product(options.ranks, options.mode.split(","), options.transport.split(","), options.sides)
    for ranks, mode, transport, side in every:
        try:
            rows += measure(side, ranks, mode, transport, daemon, options)
        except Failure as failure:
            failed.append(f"{side}, {ranks} ranks, {mode}, {transport}: {failure}")
    return rows, failed


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    device = "cuda:0" if options.device == "gpu" else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        setup.prepare_for(device)
        options.library = library(options.library)
        AllReduce().compile()
        daemon = start(options) if BANDSAW in options.sides else None
        try:
            rows, failed = measure_all(daemon, options)
        finally:
            if daemon:
                daemon.end()
    table, short = verdicts(rows)
    print("\n".join(columns(table)))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return exit_status(failed + short)
