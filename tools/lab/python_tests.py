"""The Python tests: run by pytest in this process, or read from what a pytest elsewhere has written."""
from __future__ import annotations  # pytest may not be there before tools/test has installed it

import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import typing
import xml.etree.ElementTree

from lab import stuck
from lab.paths import REPO
from lab.results import Results
from lab.shell import START, Failure, say

if typing.TYPE_CHECKING:
    import pytest

SECONDS_BESIDE_OTHERS = 3 * stuck.SECONDS
SECONDS_TO_PACKAGE = 6 * stuck.SECONDS  # the first test of each release makes its packages


class _Reporter:
    """Tells a person of each test as it ends, and puts it into the results."""

    def __init__(self, folder: str, only: str, results: Results):
        self._folder, self._only, self._results = folder, only, results
        self._ended = self._count = 0

    def pytest_configure(self, config: pytest.Config) -> None:
        # pytest's own reporter, which is not there, would have these options.
        config.option.tbstyle, config.option.verbose = "short", 0

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if self._only in _name(item.nodeid)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._count = len(session.items)
        if self._count:
            say(f"{self._folder}: {self._count} tests")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._results.add(f"{self._folder}: {report.nodeid}", "it cannot be read", str(report.longrepr))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = f"{self._folder}: {_name(report.nodeid)}"
        if report.when != "call" and report.passed:
            return
        self._ended += report.when != "teardown"
        place = f"{self._ended} of {self._count}"
        if report.skipped:
            self._results.skip(name, _reason(report))
        elif report.failed:
            self._results.add(name, f"{place}, {report.when}", report.longreprtext)
        else:
            self._results.add(name, "")
            say(f"  passed {_name(report.nodeid)} ({report.duration:.1f} s), {place}")


def _name(nodeid: str) -> str:
    """direct/test_faults.py::test_a -> test_faults.test_a"""
    file, _, test = nodeid.partition("::")
    return f"{pathlib.Path(file).stem}.{test}"


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def run_folder(results: Results, folder: str, only: str, full: bool, seconds: float = stuck.SECONDS) -> None:
    """tests/FOLDER, in this process: what tests say is seen while they run. Each has so many seconds."""
    arguments = [str(REPO / "tests" / folder), "-p", "no:terminal", "--capture=no", *(["-m", ""] if full else [])]
    importlib.invalidate_caches()
    runner = importlib.import_module("pytest")
    status = runner.main(arguments, plugins=[_Reporter(folder, only, results), stuck.Deadline(seconds)])
    if status not in (runner.ExitCode.OK, runner.ExitCode.TESTS_FAILED, runner.ExitCode.NO_TESTS_COLLECTED) \
            and not results.failed:
        raise Failure(f"pytest could not run tests/{folder} (exit {status})")


def run_folder_apart(results: Results, folder: str, only: str, full: bool) -> None:
    """The same in a process of its own, beside other tests and with what processor time they leave."""
    with tempfile.TemporaryDirectory() as place:
        report = pathlib.Path(place) / "counted.json"
        done = subprocess.run([sys.executable, "-m", "lab.python_tests", folder, only, str(int(full)), str(report)],
                              env={**os.environ, "PYTHONPATH": str(REPO / "tools"), "BANDSAW_TOOL_STARTED": str(START)},
                              check=False)
        if not report.exists():
            raise Failure(f"the tests of tests/{folder} did not end as they should (exit {done.returncode})")
        results.count(**json.loads(report.read_text()))


def _main(folder: str, only: str, full: str, report: str) -> None:
    results = Results()
    run_folder(results, folder, only, bool(int(full)), SECONDS_BESIDE_OTHERS)
    pathlib.Path(report).write_text(json.dumps({"passed": results.passed, "skipped": results.skipped,
                                                "failed": results.failed}))


def count_report(results: Results, name: str, report: pathlib.Path, output: str) -> bool:
    """Adds the tests of a pytest that ran elsewhere, from its JUnit XML; False if it has written none."""
    try:
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return False
    for case in cases:
        title = f"{name} {case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        bad = [part for kind in ("failure", "error") for part in case.findall(kind)]
        skipped = case.find("skipped")
        if bad:
            results.add(title, bad[0].get("message", "")[:300], bad[0].text or output)
        elif skipped is not None:
            results.skip(title, skipped.get("message", ""))
        else:
            results.add(title, "")
    return bool(cases)


if __name__ == "__main__":
    _main(*sys.argv[1:])
