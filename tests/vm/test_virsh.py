"""What users of virsh do with a domain that has a virtual GPU: it works, or says why not."""
import concurrent.futures
import os
import re
import signal
import time
import xml.etree.ElementTree

import pytest

from lab import host
from lab.cuda_programs import SOURCES, Program
from lab.shell import wait_until
from lab.vm import Vm, root_ports

VM = Vm("virsh0", "virsh0")
RENAMED = "virsh0-renamed"
LIVE, NO_PORT = "virsh1", "virsh2"  # virtual GPUs that come while it runs, or cannot
QEMU_ARGUMENT = "{http://libvirt.org/schemas/domain/qemu/1.0}arg"
SECONDS = 20


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    VM.remove()
    yield
    for name in (LIVE, NO_PORT):
        host.vgpuctl("destroy", name, "--force", check=False)
    host.virsh("undefine", RENAMED, check=False)
    VM.remove()


def _need_libvirt() -> None:
    if not host.has_hook():
        pytest.skip("libvirt here is the host's own, or there is none")


def _definition(name: str = "virsh0") -> str:
    return host.virsh("dumpxml", "--inactive", name).stdout


def _devices(name: str = "virsh0") -> list[str]:
    """The virtual GPUs in its definition."""
    root = xml.etree.ElementTree.fromstring(_definition(name))
    values = [argument.get("value", "") for argument in root.iter(QEMU_ARGUMENT)]
    return [found[1] for value in values if (found := re.search(r'"id":"bandsaw-([^"]+)"', value))]


def _fresh() -> None:
    _need_libvirt()
    VM.remove()
    VM.create_vgpu("64M", 1, 1)
    VM.define(devices=root_ports())
    VM.attach()


def test_what_dumpxml_prints_can_be_defined():
    _fresh()
    before = _definition()
    path = VM.folder / "dumped.xml"
    path.write_text(before)
    host.virsh("undefine", "virsh0")
    host.virsh("define", str(path))
    assert _definition() == before
    assert _devices() == ["virsh0"]
    assert host.vgpuctl_json("show", "virsh0")["domain"] == "virsh0"


@pytest.mark.full
def test_a_renamed_domain_says_what_to_do():
    _fresh()
    host.virsh("domrename", "virsh0", RENAMED)
    assert _devices(RENAMED) == ["virsh0"]
    refused = host.virsh("start", RENAMED, check=False)
    assert refused.returncode != 0 and "attached to domain 'virsh0'" in refused.stderr, refused.stderr
    assert f"vgpuctl attach virsh0 {RENAMED}" in refused.stderr
    host.vgpuctl("detach", "virsh0")
    host.vgpuctl("attach", "virsh0", RENAMED)
    assert _devices(RENAMED) == ["virsh0"] and host.vgpuctl_json("show", "virsh0")["domain"] == RENAMED
    host.virsh("start", RENAMED)
    host.virsh("destroy", RENAMED)
    host.vgpuctl("detach", "virsh0")
    assert not _devices(RENAMED)
    host.virsh("undefine", RENAMED)


def test_an_undefined_domain_leaves_a_record_that_detach_clears():
    _fresh()
    host.virsh("undefine", "virsh0")
    assert host.vgpuctl_json("show", "virsh0")["domain"] == "virsh0"
    assert "the record is cleared" in host.vgpuctl("detach", "virsh0").stderr
    assert host.vgpuctl_json("show", "virsh0")["domain"] == ""
    host.vgpuctl("destroy", "virsh0")


@pytest.mark.full
def test_a_domain_may_start_before_vgpud():
    """As libvirt's autostart does when the host boots."""
    _fresh()
    os.kill(host.vgpuctl_json("status")["pid"], signal.SIGTERM)  # the sessions of other domains go on
    wait_until(lambda: not host.current_device(), 10, "the end of vgpud")
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        starting = beside.submit(host.virsh, "start", "virsh0")
        time.sleep(1)
        assert not starting.done()
        host.start_vgpud()
        starting.result()
    VM.destroy()


@pytest.mark.full
def test_a_saved_domain_lets_go_of_its_virtual_gpu_and_can_boot(guest_of):
    """What restoring it would come to: test_saved.py."""
    _fresh()
    VM.start()
    before = guest_of(VM).boot_id()
    host.virsh("managedsave", "virsh0")
    VM.disconnect()
    assert not VM.running() and host.live("virsh0")["vm"]["connected"] is False
    assert host.vgpuctl_json("show", "virsh0")["domain"] == "virsh0" and _devices() == ["virsh0"]
    host.virsh("managedsave-remove", "virsh0")
    VM.start()
    guest = guest_of(VM)
    guest.runs_programs()
    assert guest.boot_id() != before
    VM.stop()


@pytest.fixture(scope="module")
def runs(lab, guest_of):
    """The domain with one virtual GPU in its definition and one free root port."""
    _fresh()
    VM.start()
    VM.agent()
    host.ensure_vgpu(LIVE, "64M", 1, 1)
    host.ensure_vgpu(NO_PORT, "64M", 1, 1)
    return guest_of(VM)


@pytest.mark.full
def test_a_virtual_gpu_comes_while_the_domain_runs(runs):
    without = host.vgpuctl("attach", LIVE, "virsh0", check=False)
    assert without.returncode != 0 and "is running" in without.stderr and "--live" in without.stderr
    assert "it is there now" in host.vgpuctl("attach", LIVE, "virsh0", "--live").stdout
    assert _devices() == ["virsh0", LIVE], "it is there after the next start too"
    wait_until(lambda: runs.shell("ls /dev/vgpu1")[0] == 0, SECONDS, "the new device")
    wrong = runs.run(Program(SOURCES / "several_devices.cu"))
    assert not wrong, wrong

    refused = host.vgpuctl("attach", NO_PORT, "virsh0", "--live", check=False)
    assert refused.returncode != 0 and "no free PCI Express root port" in refused.stderr, refused.stderr
    assert host.vgpuctl_json("show", NO_PORT)["domain"] == "" and _devices() == ["virsh0", LIVE]

    kept = host.vgpuctl("detach", "virsh0", "--live", check=False)
    assert kept.returncode != 0 and "goes only with its end" in kept.stderr, kept.stderr
    assert _devices() == ["virsh0", LIVE] and VM.running()
    runs.kernel_is_content()


@pytest.mark.full
def test_and_goes_while_it_runs_and_comes_again(runs):
    boot = runs.boot_id()
    for _ in range(2):
        if host.vgpuctl_json("show", LIVE)["domain"] == "":
            host.vgpuctl("attach", LIVE, "virsh0", "--live")
            wait_until(lambda: runs.shell("ls /dev/vgpu1")[0] == 0, SECONDS, "its return")
        runs.start("devices_busy", "round", SECONDS)
        assert "detached" in host.vgpuctl("detach", LIVE, "--live").stdout
        assert runs.shell("ls /dev/vgpu1")[0] != 0 and _devices() == ["virsh0"] and VM.running()
        assert host.live(LIVE)["vm"]["connected"] is False
        wait_until(lambda: "device 1: cudaErrorDevicesUnavailable" in _log(runs), SECONDS, "the error of device 1")
        wait_until(lambda: "device 0: worked" in _log(runs), SECONDS + 20, "the end of the program")
        runs.runs_programs()
    assert runs.boot_id() == boot
    runs.kernel_is_content()


def _log(guest) -> str:
    return guest.shell("cat /tmp/devices_busy.log")[1]
