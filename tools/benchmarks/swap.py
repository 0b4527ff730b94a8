"""tools/bench swap: programs with more memory than their virtual GPU holds of its device.

rounds: one program goes round twice what is resident, against the time that the moved bytes take if both directions are
copied at once, against managed memory of the bare driver with as much of the GPU, and against memory that all fits.
turns: two programs of 0.75 of a pool each work in turns, after one round of each; each of them alone has all its memory
on the device. tasks, parts (by name only): more and more tasks at once, after Gdev's figures 12 and 13. Results are
checked."""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import sys
from collections.abc import Callable

from benchmarks import charts, swap_cases, swap_tasks
from benchmarks.results import columns, exit_status, reaches
from benchmarks.swap_cases import BANDSAW, Settings
from lab import host, setup
from lab.daemon import only_one
from lab.shell import Failure

ROUNDS, TURNS, TASKS, PARTS = CASES = ("rounds", "turns", "tasks", "parts")
POOL_MIB = {"soft": 128, "gpu": 8192}
BLOCK_MIB = {"soft": 4, "gpu": 128}
# Of the transfer bound; and what tenants may lose in turns of a second, in %.
WANTED_TIMES, WANTED_LOST = "<= 1.2", "<= 15"


def _moved(one: dict) -> list[str]:
    return [*[f"{one[key] / 2**30:.2f}" for key in ("bytes_in", "bytes_out")], f"{one['moves']:.0f}",
            *[f"{one[key]:.4f}" for key in ("wait_s", "move_s")], f"{one['made'] / 2**30:.2f}", f"{one['mapped']:.0f}"]


def rounds_table(row: dict) -> str:
    lines: list[tuple] = [("one program, round and round", "seconds", "of the bound", "GiB in", "GiB out", "moves",
                           "waits s", "moving s", "GiB made", "mapped", "wrong")]
    for way, one in row["ways"].items():
        moved = _moved(one) if "moves" in one else [""] * 7
        lines.append((way, f"{one['seconds']:.3f}", f"{one['seconds'] / row['bound_s']:.2f}", *moved, one["wrong"]))
    lines.append(("transfer bound", f"{row['bound_s']:.3f}", "1.00", *[""] * 8))
    rates = " and ".join(f"{row['copies'][key] / 1e9:.2f}" for key in ("in_bytes_per_s", "out_bytes_per_s"))
    return "\n".join([*columns(lines), f"(both directions at once: {rates} GB/s in and out; working set "
                      f"{row['working_set'] >> 20} MiB, resident {row['resident'] >> 20} MiB)"])


def turns_table(row: dict) -> str:
    lines: list[tuple] = [("two programs in turns", "blocks a second", "alone", "lost %", "GiB in", "GiB out", "moves",
                           "waits s", "moving s", "GiB made", "mapped", "wrong")]
    notes = []
    for name, one in row["tenants"].items():
        lines.append((name, f"{one['per_s']:.1f}", f"{one['alone_per_s']:.1f}", f"{one['lost']:.1f}",
                      *_moved(one), one["wrong"]))
        turns = zip(one["rates"], one["made_in_turn"], strict=True)
        notes.append(f"({name}, by turn: blocks a second, MiB of host memory made since the last one: "
                     + ", ".join(f"{rate:.1f} {made / 2**20:.0f}" for rate, made in turns) + ")")
    return "\n".join([*columns(lines), *notes, f"(each {row['working_set'] >> 20} MiB of a pool of "
                      f"{row['pool'] >> 20} MiB, {row['turns']} turns of {row['turn_s']:g} s each)"])


def tasks_table(rows: list[dict]) -> str:
    lines: list[tuple] = [("tasks", "virtual GPUs", "seconds", "GiB in", "GiB out", "moves", "waits s", "moving s",
                           "GiB made", "mapped", "wrong")]
    for row in rows:
        lines.append((row["tasks"], row.get("parts", 1), f"{row['seconds']:.3f}",
                      *_moved(row), row["wrong"]))
    fit = rows[0].get("fit")
    note = [] if fit is None else [f"(without swapping {fit} have room beside the large one)"]
    return "\n".join([*columns(lines), *note])


def table(results: list[dict]) -> str:
    made = {ROUNDS: rounds_table, TURNS: turns_table}
    texts = [made[row["case"]](row) for row in results if row["case"] in made]
    tasks = [row for row in results if row["case"] not in made]
    return "\n\n".join([*texts, tasks_table(tasks)] if tasks else texts)


