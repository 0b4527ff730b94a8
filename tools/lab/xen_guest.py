"""A domain of the Xen host: a kernel, the module, libcuda.so.1, and programs that it runs one after the other."""
import pathlib
import re
import shlex
import time

from lab import image, xen_root
from lab.cpio import Archive
from lab.paths import BUILD, cache
from lab.shell import Failure
from lab.xen_host import XenHost

FOLDER = "/opt/guest"
VGPU_TRIES, PROGRAM_SECONDS = 600, 120  # of 0.2 s each; each
MODULES = ["xen-evtchn", "xen-gntalloc"]  # for programs that are frontends themselves
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
grep -q commands /proc/cmdline || for program in /programs/*; do
  [ -e $program ] || continue
  timeout %(seconds)s $program $(cat /arguments/${program##*/} 2>/dev/null) </dev/null >/tmp/output 2>&1
  status=$?
  echo "guest: begin ${program##*/}"; cat /tmp/output; echo "guest: end ${program##*/} $status"
done
%(last)s
"""
POWER_OFF = """echo "guest: done"; poweroff -f"""
OBEY = """stty -echo; echo "guest: waits"
while read -r line; do echo "guest: does"; sh -c "$line" </dev/null 2>&1; echo "guest: did $?"; done
"""

CONFIGURATION = """name = "{name}"
type = "{kind}"
memory = {memory}
vcpus = 1
kernel = "{folder}/vmlinuz"
ramdisk = "{folder}/initramfs"
extra = "console=hvc0 mitigations=off quiet{commands}"
on_poweroff = "destroy"
on_reboot = "destroy"
on_crash = "destroy"
tsc_mode = "native"
"""
# What a domain with a device model would have by default, and nobody here looks at.
HVM = """vga = "none"
usb = 0
vnc = 0
sdl = 0
"""


def _initramfs(programs: dict[str, pathlib.Path], arguments: dict[str, list[str]], tools: dict[str, pathlib.Path],
               init: str) -> bytes:
    overlay = Archive()
    for name in MODULES:
        if module := xen_root.kernel_module(name):
            overlay.file(f"usr/lib/modules/{name}.ko", module)
    for name, tool in tools.items():
        overlay.file(f"usr/bin/{name}", image.stripped(tool), 0o755)
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


def files(programs: dict[str, pathlib.Path], stays: bool = False, arguments: dict[str, list[str]] | None = None,
          tools: dict[str, pathlib.Path] | None = None) -> dict[str, bytes]:
    """What dom0 needs for domains that wait for their virtual GPU, run these programs with `arguments`, and power off,
    or stay and do what XenGuest.shell says, to which `tools` may belong: for XenHost.start."""
    folder = FOLDER[1:]
    init = INIT % {"tries": VGPU_TRIES, "seconds": PROGRAM_SECONDS, "last": OBEY if stays else POWER_OFF}
    return {f"{folder}/vmlinuz": xen_root.vmlinuz().read_bytes(),
            f"{folder}/initramfs": _initramfs(programs, arguments or {}, tools or {}, init)}


class XenGuest:
    """A domain of a host that was started with `files`."""

    def __init__(self, host: XenHost, name: str = "guest", kind: str = "pv", memory_mib: int = 512):
        """`kind`: pv, pvh or hvm; the last needs a host that was started for it."""
        self._host, self.name, self._kind, self._memory = host, name, kind, memory_mib

    def create(self, runs: bool = True, settings: str = "") -> int:
        """Returns its domain number. `runs`: the programs, before it stays; `settings`: more lines for xl."""
        lines = CONFIGURATION.format(name=self.name, kind=self._kind, memory=self._memory, folder=FOLDER,
                                     commands="" if runs else " commands")
        lines += (HVM if self._kind == "hvm" else "") + settings
        self._host.must(f"rm -f {CONSOLE.format(name=self.name)}")
        self._host.must(f"cat >{FOLDER}/{self.name}.cfg <<'END'\n{lines}\nEND\n"
                        f"xl create {FOLDER}/{self.name}.cfg", timeout=180)
        return int(self._host.must(f"xl domid {self.name}").split()[-1])

    def destroy(self) -> None:
        self._host.must(f"xl destroy {self.name}")

    def console(self) -> str:
        return self._host.shell(f"cat {CONSOLE.format(name=self.name)} 2>/dev/null")[1].replace("\r", "")

    def start(self, command: str) -> None:
        """Has a domain that stays begin with this, by its console."""
        self._host.must(f"printf '%s\\n' {shlex.quote(command)} >"
                        f"$(xenstore-read /local/domain/$(xl domid {self.name})/console/tty)")

    def shell(self, command: str, seconds: float = PROGRAM_SECONDS) -> tuple[int, str]:
        """Status and output of a command in a domain that stays and does nothing else."""
        before = self.console().count("guest: did ")
        self.start(command)
        deadline = time.monotonic() + seconds
        while (console := self.console()).count("guest: did ") == before:
            if time.monotonic() > deadline:
                raise Failure(f"'{command}' did not end in the Xen guest within {seconds:.0f} s; its console ends with"
                              f"\n{console[-1500:]}")
            time.sleep(0.3)
        output, _, rest = console.rpartition("guest: does\n")[2].rpartition("guest: did ")
        return int(rest.split()[0]), output

    def wait(self, text: str, seconds: float) -> str:
        """Its console, once this stands there."""
        deadline = time.monotonic() + seconds
        while text not in (console := self.console()):
            if time.monotonic() > deadline:
                raise Failure(f"the Xen guest did not say '{text}' within {seconds:.0f} s; its console:\n{console}")
            time.sleep(0.3)
        return console


def results(console: str) -> dict[str, tuple[int, str]]:
    """What the programs ended with, and what they printed, by name."""
    found = re.finditer(r"guest: begin (\S+)\n(.*?)guest: end \1 (\d+)\n", console, re.DOTALL)
    return {match[1]: (int(match[3]), match[2]) for match in found}
