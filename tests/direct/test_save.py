"""Virtual GPUs whose memory goes to a file while their programs wait, and comes back."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from lab.daemon import Daemon
from lab.host import vgpuctl
from lab.shell import wait_until
from tenant import Tenant, end

MIB = 1 << 20
DEVICES: list = [{"name": "soft:0", "memory": "512M", "sms": 4}, {"name": "soft:1", "memory": "512M", "sms": 4}]


def _make(device: str, keep: bool = False, swap: str = "4G") -> Daemon:
    return Daemon(device, "band+", name="save", devices=DEVICES if device == "soft" else [device], keep=keep,
                  tables={"swap": {"memory": swap}})


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    daemon = _make(device)
    daemon.create("sleeper", 50, memory="384M" if device == "soft" else "8G")
    try:
        yield Tenant(daemon, "sleeper")
    finally:
        daemon.end()


def _private_mib(tenant: Tenant) -> int:
    """What its runners have of the host's memory that is nobody else's."""
    total = 0
    for process in tenant.view()["live"]["processes"]:
        if not process.get("runner"):
            continue
        lines = pathlib.Path(f"/proc/{process['runner']}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
    return total >> 10


def _restart(tenant: Tenant, **options) -> None:
    os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
    time.sleep(0.3)
    tenant.daemon = _make(tenant.daemon.device, keep=True, **options)
    wait_until(lambda: tenant.view()["live"], 10, "its session")


def _saved(tenant: Tenant) -> str:
    return tenant.view()["live"]["suspension"]["saved"]


def test_programs_count_through_it_and_a_new_vgpud(device, tenant, file):
    programs = [tenant.counting() for _ in range(2)]
    before = _private_mib(tenant)
    assert "saved in" in tenant.ctl("save", str(file))
    if device == "soft":  # on a GPU it was not in the host's before, and what the driver takes off the GPU is
        assert before - _private_mib(tenant) >= 60
    assert file.stat().st_size > 1000 and file.stat().st_mode & 0o777 == 0o600
    assert "in a file" in tenant.ctl("show") and "saved" in vgpuctl("list", variables=tenant.daemon.variables).stdout
    tenant.ctl("resume", refused="is in a file")
    tenant.ctl("save", str(file), refused="is saved already")
    _restart(tenant)
    assert tenant.view()["suspended"] and _saved(tenant)
    if device == "soft":
        assert "soft:1" in tenant.ctl("move", "soft:1")
    assert "restored from" in tenant.ctl("restore", str(file))
    assert not tenant.view()["suspended"] and not _saved(tenant)
    for program in programs:
        assert program.line(10)
        end(program)
    if device == "soft":
        tenant.ctl("move", "soft:0")


def test_a_damaged_file_is_refused_with_words_and_the_right_one_works(tenant, file, tmp_path):
    program = tenant.counting()
    tenant.ctl("save", str(file))
    whole = file.read_bytes()
    bad = tmp_path / "bad"
    for content, words in ((whole[:-5], "cut off"), (whole[:len(whole) // 2], "cut off"), (whole[:8], "no saved"),
                           (whole + b"x", "comes after its end"), (b"x" * 4096, "no saved virtual GPU"),
                           (whole[:len(whole) - 1] + bytes([whole[-1] ^ 1]), "altered"),
                           (whole[:16] + bytes([whole[16] ^ 1]) + whole[17:], "altered"),
                           (whole[:12] + b"\1" + whole[13:], "version 1")):
        bad.write_bytes(content)
        assert words in tenant.ctl("restore", str(bad), refused="is not restored")
        assert _saved(tenant)
    tenant.ctl("restore", str(file))
    end(program)


def test_an_earlier_file_is_another(tenant, file, tmp_path):
    program = tenant.counting()
    tenant.ctl("save", str(file))
    tenant.ctl("restore", str(file))
    tenant.ctl("save", str(tmp_path / "later"))
    tenant.ctl("restore", str(file), refused="it is another one")
    tenant.ctl("restore", str(tmp_path / "later"))
    tenant.ctl("restore", str(file), refused="is not suspended")
    end(program)


def test_where_the_disk_is_full_all_stays(tenant, tmp_path):
    program = tenant.counting()
    old = tmp_path / "full"
    old.write_text("what was there")
    (tmp_path / "full.part").mkdir()  # cannot be made
    tenant.ctl("save", str(old), refused="its programs go on")
    assert program.line(10)
    tenant.ctl("save", "/dev/full/x", refused="its programs go on")
    assert old.read_text() == "what was there" and program.line(10)
    end(program)


def test_a_disk_that_is_full_in_the_middle_keeps_what_was_there(tenant, tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path], check=False).returncode != 0:
        pytest.skip("nothing may be mounted here")
    try:
        program, old = tenant.counting(), tmp_path / "sleeper.save"
        old.write_text("what was there")
        for words in ([], ["--all"]):
            tenant.ctl("save", str(old), *words, refused="No space left on device")
            assert program.line(10) and old.read_text() == "what was there" and os.listdir(tmp_path) == [old.name]
        end(program)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_who_goes_in_the_middle_changes_nothing(tenant, file):
    program = tenant.counting()
    tenant.ctl("suspend")
    way = tenant.daemon.control.need("POST", f"/v1/vgpus/{tenant.name}/save")
    assert not _saved(tenant) and way["token"] and way["socket"].endswith("files.sock")
    tenant.ctl("resume")
    assert program.line(10)
    end(program)
    assert not file.exists()


def test_what_is_shared_is_refused_before_anything(tenant, file):
    program = tenant.counting(8, "share")
    tenant.ctl("save", str(file), refused="share")
    assert program.line(10) and not file.exists()
    end(program)


def test_a_program_that_ends_meanwhile_needs_nothing(tenant, file):
    program, other = tenant.counting(8), tenant.counting(8)
    tenant.ctl("save", str(file))
    program.kill()
    program.wait()
    wait_until(lambda: len(tenant.view()["live"]["processes"]) == 1, 10, "the end of its runner")
    tenant.ctl("restore", str(file))
    end(other)


@pytest.mark.parametrize("back", [["resume"], ["restore", "FILE"]])
def test_once_all_have_ended_nothing_is_needed(tenant, file, back):
    program = tenant.counting(8)
    tenant.ctl("save", str(file))
    program.kill()
    program.wait()
    wait_until(lambda: not tenant.view()["live"]["processes"], 10, "the end of its runner")
    tenant.ctl(*(str(file) if word == "FILE" else word for word in back))
    end(tenant.counting(8))


def test_one_without_programs_is_saved_and_restored(tenant, file):
    tenant.ctl("save", str(file))
    arrives = tenant.start("suspend.cu", 8)  # and waits
    tenant.ctl("restore", str(file))
    assert arrives.first_line("ready")
    end(arrives)


def test_its_room_in_the_hosts_memory_is_for_others(tenant, file):
    program = tenant.counting()
    tenant.ctl("save", str(file))
    _restart(tenant, swap="16M")
    tenant.ctl("restore", str(file), refused="'swap.memory' allows 16.0 MiB")
    _restart(tenant)
    tenant.ctl("restore", str(file))
    end(program)
