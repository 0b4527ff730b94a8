"""Tests that would never end."""
import pathlib

import pytest

from lab import stuck

TESTS = """
import os, pytest
def test_before(): pass
def test_that_waits():
    ends = os.pipe()
    os.read(ends[0], 1)
@pytest.fixture
def waits():
    yield
    ends = os.pipe()
    os.read(ends[0], 1)
def test_that_leaves_something_that_waits(waits): pass
def test_after(): pass
"""


class _Outcomes:
    def __init__(self):
        self.all: list[tuple[str, str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.all.append((report.nodeid.partition("::")[2], report.when or "", str(report.longrepr)))


def test_they_fail_and_the_others_go_on(tmp_path: pathlib.Path, monkeypatch, capsys):
    monkeypatch.setattr(stuck, "stacks", lambda: "the stacks\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    outcomes = _Outcomes()
    pytest.main([str(tmp_path), "-p", "no:terminal", "-p", "no:cacheprovider", "--capture=no"],
                plugins=[outcomes, stuck.Deadline(1.5)])
    assert [one[:2] for one in outcomes.all] == [("test_that_waits", "call"),
                                                 ("test_that_leaves_something_that_waits", "teardown")]
    assert all("more than 1.5 s" in one[2] for one in outcomes.all)
    assert capsys.readouterr().out.count("the stacks") == 2

