"""A virtual machine with two virtual GPUs: two CUDA devices, peers, a segment shared with another machine, and what
becomes of one device when the other is lost."""
import os
import signal

import pytest

from lab import host
from lab.cuda_programs import SOURCES, Program
from lab.paths import REPO
from lab.shell import wait_until

SEGMENT = "between-vms"
SECONDS = 8  # many times what it takes until a device is lost


def test_both_are_devices(two):
    assert two.shell("ls /dev/vgpu*")[1].split() == ["/dev/vgpu0", "/dev/vgpu1"]


@pytest.mark.parametrize("name", ["several_devices", "peer_access"])
def test_programs_use_both(two, name):
    wrong = two.run(Program(SOURCES / f"{name}.cu"))
    assert not wrong, wrong
    two.kernel_is_content()


def _segment_log(guest) -> list[str]:
    return guest.shell("cat /tmp/shared_segment.log")[1].split("\n")


def test_two_machines_have_the_same_memory(guest, two):
    host.vgpuctl("segment", "create", SEGMENT, "--vgpu", "test0", "--size", "2M")
    try:
        host.vgpuctl("segment", "grant", SEGMENT, "two0")
        reads = [f"get,{SEGMENT},0,0", "at,4", "await,7", "check,7", "copy_in,1"]
        two.start("shared_segment", "ready", *reads)
        writer = Program(REPO / "tests/direct/shared_segment.cu")
        writer.facts["arguments"] = [f"get,{SEGMENT},0,0 at,0 fill,7"]
        writer.facts["output"] = ["ready\n0\n0\n0\n"]
        wrong = guest.run(writer)
        assert not wrong, wrong
        wait_until(lambda: len(_segment_log(two)) > len(reads), 30, "the end of what the other machine does")
        assert _segment_log(two)[1:6] == ["0", "0", "0", "0 0", "700"], "it reads what was written, and writes nothing"
        listed = host.vgpuctl("segment", "list").stdout
        assert listed.splitlines()[1].split()[:2] == [SEGMENT, "test0"] and "two0:read" in listed, listed
    finally:
        host.vgpuctl("segment", "destroy", SEGMENT, "--force")
    for machine in (guest, two):
        machine.kernel_is_content()


def _log(guest) -> str:
    return guest.shell("cat /tmp/devices_busy.log")[1]


def test_a_killed_runner_ends_its_device_alone(two):
    two.start("devices_busy", "round", SECONDS)
    runner = host.live("two1")["processes"][0]["runner"]
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: "device 1: cudaErrorDevicesUnavailable" in _log(two), SECONDS, "the error of device 1")
    wait_until(lambda: "device 0: worked" in _log(two), SECONDS + 20, "the end of the program")
    assert "device 0: cuda" not in _log(two)
    wrong = two.run(Program(SOURCES / "several_devices.cu"))
    assert not wrong, wrong


def test_a_device_that_is_unplugged_ends_its_calls_alone(two):
    two.start("devices_busy", "round", SECONDS)
    place = two.shell("readlink -f /sys/class/misc/vgpu1/device")[1].strip()
    function = place.split("/virtio")[0]
    status, said = two.shell(f"echo 1 > {function}/remove")
    assert status == 0, said
    wait_until(lambda: "device 1: cudaErrorDevicesUnavailable" in _log(two), SECONDS, "the error of device 1")
    wait_until(lambda: "device 0: worked" in _log(two), SECONDS + 20, "the end of the program")
    assert "device 0: cuda" not in _log(two)
    wait_until(lambda: not host.live("two1")["processes"], 15, "the end of its runner")
    two.shell("echo 1 > /sys/bus/pci/rescan")
    wait_until(lambda: two.shell("ls /dev/vgpu1")[0] == 0, 15, "its return")
    wrong = two.run(Program(SOURCES / "several_devices.cu"))
    assert not wrong, wrong
    two.kernel_is_content()
