"""tools/bench progress: whether each tenant makes the progress that it was promised, with real programs.

Tenants are programs that do steps (PyTorch, cuBLAS, a captured graph, copies), each on a virtual GPU of its own or, as
"native", on the bare driver. Progress is a tenant's steps a second against those of the same program alone on the bare
driver in the same run. Errors are of a tenant's part of the sum of all progresses against its part of the shares, over
windows, in points; they mean something where all always want the GPU. "charged" is the GPU time that a tenant was
charged for its steps, against what they take alone. What a tenant does alone on a virtual GPU is measured in turns with
the same program on the bare driver. On the software device, "none" stands for the bare driver, and nothing is
judged."""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import sys

from benchmarks import charts, progress_cases, progress_measure
from benchmarks.progress_cases import (
    MPS,
    NATIVE,
    NATIVE_MPS,
    NONE,
    OURS,
    PRIORITY,
    SHARINGS,
    TIME_SLICED,
    Case,
    judge,
)
from benchmarks.progress_measure import Setting
from benchmarks.progress_pools import FAMILIES, NativePool, Pool, open_pool
from benchmarks.progress_run import LeftOut, TenantProgram, missing, size_of, sources
from benchmarks.progress_tables import all_charts, table
from benchmarks.results import exit_status
from benchmarks.torch_python import torch_python
from lab import setup
from lab.daemon import only_one
from lab.shell import Failure, Progress, say, step


def _save(options, results: list[dict], setting: Setting) -> None:
    """After every run, so that one that is cut short leaves what it has."""
    if not options.out:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"device": setting.device, "seconds": setting.seconds, "cores": os.cpu_count(), "torch": torch_python(),
             "alone_steps_per_s": {f"{count} x {program}": speed for (program, count), speed in setting.alone.items()},
             "status": options.status,
             "date": datetime.datetime.now().isoformat(timespec="seconds")}
    (options.out / "progress.json").write_text(json.dumps(
        {"facts": facts, "results": results, "charts": charts.to_json(all_charts(results))}) + "\n")
    (options.out / "progress.txt").write_text(table(results) + "\n")


def _sharings(options, case: Case) -> list[str]:
    soft = options.device == "soft"
    possible = [name for name in SHARINGS if name == NONE or name in case.sharings()]
    possible = [name for name in possible if name in OURS or not soft]
    chosen = options.sharing or [name for name in possible if name != NONE or soft]
    if options.quick and not options.sharing and PRIORITY in possible:
        chosen = [name for name in chosen if name not in (NATIVE_MPS, MPS)]  # those with priorities say more
    return [name for name in chosen if name in possible]


@dataclasses.dataclass
class _Plan:
    """What is run under the sharings of one family, in this order."""
    family: list[str]
    alone: list[progress_cases.Who]
    cases: list[tuple[Case, str]]

    @property
    def runs(self) -> int:
        return len(self.alone) + len(self.cases)

    def first_uses(self) -> list[tuple[progress_cases.Who, str]]:
        """Each tenant once, with the sharing under which it is needed first."""
        found = {who.name: (who, self.family[0]) for who in self.alone}
        for case, sharing in self.cases:
            for who in case.tenants:
                found.setdefault(who.name, (who, sharing))
        return list(found.values())


def _plans(options, chosen: list[Case], setting: Setting) -> list[_Plan]:
    plans = []
    # Speeds alone come first: the rest is held against them.
    for family in sorted(FAMILIES, key=lambda each: setting.baseline not in each):
        cases = [(case, sharing) for case in chosen for sharing in _sharings(options, case) if sharing in family]
        with_alone = setting.baseline in family or (TIME_SLICED in family and cases)
        plan = _Plan(family, progress_measure.kinds(chosen) if with_alone else [], cases)
        if plan.runs:
            plans.append(plan)
    return plans


def _run_plan(options, plan: _Plan, setting: Setting, results: list[dict], save) -> None:
    try:
        pool = open_pool(plan.family, setting.device)
    except (Failure, OSError, LeftOut) as absent:
        key = "left_out" if isinstance(absent, LeftOut) else "failed"
        say(f"{plan.family[0]}: {absent}")
        results += [{"case": case.name, "sharing": sharing, "tenants": [], key: str(absent)}
                    for case, sharing in plan.cases]
        return
    try:
        with step(f"{plan.family[0]}: {SHARINGS[plan.family[0]]}, {plan.runs} runs", plan.runs) as counted:
            if setting.device != "soft":  # there are cores enough to start all at once
                pool.start_ahead(plan.first_uses())
            options.status[plan.family[0]] = pool.status()
            for who in plan.alone:
                _note(_alone(pool, plan.family[0], who, setting), results, counted, save)
            for case, sharing in plan.cases:
                _note(progress_measure.beside(pool, case, sharing, setting), results, counted, save)
    finally:
        pool.end()


def _alone(pool: Pool, sharing: str, who: progress_cases.Who, setting: Setting) -> dict:
    judged = progress_measure.is_judged_alone(who, sharing, setting)
    if not judged or pool.free() < size_of(who.program, setting.device).memory:
        return progress_measure.alone(pool, who, sharing, setting)
    native = NativePool(setting.device, mps=False, capacity_mib=pool.free())
    try:
        return progress_measure.in_turns(pool, native, who, sharing, setting)
    finally:
        native.end()


