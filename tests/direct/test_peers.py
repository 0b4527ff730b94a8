"""Virtual GPUs of two devices as peers: what one lends, the other's kernels reach, and nobody else's."""
import os
import signal

import pytest

from lab.cuda_programs import SOURCES, Program
from lab.daemon import Daemon
from lab.machine import gpu_count
from lab.paths import REPO
from lab.started import Started

SOFT: list[str | dict] = [{"name": "soft:0", "memory": "1G", "sms": 8}, {"name": "soft:1", "memory": "1G", "sms": 8}]
ILLEGAL_ADDRESS, DEVICE_UNAVAILABLE = 700, 46


def _start(daemon: Daemon, what: str) -> Started:
    program = Program(REPO / "tests/direct/peer_kernel.cu").compile()
    return Started(program, what, variables=daemon.program_environment("left,right"))


@pytest.fixture(name="peers", scope="module")
def _peers(device):
    soft = device == "soft"
    if not soft and gpu_count() < 2:
        pytest.skip("needs two GPUs")
    kind = device.partition(":")[0]
    daemon = Daemon(device, "band+", name="peers-test", devices=SOFT if soft else ["cuda:0", "cuda:1"])
    try:
        for name, on, share in (("left", 0, 70), ("right", 1, 40), ("third", 1, 30)):
            daemon.create(name, share, "--gpu", f"{kind}:{on}", memory="256M" if soft else "4G")
        yield daemon
    finally:
        daemon.end()


@pytest.mark.parametrize("names", ["left,right", "right,left", "right,third", "left,right,third"])
def test_devices_reach_each_other(peers, names):
    status, output = Program(SOURCES / "peer_access.cu").run(peers.program_environment(names), 120)
    assert status == 0, output
    assert "does not reach" not in output


@pytest.mark.parametrize("names", ["left,right", "right,third"])  # of two devices, and of one
def test_random_work_of_two_devices(peers, names):
    status, output = Program(SOURCES / "random_work.cu").run(peers.program_environment(names), 120)
    assert status == 0, output


def test_kernels_of_two_devices_wait_for_each_other(peers):
    status, output = _start(peers, "turns").finish(60)
    assert status == 0, output


@pytest.mark.parametrize("what", ["turns", "does not block"])
@pytest.mark.parametrize("names", ["left,right", "right,third"])  # of two devices, and of one
def test_streams_of_two_devices_wait_for_each_other(peers, names, what):
    program = Program(REPO / "tests/direct/devices_wait.cu").compile()
    status, output = Started(program, what, variables=peers.program_environment(names)).finish(120)
    assert status == 0, output


def test_access_ends_when_it_is_taken_back(peers):
    status, output = _start(peers, "fault").finish(60)
    assert status == 0, output


def _view(daemon: Daemon, name: str) -> dict:
    return daemon.control.need("GET", f"/v1/vgpus/{name}")["live"]


def test_the_owner_alone_is_charged(peers, device):
    if device != "soft":
        pytest.skip("contexts of a GPU take more than what is lent")
    process = _start(peers, "hold")
    process.first_line("round")
    used = {name: _view(peers, name)["memory_used"] for name in ("left", "right")}
    process.say("go on")
    status, output = process.finish()
    assert status == 0, output
    assert used["left"] < 16 << 20 <= used["right"]


def test_a_lost_peer_ends_what_waits_for_it(peers, device):
    process = _start(peers, "wait")
    process.first_line("round")
    runners = [one["runner"] for one in _view(peers, "right")["processes"] if one["pid"] == process.pid]
    os.kill(runners[0], signal.SIGKILL)
    status, output = process.finish(30)
    assert status == 0, output
    assert f"second {DEVICE_UNAVAILABLE}" in output
    assert f"first {ILLEGAL_ADDRESS} " in output or (device != "soft" and "first 0 " not in output)


def test_a_handle_is_opened_on_another_device(peers):
    program = Program(REPO / "tests/direct/peer_ipc.cu").compile()
    giver = Started(program, "give", variables=peers.program_environment("left"))
    taker = Started(program, "take", variables=peers.program_environment("right"))
    taker.say(giver.stdout.readline().strip())
    status, output = taker.finish(60)
    assert status == 0, output
    giver.say("done")
    status, output = giver.finish(60)
    assert status == 0, output
