"""The kernel module and the vfio-user device against each other, without a session: a guest that boots straight into
tests/vm/module/guest.c, QEMU started by hand so that it can be killed and restarted on the same device."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from lab import image, qemu_root
from lab.paths import BUILD, REPO
from lab.shell import Failure, run, wait_until

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_vgpu; do
  [ -e /lib/modules/$module.ko ] && insmod /lib/modules/$module.ko
done
for word in $(cat /proc/cmdline); do case $word in script=*) script=${word#script=} ;; esac; done
sh /scripts/$script
echo "script ended: $script"
poweroff -f
"""
IOCTL_SECONDS = float(os.environ.get("BANDSAW_IOCTL_SECONDS", "3"))  # of any requests to the driver
SCRIPTS = {
    # Everything, then the driver reloaded, then the machine rebooted (the second boot ends it).
    "all": """
device=$(basename $(ls -d /sys/bus/virtio/drivers/virtio_vgpu/virtio*))
if [ "$(module_test ready)" != "ready 1" ]; then module_test ready; echo "second boot"; exit; fi
module_test $device
module_test ioctls {seconds} $(date +%s) || echo FAIL ioctls
for i in 1 2 3; do rmmod virtio_vgpu && insmod /lib/modules/virtio_vgpu.ko && module_test ready \\
  || echo FAIL reload; done
dmesg | grep -E "BUG|WARNING|Oops|Call Trace|use-after|refcount|INFO:" && echo "FAIL kernel log"
echo "first boot done"
reboot -f
sleep 60
""",
    "once": "module_test ready; echo up; sleep 100",
    # No look for call traces: when a driver leaves a device whose registers read all ones, Linux's virtio core warns
    # that it was not reset, which nobody can do any more.
    "die": "module_test die; rmmod virtio_vgpu && echo unloaded; echo after death; "
           "dmesg | grep -E 'BUG|Oops' && echo 'FAIL kernel log'",
}


class Bench:
    """A sink, a guest image and, one after the other, QEMUs."""

    def __init__(self, folder: pathlib.Path, version: str | None = None):
        self.folder = folder
        run(["ninja", "-C", BUILD, "tests/vm/module/vgpu-sink"], what="building vgpu-sink")
        self._make_image(version)
        self.log = open(folder / "sink.log", "wb")
        self.sink = subprocess.Popen([BUILD / "tests/vm/module/vgpu-sink", folder / "sock"], stderr=self.log)
        self.started: list[subprocess.Popen] = [self.sink]
        wait_until((folder / "sock").exists, 5, "the sink listening")

    def _make_image(self, version: str | None) -> None:
        kernel = image.kernel()
        tree = self.folder / "tree"
        modules = tree / "usr/lib/modules"
        modules.mkdir(parents=True)
        for name in image.KERNEL_MODULES:
            if (kernel / f"{name}.ko").exists():
                shutil.copy(kernel / f"{name}.ko", modules)
        shutil.copy(image.build_module(version), modules)
        (tree / "usr/bin").mkdir(parents=True)
        run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", f"-I{REPO}", "-o",
             tree / "usr/bin/module_test",
             *(REPO / "tests/vm/module" / name for name in ("guest.c", "ioctls.c", "watch.c"))])
        (tree / "scripts").mkdir()
        for name, text in SCRIPTS.items():
            (tree / "scripts" / name).write_text(text.replace("{seconds}", str(IOCTL_SECONDS)))
        (tree / "init").write_text(INIT)
        os.chmod(tree / "init", 0o755)
        pack = f"find . -print0 | cpio --null --quiet --owner 0:0 -o -H newc > {self.folder}/overlay"
        run(["bash", "-c", pack], cwd=tree)
        (self.folder / "initramfs").write_bytes(image.base().read_bytes() + (self.folder / "overlay").read_bytes())

    def start(self, script: str) -> None:
        (self.folder / "console").unlink(missing_ok=True)
        device = f'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{self.folder}/sock"}}}}'
        self.qemu = subprocess.Popen(
            [*qemu_root.command(), "-machine", "q35,memory-backend=ram", "-accel", "tcg", "-cpu", "max,-erms,-fsrm",
             "-smp", "2", "-m", "1024", "-object", "memory-backend-memfd,id=ram,size=1024M,share=on",
             "-nodefaults", "-display", "none", "-serial", f"file:{self.folder}/console",
             "-kernel", image.kernel() / "vmlinuz", "-initrd", self.folder / "initramfs",
             "-append", f"console=ttyS0 quiet panic=-1 script={script}", "-device", device],
            stdin=subprocess.DEVNULL, stderr=open(self.folder / "qemu.log", "wb"))
        self.started.append(self.qemu)

    def console(self) -> str:
        path = self.folder / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_console(self, text: str, seconds: float) -> None:
        def there():
            if self.qemu.poll() is not None and text not in self.console():
                raise Failure(f"QEMU ended without '{text}':\n{(self.folder / 'qemu.log').read_text()}{self.console()}")
            return text in self.console()
        try:
            wait_until(there, seconds, f"'{text}' on the console")
        except Failure as failure:
            raise Failure(f"{failure}\n{self.console()[-3000:]}\n{self.sink_log()[-2000:]}") from failure

    def sink_log(self) -> str:
        return (self.folder / "sink.log").read_text(errors="replace")

    def expect_clean(self) -> None:
        bad = [line for line in self.console().splitlines() if "FAIL" in line]
        if bad:
            raise Failure("\n".join(bad) + "\n" + self.console()[-3000:])

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def bench(version: str | None = None):
    with tempfile.TemporaryDirectory(prefix="vgpu-") as folder:
        it = Bench(pathlib.Path(folder), version)
        try:
            yield it
        finally:
            if it.sink.poll() not in (None, 3):
                print(it.sink_log()[-3000:])
            it.stop()


def test_module_life():
    """Every ioctl, process death, unbind, a silent session, driver reload, guest reboot."""
    with bench() as it:
        it.start("all")
        it.wait_console("first boot done", 180 + IOCTL_SECONDS)
        it.expect_clean()
        it.wait_console("module test: passed", 1)
        it.wait_console("second boot", 60)
        if os.environ.get("BANDSAW_SHOW"):
            print(it.console(), it.sink_log())


def test_qemu_killed_and_back():
    """The device outlives QEMU, and the next QEMU finds it as new."""
    with bench() as it:
        for _ in range(2):
            it.start("once")
            it.wait_console("up", 60)
            it.expect_clean()
            it.qemu.send_signal(signal.SIGKILL)
            it.qemu.wait()
        wait_until(lambda: it.sink_log().count("disconnected") == 2, 5, "the sink noticing QEMU's death")
        assert it.sink.poll() is None, it.sink_log()


def test_session_dies():
    """The guest's driver notices that nobody answers any more, and the guest goes on."""
    with bench() as it:
        it.start("die")
        it.wait_console("after death", 90)
        it.expect_clean()
        it.wait_console("session died: noticed", 1)
        it.wait_console("unloaded", 1)
