"""Tests that would wait for ever fail instead, and say what everything waited for."""
from __future__ import annotations  # pytest may not be there before tools/test has installed it

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import typing

from lab import machine
from lab.paths import BUILD, cache
from lab.shell import Failure

if typing.TYPE_CHECKING:
    import pytest

SECONDS = 300  # the longest of those that tools/test runs by default takes a third of this
AGAIN_SECONDS = 60.0  # what it leaves behind may not end either
STACKS_MOST = 20


class TooLong(Exception):
    """A test has taken too long."""


class Deadline:
    """A plugin of pytest's: each test has so many seconds, but for those of `--full`."""

    def __init__(self, seconds: float = SECONDS):
        self._seconds = seconds

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        signal.signal(signal.SIGALRM, self._end)
        if not item.get_closest_marker("full"):
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _end(self, *_) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(stacks())
        sys.stdout.flush()
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        raise TooLong(f"it has taken more than {self._seconds:g} s; what our programs waited for stands above")


def _ours() -> list[int]:
    """Programs that were built here and run now."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            program = os.readlink(process / "exe")
        except OSError:  # it has ended, or is another user's
            continue
        if program.startswith((f"{BUILD}/", f"{cache()}/cuda-programs/")):
            found.append(int(process.name))
    return sorted(found)


def stacks() -> str:
    """Where each thread of each program of ours is."""
    try:
        if not shutil.which("gdb"):
            machine.install_packages(["gdb"])
    except Failure as failure:
        return f"no stacks: {failure}\n"
    texts = []
    for pid in _ours()[:STACKS_MOST]:
        command = pathlib.Path(f"/proc/{pid}/cmdline")
        words = command.read_bytes().replace(b"\0", b" ").decode(errors="replace") if command.exists() else ""
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-nx", "-ex", "set debuginfod enabled off",
                               "-ex", "thread apply all bt 14"],
                              capture_output=True, text=True, errors="replace", check=False, timeout=60)
        lines = [line[:200] for line in done.stdout.splitlines() if line.startswith(("#", "Thread "))]
        texts.append("\n".join([f"-- {pid} {words[:160]}", *lines]))
    return "\n".join(texts) + "\n"
