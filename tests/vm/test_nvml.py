"""Debian's nvidia-smi in a guest, over /dev/vgpu0: it sees the VM's virtual GPU and the VM's programs."""
import pathlib

import pytest

from lab import host, nvml_tools
from lab.guest_run import run_in_guest
from lab.paths import BUILD
from lab.shell import wait_until

pytestmark = pytest.mark.skipif(not (BUILD / "guest-driver/nvml/libnvidia-ml.so.1").exists(),
                                reason="built without nvml.h")


@pytest.fixture(scope="module")
def smi() -> pathlib.Path:
    return nvml_tools.nvidia_smi()


def _run(guest, smi: pathlib.Path, *arguments: str) -> str:
    parts: list[bytes] = []
    guest.vm.up()
    status = run_in_guest(guest.agent(), smi, list(arguments), parts.append, parts.append, timeout=60)
    output = b"".join(parts).decode(errors="replace")
    assert status == 0, output
    return output


def test_nvidia_smi_in_the_guest(guest, smi):
    live = host.live("test0")
    runners = live["runners"]["started"]
    assert _run(guest, smi, "-L").endswith(f"(UUID: {live['uuid']})\n")
    total, used = _run(guest, smi, "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits").split(", ")
    assert (int(total) << 20, int(used)) == (live["memory_share"], 0)
    assert "No running processes found" in _run(guest, smi)
    assert host.live("test0")["runners"]["started"] == runners, "who only looks needs no runner"


def test_it_sees_the_programs_of_the_guest(guest, smi):
    guest.busy(60)
    pid = guest.shell("pidof busy")[1].strip()
    apps = _run(guest, smi, "--query-compute-apps=pid,used_memory,name", "--format=csv,noheader,nounits").split(", ")
    assert apps[0] == pid and int(apps[1]) >= 4 and apps[2].strip() == "/opt/run/busy"
    wait_until(lambda: int(_run(guest, smi, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")) > 0, 20,
               "a second in which kernels ran")
    guest.shell("killall -9 busy")
    wait_until(lambda: not host.live("test0")["processes"], 15, "the runner's end")
    guest.kernel_is_content()
