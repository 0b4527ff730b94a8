"""The guest's kernel as a user of the virtual GPU: vgpu_crypto.ko gives xts(aes), and dm-crypt takes it. Whatever it
makes is compared with what the processor makes."""
import os
import pathlib
import random
import re
import shutil
import signal

import pytest

from lab import host, image
from lab.encrypted import ON_CPU, Disk
from lab.paths import REPO
from lab.shell import run, wait_until

TRIED_MIB = 4


class Crypto(Disk):
    """The device in the guest of these tests."""

    def __init__(self, guest):
        super().__init__(guest.agent())
        self.guest = guest

    def written(self, cipher: str, sector_bytes: int = 4096) -> str:
        return self.write(self.map(cipher, sector_bytes), TRIED_MIB)

    def read_by(self, cipher: str, sector_bytes: int = 4096) -> str:
        return self.read(self.map(cipher, sector_bytes), TRIED_MIB)

    def expect_alike(self) -> None:
        """Each reads what the other has written."""
        for writer, reader in (("xts(aes)", ON_CPU), (ON_CPU, "xts(aes)")):
            assert self.written(writer) == self.read_by(reader), f"{reader} reads something else than {writer} wrote"

    def kill_runner(self) -> None:
        """As soon as it has one again."""
        found: list[int] = []

        def has_one() -> bool:
            found[:] = [int(process["runner"]) for process in host.live("test0")["processes"]
                        if process["comm"] == "kernel" and "runner" in process]
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
    assert crypto.done("gpu") >= before + 2 * (TRIED_MIB << 20)  # dm-crypt took it because of its priority
    assert crypto.done("cpu") == 0
    for module in ("vgpu_crypto", "virtio_vgpu"):
        status, said = crypto.guest.shell(f"rmmod {module}")
        assert status != 0, f"{module} went while it was in use: {said}"


@pytest.mark.full
def test_small_requests_are_the_processors(crypto):
    crypto.shell("echo 4096 >/sys/module/vgpu_crypto/parameters/least_bytes")
    before = crypto.done("gpu")
    assert crypto.written("xts(aes)", 512) == crypto.read_by(ON_CPU, 512)
    assert crypto.done("gpu") == before and crypto.done("cpu") >= TRIED_MIB << 20


def test_nothing_is_lost_when_its_runner_dies(crypto):
    device = crypto.map("xts(aes)")
    crypto.kill_runner()
    written = crypto.write(device, TRIED_MIB)
    assert crypto.done("cpu") > 0
    assert crypto.read_by(ON_CPU) == written
    wait_until(crypto.is_ready, 30, "the virtual GPU's return")
    crypto.expect_alike()


@pytest.mark.full
def test_killed_again_and_again_while_it_writes(crypto):
    device = crypto.map("xts(aes)")
    digest = crypto.fill(TRIED_MIB)
    crypto.shell(f"(for i in 1 2 3 4 5 6 7 8 9 10 11 12; do dd if=/tmp/plain of={device} bs=64k conv=fsync; sleep 0.3; "
                 "done; touch /tmp/written) >/dev/null 2>&1 </dev/null &")
    for _ in range(4):
        crypto.kill_runner()
    wait_until(lambda: crypto.guest.shell("ls /tmp/written")[0] == 0, 120, "the writer's end")
    assert crypto.read_by(ON_CPU) == digest


@pytest.mark.full
def test_the_device_may_go_and_come_back(crypto):
    device = crypto.map("xts(aes)")
    crypto.shell("cd /sys/bus/virtio/drivers/virtio_vgpu && ls -d virtio* >/tmp/bound && cat /tmp/bound >unbind")
    written = crypto.write(device, TRIED_MIB)
    assert crypto.read_by(ON_CPU) == written
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
        written = crypto.write(device, TRIED_MIB)
        assert crypto.done("cpu") > 0
        assert crypto.read_by(ON_CPU) == written
    finally:
        host.vgpuctl("resume", "test0")
    wait_until(crypto.is_ready, 120, "the virtual GPU's return")
    crypto.expect_alike()


@pytest.mark.full
def test_many_keys_at_once(crypto):
    """More than a batch has room for, while an encrypted device is written."""
    device = crypto.map("xts(aes)")
    compare = f"/tmp/crypt compare xts-aes-vgpu '{ON_CPU}'"
    crypto.shell(f"rm -f /tmp/said; for seed in $(seq 12); do {compare} $seed >>/tmp/said & done; wait", 300)
    assert crypto.shell("cat /tmp/said").split() == ["same"] * 12
    crypto.shell(f"for seed in 1 2 3 4; do {compare} $seed >>/tmp/said & done; wait & "
                 f"dd if=/dev/zero of={device} bs=1M count={TRIED_MIB} conv=fsync 2>/dev/null; wait", 300)
    written = crypto.write(device, TRIED_MIB)
    assert crypto.read_by(ON_CPU) == written
    assert crypto.done("cpu") == 0


@pytest.mark.full
def test_it_may_be_loaded_before_there_is_a_virtual_gpu(guest):
    crypto = Crypto(guest)
    crypto.shell("cd /sys/bus/virtio/drivers/virtio_vgpu && ls -d virtio* >/tmp/bound && cat /tmp/bound >unbind")
    crypto.load()
    try:
        assert not crypto.is_ready() and crypto.done("gpu") == 0
        crypto.expect_alike()
        crypto.shell("cat /tmp/bound >/sys/bus/virtio/drivers/virtio_vgpu/bind")
        wait_until(crypto.is_ready, 70, "the virtual GPU")
        crypto.expect_alike()
        assert crypto.done("gpu") >= 2 * (TRIED_MIB << 20)
    finally:
        crypto.unload()
    guest.kernel_is_content()


def other_calls(folder: pathlib.Path) -> pathlib.Path:
    """vgpu_calls.h as of a release in which all calls but the first have other opcodes."""
    shutil.copytree(REPO / "tools/gen", folder / "tools/gen")
    shutil.copytree(REPO / "guest-driver/uapi", folder / "guest-driver/uapi")
    shutil.copy(REPO / "meson.build", folder / "meson.build")
    rows = folder / "guest-driver/uapi/calls/wire.toml"
    head, *calls = re.split(r"(?m)^(?=\[)", rows.read_text())
    rows.write_text("\n".join([head, calls[0], *reversed(calls[1:])]))
    header = folder / "vgpu_calls.h"
    run(["/usr/bin/python3", folder / "tools/gen", "wire_calls", "--out", header], what="generating vgpu_calls.h")
    assert header.read_text() != image.calls_header().read_text()
    return header


@pytest.mark.full
def test_a_module_of_another_release_learns_the_hosts_opcodes(guest, tmp_path):
    calls = other_calls(tmp_path)
    crypto = Crypto(guest)
    crypto.shell("rmmod virtio_vgpu")
    try:
        for name in ("virtio_vgpu", "vgpu_crypto"):
            guest.agent().put(image.build_module(name=name, calls=calls), f"/tmp/{name}.ko")
        crypto.shell("insmod /tmp/virtio_vgpu.ko && insmod /tmp/vgpu_crypto.ko least_bytes=1")
        assert crypto.is_ready()
        crypto.expect_alike()
        assert crypto.done("cpu") == 0
    finally:
        crypto.unload()
        crypto.shell("rmmod virtio_vgpu; insmod /lib/modules/virtio_vgpu.ko")
    guest.runs_programs()
    guest.kernel_is_content()
