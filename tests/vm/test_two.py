"""A virtual machine with two virtual GPUs: two CUDA devices, peers, and what becomes of one when the other is lost."""
import os
import signal

import pytest

from lab import host
from lab.cuda_programs import SOURCES, Program
from lab.shell import wait_until

SECONDS = 20  # many times what it takes until a device is lost


def test_both_are_devices(two):
    assert two.shell("ls /dev/vgpu*")[1].split() == ["/dev/vgpu0", "/dev/vgpu1"]


@pytest.mark.parametrize("name", ["several_devices", "peer_access"])
def test_programs_use_both(two, name):
    wrong = two.run(Program(SOURCES / f"{name}.cu"))
    assert not wrong, wrong
    two.kernel_is_content()


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
