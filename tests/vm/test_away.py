"""A virtual GPU goes and comes while its programs live: what they had there is in a file meanwhile, and they wait."""
import os
import signal

import pytest

from lab import host
from lab.counting import Counting
from lab.shell import wait_until
from lab.vm import SHARED, Vm, root_ports

VM = Vm("away0", "away0")
SECONDS = 30


@pytest.fixture(name="guest", scope="module")
def _guest(lab, guest_of):
    """Its virtual GPU has come while it runs, so that it can go."""
    if not host.has_hook():
        pytest.skip("libvirt here is the host's own, or there is none")
    VM.remove()
    VM.create_vgpu("128M", 1, 1)
    VM.define(devices=root_ports(), backing=SHARED)
    VM.start()
    guest = guest_of(VM)
    guest.agent()
    _plug(guest)
    try:
        yield guest
    finally:
        VM.remove()


@pytest.fixture(name="file")
def _file(tmp_path):
    return str(tmp_path / "away0.save")


def _plug(guest) -> None:
    host.vgpuctl("attach", "away0", "away0", "--live")
    wait_until(lambda: guest.shell("ls /dev/vgpu0")[0] == 0, SECONDS, "the device")


def _unplug(guest) -> None:
    host.vgpuctl("detach", "away0", "--live")
    assert guest.shell("ls /dev/vgpu0")[0] != 0


def _pinned(guest) -> int:
    """Pages that are pinned in the whole guest; its processors add up after a while."""
    acquired, released = map(int, guest.shell("awk '/nr_foll_pin/ {print $2}' /proc/vmstat")[1].split())
    return acquired - released


def _save(file: str) -> None:
    host.vgpuctl("save", "away0", file, "--all")


def _restore(file: str, *words: str) -> None:
    host.vgpuctl("restore", "away0", file, *words)


def test_a_program_counts_on_when_its_virtual_gpu_is_back(guest, file):
    program = Counting(guest, "one", 4)
    _save(file)
    _unplug(guest)
    before = program.rounds()
    _plug(guest)
    assert program.rounds() == before
    _restore(file)
    program.goes_on()
    program.finish()
    guest.kernel_is_content()


@pytest.mark.full
def test_so_do_several_in_another_session_and_again(guest, file):
    programs = [Counting(guest, "plain", 4), Counting(guest, "array", 1, "array"), Counting(guest, "graph", 1, "graph"),
                *(Counting(guest, kind, kind, source="save_memory") for kind in ("managed", "host", "mapped")),
                *(Counting(guest, f"graph-{kind}", kind, source="save_graphs") for kind in ("memory", "conditional"))]
    guest.busy(600)  # whose copies are from and to its own pages
    for _ in range(2):
        _save(file)
        _unplug(guest)
        session = host.live("away0")["pid"]
        os.kill(session, signal.SIGKILL)
        wait_until(lambda before=session: host.live("away0")["pid"] not in (before, 0), SECONDS, "another session")
        _plug(guest)
        _restore(file)
        for program in programs:
            program.goes_on()
        copied = guest.busy_log()
        wait_until(lambda before=copied: guest.busy_log() != before, SECONDS, "more copies")
        assert "round" in guest.busy_log().splitlines()[-1]
    guest.shell("kill $(pidof busy)")
    for program in programs:
        program.finish()
    guest.runs_programs()
    guest.kernel_is_content()


@pytest.mark.full
def test_requests_on_their_way_wait_for_the_next_device(guest, file):
    """Threads pin pages and let go of them all the time."""
    program = Counting(guest, "pages", 4, 1, source="pages_come_and_go")
    for _ in range(6):
        _save(file)
        _unplug(guest)
        _plug(guest)
        _restore(file)
        program.goes_on()
    program.finish()
    guest.kernel_is_content()
    wait_until(lambda: _pinned(guest) == 0, SECONDS, "the end of all pins")


@pytest.mark.full
def test_who_is_killed_meanwhile_is_given_up_and_leaves_nothing(guest, file):
    program, killed = Counting(guest, "lives", 4), Counting(guest, "killed", 4)
    _save(file)
    _unplug(guest)
    killed.kill()
    _plug(guest)
    refused = host.vgpuctl("restore", "away0", file, check=False)
    assert "1 of its 2 programs has not come here" in refused.stderr, refused.stderr
    _restore(file, "--without-missing")
    program.goes_on()
    program.finish()
    guest.kernel_is_content()


@pytest.mark.full
def test_who_waits_alone_and_ends_lets_the_device_go(guest, file):
    program = Counting(guest, "ends", 4)
    _save(file)
    _unplug(guest)
    program.kill()
    _plug(guest)
    _restore(file, "--without-missing")
    guest.runs_programs()
    guest.kernel_is_content()


@pytest.mark.full
def test_what_is_in_no_file_ends_with_its_device(guest):
    program = Counting(guest, "unsaved", 4)
    _unplug(guest)
    wait_until(lambda: "cudaErrorDevicesUnavailable" in program.last_line(), SECONDS, "its error")
    _plug(guest)
    guest.runs_programs()
    guest.kernel_is_content()


@pytest.mark.full
def test_one_whose_session_is_killed_comes_back_and_can_be_unplugged(guest):
    """It has an interrupt line in place of MSI-X."""
    program = Counting(guest, "lost", 4)
    wait_until(lambda: host.live("away0")["pid"], SECONDS, "the session")
    os.kill(host.live("away0")["pid"], signal.SIGKILL)
    wait_until(lambda: "cudaErrorDevicesUnavailable" in program.last_line(), SECONDS, "its error")
    wait_until(lambda: guest.shell("ls /dev/vgpu0")[0] == 0, SECONDS, "the device")
    guest.runs_programs()
    _unplug(guest)
    _plug(guest)
    guest.runs_programs()
    guest.kernel_is_content()
