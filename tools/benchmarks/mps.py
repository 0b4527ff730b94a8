"""tools/bench mps: what virtual GPUs have of sharing a GPU in space.

latency: a short kernel (about 10 us, a few blocks, waited for) of one tenant beside 28 ms kernels of another that fill
the GPU, launched back to back: "long %" is of it alone on the whole GPU, "of alone there" of it alone on the SMs that
it has in this row. CI, MI, MIX, ALL: Kernelet's mixes, a tenant a kernel, arrivals as of a Poisson process and faster
than the GPU, under each mode, of kernels that have run before; PC+TEA is a mix of these two. All times alone are
measured in the same run; all outputs are checked."""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

from benchmarks import charts, mps_measure
from benchmarks.charts import Axis, Bars
from benchmarks.mps_cases import (
    KERNELS,
    LATENCY,
    LATENCY_ROWS,
    MIXES,
    MODES,
    NOT_THERE,
    judge_mixes,
    kernels_of,
    kernels_of_all,
    of_alone,
    verdict,
)
from benchmarks.mps_measure import Setting
from benchmarks.mps_run import TenantProgram
from benchmarks.results import columns, exit_status
from lab import host, setup
from lab.daemon import only_one
from lab.shell import say

CASES = [LATENCY, *MIXES]
# Without --seconds: for all mixes under all modes together, of which each mode needs some until its tenants are ready.
BUDGET_SECONDS, MODE_SECONDS = 110, 8


def _judged(result: dict) -> str:
    if "failed" in result:
        return "FAILED"
    if "left_out" in result:
        return result["left_out"].split(":")[0]
    return ", ".join(f"{what}: {said}" for what, said in result.get("verdict", {}).items())


def _cells(result: dict, figures: list[tuple[str, str]]) -> list[str]:
    return ["" if result.get(name) is None else form.format(result[name]) for name, form in figures]


def _latency_lines(results: list[dict]) -> list[str]:
    figures = [("p50_us", "{:.0f}"), ("p99_us", "{:.0f}"), ("max_us", "{:.0f}"), ("samples", "{}"),
               ("quiet_p50_us", "{:.0f}"), ("quiet_p99_us", "{:.0f}"), ("long_ms", "{:.2f}"),
               ("long_quiet_percent", "{:.1f}"), ("long_percent", "{:.1f}"), ("long_there_percent", "{:.1f}")]
    rows = [("short kernel beside a long one", "p50 us", "p99 us", "max us", "samples", "p50 alone", "p99 alone",
             "long ms", "long alone %", "long %", "of alone there %", "wanted")]
    rows += [(result["mode"], *_cells(result, figures), _judged(result)) for result in results]
    return columns(rows) if results else []


def _mix_lines(results: list[dict]) -> list[str]:
    figures = [("total_s", "{:.3f}"), ("of_alone", "{:.3f}"), ("stp", "{:.2f}"), ("antt", "{:.2f}"),
               ("instances", "{}")]
    rows = [("mix", "mode", "total s", "of one by one", "STP", "ANTT", "instances", "wanted")]
    for result in results:
        more = {"of_alone": of_alone(result)} if "total_s" in result else {}
        rows.append((result["case"], result["mode"], *_cells(result | more, figures), _judged(result)))
    return columns(rows) if results else []


def table(results: list[dict]) -> str:
    lines = _latency_lines([each for each in results if each["case"] == LATENCY])
    mixed = [each for each in results if each["case"] != LATENCY]
    cases = list(dict.fromkeys(each["case"] for each in mixed))
    mixed.sort(key=lambda each: cases.index(each["case"]))
    lines += ([""] if lines and mixed else []) + _mix_lines(mixed)
    notes = dict.fromkeys(f"{result['mode']}: {result['left_out']}" for result in results if "left_out" in result)
    lines += notes
    lines += [f"{result['case']}, {result['mode']}: FAILED: {result['failed']}" for result in results
              if "failed" in result]
    lines += [f"{each['case']}, {each['mode']}: {more}" for each in results
              for more in (_cut(each), _planned(each), _seeds(each)) if more]
    return "\n".join(lines)


def _seeds(result: dict) -> str:
    found = result.get("of_seeds", [])
    if len(found) < 2:
        return ""
    return (f"{len(found)} seeds, {min(found):.3f} to {max(found):.3f} of one by one, mean "
            f"{statistics.fmean(found):.3f}; the one in the middle is shown")


def _planned(result: dict) -> str:
    planned = result.get("planned") or {}
    return ", ".join(f"{count} {name}" for name, count in planned.items()) if planned.get("plans") else ""


def _cut(result: dict) -> str:
    """What was cut, as its session counted."""
    cut = result.get("cut") or {}
    parts = cut if result["case"] != LATENCY else {"long": cut}
    return ", ".join(f"{name} {said['launches']} launches as {said['grid_slices']} grid slices"
                     + (f" ({said['fallbacks']} fell back)" if said.get("fallbacks") else "")
                     + "".join(f" (refused: {why})" for why in said.get("refused", {}))
                     for name, said in parts.items() if said and (said.get("grid_slices") or said.get("refused")))


def _charts(results: list[dict]) -> dict[str, charts.Chart]:
    found: dict[str, charts.Chart] = {}
    short = [each for each in results if each["case"] == LATENCY and "p99_us" in each]
    if short:
        bars = {name: [each[key] / 1000 for each in short] for name, key in (("p50", "p50_us"), ("p99", "p99_us"))}
        found["mps-latency"] = Bars("A short kernel beside a long one", Axis("launch to end, ms"),
                                      [each["mode"].replace("mps +", "+") for each in short], bars)
    measured = {(each["case"], each["mode"]): each for each in results if "total_s" in each}
    groups = list(dict.fromkeys(case for case, _ in measured))
    modes = [mode for mode in MODES if any(found_mode == mode for _, found_mode in measured)]
    for key, title in (("total", "Total time, of one by one"), ("stp", "System throughput (STP)"),
                       ("antt", "Normalised turnaround (ANTT)")):
        if groups:
            bars = {mode: [_bar(measured.get((mix, mode)), key) for mix in groups] for mode in modes}
            found[f"mps-{key}"] = Bars(title, Axis(title), groups, bars)
    return found


