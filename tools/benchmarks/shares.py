"""tools/bench shares: whether virtual GPUs get the shares that they were promised, and what that costs.

Tenants keep a GPU busy, each on a virtual GPU of its own. Counted is the GPU time that the device measured, not what
the tenants say. A tenant's share of a window is its part of what all used in it; errors are over the windows in which
at least two tenants are backlogged. Utilisation is GPU time a second against that of the same tasks alone and
unscheduled; work is tasks by their lengths, against the same."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys

from benchmarks import charts, shares_measure
from benchmarks.charts import Axis, Lines, Series
from benchmarks.results import columns, exit_status
from benchmarks.shares_cases import CASES, POLICIES, Case, verdict
from benchmarks.shares_math import MS, SECOND, shares, windows
from benchmarks.shares_measure import Run, Setting
from benchmarks.shares_run import TenantProgram, calibrate
from lab import setup
from lab.daemon import Daemon, only_one
from lab.shell import Failure, say

UNSCHEDULED = "none"
WANTED_UNITS = {"mean_error_points": "mean error", "utilisation_percent": "use", "longest_gap_ms": "gap",
                "summed_percent": "engines' sum", "heavy_percent": "each of its own engine",
                "lost_tasks": "tasks lost in a rest",
                "back_tasks": "tasks waited for after a rest", "in_force_ms": "in force",
                "throughput_loss_percent": "throughput lost", "us_per_launch": "us a launch"}


def _points(run: Run, width: int) -> list[Series]:
    """A line for each tenant: its share in every window of the run, and its target where there are few."""
    series, spans = [], windows(run.begin, run.end, width)
    found = [shares(run.both, *span) for span in spans]
    few = len(run.case.plans) <= 4
    for number, plan in enumerate(run.case.plans):
        colour = charts.COLOURS[number % len(charts.COLOURS)]
        points = [((begin - run.begin) / SECOND, now[number]) for (begin, end), now in zip(spans, found)
                  if now and end > run.started[number]]
        if points:
            points.append(((spans[-1][1] - run.begin) / SECOND, points[-1][1]))
        name = f"{plan.kind} ({plan.share} %)" if few else f"{number}"
        series.append(Series(name, points, colour, stepped=True))
        if few:
            target = [((phase.begin - run.begin) / SECOND, phase.targets[number])
                      for phase in shares_measure.phases(run) if number in phase.targets]
            target += [((run.end - run.begin) / SECOND, target[-1][1])] if target else []
            series.append(Series("target", target, colour, dashed=True, stepped=True))
    return series


def _charts(run: Run, policy: str) -> dict[str, charts.Chart]:
    found: dict[str, charts.Chart] = {}
    for width, text in ((SECOND, "1 s"), (100 * MS, "100 ms")):
        name = f"shares-{run.case.name.replace(':', '-')}-{policy.replace('+', 'plus')}-{text.replace(' ', '')}"
        found[name] = Lines(f"{run.case.name}, {policy}: share of the GPU, windows of {text}", Axis("time, s"),
                            Axis("share, %", low=0, high=105), _points(run, width))
    return found


def _show(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _more(result: dict) -> str:
    """The figures that only some cases have."""
    parts = []
    if any(tenant["absent_percent"] for tenant in result.get("tenants", [])):
        parts.append("of the time neither waiting nor on the GPU: " + ", ".join(
            f"{tenant['kind']} {tenant['absent_percent'] or 0:.1f} %" for tenant in result["tenants"][:4]))
    if "summed_percent" in result:
        parts.append(f"compute {result['compute_percent']:.0f} % + copies {result['copy_percent']:.0f} %"
                     f" = {result['summed_percent']:.0f} %")
    if result.get("rests"):
        parts.append(f"{result['rests']} rests: lost {result['lost_ms']:.1f} ms (max {result['lost_ms_max']:.1f}, a "
                     f"task is {result['task_ms']:.1f}); back after {result['back_ms']:.1f} ms "
                     f"(max {result['back_ms_max']:.1f}), {result['back_tasks']:.2f} tasks")
    if "in_force_ms_each" in result:
        parts.append("in force after " + ", ".join("never" if each is None else f"{each:.0f}"
                                                   for each in result["in_force_ms_each"]) + " ms")
    if "throughput_ratio" in result:
        parts.append(f"throughput ratio {result['throughput_ratio']:.4f}, {result['us_per_launch']:+.3f} us a launch")
    return "; ".join(parts)


def table(results: list[dict]) -> str:
    rows = [("case", "policy", "err 1s", "max", "err 100ms", "max", "use %", "work %", "gap ms", "shares got",
             "wanted")]
    for result in results:
        got = "/".join(f"{tenant['share_got_percent']:.1f}" for tenant in result.get("tenants", [])[:4])
        judged = ", ".join(f"{WANTED_UNITS[name]} {CASES[result['case']].wanted[name]}: {said}"
                           for name, said in result.get("verdict", {}).items())
        rows.append((result["case"], result["policy"], _show(result.get("mean_error_points"), 2),
                     _show(result.get("max_error_points"), 2), _show(result.get("mean_error_points_100ms"), 2),
                     _show(result.get("max_error_points_100ms"), 2), _show(result.get("utilisation_percent")),
                     _show(result.get("work_percent")), _show(result.get("longest_gap_ms")), got, judged))
    lines = columns(rows)
    lines += [f"{result['case']}, {result['policy']}: {more}" for result in results if (more := _more(result))]
    lines += [f"{result['case']}, {result['policy']}: FAILED: {result['failed']}" for result in results
              if "failed" in result]
    return "\n".join([*lines, *(f"note: {note}" for note in _notes(results))])


def _notes(results: list[dict]) -> list[str]:
    found = dict.fromkeys(note for result in results for note in result.get("notes", []))
    if any(result.get("windows") == "spread back from samples" for result in results):
        found["without a trace, a task's time lies before the sample at which it was counted (see --sample-ms)"] = None
    return list(found)


def _measure(case: Case, policy: str, setting: Setting, options) -> dict:
    result = {"case": case.name, "policy": policy, "device": setting.device, "seconds": setting.seconds}
    daemon = Daemon(setting.device, policy, case.queues)
    try:
        if case.measure == "alone":
            free = Daemon(setting.device, UNSCHEDULED, case.queues, name="shares-free")
            try:
                result |= shares_measure.alone(setting, daemon, free)
            finally:
                free.end()
        else:
            run = shares_measure.perform(daemon, case, setting)
            result |= shares_measure.figures(run, setting)
            if case.measure in shares_measure.MORE:
                result |= shares_measure.MORE[case.measure](run, setting)
            options.charts |= _charts(run, policy)
    except (Failure, OSError, subprocess.SubprocessError) as failure:
        result["failed"] = str(failure)
    finally:
        daemon.end()
    result["verdict"] = verdict(case, policy, result)
    return result


def _prepare(options, chosen: list[Case]) -> Setting:
    """Task lengths on this device, and what tasks alone get of it."""
    device = "soft" if options.device == "soft" else os.environ.get("BANDSAW_LAB_DEVICE", "cuda:0")
    setting = Setting(device, options.seconds, options.sample_ms, 32 if device == "soft" else 64, {})
    TenantProgram().compile()
    needed = {plan.kind for case in chosen for plan in case.plans}
    kinds = ["lu"]
    kinds += ["heart"] if "heart" in needed else []
    kinds += ["copy"] if needed & {"compute-mix", "copy-mix"} else []
    daemon = Daemon(device, UNSCHEDULED)
    try:
        for name in kinds:
            setting.kinds[name] = calibrate(daemon, name, setting.copy_mib)
        rounds = [f"{name} {kind.round_ns / 1000:.2f} us" for name, kind in setting.kinds.items() if kind.round_ns]
        say(f"calibrated: a round of {', '.join(rounds)}")
        shares_measure.baseline(daemon, setting, kinds, 0.8 if options.quick else 2)
    finally:
        daemon.end()
    return setting


def _save(options, results: list[dict], setting: Setting) -> None:
    """After every run, so that one that is cut short leaves what it has."""
    if not options.out:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {"device": setting.device, "cores": os.cpu_count(), "seconds": setting.seconds,
             "sample_ms": setting.sample_ms, "kinds": {name: vars(kind) for name, kind in setting.kinds.items()},
             "date": datetime.datetime.now().isoformat(timespec="seconds")}
    (options.out / "shares.json").write_text(json.dumps(
        {"facts": facts, "results": results, "charts": charts.to_json(options.charts)}) + "\n")
    (options.out / "shares.txt").write_text(table(results) + "\n")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench shares", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="\n".join(f"{case.name:12} {case.text}" for case in CASES.values()))
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--case", metavar="LIST", help="cases with commas between them; all if left out")
    parser.add_argument("--policy", metavar="LIST", help=f"of {','.join(POLICIES)} and {UNSCHEDULED} (the gate open to "
                        "all); if left out, those that a case is meant for")
    parser.add_argument("--seconds", type=float, help="of each run (20)")
    parser.add_argument("--sample-ms", type=float, default=20, help="how often vgpud is asked for the time used (20)")
    parser.add_argument("--quick", action="store_true", help="runs of 5 s, for the harness itself")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG time series go there")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of shares.json that an earlier run has written; measure nothing")
    options = parser.parse_args(arguments)
    options.charts = {}
    options.seconds = options.seconds or (5 if options.quick else 20)
    if not 1 <= options.seconds <= 3600 or not 1 <= options.sample_ms <= 1000:
        parser.error("--seconds is 1 to 3600, --sample-ms 1 to 1000")
    options.case = options.case.split(",") if options.case else list(CASES)
    options.policy = options.policy.split(",") if options.policy else None
    if unknown := set(options.case) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if unknown := set(options.policy or []) - {*POLICIES, UNSCHEDULED}:
        parser.error(f"no policy {', '.join(sorted(unknown))}; there are {', '.join(POLICIES)} and {UNSCHEDULED}")
    return options


def measure_all(options) -> list[dict]:
    chosen = [CASES[name] for name in options.case]
    setting, results = _prepare(options, chosen), []
    for case in chosen:
        for policy in options.policy or case.policies:
            say(f"{case.name}, {policy}: {case.text}")
            results.append(_measure(case, policy, setting, options))
            say("  " + table(results[-1:]).splitlines()[2])
            _save(options, results, setting)
    return results


def run(arguments: list[str]) -> int:
    """Exit status 0 if everything ran and band+ reached all that is wanted of it."""
    options = _options(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        if not options.no_build:
            setup.prepare_for(options.device)
        if options.out and options.device == "soft":
            charts.need_matplotlib()
        with only_one():
            results = measure_all(options)
        if options.out:
            charts.draw(options.charts, options.out, options.out / "shares.json", "shares")
    print(json.dumps({"results": results}, indent=1) if options.json else table(results))
    return exit_status([short for result in results for short in _missed(result)])


def _missed(result: dict) -> list[str]:
    """What failed, or is not as it is wanted of band+."""
    name, wanted = f"{result['case']}, {result['policy']}", CASES[result["case"]].wanted
    if "failed" in result:
        return [f"{name} failed: {result['failed']}"]
    return [f"{name}: {WANTED_UNITS[figure]} is {result[figure]:.4g}, wanted {wanted[figure]}"
            for figure, said in result.get("verdict", {}).items() if said == "NO"]
