"""Of two programs of one virtual GPU the one with the lower nice value goes first, where that is configured."""
import json
import os
import subprocess
import time

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.paths import REPO
from lab.shell import wait_until

VGPU = "nice0"
SECONDS = 60  # they are ended before
NICE = 5


def _start(binary, environment: dict[str, str], nice: int) -> subprocess.Popen:
    program = subprocess.Popen([binary, str(SECONDS)], env={**os.environ, **environment}, stdout=subprocess.PIPE,
                               text=True, preexec_fn=lambda: os.nice(nice))
    assert program.stdout.readline() == "running\n"
    return program


def _show(daemon: Daemon) -> list[dict]:
    shown = host.vgpuctl("show", VGPU, "--json", variables=daemon.variables)
    return (json.loads(shown.stdout).get("live") or {}).get("processes", [])


@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.full)])
def test_who_goes_first(kept):
    """Of their compute time; a program waits for its kernels only, and its runner has no nice value."""
    binary = Program(REPO / "tests/direct/ahead.cu").compile()
    daemon = Daemon("soft", "band+", name="nice", tables={"scheduler": {"process_priorities": kept}})
    programs: list[subprocess.Popen] = []
    try:
        daemon.create(VGPU, 100, memory="1G")
        wait_until(lambda: _show(daemon) == [], 20, "the session")
        for nice in (NICE, 0):
            programs.append(_start(binary, daemon.program_environment(VGPU), nice))
        time.sleep(0.5)
        before = _show(daemon)
        time.sleep(2)
        after = _show(daemon)
    finally:
        for program in programs:
            program.kill()
            program.wait()
        daemon.destroy(VGPU)
        daemon.end()
    assert sorted(process.get("nice", 0) for process in after) == [0, NICE]
    spent = {end.get("nice", 0): end["usage"]["compute_ns"] - begin["usage"]["compute_ns"]
             for begin, end in zip(before, after, strict=True)}
    part = spent[0] / (spent[0] + spent[NICE])
    if kept:
        assert part > 0.8, spent
    else:
        assert 0.3 < part < 0.7, spent
