"""An encrypted block device in a guest, over memory: made by the kernel's device mapper with any cipher it has."""
import pathlib
import random

from lab import image
from lab.agent import Agent
from lab.paths import BUILD, REPO
from lab.shell import Failure, run

ON_CPU = "xts(ecb(aes-generic))"
STATE = "/sys/devices/vgpu_crypto"
SECTORS = 8 << 11  # of 512 bytes; what /dev/ram0 has at least


def build_program() -> pathlib.Path:
    """What asks the device mapper: a guest of the lab has no dmsetup."""
    source, program = REPO / "tools/lab/agent/crypt.c", BUILD / "crypt"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", program, source])
    return program


class Disk:
    """The device, and the module vgpu_crypto under it."""

    def __init__(self, agent: Agent):
        self.agent = agent
        self.key = random.randbytes(64).hex()
        agent.put(build_program(), "/tmp/crypt", 0o755)
        for name in image.CRYPTO_MODULES:
            self.shell(f"[ ! -e /lib/modules/{name}.ko ] || [ -e /sys/module/{name.replace('-', '_')} ] || "
                       f"insmod /lib/modules/{name}.ko")

    def shell(self, command: str, timeout: float = 60) -> str:
        status, said = self.agent.shell(command, timeout)
        if status != 0:
            raise Failure(f"in the guest: {command}: {status}\n{said}")
        return said

    def load(self, least_bytes: int = 1) -> None:
        """With requests of any size for the virtual GPU, the crypto API's self-tests try it and not the processor."""
        self.shell(f"insmod /lib/modules/vgpu_crypto.ko least_bytes={least_bytes}")

    def unload(self) -> None:
        self.agent.shell("/tmp/crypt unmap one; rmmod vgpu_crypto")

    def done(self, where: str) -> int:
        """Bytes, of "gpu" or "cpu"."""
        return int(self.shell(f"cat {STATE}/{where}_bytes"))

    def is_ready(self) -> bool:
        return self.shell(f"cat {STATE}/ready").strip() == "1"

    def map(self, cipher: str, sector_bytes: int = 4096) -> str:
        """The device's path; nothing of an earlier one stays in the page cache."""
        self.agent.shell("/tmp/crypt unmap one")
        return self.shell(f"/tmp/crypt map one {SECTORS} 'capi:{cipher}-plain64' {self.key} 0 /dev/ram0 0 1 "
                          f"sector_size:{sector_bytes}").strip()

    def fill(self, mib: int) -> str:
        """Makes what is to be written; its digest."""
        self.shell(f"dd if=/dev/urandom of=/tmp/plain bs=1M count={mib} 2>/dev/null")
        return self.shell("md5sum </tmp/plain")

    def write(self, device: str, mib: int) -> str:
        """Makes it, writes it."""
        digest = self.fill(mib)
        self.shell(f"dd if=/tmp/plain of={device} bs=1M conv=fsync 2>/dev/null")
        return digest

    def read(self, device: str, mib: int) -> str:
        return self.shell(f"dd if={device} bs=1M count={mib} 2>/dev/null | md5sum")

    def is_filled(self, mib: int) -> bool:
        """Whether the processor reads there what was made."""
        return self.read(self.map(ON_CPU), mib) == self.shell("md5sum </tmp/plain")
