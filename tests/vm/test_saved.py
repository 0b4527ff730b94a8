"""A machine that is saved and restored, by QEMU alone: the state of its virtual GPU is in none of what is saved.

libvirt 11.3 can save with QEMU 11.1, and not restore what it has saved."""
import pytest

from lab import qemu_root
from lab.plain_vm import PlainVm
from lab.shell import run, wait_until

SECONDS = 30
PCI = "/sys/bus/pci"
PLUGGED_ANEW = f"echo 1 >{PCI}/devices/0000:00:10.0/remove; echo 1 >{PCI}/rescan"

pytestmark = pytest.mark.full


@pytest.fixture(name="saved")
def _saved(lab, guest_of):
    """A guest with a program on its virtual GPU, and a disk that takes snapshots."""
    vm = PlainVm("saved0", "saved0")
    vm.remove()
    vm.create_vgpu("64M", 1, 1)
    vm.define()
    disk = vm.folder / "disk.qcow2"
    disk.unlink(missing_ok=True)
    run([*qemu_root.program("qemu-img"), "create", "-q", "-f", "qcow2", disk, "2G"], what="making a disk")
    vm.arguments = ["-drive", f"if=virtio,format=qcow2,file={disk}"]
    vm.attach()
    vm.start()
    guest = guest_of(vm)
    guest.busy(600)
    try:
        yield guest
    finally:
        vm.remove()


def _went_on_without_it(guest) -> None:
    """Its programs have ended with an error; plugged in anew, it can be used again."""
    boot = guest.boot_id()
    wait_until(lambda: "cudaErrorDevicesUnavailable" in guest.busy_log(), SECONDS, "the end of the program")
    guest.shell(PLUGGED_ANEW, timeout=SECONDS)
    wait_until(lambda: guest.shell("ls /dev/vgpu0")[0] == 0, SECONDS, "the device")
    guest.runs_programs()
    assert guest.boot_id() == boot
    guest.kernel_is_content()


def test_a_restored_machine_goes_on_without_its_programs_on_the_virtual_gpu(saved):
    image = saved.vm.folder / "saved"
    assert saved.vm.monitor("stop") == saved.vm.monitor(f"migrate file:{image}") == ""
    wait_until(lambda: "completed" in saved.vm.monitor("info migrate"), SECONDS, "the machine's state")
    saved.vm.stop()
    saved.vm.arguments += ["-incoming", f"file:{image}"]
    saved.vm.start()
    wait_until(lambda: saved.vm.monitor("info status").strip() == "VM status: paused", SECONDS, "what was saved")
    saved.vm.monitor("cont")
    _went_on_without_it(saved)


def test_so_does_one_that_returns_to_a_snapshot(saved):
    assert saved.vm.monitor("savevm before") == ""
    before = saved.busy_log()
    wait_until(lambda: saved.busy_log() != before, SECONDS, "the program, which a snapshot does not disturb")
    saved.vm.disconnect()
    assert saved.vm.monitor("loadvm before") == ""
    _went_on_without_it(saved)
