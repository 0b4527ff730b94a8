"""Of two programs of one virtual GPU the one with the lower nice value goes first, where that is configured."""
import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.paths import REPO
from lab.shell import wait_until

VGPU = "nice0"
NICE = 5
LONGEST = 60  # seconds; the programs are ended before
# Of the compute time: 99 % and 50 % were seen. A program that is kept from its processor asks late, and leaves the
# other a turn: on two cores with a load of eight 78 % were seen.
FIRST, EVEN = 0.65, (0.35, 0.65)


def _start(daemon: Daemon, nice: int) -> subprocess.Popen:
    binary = Program(REPO / "tests/direct/ahead.cu").compile()
    return subprocess.Popen(["nice", "-n", str(nice), binary, str(LONGEST)], stdout=subprocess.PIPE, text=True,
                            env={**os.environ, **daemon.program_environment(VGPU)})


@contextlib.contextmanager
def _running(kept: bool) -> Iterator[tuple[Daemon, list[subprocess.Popen]]]:
    """Two programs that keep kernels queued; the first has a nice value."""
    daemon = Daemon("soft", "band+", name="nice", tables={"scheduler": {"process_priorities": kept}})
    programs: list[subprocess.Popen] = []
    try:
        daemon.create(VGPU, 100, memory="1G")
        for nice in (NICE, 0):
            programs.append(_start(daemon, nice))
            stdout = programs[-1].stdout
            assert stdout is not None and stdout.readline() == "running\n"
        yield daemon, programs
    finally:
        for program in programs:
            program.kill()
            program.wait()
        daemon.destroy(VGPU)
        daemon.end()


def _compute(daemon: Daemon) -> dict[int, int]:
    """Nanoseconds, by nice value."""
    shown = host.vgpuctl("show", VGPU, "--json", variables=daemon.variables)
    processes = json.loads(shown.stdout)["live"]["processes"]
    return {process.get("nice", 0): process["usage"]["compute_ns"] for process in processes}


def test_what_programs_have_is_shown():
    with _running(kept=True) as (daemon, _):
        assert sorted(_compute(daemon)) == [0, NICE]
        assert "NICE" in host.vgpuctl("show", VGPU, variables=daemon.variables).stdout


def test_a_program_that_is_reniced_has_another_priority():
    with _running(kept=True) as (daemon, programs):
        os.setpriority(os.PRIO_PROCESS, programs[1].pid, NICE + 4)
        wait_until(lambda: sorted(_compute(daemon)) == [NICE, NICE + 4], 10, "the second program's nice value")


@pytest.mark.full
@pytest.mark.parametrize("kept", [True, False])
def test_who_goes_first(kept):
    """A program waits for its kernels only, and its runner has no nice value."""
    with _running(kept) as (daemon, _):
        time.sleep(0.5)
        before = _compute(daemon)
        time.sleep(5)
        after = _compute(daemon)
    spent = {nice: after[nice] - before[nice] for nice in (0, NICE)}
    part = spent[0] / sum(spent.values())
    print(f"{100 * part:.1f} % of the compute time")
    assert part > FIRST if kept else EVEN[0] < part < EVEN[1], spent
