"""Processes that die at the wrong moment, seen from CUDA programs in direct mode.

Every case asks the same: does the program that is hit get a clear error, does everybody else go on, and is nothing left
behind?
"""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

HERE = REPO / "tests/direct"
ONE, TWO = "fault-one", "fault-two"


def _program(name: str) -> pathlib.Path:
    return Program(HERE / f"{name}.cu").compile()


def _start(vgpu: str, name: str, *arguments) -> Started:
    process = Started(_program(name), *arguments, variables=direct_environment(vgpu))
    process.first_line("round", "running")
    return process


def _processes_of(name: str) -> list[dict]:
    return host.live(name)["processes"]


def _memory_used(name: str) -> int:
    return int(host.live(name)["memory_used"])


def _run_ok(vgpu: str) -> None:
    status, output = _start(vgpu, "busy", 0.1).finish()
    assert status == 0, f"a fresh program fails: {status} {output}"


@pytest.fixture(autouse=True)
def _both():
    for name in (ONE, TWO):
        ensure_direct(name, memory_for(3, 256))
        host.vgpuctl("set", name, "--compute", "5", "--copy", "5", check=False)


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    for name in (ONE, TWO):
        host.vgpuctl("destroy", name, check=False)


def test_killed_program_leaves_nothing():
    for name, arguments in (("busy", (30, 64)), ("busy", (30, 1)), ("endless", ())):
        process = _start(ONE, name, *arguments)
        assert _memory_used(ONE) > 0 or name == "endless"
        time.sleep(0.15)  # somewhere inside a copy or a launch
        process.kill()
        process.finish()
        wait_until(lambda: not _processes_of(ONE), 10, "the runner's end")
        wait_until(lambda: _memory_used(ONE) == 0, 10, "the return of its memory")
    _run_ok(ONE)


def test_endless_kernel_does_not_stop_others():
    endless = _start(ONE, "endless")
    _run_ok(ONE)
    _run_ok(TWO)
    assert endless.poll() is None
    endless.send_signal(signal.SIGTERM)
    endless.wait(timeout=20)
    wait_until(lambda: not _processes_of(ONE), 10, "the runner's end")


def test_a_deadline_ends_a_program_whose_kernel_does_not_end():
    host.vgpuctl("set", ONE, "--kernel-deadline-ms", "600")
    try:
        endless, sibling, other = _start(ONE, "endless"), _start(ONE, "busy", 3), _start(TWO, "busy", 3)
        status, output = endless.finish()
        assert "LAUNCH_TIMEOUT" in output or status == 702 % 256, f"{status}: {output[-300:]}"
        for process in (sibling, other):
            status, output = process.finish()
            assert status == 0, f"another program was harmed: {status} {output[-300:]}"
        wait_until(lambda: not _processes_of(ONE), 10, "the runner's end")
        assert "longer than its deadline" in (host.lab_dir() / "vgpud.log").read_text()
        _run_ok(ONE)
    finally:
        host.vgpuctl("set", ONE, "--kernel-deadline-ms", "none")


def test_killed_runner_ends_its_own_program_only():
    hit, sibling, other = _start(ONE, "busy", 6), _start(ONE, "busy", 6), _start(TWO, "busy", 6)
    runner = next(entry["runner"] for entry in _processes_of(ONE) if entry["pid"] == hit.pid)
    os.kill(runner, signal.SIGKILL)
    status, output = hit.finish()
    assert status == 3, f"expected a CUDA error, got {status}: {output[-300:]}"
    why = f"runner {runner} has ended by itself: killed by signal 9 (Killed); the kernel's log says whether"
    wait_until(lambda: why in host.session_log(ONE).read_text(errors="replace"), 5, "why it has ended in session.log")
    for process in (sibling, other):
        status, output = process.finish()
        assert status == 0, f"another program was harmed: {status} {output[-300:]}"
    _run_ok(ONE)


def test_killed_session_is_started_again():
    hit, other = _start(ONE, "busy", 6), _start(TWO, "busy", 6)
    session = host.live(ONE)["pid"]
    os.kill(session, signal.SIGKILL)
    status, output = hit.finish()
    assert status == 3, f"expected a CUDA error, got {status}: {output[-300:]}"
    status, output = other.finish()
    assert status == 0, f"the other virtual GPU was harmed: {status} {output[-300:]}"
    wait_until(lambda: host.live(ONE)["pid"] not in (0, session), 15, "a new session")
    _run_ok(ONE)


def test_vgpud_restarts_while_programs_run():
    running = _start(ONE, "busy", 8)
    session = host.live(ONE)["pid"]
    os.kill(host.vgpuctl_json("status")["pid"], signal.SIGKILL)
    wait_until(lambda: host.vgpuctl("status", check=False).returncode == 3, 5, "vgpud's end")
    host.start_vgpud()
    wait_until(lambda: host.live(ONE)["pid"] == session, 10, "the session's adoption")
    _run_ok(ONE)
    status, output = running.finish()
    assert status == 0, f"the running program was harmed: {status} {output[-300:]}"


def test_fault_in_one_program_spares_its_siblings():
    sibling = _start(ONE, "busy", 5)
    fault = Program(REPO / "tests/cuda/fault_illegal_address.cu").compile()
    done = subprocess.run([fault], env=direct_environment(ONE), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, "the faulting program did not see its own error"
    status, output = sibling.finish()
    assert status == 0, f"the sibling was harmed: {status} {output[-300:]}"


def test_no_daemon_is_said_clearly():
    environment = {**direct_environment(ONE), "BANDSAW_RUN": "/nonexistent"}
    done = subprocess.run([_program("busy")], env=environment, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 3 and "cudaErrorNoDevice" in done.stdout, done.stdout
    assert "vgpud" in done.stderr, f"the message does not say what to do: {done.stderr}"


def test_memory_of_a_sibling_cannot_be_read():
    holder = Started(_program("peek"), "hold", 3, variables=direct_environment(ONE))
    address = holder.first_line("running 0x").split()[1]
    peek = subprocess.run([_program("peek"), address], capture_output=True, text=True, check=False,
                          env=direct_environment(ONE), timeout=60)
    assert peek.returncode == 0, f"{peek.returncode} {peek.stdout}"
    status, output = holder.finish()
    assert status == 0, f"the sibling was harmed: {status} {output}"