def _note(result: dict, results: list[dict], counted: Progress, save) -> None:
    counted.advance()
    results.append(result)
    for line in table([result]).splitlines()[2:]:
        say(f"  {line}")
    save()


def _compile(chosen: list[Case]) -> None:
    names = sources([who.program for case in chosen for who in case.tenants])
    with step(f"compiling {len(names)} tenant programs with nvcc"):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as workers:
            list(workers.map(lambda name: TenantProgram(name).compile(), names))


def _without(chosen: list[Case]) -> list[Case]:
    """Those whose programs are all there; of the others, why not."""
    kept = []
    for case in chosen:
        why = dict.fromkeys(f"{who.program}: {missing(who.program)}" for who in case.tenants if missing(who.program))
        if why:
            say(f"left out, {case.name}: {'; '.join(why)}")
        else:
            kept.append(case)
    return kept


def _judge_all(chosen: list[Case], results: list[dict]) -> None:
    by_name = {case.name: case for case in chosen}
    for result in results:
        if result["case"] in by_name:
            result["verdict"] = judge(by_name[result["case"]], result["sharing"], results)


def measure_all(options) -> list[dict]:
    device = "soft" if options.device == "soft" else os.environ.get("BANDSAW_LAB_DEVICE", "cuda:0")
    baseline = NONE if device == "soft" else NATIVE  # the software device has no driver of its own
    setting = Setting(device, options.seconds, max(1.0, min(3.0, options.seconds / 2)), 0.3 if options.quick else 1.0,
                      baseline)
    if device != "soft" and torch_python() is None:
        say("no python with torch is here (set BANDSAW_TORCH_PYTHON): training, inference, decoding and convolution are"
            " left out; 'step' stands for training")
    chosen = _without(options.cases)
    _compile(chosen)
    results: list[dict] = []
    for plan in _plans(options, chosen, setting):
        _run_plan(options, plan, setting, results, lambda: _save(options, results, setting))
        if device != "soft":
            _judge_all(chosen, results)
        _save(options, results, setting)
    return results


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench progress", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="\n".join(f"{name:20} {text}" for name, text in SHARINGS.items()))
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--only", metavar="LIST", help="cases by their names or the beginnings of them, with commas "
                        "between them; --list shows them; all if left out")
    parser.add_argument("--sharing", metavar="LIST", help=f"of {','.join(SHARINGS)}; all that a case is meant for if "
                        "left out. What tenants do alone natively is measured in any case")
    parser.add_argument("--seconds", type=float, help="of each run (8; alone, half of it and at most 3)")
    parser.add_argument("--variety", action="store_true", help="instead of the cases: each of a dozen PyTorch programs "
                        "that differ in kernels, waits and pauses, beside training 25:75 and beside sgemm 50:50, "
                        "then some of them in threes and fours")
    parser.add_argument("--quick", action="store_true", help="runs of 2.5 s of the few cases that say most")
    parser.add_argument("--list", action="store_true", help="print the cases and measure nothing")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of progress.json that an earlier run has written; measure nothing")
    options = parser.parse_args(arguments)
    options.seconds = options.seconds or (2.5 if options.quick else 8)
    if not 1 <= options.seconds <= 600:
        parser.error("--seconds is 1 to 600")
    options.status = {}  # of vgpud, by sharing: which mechanism was in force
    options.sharing = options.sharing.split(",") if options.sharing else None
    if unknown := set(options.sharing or []) - set(SHARINGS):
        parser.error(f"no sharing {', '.join(sorted(unknown))}; there are {', '.join(SHARINGS)}")
    _choose_cases(parser, options)
    return options


def _choose_cases(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    gpu = options.device == "gpu"
    there = progress_cases.cases(gpu, gpu and torch_python() is not None)
    names = progress_cases.quick(gpu, gpu and torch_python() is not None) if options.quick else None
    if options.variety:
        if not gpu or torch_python() is None:
            parser.error("--variety needs a GPU and a python with torch")
        there, names = progress_cases.variety(), None
    if options.only:
        names = options.only.split(",")
    if unknown := [name for name in names or [] if not any(case.name.startswith(name) for case in there)]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(case.name for case in there)}")
    options.cases = [case for case in there if names is None or any(case.name.startswith(name) for name in names)]


def run(arguments: list[str]) -> int:
    """Exit status 0 if everything ran and, on a GPU, reached all that is wanted of it."""
    options = _options(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    if options.list:
        print("\n".join(f"{case.name:28} {', '.join(_sharings(options, case))}" for case in options.cases))
        return 0
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        if not options.no_build:
            setup.prepare_for(options.device)
        if options.out and options.device == "soft":
            charts.need_matplotlib()
        with only_one():
            results = measure_all(options)
        if options.out:
            charts.draw(all_charts(results), options.out, options.out / "progress.json", "progress")
    print(json.dumps({"results": results}, indent=1) if options.json else table(results))
    return exit_status([f"{result['case']}, {result['sharing']}: {short}" for result in results
                        for short in _missed(result)])


def _missed(result: dict) -> list[str]:
    if "failed" in result:
        return [f"failed: {result['failed']}"]
    return [what for what, said in result.get("verdict", {}).items() if said == "NO"]
