"""What tools that nobody here wrote see of a virtual GPU through our libnvidia-ml.so.1: its share, and no neighbour."""
import csv
import io
import json
import subprocess

import pytest

from lab import host, nvml_tools
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started

NAME, NEIGHBOUR = "nvml", "nvml-neighbour"
MIB = 1 << 20
SHARE, USED = 256 * MIB, 16 * MIB
NOT_SUPPORTED = "NVMLError_NotSupported"


@pytest.fixture(scope="module", autouse=True)
def _ready(lab, nvidia_smi):
    for name in (NAME, NEIGHBOUR):
        ensure_direct(name, str(SHARE), share=5)
    yield
    for name in (NAME, NEIGHBOUR):
        host.vgpuctl("destroy", name, "--force", check=False)


@pytest.fixture(scope="module")
def busy(_ready):
    """A program of the virtual GPU and one of its neighbour, both at work."""
    program = Program(REPO / "tests/direct/busy.cu").compile()
    processes = {name: Started(program, 120, USED // MIB, variables=direct_environment(name))
                 for name in (NAME, NEIGHBOUR)}
    for process in processes.values():
        process.first_line("round")
    yield {name: process.pid for name, process in processes.items()}
    for process in processes.values():
        process.kill()
        process.communicate()


def _run(*command, name: str = NAME, seconds: float = 60) -> str:
    done = subprocess.run([str(word) for word in command], env={**direct_environment(name), "TERM": "xterm"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
                          timeout=seconds, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}"
    return done.stdout


def _report(*others: str) -> dict:
    return json.loads(_run(nvml_tools.python(), REPO / "tests/direct/nvml_report.py", *others))


def _started_runners() -> int:
    return host.live(NAME)["runners"]["started"]


def test_it_is_the_virtual_gpu_and_its_share(device):
    wait_until(lambda: host.live(NAME)["runners"]["warm"] > 0, 30, "a warm runner")
    live, other, runners = host.live(NAME), host.live(NEIGHBOUR), _started_runners()
    seen = _report(other["uuid"], other["pci_bus_id"])
    assert (seen["count"], seen["uuid"]) == (1, live["uuid"])
    assert seen["bus_id"] == "0000" + live["pci_bus_id"].upper()
    assert seen["memory"] == [SHARE, 0, SHARE] and seen["processes"] == []
    assert seen["mig"] == [0, 0] and seen["own"] == [0, 0] and seen["p2p"] == 0
    assert set(seen["absent"].values()) == {NOT_SUPPORTED}
    if device == "soft":
        assert seen["name"] == "Bandsaw software device" and seen["capability"] == [9, 0]
        assert seen["temperature"] == seen["power"] == NOT_SUPPORTED
    # No process and no context was made for who only looks.
    assert _started_runners() == runners and host.live(NAME)["processes"] == []


def test_handles_that_are_not_its_own_are_refused():
    other = host.live(NEIGHBOUR)
    seen = _report(other["uuid"], other["pci_bus_id"], "GPU-00000000-0000-0000-0000-000000000000")
    assert set(seen["others"].values()) == {"NVMLError_NotFound"} and len(seen["others"]) == 3
    assert seen["second"] == seen["no_handle"] == "NVMLError_InvalidArgument"
    assert seen["before"] == seen["after"] == "NVMLError_Uninitialized"


def test_who_names_no_virtual_gpu_finds_no_driver():
    environment = {**direct_environment("nobody-has-this"), "BANDSAW_LOG": "off"}
    done = subprocess.run([nvml_tools.python(), "-c", "import pynvml; pynvml.nvmlInit()"], env=environment,
                          capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0 and "NVMLError_DriverNotLoaded" in done.stderr


def test_it_sees_the_work_of_its_own_programs_alone(busy):
    found = {}

    def both_counted() -> bool:
        found.update(_report())
        return isinstance(found["samples"], dict) and found["rates"][0] > 0

    wait_until(both_counted, 20, "a second in which kernels ran")
    assert [process["pid"] for process in found["processes"]] == [busy[NAME]]
    assert found["processes"][0]["memory"] >= USED
    assert found["memory"][1] == found["processes"][0]["memory"]
    assert list(found["samples"]) == [str(busy[NAME])]
    assert 0 < found["samples"][str(busy[NAME])] <= 100 and found["rates"][0] <= 100


def test_nvidia_smi(busy, nvidia_smi):
    smi, live = nvidia_smi, host.live(NAME)
    assert _run(smi, "-L") == f"GPU 0: {_report()['name']} (UUID: {live['uuid']})\n"
    table = _run(smi)
    assert f"/    {SHARE // MIB}MiB" in table and "Default" in table
    asked = "uuid,pci.bus_id,memory.total,memory.used,utilization.gpu,mig.mode.current,compute_mode"
    rows = list(csv.reader(io.StringIO(_run(smi, f"--query-gpu={asked}", "--format=csv,noheader,nounits")),
                           skipinitialspace=True))
    assert len(rows) == 1
    uuid, bus, total, used, rate, mig, mode = rows[0]
    assert (uuid, bus) == (live["uuid"], "0000" + live["pci_bus_id"].upper())
    assert int(total) == SHARE // MIB and int(used) >= USED // MIB and 0 <= int(rate) <= 100
    assert (mig, mode) == ("Disabled", "Default")
    everything = _run(smi, "-q")
    assert live["uuid"] in everything and "Attached GPUs                             : 1\n" in everything


def test_nvidia_smi_lists_processes(busy, nvidia_smi):
    smi, own = nvidia_smi, str(busy[NAME])
    rows = [line.split(", ") for line in _run(smi, "--query-compute-apps=pid,used_memory,name",
                                              "--format=csv,noheader,nounits").splitlines()]
    assert len(rows) == 1 and rows[0][0] == own and int(rows[0][1]) >= USED // MIB and rows[0][2].endswith("/busy")
    table = [line.split() for line in _run(smi).splitlines() if line.rstrip(" |").endswith("MiB")]
    assert [row[4:6] for row in table if len(row) > 5 and row[4].isdigit()] == [[own, "C"]]
    watched = [line.split() for line in _run(smi, "pmon", "-c", "1").splitlines() if not line.startswith("#")]
    assert [row[:3] + row[-1:] for row in watched] == [["0", own, "C", "busy"]]
    assert [line.split()[0] for line in _run(smi, "dmon", "-c", "1").splitlines() if not line.startswith("#")] == ["0"]


def test_gpustat_and_nvitop(busy):
    tools = nvml_tools.python().parent
    stat = json.loads(_run(tools / "gpustat", "--json"))["gpus"]
    assert len(stat) == 1 and stat[0]["uuid"] == host.live(NAME)["uuid"]
    assert stat[0]["memory.total"] == SHARE // MIB
    assert [process["pid"] for process in stat[0]["processes"]] == [busy[NAME]]
    page = _run(tools / "nvitop", "--once", "--no-unicode")
    assert f"{SHARE // MIB}.0MiB" in page.replace(" ", "") or f"{SHARE // MIB}MiB" in page.replace(" ", "")
    assert str(busy[NAME]) in page and str(busy[NEIGHBOUR]) not in page
