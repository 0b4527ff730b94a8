"""BANDSAW_TRACE: what a program did, as a file for Perfetto."""
import json

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

NAME = "trace"
FIRST_STREAM_ROW = 1 << 31
TOLERATED_US = 300  # the program's clock runs a while before and after the kernel


@pytest.fixture(scope="module", autouse=True)
def _vgpu(lab):
    ensure_direct(NAME, memory_for(2, 256), share=5)
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _spans(events: list[dict]) -> tuple[list[dict], list[dict]]:
    """Of the device, and of the host."""
    spans = [event for event in events if event["ph"] == "X"]
    return ([span for span in spans if span["tid"] >= FIRST_STREAM_ROW],
            [span for span in spans if span["tid"] < FIRST_STREAM_ROW])


def test_kernels_and_copies_have_their_times(tmp_path):
    program = Program(REPO / "tests/direct/trace.cu")
    program.compile()
    status, output = program.run({**direct_environment(NAME), "BANDSAW_TRACE": str(tmp_path / "%p.json")}, 60)
    assert status == 0, output
    [path] = tmp_path.iterdir()
    events = json.loads(path.read_text())
    device, calls = _spans(events)
    kernels = [span for span in device if span["name"] == "spin(long long volatile*, int)"]
    assert [span["name"] for span in device if span not in kernels] == ["fill", "copy device to host"]
    assert [span["tid"] - kernels[0]["tid"] for span in kernels] == [0, 0, 0, 1, 1]
    seen = [float(line.split()[1]) for line in output.splitlines() if line.startswith("kernel")]
    for span, took in zip(kernels[1:], seen):
        assert span["dur"] < took, f"{span} took {took} us as the program saw it"
    # A program that has to wait for a processor sees one of its kernels take long, and not all of them.
    assert any(0.5 * took - TOLERATED_US < span["dur"] for span, took in zip(kernels[1:], seen)), f"{kernels}, {seen}"
    issued = {event["id"]: event["ts"] for event in events if event["ph"] == "s"}
    begun = {event["id"]: event["ts"] for event in events if event["ph"] == "f"}
    assert issued.keys() == begun.keys() and len(issued) == len(device)
    assert all(begun[number] > issued[number] - TOLERATED_US for number in issued)
    assert sum(span["name"] == "launch" for span in calls) == len(kernels)


def test_a_killed_program_leaves_a_file_that_can_be_read(tmp_path):
    path = tmp_path / "trace.json"
    process = Started(Program(REPO / "tests/direct/busy.cu").compile(), 30, 1,
                      variables={**direct_environment(NAME), "BANDSAW_TRACE": str(path)})
    wait_until(lambda: path.exists() and path.stat().st_size > 100000, 30, "a part of the trace")
    process.kill()
    process.finish()
    text = path.read_text()
    assert len(_spans(json.loads(text[:text.rindex(",\n")] + "]"))[1]) > 100


def test_a_file_that_cannot_be_written_is_said():
    program = Program(REPO / "tests/direct/trace.cu")
    status, output = program.run({**direct_environment(NAME), "BANDSAW_TRACE": "/nonexistent/trace.json"}, 60)
    assert status == 0 and "cannot write /nonexistent/trace.json" in output, output
