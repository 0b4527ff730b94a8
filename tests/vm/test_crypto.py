"""The guest's kernel as a user of the virtual GPU: vgpu_crypto.ko gives xts(aes), and dm-crypt takes it. Whatever it
makes is compared with what the processor makes."""
import os
import pathlib
import random
import re
import signal

import pytest

from lab import host, image
from lab.paths import BUILD, REPO
from lab.shell import run, wait_until

ON_CPU = "xts(ecb(aes-generic))"
STATE = "/sys/devices/vgpu_crypto"
SECTORS = 8 << 11  # of the encrypted device
TRIED = 4 << 20  # bytes


def build_program() -> pathlib.Path:
    source, program = REPO / "tests/vm/crypto/crypt.c", BUILD / "crypt"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        run(["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-o", program, source])
    return program


class Crypto:
    """The module in the guest, and what it has done."""

    def __init__(self, guest):
        self.guest = guest
        self.key = random.randbytes(64).hex()
        guest.agent().put(build_program(), "/tmp/crypt", 0o755)
        for name in image.CRYPTO_MODULES:
            self.shell(f"[ ! -e /lib/modules/{name}.ko ] || [ -e /sys/module/{name.replace('-', '_')} ] || "
                       f"insmod /lib/modules/{name}.ko")

    def shell(self, command: str, timeout: float = 60) -> str:
        status, said = self.guest.shell(command, timeout)
        assert status == 0, f"{command}: {status}\n{said}"
        return said

    def load(self, least_bytes: int = 1) -> None:
        """With requests of any size for the virtual GPU, the crypto API's self-tests try it and not the processor."""
        self.shell(f"insmod /lib/modules/vgpu_crypto.ko least_bytes={least_bytes}")

    def unload(self) -> None:
        self.guest.shell("/tmp/crypt unmap one; rmmod vgpu_crypto")

    def done(self, where: str) -> int:
        return int(self.shell(f"cat {STATE}/{where}_bytes"))

    def is_ready(self) -> bool:
        return self.shell(f"cat {STATE}/ready").strip() == "1"

    def map(self, cipher: str, sector_bytes: int = 4096) -> str:
        """The encrypted device of /dev/ram0; nothing of an earlier one stays in the page cache."""
        self.guest.shell("/tmp/crypt unmap one")
        return self.shell(f"/tmp/crypt map one {SECTORS} 'capi:{cipher}-plain64' {self.key} 0 /dev/ram0 0 1 "
                          f"sector_size:{sector_bytes}").strip()

    def write(self, device: str) -> str:
        """What was written, as its digest."""
        self.shell(f"dd if=/dev/urandom of=/tmp/plain bs=1M count={TRIED >> 20} 2>/dev/null; "
                   f"dd if=/tmp/plain of={device} bs=1M conv=fsync 2>/dev/null")
        return self.shell("md5sum </tmp/plain")

    def read(self, device: str) -> str:
        return self.shell(f"dd if={device} bs=1M count={TRIED >> 20} 2>/dev/null | md5sum")

    def expect_alike(self) -> None:
        """Each reads what the other has written."""
        for writer, reader in (("xts(aes)", ON_CPU), (ON_CPU, "xts(aes)")):
            written = self.write(self.map(writer))
            assert self.read(self.map(reader)) == written, f"{reader} reads something else than {writer} wrote"

    def kill_runner(self) -> None:
        """As soon as it has one again."""
        found: list[int] = []

        def has_one() -> bool:
            found[:] = [int(process["runner"]) for process in host.live("test0")["processes"]
                        if process["comm"] == "kernel" and int(process["runner"]) > 0]
            return bool(found) and self.is_ready()

        wait_until(has_one, 60, "the virtual GPU's return")
        os.kill(found[0], signal.SIGKILL)


@pytest.fixture
def crypto(guest):
    it = Crypto(guest)
    it.load()
    yield it
    it.unload()
    guest.kernel_is_content()


