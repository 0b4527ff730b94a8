"""tools/bench priorities: what an encrypting file system gets through beside three searches, by policy and priority.

After Gdev's figure 10. The file system encrypts batches of 1 MiB with the kernels of vgpu_crypto.ko, a batch at a time,
with a pause (the disk's) after each; searches keep kernels of 4 to 6 ms queued. Each has a virtual GPU; in the last two
cases all are programs of one, where nice values count. Parts are of what it gets through alone."""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import sys
import time

from benchmarks import charts
from benchmarks.basic import Figure
from benchmarks.crypto import SOURCES
from benchmarks.results import columns, exit_status, json_lines
from benchmarks.shares_run import Kind, TenantProgram, calibrate
from lab import host, setup
from lab.daemon import Daemon, only_one
from lab.shell import Failure, say
from lab.started import Started

FILES, SEARCHES, ALL = "files", ("search0", "search1", "search2"), "all"
BATCH_KIB, PAUSE_US = 1024, 3000
LONG_US = (4000, 6000)  # of a search's kernel
SETTLE = 0.3            # seconds of searches alone
START_SECONDS = 30
NONE, HIGHEST = "no priority", "highest priority"


@dataclasses.dataclass
class Case:
    series: str
    priority: str
    policy: str
    searches: bool = True

    @property
    def one_vgpu(self) -> bool:
        return self.series == "processes"


ALONE = Case("alone", NONE, "band+", searches=False)
CASES = [Case(policy, NONE, policy) for policy in ("fifo", "band", "band+")]
CASES += [Case("band+", HIGHEST, "band+"), Case("processes", NONE, "band+"), Case("processes", HIGHEST, "band+")]


def _create(daemon: Daemon, case: Case) -> None:
    if case.one_vgpu:
        daemon.create(ALL, 100, memory="1G" if daemon.device == "soft" else "8G")
        return
    daemon.create(FILES, 40, *(["--priority", "1"] if case.priority == HIGHEST else []))
    for name in SEARCHES if case.searches else ():
        daemon.create(name, 20)


def _search(daemon: Daemon, case: Case, name: str, kind: Kind) -> Started:
    nice = 10 if case.one_vgpu and case.priority == HIGHEST else 0
    words = [f"low_us={LONG_US[0]}", f"high_us={LONG_US[1]}", "depth=3", f"lu_round_ns={kind.round_ns}",
             f"lu_fixed_ns={kind.fixed_ns}"]
    return Started("nice", "-n", nice, TenantProgram().compile(), "run", "lu", *words, errors_apart=True,
                   variables=daemon.program_environment(ALL if case.one_vgpu else name))


def _begun(programs: list[Started]) -> None:
    for program in programs:
        if (line := program.line(START_SECONDS)).strip() != "running":
            program.kill()
            raise Failure(f"a program did not start: {line}{program.error_output()[-800:]}")


def perform(device: str, case: Case, kind: Kind, seconds: float) -> dict:
    """What the file system says."""
    daemon = Daemon(device, case.policy, name="priorities",
                    tables={"scheduler": {"process_priorities": True}} if case.one_vgpu else None)
    programs: list[Started] = []
    try:
        _create(daemon, case)
        files = Started(Figure("encrypt", SOURCES).compile(), "writes", seconds, BATCH_KIB, PAUSE_US,
                        errors_apart=True, variables=daemon.program_environment(ALL if case.one_vgpu else FILES))
        programs.append(files)
        programs += [_search(daemon, case, name, kind) for name in (SEARCHES if case.searches else ())]
        _begun(programs)
        for search in programs[1:]:
            search.say("go")
        time.sleep(SETTLE)
        files.say("go")
        status, said = files.finish(seconds + START_SECONDS)
        lines = json_lines(said)
        if status not in (0, 1) or not lines:
            raise Failure(f"{case.series}, {case.priority}: the file system ended with {status}: {said[-800:]}")
        return lines[-1]
    finally:
        for program in programs:
            program.kill()
            program.wait()
        daemon.end()


def measure(device: str, options) -> list[dict]:
    begin = time.monotonic()
    daemon = Daemon(device, ALONE.policy, name="priorities")
    try:
        kind = calibrate(daemon, "lu", 0)
    finally:
        daemon.end()
    alone = perform(device, ALONE, kind, options.seconds)
    rows = [{"series": ALONE.series, "priority": ALONE.priority, "part": 1.0, **alone}]
    for case in CASES:
        row: dict = {"series": case.series, "priority": case.priority, "part": None}
        if time.monotonic() - begin > options.limit:
            say(f"{case.series}, {case.priority}: left out, for want of time")
            rows.append(row)
            continue
        say(f"encrypting beside searches: {case.series}, {case.priority}")
        said = perform(device, case, kind, options.seconds)
        rows.append({**row, **said, "part": said["mb_per_s"] / alone["mb_per_s"]})
    return rows


def table(rows: list[dict]) -> str:
    lines: list[tuple] = [("policy", "priority", "MB/s", "of alone %", "right")]
    for row in rows:
        if row["part"] is None:
            lines.append((row["series"], row["priority"], "", "not measured", ""))
            continue
        lines.append((row["series"], row["priority"], f"{row['mb_per_s']:.1f}", f"{100 * row['part']:.1f}",
                      "yes" if row["right"] else "NO"))
    return "\n".join(columns(lines))


def drawn(rows: list[dict], device: str) -> dict[str, charts.Chart]:
    return {"priorities": charts.Bars(
        f"An encrypting file system beside three searches ({device})", charts.Axis("% of alone"),
        [f"{row['series']}, {row['priority']}" for row in rows],
        {"measured": [row["part"] and 100 * row["part"] for row in rows]})}


def missed(rows: list[dict]) -> list[str]:
    return [f"{row['series']}, {row['priority']}: bytes are wrong" for row in rows if not row.get("right", True)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tools/bench priorities", description=__doc__)
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--seconds", type=float, default=3, help="of each case")
    parser.add_argument("--limit", type=float, default=75, help="seconds after which no further case begins")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON, the table and SVG charts go there")
    parser.add_argument("--from", dest="stored", type=pathlib.Path, metavar="FILE",
                        help="draw the charts of priorities.json that an earlier run has written; measure nothing")
    return parser


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.stored:
        return charts.redraw(options.stored, options.out)
    device = "cuda:0" if options.device == "gpu" else "soft"
    with contextlib.redirect_stdout(sys.stderr), only_one():
        host.use_device(device)
        if not options.no_build:
            setup.prepare_for(device)
        rows = measure(device, options)
    text, result = table(rows), {"device": device, "results": rows}
    charts.store(options.out, "priorities", result, text, drawn(rows, device))
    print(json.dumps(result, indent=1) if options.json else text)
    return exit_status(missed(rows))
