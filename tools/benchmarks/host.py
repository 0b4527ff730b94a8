"""tools/bench host: what Bandsaw costs a host. 64 virtual GPUs that do nothing; whether a thousand lives leave anything
behind; and vgpud's API at 1000 requests a second while two programs have their shares. On the software device."""
import argparse
import contextlib
import json
import pathlib
import sys

from benchmarks import host_measure
from benchmarks.results import columns, exit_status, reaches
from lab import machine, setup
from lab.daemon import only_one
from lab.shell import need_root

PARTS = ("many", "cycles", "api")
Row = tuple[str, float, str]  # what, the figure, what is wanted of it; empty: nothing


def many_rows(found: dict) -> list[Row]:
    idle, pss, private = found["idle_percent"], found["pss_mib"], found["private_mib"]
    return [(f"creating {found['vgpus']} virtual GPUs, s", found["create_s"], "<= 3"),
            ("destroying them, s", found["destroy_s"], ""),
            ("creating them by a vgpuctl each, s", found["vgpuctl_create_s"], ""),
            ("the same, until each has its warm runner, s", found["warm_s"], ""),
            ("processor, vgpud and all sessions idle, %", idle["vgpud"] + idle["sessions"], "<= 0.05"),
            ("processor, all warm runners, %", idle["runners"], ""),
            ("memory of a session (PSS), MiB", pss["sessions"], "<= 10"),
            ("memory of a session's own (private), MiB", private["sessions"], ""),
            ("memory of a session's log writer (PSS), MiB", pss["logs"], ""),
            ("memory of a warm runner (PSS), MiB", pss["runners"], ""),
            ("memory of vgpud (PSS), MiB", pss["vgpud"], "")]


def cycles_rows(found: dict) -> list[Row]:
    rows: list[Row] = [(f"create, attach, detach, destroy: {found['cycles']} times, ms each", found["cycle_ms"], "")]
    rows += [(f"more {what} afterwards", float(found["more"].get(what, 0)), "<= 0") for what in found["before"]]
    return [*rows, ("memory of vgpud more afterwards, KiB", found["vgpud_grown_bytes"] / 1024, "")]


def api_rows(found: dict) -> list[Row]:
    rows: list[Row] = [
        ("requests a second", found["requests_a_second"], ">= 1000"),
        ("requests without an answer of 200", float(found["not_answered"]), "<= 0"),
        ("until the answer, p50 ms", found["latency_p50_ms"], ""),
        ("until the answer, p99 ms", found["latency_p99_ms"], ""),
        ("processor, vgpud meanwhile, %", found["vgpud_cpu_percent"], ""),
        ("processor, with who asks and all between, %", found["asking_cpu_percent"], "")]
    for name, promised in found["promised_percent"].items():
        rows.append((f"share of {name} ({promised} %) without requests, %", found["without_percent"][name], ""))
        rows.append((f"share of {name} during, %", found["during_percent"][name], ""))
        rows.append((f"share of {name} beside others as busy, %", found["beside_others_percent"][name], ""))
    promises = found["promised_percent"].items()
    off = {when: max(abs(found[when][name] - promised) for name, promised in promises)
           for when in ("without_percent", "during_percent", "beside_others_percent")}
    return [*rows, ("from the promise without requests, points", off["without_percent"], ""),
            ("from the promise beside others as busy, points", off["beside_others_percent"], ""),
            ("from the promise during, points more than the larger of these",
             off["during_percent"] - max(off["without_percent"], off["beside_others_percent"]), "<= 2")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench host", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be given again")
    parser.add_argument("--vgpus", type=int, default=64, help="virtual GPUs at once (default 64)")
    parser.add_argument("--cycles", type=int, default=1000, help="lives in a row (default 1000)")
    parser.add_argument("--seconds", type=int, default=10,
                        help="with requests, without, and beside others, each time (default 10)")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON and the table go there")
    return parser


def _measured(part: str, options) -> tuple[dict, list[Row]]:
    if part == "many":
        found = host_measure.many(options.vgpus)
        return found, many_rows(found)
    if part == "cycles":
        found = host_measure.cycles(options.cycles)
        return found, cycles_rows(found)
    found = host_measure.api(options.seconds)
    return found, api_rows(found)


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    parts = options.only or list(PARTS)
    need_root("looking at the memory of sessions, which are other users")
    figures, rows = {}, []
    with contextlib.redirect_stdout(sys.stderr), only_one():
        setup.prepare(lab=False)
        if "api" in parts:
            machine.install_packages(["wrk", "socat"])
        for part in parts:
            figures[part], found = _measured(part, options)
            rows += found
    said = [(what, f"{value:.2f}", f"{wanted} {'yes' if reaches(value, wanted) else 'NO'}" if wanted else "")
            for what, value, wanted in rows]
    table = "\n".join(columns([("figure", "value", "wanted"), *said]))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "host.json").write_text(json.dumps(figures, indent=1) + "\n")
        (options.out / "host.txt").write_text(table + "\n")
    print(json.dumps(figures, indent=1) if options.json else table)
    return exit_status([f"{what}: {value:.2f}, wanted {wanted}" for what, value, wanted in rows
                        if wanted and not reaches(value, wanted)])
