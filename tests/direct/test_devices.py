"""One vgpud with two software devices: what is on one neither bounds nor holds up what is on the other."""
import os
import pathlib
import signal
import tempfile

import pytest

from lab import host
from lab.cuda_programs import SOURCES, Program
from lab.daemon import Daemon
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

DEVICES: list[str | dict] = [{"name": "soft:0", "memory": "1G", "sms": 8}, {"name": "soft:1", "memory": "1G", "sms": 8}]
SECONDS = 4


def _start(daemon: Daemon, vgpu: str, name: str, *words) -> Started:
    program = Program(REPO / f"tests/direct/{name}.cu").compile()
    process = Started(program, *words, variables=daemon.program_environment(vgpu))
    process.first_line("round", "running")
    return process


def _rounds(output: str) -> int:
    return sum(line.startswith("round ") for line in output.splitlines())


# A runner of soft:0 that ends at once, and says so when asked, while that file is there.
FAILING_RUNNER = """#!/bin/sh
if [ "$1" = --probe ]; then device=$2:$3; else device=$BANDSAW_DEVICE; fi
if [ $device = soft:0 ] && [ -e '{flag}' ]; then echo 'its power is gone' >&2; exit 1; fi
exec '{runner}' "$@"
"""


@pytest.fixture(name="flag")
def _flag():
    # Runners are users of their own. Folders of pytest are closed to them, again by each pytest that starts meanwhile.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        path.chmod(0o755)
        yield path / "gone"


@pytest.fixture(name="two")
def _two(device, flag):
    if device != "soft":
        pytest.skip("devices of software beside each other")
    runner = flag.with_name("runner.sh")
    runner.write_text(FAILING_RUNNER.format(flag=flag, runner=host.built("backend/runner/bandsaw-runner")))
    runner.chmod(0o755)
    daemon = Daemon("soft", "band+", name="devices-test", devices=DEVICES,
                    tables={"session": {"runner": str(runner)}, "sandbox": {"mode": "off"}})  # a script needs a shell
    try:
        for name, on in (("first", "soft:0"), ("second", "soft:1")):
            daemon.create(name, 100, "--gpu", on, memory="512M")
        yield daemon
    finally:
        daemon.end()


def test_a_full_device_limits_no_other(two):
    for name in ("first", "second"):
        status, output = _start(two, name, "busy", 0.1).finish()
        assert status == 0, output
    for name in ("soft:0", "soft:1"):
        said = two.device_status(name)
        assert (said["compute_given"], said["vgpus"], said["lost"]) == (100, 1, "")
    code, refused = two.control.request("POST", "/v1/vgpus", {"name": "third", "memory": 1 << 28, "compute": 1})
    assert code == 409
    assert all(f"{name}: compute shares would sum to 101 %" in refused["error"] for name in ("soft:0", "soft:1"))


def test_a_kernel_without_end_holds_up_its_own_device_alone(two):
    endless = _start(two, "first", "endless")
    try:
        status, output = _start(two, "second", "busy", SECONDS).finish()
    finally:
        endless.kill()
        endless.wait()
    assert status == 0 and _rounds(output) > SECONDS, output[-300:]
    engines = two.control.need("GET", "/v1/vgpus/second")["engines"]
    waited_ms = {name: engine["wait_ns"] / 1e6 for name, engine in engines.items()}
    assert max(waited_ms.values()) < 100, f"it waited for somebody: {waited_ms}"


def test_runners_that_die_on_one_device_harm_no_other(two):
    hit, other = _start(two, "first", "busy", 30), _start(two, "second", "busy", SECONDS)
    for process in two.control.need("GET", "/v1/vgpus/first")["live"]["processes"]:
        os.kill(process["runner"], signal.SIGKILL)
    status, output = hit.finish()
    assert status == 3 and "DevicesUnavailable" in output, output[-300:]
    status, output = other.finish()
    assert status == 0, output[-300:]
    wait_until(lambda: not two.control.need("GET", "/v1/vgpus/second")["live"]["processes"], 20, "second to be idle")
    status, output = _start(two, "first", "busy", 0.1).finish()
    assert status == 0, output


def test_a_lost_device_ends_its_own_programs(two, flag):
    hit, other = _start(two, "first", "busy", 60), _start(two, "second", "busy", 2 * SECONDS)
    wait_until(lambda: two.control.need("GET", "/v1/vgpus/first")["live"]["runners"]["warm"] == 1, 20, "a warm runner")
    flag.touch()
    _start(two, "first", "busy", 60)  # takes the runner that is warm; those that come after it fail
    wait_until(lambda: two.device_status("soft:0")["lost"], 20, "the loss of soft:0")
    assert "its power is gone" in two.device_status("soft:0")["lost"]
    status, output = hit.finish()
    assert status == 3 and "DevicesUnavailable" in output, output[-300:]
    status, output = other.finish()
    assert status == 0 and _rounds(output) > 2 * SECONDS, output[-300:]
    flag.unlink()
    wait_until(lambda: not two.device_status("soft:0")["lost"], 20, "the return of soft:0")
    status, output = _start(two, "first", "busy", 0.1).finish()
    assert status == 0, output


def test_one_program_has_virtual_gpus_of_both(two):
    program = Program(SOURCES / "several_devices.cu")
    program.compile()
    both = {**two.program_environment("first"), "BANDSAW_VGPU": "first,second"}
    status, output = program.run(both, 60)
    assert status == 0, output
    for name in ("first", "second"):
        assert two.control.need("GET", f"/v1/vgpus/{name}")["live"]["usage"]["launches"] > 0
