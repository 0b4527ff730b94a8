"""A second host for a domain to go to: a libvirtd and a vgpud of their own, on this machine, beside the lab's."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import uuid

from lab import host, qemu_root
from lab.agent import Agent
from lab.daemon import Daemon
from lab.paths import BUILD, lab_dir
from lab.shell import wait_until
from lab.vm import Vm

# As host.ENTER_ROOT; what libvirtd keeps, and where the domain's files lie, is this host's own.
ENTER_ROOT = """set -e
root=$1 lab=$2 own=$3 vm=$4
hostname other-host
mount --rbind /dev $root/dev
mount -t proc proc $root/proc
mount -t sysfs sysfs $root/sys
mount --bind $lab $root$lab
mount --bind $own/vm $root$lab/$vm
mount --bind $own/sockets $root/run/libvirt
mount --bind $own/kept $root/var/lib/libvirt
mount --bind $own/etc $root/etc/libvirt
exec chroot $root /usr/sbin/libvirtd --pid-file /run/libvirt/libvirtd.pid
"""


def remote(run: pathlib.Path | str, state: pathlib.Path | str) -> str:
    """How commands are run on a host of this machine, for vgpuctl's --remote."""
    return f"env BANDSAW_RUN={run} BANDSAW_STATE={state} PATH={BUILD}/tools/vgpuctl:$PATH sh -c"


class OtherHost:
    """It runs until end(). The domain is the one of `vm`, which has been defined before."""

    def __init__(self, vm: Vm, **daemon):
        self.vm = vm
        self.folder = lab_dir() / "other"
        self.daemon = Daemon("soft", name="other", tables={"swap": {"memory": "1G"}}, **daemon)
        self.uri = f"qemu+unix:///system?socket={self.folder}/sockets/libvirt-sock"
        self.remote = remote(self.daemon.run, self.daemon.variables["BANDSAW_STATE"])
        self._agent: Agent | None = None
        self._start_libvirt()

    def _start_libvirt(self) -> None:
        for part in ("sockets", "kept", "etc", "vm"):
            shutil.rmtree(self.folder / part, ignore_errors=True)
        for part in ("sockets", "kept", "vm"):
            (self.folder / part).mkdir()
        for file in ("vmlinuz", "initramfs"):
            shutil.copy(self.vm.folder / file, self.folder / "vm" / file)
        root = qemu_root.root()
        without = shutil.ignore_patterns("hooks", "qemu")  # and without the domains of the lab's
        shutil.copytree(root / "etc/libvirt", self.folder / "etc", ignore=without)
        with open(self.folder / "etc/libvirtd.conf", "a", encoding="utf-8") as settings:
            settings.write(f'\nhost_uuid = "{uuid.uuid4()}"\n')  # libvirt moves nothing to the host where it is
        with open(self.folder / "libvirtd.log", "wb") as log:
            subprocess.Popen(["unshare", "--mount", "--uts", "--propagation", "private", "bash", "-c", ENTER_ROOT,
                              "enter-root", root, lab_dir(), self.folder, self.vm.name],
                             stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self.virsh("uri", check=False).returncode == 0, 60, "the other libvirtd")

    def virsh(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        return host.virsh("-c", self.uri, *arguments, check=check)

    def agent(self) -> Agent:
        """Of the domain, once it is here."""
        if self._agent is None:
            self._agent = Agent(self.folder / "vm/agent.sock", 60)
        return self._agent

    def disconnect(self) -> None:
        if self._agent:
            self._agent.close()
        self._agent = None

    def end(self) -> None:
        self.disconnect()
        self.virsh("destroy", self.vm.name, check=False)
        self.virsh("undefine", self.vm.name, check=False)
        self.daemon.end()
        pid_file = self.folder / "sockets/libvirtd.pid"
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(pid_file.read_text()), 15)
        wait_until(lambda: not pid_file.exists(), 20, "the end of the other libvirtd")
