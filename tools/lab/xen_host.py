"""A Xen host to test on: Xen with a Debian dom0 inside QEMU, which emulates the processor."""
import pathlib
import re
import subprocess
import time

from lab import image, qemu_root, xen_root
from lab.agent import Agent
from lab.cpio import Archive
from lab.paths import BUILD, cache, lab_dir
from lab.shell import Failure, step

TOOLS = ["xl", "libxl-save-helper", "xenstored", "xen-init-dom0", "xenconsoled", "lsevtchn"]
# The device model of HVM domains, whose kernel it loads too.
HVM_FILES = ["usr/lib/xen-4.20/boot/hvmloader", "usr/share/seabios/bios-256k.bin", "usr/share/qemu/keymaps/en-us",
             "usr/share/qemu/linuxboot_dma.bin", "usr/share/qemu/kvmvapic.bin"]
HVM_PROGRAM = "usr/libexec/xen-qemu-system-i386"
STORE_TOOLS = ["xenstore-ls", "xenstore-read", "xenstore-write", "xenstore-rm"]
MODULES = ["xen-privcmd", "xenfs", "xen-evtchn", "xen-gntdev", "virtio_ring", "virtio", "virtio_pci_modern_dev",
           "virtio_pci_legacy_dev", "virtio_pci", "virtio_console"]
PROGRAMS = {"backend/vgpud/vgpud": "usr/bin", "tools/vgpuctl/vgpuctl": "usr/bin",
            "backend/session/bandsaw-session": "usr/libexec/bandsaw",
            "backend/session/bandsaw-log": "usr/libexec/bandsaw",
            "backend/runner/bandsaw-runner": "usr/libexec/bandsaw"}
XEN_BIN = "usr/lib/xen-4.20/bin"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
DOM0_MIB, MEMORY_MIB = 1536, 2560
# The emulated processor loses vector registers when Xen saves them lazily, as `spec-ctrl=no` alone makes it do.
XEN_OPTIONS = "com1=115200,8n1 console=com1 noreboot spec-ctrl=no,eager-fpu=yes"

INIT = """#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:/%(bin)s HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts; mount -t tmpfs shm /dev/shm; mount -t devpts pts /dev/pts; chmod 1777 /tmp
mount -t tmpfs run /run; mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
for module in %(modules)s; do
  [ -e /lib/modules/$module.ko ] && insmod /lib/modules/$module.ko
done
mount -t xenfs xenfs /proc/xen
mkdir -p /run/xen /run/xenstored /var/run /var/lock /var/lib/xen /var/lib/xenstored /var/log/xen/console
xenstored --pid-file /run/xen/xenstored.pid && xen-init-dom0 && xenconsoled --log=guest && echo "dom0: up"
while [ -z "$agent" ]; do
  for port in /sys/class/virtio-ports/*; do
    [ "$(cat $port/name 2>/dev/null)" = org.bandsaw.agent ] && agent=/dev/${port##*/}
  done
  sleep 0.2
done
while true; do /sbin/agent $agent; echo "dom0: agent ended"; sleep 1; done
"""

# In Xen's code, and the gate of double faults in a Linux domain's table of interrupts.
LOST_AT = re.compile(r"\bcr2: (ffff82d0[0-9a-f]{8}|fffffe0000000080)\b")


def lost_domains(console: str) -> int:
    """How many domains the emulated processor has lost, as Xen's log tells it. Rarely a PVH or HVM domain goes on with
    Xen's own registers, or its table of interrupts cannot be read. That needs no virtual GPU: some hundred refused
    suspends do."""
    last = [re.search(r"\bcr2: \S+", dump) for dump in console.split("Triple fault")[1:]]
    return sum(bool(found and LOST_AT.match(found[0])) for found in last)


