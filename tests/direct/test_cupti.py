"""libcupti: what a profiler learns of calls, kernels and copies."""
import os
import re

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for, with_cupti
from lab.paths import CUPTI, REPO

NAME = "cupti"
LINE = re.compile(r"(call|kernel|copy|fill|external|wait) (.*)")
TICKS_A_NS = 3  # of the program's own clock
H_TO_D, D_TO_H = "1", "2"  # of CUpti_ActivityMemcpyKind
PAGEABLE, PINNED, DEVICE = "1", "2", "3"  # of CUpti_ActivityMemoryKind
BY_STREAM, BY_CONTEXT = "3", "4"  # of CUpti_ActivitySynchronizationType


@pytest.fixture(scope="module", autouse=True)
def _vgpu(lab):
    ensure_direct(NAME, memory_for(1, 256), share=5)
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _field(line: str, name: str) -> str:
    match = re.search(rf"\b{name} (-?\d+)", line)
    assert match, line
    return match.group(1)


@pytest.fixture(name="output", scope="module")
def _output() -> str:
    program = Program(REPO / "tests/direct/cupti.cu")
    if not CUPTI.exists():
        pytest.skip("no libcupti was built: the toolkit has no cupti_activity.h")
    status, output = program.run(with_cupti(direct_environment(NAME)), 60)
    assert status == 0, output
    return output


def _records(output: str, kind: str) -> list[str]:
    before, _, after = output.partition("\noff\n")
    assert not [line for line in after.splitlines() if LINE.match(line)], f"recorded while nothing was enabled: {after}"
    return [match.group(2) for line in before.splitlines() if (match := LINE.match(line)) and match.group(1) == kind]


def test_kernels_have_their_shapes_and_times(output):
    spin, twice = _records(output, "kernel")
    assert spin.startswith("_Z4spinPVxiPx grid 1 1 1 block 1 1 1 shared 0 "), spin
    assert twice.startswith("_Z5twicePfi grid 16 1 1 block 64 2 1 shared 256 "), twice
    assert _field(spin, "stream") == _field(twice, "stream")
    # What it ran by the GPU's own clock, and no more than the program saw: waiting for the engine is not its time.
    ran, seen = TICKS_A_NS * int(_field(output, "ran")), int(_field(output, "seen"))
    assert 0.9 * ran < int(_field(spin, "took")) < seen, f"{spin}, ran {ran}, seen {seen}"


def test_copies_and_fills_say_what_they_were(output):
    into, back = _records(output, "copy")
    assert into.startswith(f"{H_TO_D} from {PAGEABLE} to {DEVICE} bytes {4 << 20} asynchronous 0 "), into
    assert back.startswith(f"{D_TO_H} from {DEVICE} to {PINNED} bytes {1 << 20} asynchronous 1 "), back
    [fill] = _records(output, "fill")
    assert fill.startswith(f"0 bytes {4 << 20} "), fill


def test_work_is_found_by_the_call_that_issued_it(output):
    calls = {_field(line, "correlation"): line for line in _records(output, "call")}
    launches = [calls[_field(kernel, "correlation")] for kernel in _records(output, "kernel")]
    assert all(re.match(r"cuLaunchKernel(Ex)?(_ptsz)? ", launch) for launch in launches), launches
    for work in _records(output, "kernel") + _records(output, "copy") + _records(output, "fill"):
        call = calls[_field(work, "correlation")]
        assert int(_field(work, "at")) >= int(_field(call, "at")), f"{work} began before {call}"
    names = [call.split()[0] for call in calls.values()]
    assert names[-1].startswith("cuCtxSynchronize") and "cuStreamSynchronize" not in names, names


def test_calls_carry_the_numbers_of_the_programs_own_operations(output):
    numbers = {(_field(line, "correlation"), line.split()[0]): _field(line, "id")
               for line in _records(output, "external")}
    spin, twice = (_field(kernel, "correlation") for kernel in _records(output, "kernel"))
    assert (numbers[spin, "3"], numbers[spin, "4"]) == ("41", "7")
    assert (twice, "3") not in numbers and numbers[twice, "4"] == "7"


def test_waits_say_for_what(output):
    waits = [line.split()[0] for line in _records(output, "wait")]
    assert waits.count(BY_STREAM) >= 1 and waits.count(BY_CONTEXT) >= 1, waits


def test_contexts_are_told_and_nothing_is_lost(output):
    assert "context callback new" in output and "context callback ends" in output
    assert "dropped 0" in output and "broken" not in output


def test_another_driver_is_named(tmp_path):
    (tmp_path / "libcuda.so.1").symlink_to("/lib/x86_64-linux-gnu/libm.so.6")
    environment = {**os.environ, "LD_PRELOAD": str(CUPTI), "LD_LIBRARY_PATH": str(tmp_path)}
    status, output = Program(REPO / "tests/direct/cupti.cu").run(environment, 60)
    assert status == 1 and "libcuda.so.1 is not Bandsaw's" in output, output
