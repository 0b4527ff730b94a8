"""A virtual machine without libvirt: QEMU started with what the domain of vm.py amounts to."""
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

from lab import host, qemu_root
from lab.shell import Failure
from lab.vm import Vm, kvm_works


class PlainVm(Vm):
    """Vm with QEMU as a process of ours. It goes on when the tool ends, and is found again by its process id."""

    def __init__(self, name: str, vgpu: str, memory_mib: int = 1024):
        super().__init__(name, vgpu, memory_mib)
        self._cmdline = ""
        self._attached = False
        self.arguments: list[str] = []  # of QEMU, beside those that every machine has

    def define(self, cmdline: str = "", metadata: str = "", devices: str = "", backing: str = "") -> None:
        """The last three are for libvirt."""
        self._copy_image()
        self._cmdline = cmdline
        self._attached = False

    def attach(self) -> None:
        self._attached = True

    def detach(self) -> None:
        self._attached = False

    def undefine(self) -> None:
        self._pid_file().unlink(missing_ok=True)

    def _pid_file(self) -> pathlib.Path:
        return self.folder / "qemu.pid"

    def _pid(self) -> int:
        """0 if it does not run."""
        try:
            pid = int(self._pid_file().read_text())
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return 0
        return pid if state not in "ZX" and str(self.folder).encode() in command else 0

    def running(self) -> bool:
        return self._pid() != 0

    def _devices(self) -> list[str]:
        parts = ["-device", "virtio-serial-pci",
                 "-chardev", f"socket,id=agent,path={self.folder}/agent.sock,server=on,wait=off",
                 "-device", "virtserialport,chardev=agent,name=org.bandsaw.agent"]
        if self._attached:
            socket = host.vgpuctl_json("show", self.vgpu)["sockets"]["vfio"]
            device = {"driver": "vfio-user-pci", "id": f"bandsaw-{self.vgpu}", "bus": "pcie.0", "addr": "0x10",
                      "socket": {"type": "unix", "path": socket}}
            parts += ["-device", json.dumps(device)]
        return parts

    def _command(self) -> list[str]:
        kvm = kvm_works()
        return [*qemu_root.command(), "-nodefaults", "-display", "none", "-machine", "q35,memory-backend=ram",
                "-accel", "kvm" if kvm else "tcg,thread=multi", "-cpu", "max" if kvm else "max,-erms,-fsrm",
                "-smp", "2", "-m", str(self.memory_mib),
                "-object", f"memory-backend-memfd,id=ram,size={self.memory_mib}M,share=on",
                "-serial", f"file:{self.folder}/console.log", "-qmp", f"unix:{self.folder}/qmp.sock,server=on,wait=off",
                "-kernel", f"{self.folder}/vmlinuz", "-initrd", f"{self.folder}/initramfs",
                "-append", f"console=ttyS0 quiet panic=1 {self._cmdline}", *self._devices(),
                *self.arguments]

    def monitor(self, line: str) -> str:
        """What QEMU's monitor answers to a person's command; nothing, if one that does something has done it."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.connect(str(self.folder / "qmp.sock"))
            stream = connection.makefile("rw")
            stream.readline()  # the greeting
            answer: dict = {}
            for command in ({"execute": "qmp_capabilities"},
                            {"execute": "human-monitor-command", "arguments": {"command-line": line}}):
                stream.write(json.dumps(command) + "\n")
                stream.flush()
                while "event" in (answer := json.loads(stream.readline())):
                    pass
            return answer["return"]

    def start(self) -> None:
        for name in ("console.log", "agent.sock", "qmp.sock"):
            (self.folder / name).unlink(missing_ok=True)
        log = self.folder / "qemu.log"
        with open(log, "wb") as out:
            qemu = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    start_new_session=True)
        self._pid_file().write_text(str(qemu.pid))
        deadline = time.monotonic() + 20
        while not (self.folder / "agent.sock").exists():
            if qemu.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"QEMU does not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def destroy(self) -> None:
        pid = self._pid()
        if not pid:
            return
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while self._pid():
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass  # another run of a tool started it
            if time.monotonic() > deadline:
                raise Failure(f"QEMU (pid {pid}) does not end")
            time.sleep(0.02)


def lab_vm(name: str, vgpu: str, memory_mib: int = 1024) -> Vm:
    """A VM by libvirt where it is, else by QEMU alone."""
    return (Vm if qemu_root.has_libvirt() else PlainVm)(name, vgpu, memory_mib)