def curves(results: list[dict], device: str) -> dict[str, charts.Chart]:
    lines = {"beside a large task": [row for row in results if row["case"] == TASKS]}
    lines |= {f"one of {parts} virtual GPUs": [row for row in results if row.get("parts") == parts]
              for parts in swap_tasks.PARTS}
    series = [charts.Series(name, [(row["tasks"], row["seconds"]) for row in rows]) for name, rows in lines.items()
              if rows]
    return {"swap-tasks": charts.Lines(f"Tasks at once ({device})", charts.Axis("tasks"),
                                       charts.Axis("makespan, seconds", low=0), series)} if series else {}


def drawn(results: list[dict], device: str) -> dict[str, charts.Chart]:
    made: dict[str, charts.Chart] = curves(results, device)
    for row in results:
        if row["case"] == ROUNDS:
            times = {way: one["seconds"] / row["bound_s"] for way, one in row["ways"].items()}
            made["swap-rounds"] = charts.Bars(
                f"Going round twice what is resident ({device})", charts.Axis("times the transfer bound", low=0),
                list(times), {"time": list(times.values())}, (1, "the bound"))
        elif row["case"] == TURNS:
            tenants = row["tenants"]
            made["swap-turns"] = charts.Bars(
                f"Two programs of 0.75 of a pool in turns ({device})", charts.Axis("blocks a second", low=0),
                list(tenants), {"alone, all resident": [one["alone_per_s"] for one in tenants.values()],
                                "in turns": [one["per_s"] for one in tenants.values()]})
    return made


def missed(results: list[dict], device: str) -> list[str]:
    short = []
    short += [f"{row['tasks']} tasks: {row['wrong']} words are wrong" for row in results if row.get("wrong")]
    for row in (row for row in results if row["case"] in (ROUNDS, TURNS)):
        ran = row["ways"] if row["case"] == ROUNDS else row["tenants"]
        short += [f"{name}: {one['wrong']} words are wrong" for name, one in ran.items() if one["wrong"]]
        if row["case"] == ROUNDS and row["ways"][BANDSAW]["bytes_in"] == 0:
            short.append("nothing was moved")
        if device == "soft":
            continue
        if row["case"] == ROUNDS:
            times = row["ways"][BANDSAW]["seconds"] / row["bound_s"]
            if not reaches(times, WANTED_TIMES):
                short.append(f"going round takes {times:.2f} of the transfer bound, wanted {WANTED_TIMES}")
        else:
            lost = statistics.mean(one["lost"] for one in row["tenants"].values())
            if not reaches(lost, WANTED_LOST):
                short.append(f"in turns they lose {lost:.1f} %, wanted {WANTED_LOST}")
    return short


def measure(settings: Settings, options: argparse.Namespace) -> list[dict]:
    finer = dataclasses.replace(settings, block_mib=max(1, settings.block_mib // 2))
    run_cases: dict[str, Callable[[], list[dict]]] = {
        ROUNDS: lambda: [swap_cases.rounds(settings, options.rounds)],
        TURNS: lambda: [swap_cases.turns(settings, options.turns, options.turn)],
        TASKS: lambda: swap_tasks.beside_a_large_one(finer, options.rounds),
        PARTS: lambda: swap_tasks.on_a_part(finer, options.rounds)}
    cases = [options.only] if options.only else [ROUNDS, TURNS]
    return [{"case": case, **row} for case in cases for row in run_cases[case]()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench swap", description=__doc__)
    parser.add_argument("--device", choices=list(POOL_MIB), default="soft")
    parser.add_argument("--only", choices=CASES, help="one case")
    parser.add_argument("--pool", type=int, metavar="MIB", help="what is resident, of all tenants together (default: "
                        + "; ".join(f"{mib} on {name}" for name, mib in POOL_MIB.items()) + ")")
    parser.add_argument("--block", type=int, metavar="MIB", help="what a kernel goes over")
    parser.add_argument("--times", type=int, default=1, help="how often it does")
    parser.add_argument("--rounds", type=int, default=6, help="over the working set, measured after one that is not")
    parser.add_argument("--turns", type=int, default=4, help="of each tenant")
    parser.add_argument("--turn", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--moves", type=pathlib.Path, metavar="FILE",
                        help="add to this file what each move of memory took, by the sessions' logs")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of swap.json that an earlier run has written; measure nothing")
    return parser


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    settings = Settings(options.device, options.pool or POOL_MIB[options.device],
                        options.block or BLOCK_MIB[options.device], options.times, options.moves)
    if settings.pool_mib < 8 * settings.block_mib:
        raise Failure("the pool must have room for eight blocks")
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(settings.device)
        setup.prepare_for(settings.device)
        results = measure(settings, options)
    text, result = table(results), {"device": settings.device, "results": results}
    charts.store(options.out, "swap", result, text, drawn(results, settings.device))
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status(missed(results, settings.device))