def _bar(result: dict | None, key: str) -> float | None:
    if result is None:
        return None
    return of_alone(result) if key == "total" else result[key]


def _save(options, results: list[dict], setting: Setting) -> None:
    """After every run, so that one that is cut short leaves what it has."""
    if not options.out:
        return
    options.out.mkdir(parents=True, exist_ok=True)
    facts = {**vars(setting), "cores": os.cpu_count(), "date": datetime.datetime.now().isoformat(timespec="seconds")}
    (options.out / "mps.json").write_text(json.dumps(
        {"facts": facts, "results": results, "charts": charts.to_json(_charts(results))}) + "\n")
    (options.out / "mps.txt").write_text(table(results) + "\n")


def _setting(options) -> Setting:
    setting = mps_measure.setting_of(options.device, options.seconds or 0.5)
    setting.beside_seconds, setting.cold = options.seconds or (0.5 if options.quick else 3), options.cold
    mixes = [case for case in options.case if case != LATENCY]
    modes = len(options.mode)
    if not options.seconds and not options.quick and mixes:
        each = (BUDGET_SECONDS - MODE_SECONDS * modes) / (len(mixes) * modes)
        setting.mix_seconds = max(1.0, min(4.0, 0.8 * each))
    return setting


def measure_all(options) -> list[dict]:
    TenantProgram().compile()
    setting, results = _setting(options), []
    chosen = [case for case in options.case if case != LATENCY]
    names = kernels_of_all(chosen)
    begin = time.monotonic()
    mps_measure.prepare(setting, names if chosen else [], LATENCY in options.case)
    say(f"calibrated in {time.monotonic() - begin:.1f} s; {setting.mix_seconds:.1f} s of work a mix")
    for row in LATENCY_ROWS if LATENCY in options.case else []:
        say(f"latency: {row.name}")
        results.append(mps_measure.latency(setting, row))
        results[-1]["verdict"] = verdict(results[-1]) if setting.device != "soft" else {}
        say("  " + table(results[-1:]).splitlines()[2])
        _save(options, results, setting)
    for mode in options.mode if chosen else []:
        say(f"mixes: {mode}")
        found = (mps_measure.drawn_by_lot(setting, mode, chosen, options.seeds) if mode == "random"
                 else mps_measure.mixes(setting, mode, chosen))
        results += found
        if setting.device != "soft":
            judge_mixes(results)
        for result in found:
            say("  " + table([result]).splitlines()[2])
        _save(options, results, setting)
    return results


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tools/bench mps", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--case", metavar="LIST", help=f"of {','.join(CASES)}, or kernels as PC+TEA; all if left out")
    parser.add_argument("--mode", metavar="LIST", help=f"for the mixes, of {','.join(MODES)}; all if left out. What "
                        f"there is nothing of is shown as {NOT_THERE}")
    parser.add_argument("--seeds", type=int, default=1, help="of the mode random, each a run of its own (1)")
    parser.add_argument("--seconds", type=float, help="of work in each mix, and of short kernels beside the long one; "
                        "if left out, so that all together takes some two minutes on a GPU")
    parser.add_argument("--cold", action="store_true", help="mixes of kernels that no planner knows yet: else each has "
                        "run 20 times before")
    parser.add_argument("--quick", action="store_true", help="half a second each, for the harness itself")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of mps.json that an earlier run has written; measure nothing")
    options = parser.parse_args(arguments)
    if options.seconds is not None and not 0.2 <= options.seconds <= 600:
        parser.error("--seconds is 0.2 to 600")
    options.case = options.case.split(",") if options.case else CASES
    options.mode = options.mode.split(",") if options.mode else MODES
    if unknown := [case for case in options.case if case != LATENCY and not kernels_of(case)]:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}, and mixes of {', '.join(KERNELS)} "
                     "as PC+TEA")
    if options.seeds < 1:
        parser.error("--seeds is 1 or more")
    if strange := set(options.mode) - set(MODES):
        parser.error(f"no mode {', '.join(sorted(strange))}; there are {', '.join(MODES)}")
    return options


def run(arguments: list[str]) -> int:
    """Exit status 0 if everything ran that there is, and reached what is wanted of it."""
    options = _options(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    with contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext():
        host.use_device("cuda:0" if options.device == "gpu" else "soft")
        if not options.no_build:
            setup.prepare_for(options.device)
        if options.out and options.device == "soft":
            charts.need_matplotlib()
        with only_one():
            results = measure_all(options)
        if options.out:
            charts.draw(_charts(results), options.out, options.out / "mps.json", "mps")
    shown = [{key: value for key, value in result.items() if key != "outcomes"} for result in results]
    print(json.dumps({"results": shown}, indent=1) if options.json else table(results))
    if options.device == "soft" and not options.json:
        print("note: the software device has no MPS; there mps only lets work of several run at once, and nothing is "
              "judged")
    return exit_status([f"{result['case']}, {result['mode']}: {short}"
                        for result in results for short in _missed(result)])


def _missed(result: dict) -> list[str]:
    if "failed" in result:
        return [f"failed: {result['failed']}"]
    return [what for what, said in result.get("verdict", {}).items() if said == "NO"]
