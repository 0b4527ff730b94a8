"""A domain of the Xen host: a kernel, the module, libcuda.so.1, and programs that it runs one after the other."""
import pathlib
import re
import time

from lab import image, xen_root
from lab.cpio import Archive
from lab.paths import BUILD, cache
from lab.shell import Failure
from lab.xen_host import XenHost

FOLDER = "/opt/guest"
VGPU_TRIES, PROGRAM_SECONDS = 600, 120  # of 0.2 s each; each
CONSOLE = "/var/log/xen/console/guest-{name}.log"

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm; chmod 1777 /tmp
echo "guest: up"
insmod /lib/modules/virtio_vgpu.ko
tries=0
while [ ! -e /dev/vgpu0 ] && [ $tries -lt %(tries)s ]; do sleep 0.2; tries=$((tries + 1)); done
[ -e /dev/vgpu0 ] && echo "guest: has /dev/vgpu0" || echo "guest: no /dev/vgpu0"
for program in /programs/*; do
  [ -e $program ] || continue
  timeout %(seconds)s $program $(cat /arguments/${program##*/} 2>/dev/null) </dev/null >/tmp/output 2>&1
  status=$?
  echo "guest: begin ${program##*/}"; cat /tmp/output; echo "guest: end ${program##*/} $status"
done
%(script)s
echo "guest: done"
poweroff -f
"""

CONFIGURATION = """name = "{name}"
type = "{kind}"
memory = {memory}
vcpus = 1
kernel = "{folder}/vmlinuz"
ramdisk = "{folder}/initramfs"
extra = "console=hvc0 mitigations=off quiet"
on_poweroff = "destroy"
on_reboot = "destroy"
on_crash = "destroy"
tsc_mode = "native"
"""


def _initramfs(programs: dict[str, pathlib.Path], arguments: dict[str, list[str]], init: str) -> bytes:
    overlay = Archive()
    overlay.file("usr/lib/modules/virtio_vgpu.ko", image.stripped(xen_root.vgpu_module()))
    overlay.file(f"{image.GUEST_LIBRARIES[1:]}/libcuda.so.1",
                 image.stripped(BUILD / "guest-driver/libcuda/libcuda.so.1"), 0o755)
    overlay.folder("programs")
    for name, program in programs.items():
        overlay.file(f"programs/{name}", image.stripped(program), 0o755)
    overlay.folder("arguments")
    for name, words in arguments.items():
        overlay.file(f"arguments/{name}", " ".join(words).encode())
    overlay.file("init", init.encode(), 0o755)
    path = cache() / "xen-boot" / "guest-overlay.cpio"
    path.parent.mkdir(exist_ok=True)
    overlay.write(path)
    return image.base().read_bytes() + path.read_bytes()


def files(programs: dict[str, pathlib.Path], kind: str = "pv", memory_mib: int = 512, script: str = "",
          arguments: dict[str, list[str]] | None = None) -> dict[str, bytes]:
    """What dom0 needs for a domain `guest` that waits for its virtual GPU, runs these programs with `arguments`, then
    `script`, and powers off: for XenHost.start."""
    folder = FOLDER[1:]
    init = INIT % {"tries": VGPU_TRIES, "seconds": PROGRAM_SECONDS, "script": script}
    configuration = CONFIGURATION.format(name="guest", kind=kind, memory=memory_mib, folder=FOLDER)
    return {f"{folder}/vmlinuz": xen_root.vmlinuz().read_bytes(),
            f"{folder}/initramfs": _initramfs(programs, arguments or {}, init),
            f"{folder}/guest.cfg": configuration.encode()}


class XenGuest:
    """The domain `guest` of a host that was started with `files`."""

    def __init__(self, host: XenHost):
        self._host = host

    def create(self) -> int:
        """Returns its domain number."""
        self._host.must(f"xl create {FOLDER}/guest.cfg", timeout=180)
        return int(self._host.must("xl domid guest").split()[-1])

    def console(self) -> str:
        return self._host.shell(f"cat {CONSOLE.format(name='guest')} 2>/dev/null")[1].replace("\r", "")

    def wait(self, text: str, seconds: float) -> str:
        """Its console, once this stands there."""
        deadline = time.monotonic() + seconds
        while text not in (console := self.console()):
            if time.monotonic() > deadline:
                raise Failure(f"the Xen guest did not say '{text}' within {seconds:.0f} s; its console:\n{console}")
            time.sleep(1)
        return console


def results(console: str) -> dict[str, tuple[int, str]]:
    """What the programs ended with, and what they printed, by name."""
    found = re.finditer(r"guest: begin (\S+)\n(.*?)guest: end \1 (\d+)\n", console, re.DOTALL)
    return {match[1]: (int(match[3]), match[2]) for match in found}
