"""What the benchmarks of launches of many waves have in common: how they begin, and where their results go."""
import argparse
import contextlib
import json
import pathlib
import sys
from collections.abc import Callable

from benchmarks import mps_measure
from benchmarks.mps_measure import Setting
from benchmarks.mps_run import TenantProgram
from lab import host, setup
from lab.daemon import only_one

LEAST_WAVES = 24  # of a launch: with fewer, no blocks of one are left when those of the other come


def add_options(parser: argparse.ArgumentParser, seconds: float, of_what: str) -> None:
    parser.add_argument("--device", choices=["soft", "gpu"], default="soft")
    parser.add_argument("--seconds", type=float, default=seconds, help=of_what)
    parser.add_argument("--no-build", action="store_true", help="Bandsaw is built already")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="JSON and the table go there")


def run(name: str, options, kernels: list[str], measure: Callable[[argparse.Namespace, Setting], list[dict]],
        table: Callable[[list[dict]], str]) -> int:
    """Measures, and prints and writes what was found."""
    with contextlib.redirect_stdout(sys.stderr):
        setting = mps_measure.setting_of(options.device, options.seconds)
        setting.waves = max(setting.waves, LEAST_WAVES)
        host.use_device("soft" if options.device == "soft" else "cuda:0")
        if not options.no_build:
            setup.prepare_for(options.device)
        TenantProgram().compile()
        with only_one():
            mps_measure.prepare(setting, kernels, False)
            rows = measure(options, setting)
    result = {"device": options.device, "results": rows}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        (options.out / f"{name}.txt").write_text(table(rows) + "\n")
    print(json.dumps(result, indent=1) if options.json else table(rows))
    return 0