def test_the_kernels_own_tests_pass_on_the_virtual_gpu(crypto):
    assert crypto.is_ready()
    entry = re.search(r"driver +: xts-aes-vgpu\n.*?\n\n", crypto.shell("cat /proc/crypto"), re.DOTALL)
    assert entry and re.search(r"selftest +: passed", entry[0]), entry
    assert crypto.done("gpu") > 0 and crypto.done("cpu") == 0
    seed = random.randrange(1 << 31)
    said = crypto.shell(f"/tmp/crypt compare xts-aes-vgpu '{ON_CPU}' {seed}")
    assert said.strip() == "same", f"seed {seed}: {said}"
    assert crypto.done("cpu") == 0


def test_an_encrypted_device_is_what_the_processor_makes_it(crypto):
    before = crypto.done("gpu")
    crypto.expect_alike()
    assert crypto.done("gpu") >= before + 2 * TRIED  # dm-crypt took it because of its priority
    assert crypto.done("cpu") == 0
    for module in ("vgpu_crypto", "virtio_vgpu"):
        status, said = crypto.guest.shell(f"rmmod {module}")
        assert status != 0, f"{module} went while it was in use: {said}"


def test_small_requests_are_the_processors(crypto):
    crypto.shell("echo 4096 >/sys/module/vgpu_crypto/parameters/least_bytes")
    before = crypto.done("gpu")
    written = crypto.write(crypto.map("xts(aes)", 512))
    assert crypto.read(crypto.map(ON_CPU, 512)) == written
    assert crypto.done("gpu") == before and crypto.done("cpu") >= TRIED


def test_nothing_is_lost_when_its_runner_dies(crypto):
    device = crypto.map("xts(aes)")
    crypto.kill_runner()
    written = crypto.write(device)
    assert crypto.done("cpu") > 0
    assert crypto.read(crypto.map(ON_CPU)) == written
    wait_until(crypto.is_ready, 30, "the virtual GPU's return")
    crypto.expect_alike()


@pytest.mark.full
def test_killed_again_and_again_while_it_writes(crypto):
    device = crypto.map("xts(aes)")
    crypto.shell(f"dd if=/dev/urandom of=/tmp/plain bs=1M count={TRIED >> 20} 2>/dev/null")
    crypto.shell(f"(for i in 1 2 3 4 5 6 7 8 9 10 11 12; do dd if=/tmp/plain of={device} bs=64k conv=fsync; sleep 0.3; "
                 "done; touch /tmp/written) >/dev/null 2>&1 </dev/null &")
    for _ in range(4):
        crypto.kill_runner()
    wait_until(lambda: crypto.guest.shell("ls /tmp/written")[0] == 0, 120, "the writer's end")
    assert crypto.read(crypto.map(ON_CPU)) == crypto.shell("md5sum </tmp/plain")


@pytest.mark.full
def test_the_device_may_go_and_come_back(crypto):
    device = crypto.map("xts(aes)")
    crypto.shell("cd /sys/bus/virtio/drivers/virtio_vgpu && ls -d virtio* >/tmp/bound && cat /tmp/bound >unbind")
    written = crypto.write(device)
    assert crypto.read(crypto.map(ON_CPU)) == written
    assert not crypto.is_ready()
    crypto.shell("cat /tmp/bound >/sys/bus/virtio/drivers/virtio_vgpu/bind")
    wait_until(crypto.is_ready, 70, "the virtual GPU's return")
    crypto.expect_alike()


@pytest.mark.full
def test_it_does_not_wait_for_a_suspended_virtual_gpu(crypto):
    crypto.shell("echo 500 >/sys/module/vgpu_crypto/parameters/timeout_ms")
    device = crypto.map("xts(aes)")
    host.vgpuctl("suspend", "test0")
    try:
        written = crypto.write(device)
        assert crypto.done("cpu") > 0
        assert crypto.read(crypto.map(ON_CPU)) == written
    finally:
        host.vgpuctl("resume", "test0")
    wait_until(crypto.is_ready, 120, "the virtual GPU's return")
    crypto.expect_alike()