def _system() -> Archive:
    archive = Archive()
    for name in ["bin", "sbin", "lib", "lib64"]:
        archive.folder(f"usr/{name}")
        archive.link(name, f"usr/{name}")
    for name in ["dev", "proc", "sys", "tmp", "root", "run", "etc", "var"]:
        archive.folder(name)
    archive.link("var/run", "/run")
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    archive.file("etc/group", b"root:x:0:\n")
    archive.file("etc/xen/xl.conf", b"")
    busybox = (xen_root.root() / "usr/bin/busybox").read_bytes()
    archive.file("usr/bin/busybox", busybox, 0o755)
    for applet in subprocess.run(["/usr/bin/busybox", "--list"], capture_output=True, text=True,
                                 check=True).stdout.split():
        if applet != "busybox":
            archive.link(f"usr/bin/{applet}", "busybox")
    return archive


def dom0_image(files: dict[str, bytes], hvm: bool) -> pathlib.Path:
    """dom0's initramfs. `files`: what the tests need beside Xen's tools and Bandsaw's programs."""
    root = xen_root.root()
    archive = _system()
    programs = {f"{XEN_BIN}/{name}": root / XEN_BIN / name for name in TOOLS}
    programs |= {f"usr/bin/{name}": root / "usr/bin" / name for name in STORE_TOOLS}
    programs |= {f"{folder}/{pathlib.Path(name).name}": BUILD / name for name, folder in PROGRAMS.items()
                 if (BUILD / name).exists()}
    if hvm:
        programs[HVM_PROGRAM] = root / HVM_PROGRAM
        for name in HVM_FILES:
            archive.file(name, (root / name).read_bytes())
    for target, source in programs.items():
        archive.file(target, image.stripped(source), 0o755)
    needed = xen_root.libraries(list(programs.values()))
    needed["libgcc_s.so.1"] = root / LIBRARIES / "libgcc_s.so.1"
    for name, source in needed.items():
        archive.file(f"{LIBRARIES}/{name}", source.read_bytes(), 0o755)
    archive.link("usr/lib64/ld-linux-x86-64.so.2", f"/{LIBRARIES}/ld-linux-x86-64.so.2")
    for name in MODULES:
        if module := xen_root.kernel_module(name):
            archive.file(f"usr/lib/modules/{name}.ko", module)
    archive.file("usr/sbin/agent", image.agent().read_bytes(), 0o755)
    archive.file("init", (INIT % {"modules": " ".join(MODULES), "bin": XEN_BIN}).encode(), 0o755)
    for target, content in files.items():
        archive.file(target, content, 0o755)
    path = cache() / "xen-boot" / "dom0.cpio"
    path.parent.mkdir(exist_ok=True)
    archive.write(path)
    return path


