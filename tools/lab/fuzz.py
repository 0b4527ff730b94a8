"""tools/fuzz: long runs of the fuzz targets, each with a corpus that is kept. The short run is tools/test's."""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import time

from lab import build, setup
from lab.paths import REPO
from lab.shell import Failure, main, say, step

SHORT = "fuzzers"      # ninja's names of the targets that tools/test runs,
LONG = "long_fuzzers"  # and of all, which takes minutes more to compile
# Optimised, this takes more than twice as long to compile; long runs of the fuzz targets have that back.
SANITIZED = ("-Dfuzz=true", "-Db_lundef=false", "-Ddebug=false", "-Db_sanitize=address,undefined", "-Doptimization=0")
OPTIMIZED = "-Dcall_path_optimization=1"
CLANG = {"CC": "ccache clang-19", "CXX": "ccache clang++-19"}
PTX = ["tests/unit/ptx/samples", "tests/unit/soft/samples"]
# Folders of inputs to begin with, beside tests/fuzz/seeds/TARGET.
SEEDS = {"ptx_fuzz": PTX, "rewrite_fuzz": PTX, "kernels_fuzz": PTX}
LONGEST_INPUT = {"ptx_fuzz": 40000, "rewrite_fuzz": 40000, "kernels_fuzz": 16384}
ROUND_SECONDS = 600  # then the next targets have their turn
MEMORY_MB, INPUT_SECONDS = 3000, 20


@dataclasses.dataclass
class Outcome:
    """What one target did."""
    executions: int = 0
    corpus: int = 0  # inputs that it keeps
    wrong: str = ""
    output: str = ""


def folder() -> pathlib.Path:
    """The build of every target, with the compiler of the software device. Not -Werror: clang warns of what Debian 12's
    standard library itself uses."""
    path = REPO / "build" / "fuzz"
    build.configure(path, (*SANITIZED, OPTIMIZED, "-Dwerror=false"), CLANG)
    return path


def targets(inside: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path for path in (inside / "tests/fuzz").rglob("*_fuzz") if path.is_file())


def run_target(target: pathlib.Path, corpora: pathlib.Path, seconds: int) -> Outcome:
    """Inputs that fail lie beside the corpus, as TARGET-crash-... and the like."""
    corpus = corpora / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [REPO / "tests/fuzz/seeds" / target.name, *(REPO / path for path in SEEDS.get(target.name, []))]
    longest = [f"-max_len={LONGEST_INPUT[target.name]}"] if target.name in LONGEST_INPUT else []
    done = subprocess.run([target, corpus, *(path for path in seeds if path.exists()), f"-max_total_time={seconds}",
                           f"-rss_limit_mb={MEMORY_MB}", f"-timeout={INPUT_SECONDS}", "-print_final_stats=1", *longest,
                           f"-artifact_prefix={corpus}-"], capture_output=True, text=True, errors="replace",
                          check=False, timeout=seconds + 180)
    count = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    return Outcome(int(count[1]) if count else 0, sum(1 for _ in corpus.iterdir()),
                   f"exit status {done.returncode}" if done.returncode else "", done.stderr)


def _table(outcomes: dict[str, Outcome], seconds: dict[str, float]) -> None:
    width = max(len(name) for name in outcomes)
    print(f"{'TARGET':<{width}}  {'EXECUTIONS':>13}  {'A SECOND':>8}  {'CORPUS':>7}  RESULT")
    for name, outcome in outcomes.items():
        rate = outcome.executions / max(seconds[name], 1)
        said = outcome.wrong or "ok"
        print(f"{name:<{width}}  {outcome.executions:>13,}  {rate:>8,.0f}  {outcome.corpus:>7}  {said}")
    print(f"{sum(outcome.executions for outcome in outcomes.values()):,} executions, "
          f"{sum(bool(outcome.wrong) for outcome in outcomes.values())} targets failed", flush=True)


def run() -> int:
    parser = argparse.ArgumentParser(prog="tools/fuzz", description=__doc__)
    parser.add_argument("--hours", type=float, help="how long in all (default 1)")
    parser.add_argument("--seconds", type=int, help="the same in seconds")
    parser.add_argument("--only", action="append", default=[], help="targets whose names contain this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (default: processors)")
    options = parser.parse_args()
    setup.prepare()
    inside = folder()
    build.ninja(inside, LONG, text="building the fuzz targets")
    chosen = [path for path in targets(inside) if not options.only or any(part in path.name for part in options.only)]
    if not chosen:
        raise Failure(f"no target has such a name; there are {', '.join(path.name for path in targets(inside))}")
    whole = options.seconds or round((options.hours or 1) * 3600)
    share = max(1, whole * min(options.jobs, len(chosen)) // len(chosen))
    outcomes = {path.name: Outcome() for path in chosen}
    spent = {path.name: 0.0 for path in chosen}

    def one_round(path: pathlib.Path) -> None:
        begin = time.monotonic()
        left = round(share - spent[path.name])
        outcome = run_target(path, inside / "corpus", min(left, ROUND_SECONDS))
        spent[path.name] += time.monotonic() - begin
        outcome.executions += outcomes[path.name].executions
        outcomes[path.name] = outcome
        if outcome.wrong:
            say(f"{path.name}: {outcome.wrong}; the input lies at {inside}/corpus/{path.name}-*")
            say(outcome.output[-3000:])

    waiting = chosen
    while waiting:
        with step(f"fuzzing: {len(waiting)} targets, {min(share, ROUND_SECONDS)} s each", len(waiting)) as progress:
            with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
                list(pool.map(progress.counted(one_round), waiting))
        waiting = [path for path in waiting if not outcomes[path.name].wrong and spent[path.name] < share - 1]
    _table(outcomes, spent)
    return any(outcome.wrong for outcome in outcomes.values())


if __name__ == "__main__":
    main(run)
