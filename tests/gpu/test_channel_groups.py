"""Channel groups of programs on the real GPU: vgpud knows them while they are there, and lets go of them in time."""
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.paths import REPO
from lab.shell import say, wait_until
from lab.started import Started

ONE, CLIENT = "groups-one", "groups-client"
TOLERATED_MIB = 200  # of the GPU's memory; a context has more than twice that


class Gpu(Daemon):
    def __init__(self) -> None:
        super().__init__(host.current_device(), "band+", name="channel-groups")
        for name, sharing in ((ONE, "time-sliced"), (CLIENT, "mps")):
            host.vgpuctl("create", name, "--memory", "8G", "--compute", "20", "--copy", "20", "--sharing", sharing,
                         variables=self.variables)

    def log(self) -> str:
        return (self.run.parent / "vgpud.log").read_text(errors="replace")

    def groups(self, vgpu: str) -> list[int]:
        """What vgpud has heard so far, one after the other."""
        return [int(count) for count in re.findall(rf"{vgpu}: the runner in slot \d+ has (\d+) channel groups",
                                                   self.log())]

    def hears(self, vgpu: str, expected: list[int]) -> None:
        wait_until(lambda: self.groups(vgpu) == expected, 5, f"hearing of {expected}")

    def start(self, vgpu: str) -> Started:
        program = Program(REPO / "tests/gpu/contexts.cu").compile()
        process = Started(program, variables=self.program_environment(vgpu))
        process.first_line("ready")
        return process

    def live(self, vgpu: str) -> dict:
        return self.control.need("GET", f"/v1/vgpus/{vgpu}")["live"]

    def warm(self, vgpu: str) -> bool:
        runners = self.live(vgpu)["runners"]
        return runners["warm"] == 1 and runners["living"] == 1


@pytest.fixture(name="gpu")
def _gpu(monkeypatch):
    if not host.current_device().startswith("cuda"):
        pytest.skip("the device is not a GPU")
    monkeypatch.setenv("BANDSAW_LOG", "debug")
    gpu = Gpu()
    yield gpu
    say(f"  vgpud heard of {gpu.groups(ONE)} and {gpu.groups(CLIENT)} channel groups")
    gpu.end()


def _used_mib() -> int:
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[0])


def test_contexts_come_and_go(gpu):
    process = gpu.start(ONE)
    gpu.hears(ONE, [1])
    for words, expected in ((["more", "more"], [1, 2, 3]), (["less", "less"], [1, 2, 3, 2, 1])):
        for word in words:
            process.say(word)
            assert process.line(20).startswith("contexts"), process.finish()
        gpu.hears(ONE, expected)
    assert process.finish()[0] == 0
    assert "what is no use" not in gpu.log()


def test_a_client_of_mps_has_none_of_its_own(gpu):
    state = gpu.control.need("GET", "/v1/status")["mps"]["daemon"]
    say(f"  MPS: {state}")
    process = gpu.start(CLIENT)
    gpu.hears(CLIENT, [0])
    assert process.finish()[0] == 0


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no nvidia-smi tells how much memory is used")
def test_memory_is_free_when_a_program_has_ended(gpu):
    gpu.start(ONE).finish()
    for name in (ONE, CLIENT):  # each holds a context, and a client's comes late: its MPS daemon starts first
        wait_until(lambda name=name: gpu.warm(name), 40, f"a warm runner of {name}")
    before = _used_mib()
    for way in ("ends", "is killed", "loses its runner"):
        process = gpu.start(ONE)
        if way == "is killed":
            process.kill()
        if way == "loses its runner":
            os.kill(gpu.live(ONE)["processes"][0]["runner"], signal.SIGKILL)
        process.finish()
        wait_until(lambda: gpu.warm(ONE), 20, "a warm runner")
        wait_until(lambda: _used_mib() <= before + TOLERATED_MIB, 5,
                   f"{before} MiB were used before, {_used_mib()} after a program that {way}")
        say(f"  a program {way}: {_used_mib()} MiB used, {before} before")
    held = [link for link in pathlib.Path(f"/proc/{gpu.status()['pid']}/fd").iterdir()
            if os.path.realpath(link) == "/dev/nvidiactl"]
    assert not held, "vgpud holds descriptors of runners that are gone"
