"""A domain goes from one host to another, and its programs on a virtual GPU with it; or it stays, and they too."""
import concurrent.futures
import os
import signal
import time

import pytest

from lab import host
from lab.counting import Counting
from lab.other_host import OtherHost, remote
from lab.paths import environment
from lab.vm import SHARED, Vm, root_ports

pytestmark = pytest.mark.full
VM = Vm("moves0", "moves0", others=("moves1",))
LOOPBACK = "tcp://127.0.0.1"
HERE = remote(environment()["BANDSAW_RUN"], environment()["BANDSAW_STATE"])


@pytest.fixture(name="guest")
def _guest(lab, guest_of):
    if not host.has_hook():
        pytest.skip("libvirt here is the host's own, or there is none")
    VM.remove()
    VM.create_vgpu("128M", 1, 1)
    VM.define(devices=root_ports(2), backing=SHARED)
    VM.start()
    guest = guest_of(VM)
    guest.agent()
    host.vgpuctl("set", "moves0", "--cap", "90", "--priority", "3", "--kernel-deadline-ms", "60000", "--limit",
                 "processes=9", "--idle-suspend", "3600", "--host-memory", "8G")
    for number, vgpu in enumerate(("moves0", "moves1")):
        host.vgpuctl("attach", vgpu, "moves0", "--live")
        guest.shell(f"while ! ls /dev/vgpu{number}; do sleep 0.2; done")
    try:
        yield guest
    finally:
        VM.remove()


@pytest.fixture(name="other_host")
def _other_host(guest):
    """Makes one, whose device is as its arguments say."""
    made: list[OtherHost] = []

    def make(**daemon) -> OtherHost:
        made.append(OtherHost(VM, **daemon))
        return made[0]

    yield make
    for one in made:
        one.end()


def _words(other: OtherHost, *words: str) -> list[str]:
    return ["migrate", "moves0", other.uri, "--remote", other.remote, "--migrate-uri", LOOPBACK,
            "--migrate-back-uri", LOOPBACK, *words]


def _migrate(other: OtherHost, *words: str, refused: str = "") -> str:
    done = host.vgpuctl(*_words(other, *words), check=False)
    said = done.stdout + done.stderr
    assert done.returncode == (1 if refused else 0) and refused in said, said + other.daemon.evidence()
    VM.disconnect()
    return said


def _settings(view: dict) -> dict:
    """What a virtual GPU is promised, and what it may not."""
    return {name: view[name] for name in
            ("memory", "compute", "copy", "cap", "reserve", "priority", "resident", "host_memory", "kernel_deadline_ms",
             "idle_suspend_s", "limits", "owner", "guard", "allow_machine_code", "clear_shared")}


def _left_nothing(tmp_path) -> None:
    assert not os.listdir(tmp_path)


def _goes_on_unharmed(guest, boot: str, tmp_path) -> None:
    """The domain was never started anew, and no file of its way is left."""
    assert guest.boot_id() == boot and VM.running()
    guest.runs_programs()
    guest.kernel_is_content()
    _left_nothing(tmp_path)


def test_programs_count_from_one_host_to_the_other_and_back(guest, guest_of, other_host, tmp_path):
    programs = [Counting(guest, f"on{number}", 4, variables=f"CUDA_VISIBLE_DEVICES={number}") for number in range(2)]
    assert [len(host.live(vgpu)["processes"]) for vgpu in ("moves0", "moves1")] == [1, 1]
    boot = guest.boot_id()
    other = other_host()
    settings = _settings(host.vgpuctl_json("show", "moves0"))
    print(_migrate(other, "--folder", str(tmp_path), "--json"))
    assert _settings(other.daemon.control.need("GET", "/v1/vgpus/moves0")) == settings
    assert not [vgpu for vgpu in host.vgpuctl_json("list") if vgpu["name"].startswith("moves")]
    assert not VM.running() and other.virsh("domstate", "moves0").stdout.strip() == "running"
    for program in programs:
        program.guest = guest_of(other)
        program.goes_on()

    other.disconnect()
    back = host.vgpuctl("migrate", "moves0", host.libvirt_uri(), "--connect", other.uri, "--remote", HERE,
                        "--migrate-uri", LOOPBACK, "--folder", str(tmp_path), variables=other.daemon.variables)
    print(back.stdout)
    for program in programs:
        program.guest = guest
        program.goes_on()
        program.finish()
    _goes_on_unharmed(guest, boot, tmp_path)


@pytest.mark.parametrize(("devices", "lacks", "refused"), [
    (None, "initramfs", "migrating the domain: "),
    ([{"name": "soft:0", "memory": "512M", "sms": 2}], "", "other SMs"),
], ids=["the_domain", "its_programs"])
def test_what_cannot_go_stays_as_it_was(guest, other_host, tmp_path, devices, lacks, refused):
    program = Counting(guest, "stays", 4)
    boot, before = guest.boot_id(), host.vgpuctl_json("show", "moves0")
    other = other_host(devices=devices)
    if lacks:
        (other.folder / "vm" / lacks).unlink()
    said = _migrate(other, "--folder", str(tmp_path), refused=refused)
    assert "all is as it was" in said, said
    program.goes_on()
    program.finish()
    _goes_on_unharmed(guest, boot, tmp_path)
    assert not other.virsh("list", "--all", "--name").stdout.strip()
    assert not other.daemon.control.need("GET", "/v1/vgpus")
    after = host.vgpuctl_json("show", "moves0")
    assert {name: before[name] for name in ("domain", "memory", "suspended")} == \
        {name: after[name] for name in ("domain", "memory", "suspended")}


def test_a_runner_killed_on_the_way_ends_its_own_program_and_the_others_go(guest, guest_of, other_host, tmp_path):
    """It does not come to rest, so that the migration waits for it."""
    program = Counting(guest, "lives", 4)
    killed = Counting(guest, "killed", 4)
    boot = guest.boot_id()
    other = other_host()
    runner = host.live("moves0")["processes"][-1]["runner"]
    os.kill(runner, signal.SIGSTOP)
    with concurrent.futures.ThreadPoolExecutor() as beside:
        migration = beside.submit(host.vgpuctl, *_words(other, "--folder", str(tmp_path)), check=False)
        time.sleep(1)
        assert not migration.done()
        os.kill(runner, signal.SIGKILL)
    VM.disconnect()
    done = migration.result()
    assert done.returncode == 0, done.stdout + done.stderr
    program.guest = killed.guest = guest_of(other)
    program.goes_on()
    assert "cudaErrorDevicesUnavailable" in killed.last_line()
    program.finish()
    assert program.guest.boot_id() == boot
    _left_nothing(tmp_path)
