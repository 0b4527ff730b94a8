"""A virtual machine with a virtual GPU: define, attach, start, talk to, stop."""
import os
import shutil

from lab import host, image
from lab.agent import Agent
from lab.paths import lab_dir
from lab.shell import Failure, step

DOMAIN = """<domain type='{kind}'>
  <name>{name}</name>
  <metadata>{metadata}</metadata>
  <memory unit='MiB'>{memory}</memory>
  {backing}
  <vcpu>2</vcpu>
  <os>
    <type arch='x86_64' machine='q35'>hvm</type>
    <kernel>{folder}/vmlinuz</kernel>
    <initrd>{folder}/initramfs</initrd>
    <cmdline>console=ttyS0 quiet panic=1 {cmdline}</cmdline>
  </os>
  <features><acpi/></features>
  <cpu mode='maximum'>{cpu}</cpu>
  <on_reboot>restart</on_reboot>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <controller type='usb' model='none'/>
    <controller type='virtio-serial' index='0'/>
    <memballoon model='none'/>
    <serial type='file'><source path='{folder}/console.log'/><target port='0'/></serial>
    <channel type='unix'>
      <source mode='bind' path='{folder}/agent.sock'/>
      <target type='virtio' name='org.bandsaw.agent'/>
    </channel>
    {devices}
  </devices>
</domain>
"""
# What `vgpuctl attach` sets for the next start, and one that comes to a running machine needs.
SHARED = "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>"
# Under emulation these make rep movsb look fast to the guest, and it is not.
SLOW_WHEN_EMULATED = "<feature policy='disable' name='erms'/><feature policy='disable' name='fsrm'/>"


def root_ports(free: int = 1) -> str:
    """Where devices can be plugged that come while it runs; libvirt gives the first port to the agent's device."""
    return ("<controller type='pci' index='0' model='pcie-root'/>" +
            (1 + free) * "<controller type='pci' model='pcie-root-port'/>")


def kvm_works() -> bool:
    """Some hosts have /dev/kvm but start only guests of their own kind; people say so with BANDSAW_KVM=1."""
    return os.environ.get("BANDSAW_KVM") == "1" and os.access("/dev/kvm", os.R_OK | os.W_OK)


class Vm:
    """One domain of the lab. Its files lie in lab_dir()/NAME."""

    def __init__(self, name: str, vgpu: str, memory_mib: int = 1024, others: tuple[str, ...] = ()):
        """`others`: virtual GPUs that it has beside `vgpu`."""
        self.name, self.vgpu, self.memory_mib, self.others = name, vgpu, memory_mib, others
        self.folder = lab_dir() / name
        self._agent: Agent | None = None

    def create_vgpu(self, memory: str = "512M", compute: int = 40, copy: int = 40) -> None:
        for vgpu in (self.vgpu, *self.others):
            host.ensure_vgpu(vgpu, memory, compute, copy)

    def define(self, cmdline: str = "", metadata: str = "", devices: str = "", backing: str = "") -> None:
        """Defines the domain anew, without a virtual GPU; `metadata`, `devices` and `backing` are XML."""
        self._copy_image()
        kvm = kvm_works()
        xml = self.folder / "domain.xml"
        xml.write_text(DOMAIN.format(kind="kvm" if kvm else "qemu", name=self.name, folder=self.folder,
                                     cmdline=cmdline, devices=devices, backing=backing,
                                     metadata=metadata, memory=self.memory_mib, cpu="" if kvm else SLOW_WHEN_EMULATED))
        host.virsh("undefine", "--managed-save", self.name, check=False)
        host.virsh("define", str(xml))

    def _copy_image(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(image.kernel() / "vmlinuz", self.folder / "vmlinuz")
        shutil.copy(image.initramfs(), self.folder / "initramfs")

    def attach(self) -> None:
        for vgpu in (self.vgpu, *self.others):
            host.vgpuctl("attach", vgpu, self.name)

    def detach(self) -> None:
        host.vgpuctl("detach", self.vgpu)

    def running(self) -> bool:
        return host.virsh("domstate", self.name, check=False).stdout.strip() == "running"

    def start(self) -> None:
        (self.folder / "console.log").unlink(missing_ok=True)
        host.virsh("start", self.name)

    def destroy(self) -> None:
        """As if its power had failed."""
        host.virsh("destroy", self.name, check=False)

    def undefine(self) -> None:
        host.virsh("undefine", "--managed-save", self.name, check=False)

    def agent(self, seconds: float = 90) -> Agent:
        if self._agent is None:
            try:
                self._agent = Agent(self.folder / "agent.sock", seconds)
            except Failure as failure:
                raise Failure(f"{failure}\n  the console ended with:\n{self.console_tail()}") from failure
        return self._agent

    def disconnect(self) -> None:
        if self._agent:
            self._agent.close()
        self._agent = None

    def console_tail(self, lines: int = 12) -> str:
        log = self.folder / "console.log"
        text = log.read_text(errors="replace") if log.exists() else "(no console output)"
        return "\n".join("    " + line for line in text.splitlines()[-lines:])

    def stop(self) -> None:
        self.disconnect()
        if self.running():
            self.destroy()

    def remove(self) -> None:
        self.stop()
        for vgpu in (self.vgpu, *self.others):
            if host.vgpuctl("show", vgpu, check=False).returncode == 0:
                host.vgpuctl("detach", vgpu, check=False)
                host.vgpuctl("destroy", vgpu, check=False)
        self.undefine()

    def up(self, memory: str = "512M", share: int = 40) -> None:
        """From nothing to a guest that answers."""
        if not self.running():
            self.create_vgpu(memory, share, share)
            self.define()
            self.attach()
            with step(f"booting {self.name} (about 6 s emulated)"):
                self.start()
                self.agent()
        else:
            self.agent()
