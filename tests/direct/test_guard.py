"""Virtual GPUs whose kernels are guarded: what goes astray ends its own program, and does not fault."""
import time

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

GUARDED, OTHER = "guard-one", "guard-two"
HERE = REPO / "tests/direct"
PROGRAMS = ["atomics", "barriers", "calls", "host_register", "managed_variables", "memory_pools", "reduction", "wmma"]
KEPT = "a kernel was kept from"  # by the guard, not by the device
ILLEGAL, MISALIGNED, ASSERT, WRONG_PLACE, FAILED = 700, 716, 710, 718, 719


def _start(name: str, *arguments, vgpu: str = GUARDED) -> Started:
    return Started(Program(HERE / f"{name}.cu").compile(), *arguments, variables=direct_environment(vgpu))


def _log() -> str:
    return host.session_log(GUARDED).read_text(errors="replace")


@pytest.fixture(scope="module", autouse=True)
def _guarded(lab):
    for name in (GUARDED, OTHER):
        ensure_direct(name, memory_for(3, 256))
        host.vgpuctl("set", name, "--guard", "on", "--compute", "5", "--copy", "5")
    yield
    for name in (GUARDED, OTHER):
        host.vgpuctl("destroy", name, check=False)


@pytest.mark.parametrize(("deed", "code"), [
    ("nothing", 0), ("store", ILLEGAL), ("far", ILLEGAL), ("load", ILLEGAL), ("atomic", ILLEGAL), ("block", ILLEGAL),
    ("shared", ILLEGAL), ("wait", ILLEGAL), ("misaligned", MISALIGNED), ("misaligned-wide", MISALIGNED),
    ("assert", ASSERT), ("call", WRONG_PLACE), ("trap", FAILED)])
def test_the_program_gets_the_error_that_a_fault_would_be(deed, code):
    before = _log().count(KEPT)
    status, output = _start("wild", deed).finish(60)
    assert status == 0 and f"code {code}" in output, f"{deed}: {status} {output[-500:]}"
    if code != 0:
        wait_until(lambda: _log().count(KEPT) == before + 1, 5, "the guard's line in the log")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_do_what_they_did_before(name):
    program, before = Program(REPO / f"tests/cuda/{name}.cu"), _log().count(KEPT)
    status, output = Started(program.compile(), *program.arguments, variables=direct_environment(GUARDED)).finish()
    assert status == program.expected_status, f"{status} {output[-800:]}"
    assert _log().count(KEPT) == before


def _found_by_a_later_kernel() -> int:
    status, output = _start("leftover").finish()
    assert status == 0, output
    return int(output.split("found ")[1])


def _set(*words: str) -> None:
    host.vgpuctl("set", GUARDED, *words)
    time.sleep(0.5)  # until its session has heard of it: runners that wait are started anew


def test_kernels_clear_their_shared_memory_if_that_is_wanted():
    _set("--guard", "off")
    assert _found_by_a_later_kernel() > 0, "nothing is left behind here, so this shows nothing"
    for guard in ("off", "on"):
        _set("--guard", guard, "--clear-shared", "on")
        assert _found_by_a_later_kernel() == 0, f"with the guard {guard}"
    _set("--guard", "on", "--clear-shared", "off")


def test_a_neighbour_goes_on():
    busy = _start("busy", 600, 1, vgpu=OTHER)
    busy.first_line("round")
    for deed in ("store", "trap", "wait"):
        assert _start("wild", deed).finish()[0] == 0
        assert busy.poll() is None, busy.finish()
    busy.kill()
    busy.wait()


def test_code_without_ptx_is_refused_unless_it_is_allowed():
    """The software device itself takes none either, so it is who refuses that counts."""
    refused = "the image has no PTX to be guarded"
    before = _log().count(refused)
    for allowed, lines in (("on", 0), ("off", 1)):  # once the second's line is there, so are those of the first
        _set("--guard", "on", "--allow-machine-code", allowed)
        status, output = _start("machine_code").finish()
        assert status == 0 and "code 209" in output, f"allowed: {allowed}: {status} {output[-500:]}"
        wait_until(lambda: _log().count(refused) >= before + lines, 5, "the guard's line in the log")
    assert _log().count(refused) == before + 1