class XenHost:
    """One such host, from `start` to `stop`. Its log is lab_dir()/xen/console.log."""

    def __init__(self):
        self.folder = lab_dir() / "xen"
        self._qemu: subprocess.Popen | None = None
        self._agent: Agent | None = None

    def __enter__(self) -> "XenHost":
        return self

    def __exit__(self, *unused) -> None:
        self.stop()

    def start(self, files: dict[str, bytes] | None = None, hvm: bool = False, seconds: float = 180,
              pvh: bool = False, options: str = "") -> None:
        """`hvm`: with what HVM domains need, which others do not wait for. `pvh`: dom0 is a PVH one, which boots in
        minutes. `options`: more words for Xen's command line."""
        initramfs = dom0_image(files or {}, hvm)
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("console.log", "agent.sock"):
            (self.folder / name).unlink(missing_ok=True)
        with step("booting Xen and its dom0 in QEMU"):
            with open(self.folder / "qemu.log", "wb") as out:
                command = self._command(initramfs, pvh, options)
                self._qemu = subprocess.Popen(["nice", "-n", "2", *command], stdin=subprocess.DEVNULL, stdout=out,
                                              stderr=out)
            self._await_socket()
            self._await_dom0(time.monotonic() + seconds)
            self._agent = Agent(self.folder / "agent.sock", 60)

    def _command(self, initramfs: pathlib.Path, pvh: bool, options: str) -> list[str]:
        # A PVH dom0's addresses mean nothing to devices that go round the IOMMU. QEMU tells Xen of RDTSCP as of RDTSC,
        # so that Xen finds another instruction than it emulates.
        return [*qemu_root.command(), "-accel", "tcg,thread=multi", "-M", "q35",
                "-cpu", "max,-rdtscp" if pvh else "max", "-smp", "2", "-m", str(MEMORY_MIB),
                "-display", "none", "-nodefaults", "-no-reboot", "-monitor", "none",
                "-serial", f"file:{self.folder}/console.log", *(["-device", "intel-iommu"] if pvh else []),
                "-device", "virtio-serial-pci" + (",iommu_platform=on,disable-legacy=on" if pvh else ""),
                "-chardev", f"socket,id=agent,path={self.folder}/agent.sock,server=on,wait=off",
                "-device", "virtserialport,chardev=agent,name=org.bandsaw.agent",
                "-kernel", str(xen_root.hypervisor()),
                "-append", f"{XEN_OPTIONS} dom0_mem={DOM0_MIB}M {'dom0=pvh ' if pvh else ''}{options}",
                "-initrd", f"{xen_root.vmlinux()} console=hvc0 mitigations=off quiet,{initramfs}"]

    def _await_socket(self) -> None:
        deadline = time.monotonic() + 20
        while not (self.folder / "agent.sock").exists():
            if not self._qemu or self._qemu.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"QEMU does not start:\n{(self.folder / 'qemu.log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def _await_dom0(self, deadline: float) -> None:
        while "dom0: up" not in self.console():
            if not self._qemu or self._qemu.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"dom0 does not come up; its console ends with\n{self.console_tail()}")
            time.sleep(0.2)

    def console(self) -> str:
        path = self.folder / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def lost_domains(self) -> int:
        return lost_domains(self.console())

    def console_tail(self) -> str:
        return "\n".join(self.console().splitlines()[-25:])

    def shell(self, command: str, timeout: float = 120) -> tuple[int, str]:
        """In dom0: status and everything that it printed."""
        if not self._agent:
            raise Failure("this Xen host is not started")
        return self._agent.shell(f"export PATH=$PATH:/{XEN_BIN}; {command}", timeout)

    def must(self, command: str, timeout: float = 120) -> str:
        """The same, and a failure if the status is not 0."""
        status, output = self.shell(command, timeout)
        if status != 0:
            raise Failure(f"in dom0, '{command}' ended with {status}:\n{output}\n{self.console_tail()}")
        return output

    def start_vgpud(self) -> None:
        """On the software device, with its folders where an installed one has them."""
        self.must("mkdir -p /etc/bandsaw /run/bandsaw /var/lib/bandsaw; printf '[device]\\nname = \"soft\"\\n' "
                  "> /etc/bandsaw/vgpud.toml; BANDSAW_LIBEXEC=/usr/libexec/bandsaw setsid vgpud --config "
                  "/etc/bandsaw/vgpud.toml </dev/null >/var/log/vgpud.log 2>&1 &")
        self.must("for i in $(seq 150); do vgpuctl status >/dev/null 2>&1 && exit 0; sleep 0.2; done; "
                  "cat /var/log/vgpud.log; vgpuctl status", 90)

    def held(self) -> dict[str, int]:
        """What domains hold or make dom0 hold: it must be the same before a domain and after it."""
        counts = self.must("xl dmesg -c >/dev/null; xl debug-keys g; xl dmesg | grep -c '\\[0x'; lsevtchn 0 | wc -l; "
                           "xl list | wc -l; cat /proc/$(pidof bandsaw-session)/maps | grep -c gntdev; "
                           "ls /proc/$(pidof bandsaw-session)/fd | wc -l; true")
        return dict(zip(("grants", "event channels", "domains", "mappings", "descriptors"), map(int, counts.split())))

    def stop(self) -> None:
        if self._agent:
            self._agent.close()
            self._agent = None
        if self._qemu:
            self._qemu.kill()
            self._qemu.wait()
            self._qemu = None
