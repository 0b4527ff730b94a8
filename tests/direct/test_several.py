"""Several virtual GPUs are several CUDA devices of one process."""
import subprocess

import pytest

from lab import host
from lab.cuda_programs import SOURCES, Program
from lab.guest_run import direct_environment, ensure_direct, memory_for
from lab.paths import REPO

NAMES = ["several-a", "several-b", "several-c"]
ALL = ",".join(NAMES)


@pytest.fixture(scope="module", autouse=True)
def _ready(lab):
    for name in NAMES:
        ensure_direct(name, memory_for(1, 256), share=5)
    yield
    for name in NAMES:
        host.vgpuctl("destroy", name, "--force", check=False)


def _list(**variables: str) -> list[tuple[str, str]]:
    """UUID and bus id of each device that a program sees."""
    status, output = Program(REPO / "tests/direct/device_list.cu").run({**direct_environment(ALL), **variables}, 30)
    assert status == 0, output
    lines = [line.split() for line in output.splitlines() if line.startswith("GPU-")]
    return [(uuid, bus) for uuid, bus in lines]


@pytest.fixture(scope="module")
def devices(_ready) -> list[tuple[str, str]]:
    return _list()


def test_they_are_numbered_as_they_are_named(devices):
    assert devices == [(host.live(name)["uuid"], host.live(name)["pci_bus_id"].upper()) for name in NAMES]
    assert len({uuid for uuid, _ in devices}) == len({bus for _, bus in devices}) == len(NAMES)
    other_order = {"BANDSAW_VGPU": f"{NAMES[2]}, {NAMES[0]}"}
    assert _list(**other_order) == [devices[2], devices[0]]


@pytest.mark.parametrize(("wanted", "seen"), [("2,0", [2, 0]), ("1", [1]), ("1,7,0", [1]), ("0,1,0", []), ("", [])])
def test_a_program_is_shown_what_it_asks_for(devices, wanted, seen):
    assert _list(CUDA_VISIBLE_DEVICES=wanted) == [devices[i] for i in seen]


def test_by_uuid_too(devices):
    assert _list(CUDA_VISIBLE_DEVICES=f"{devices[2][0]},1") == [devices[2], devices[1]]


def test_the_order_of_bus_ids(devices):
    by_bus = sorted(devices, key=lambda device: device[1])
    backwards = {"BANDSAW_VGPU": ",".join(reversed(NAMES)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert _list(**backwards) == by_bus
    assert _list(**backwards, CUDA_VISIBLE_DEVICES="1") == [by_bus[1]]
    assert _list(BANDSAW_VGPU=",".join(reversed(NAMES)), CUDA_DEVICE_ORDER="FASTEST_FIRST") == devices[::-1]


def test_hidden_ones_cost_no_runner(devices):
    """A device that CUDA_VISIBLE_DEVICES leaves out by number is not even asked."""
    assert _list(BANDSAW_VGPU=f"{NAMES[0]},no-such-virtual-gpu", CUDA_VISIBLE_DEVICES="0") == [devices[0]]


def test_a_name_that_is_none_is_said():
    status, output = Program(REPO / "tests/direct/device_list.cu").run(direct_environment(f"{NAMES[0]},no-such"), 30)
    assert status == 0 and "no-such/direct.sock" in output and "GPU-" not in output


@pytest.mark.parametrize("names", [NAMES[:2], NAMES])
def test_all_work_at_once(names):
    status, output = Program(SOURCES / "several_devices.cu").run(direct_environment(",".join(names)), 60)
    assert status == 0, output


def test_pools_of_the_host_do_beside_another_device():
    """Managed memory stays with the program there, and so does what its pools give."""
    status, output = Program(SOURCES / "host_pools.cu").run(direct_environment(",".join(NAMES[:2])), 60)
    assert status == 0, output


def test_a_fault_of_one_leaves_the_others():
    status, output = Program(REPO / "tests/direct/device_fault.cu").run(direct_environment(ALL), 60)
    assert status == 0, output


def test_nvml_lists_them_all(devices, nvidia_smi):
    command = [str(nvidia_smi), "-L"]
    listed = subprocess.run(command, env=direct_environment(ALL), stdout=subprocess.PIPE, text=True, timeout=60,
                            check=True).stdout.splitlines()
    assert [line.split("UUID: ")[1].rstrip(")") for line in listed] == [uuid for uuid, _ in devices]
