"""Virtual GPUs that are saved with all that their programs have, and whose sessions end: the programs find the next."""
import os
import pathlib
import signal

import pytest

from lab.daemon import Daemon
from lab.shell import wait_until
from tenant import Tenant, end

DEVICES: list = [{"name": "soft:0", "memory": "512M", "sms": 4}, {"name": "soft:1", "memory": "512M", "sms": 2}]
MIB = 16


def _make(device: str, keep: bool = False) -> Daemon:
    return Daemon(device, "band+", name="saveaway", devices=DEVICES if device == "soft" else [device], keep=keep,
                  tables={"swap": {"memory": "4G" if device == "soft" else "12G"}, "save": {"on_gpus": True}})


def _create(daemon: Daemon, memory: str = "384M") -> None:
    if daemon.device == "soft":
        daemon.create("sleeper", 50, "--gpu", "soft:0", memory=memory)
    else:
        daemon.create("sleeper", 50, memory="8G")


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    daemon = _make(device)
    _create(daemon)
    try:
        yield Tenant(daemon, "sleeper")
    finally:
        daemon.end()


def _counting(tenant: Tenant, *words):
    return tenant.counting(MIB, *words, source="save_all.cu")


def _states(tenant: Tenant) -> list[str]:
    return [process["state"] for process in (tenant.view()["live"] or {}).get("processes", [])]


def _save(tenant: Tenant, file: pathlib.Path) -> None:
    tenant.ctl("save", str(file), "--all")
    wait_until(lambda: set(_states(tenant)) == {"away"}, 10, "the end of its runners")


def _end_session(tenant: Tenant) -> None:
    before = tenant.view()["live"]["pid"]
    os.kill(before, signal.SIGKILL)
    tenant.await_another_session(before)


def test_programs_count_on_after_their_session_has_ended(device, tenant, file):
    programs = [_counting(tenant), _counting(tenant, "graph")]
    if device == "soft":
        programs.append(_counting(tenant, "pool"))
    for _ in range(2):  # what has come back can be saved again
        _save(tenant, file)
        _end_session(tenant)
        tenant.ctl("restore", str(file))  # which waits for them
        for program in programs:
            assert program.line(10) and program.line(10)
    for program in programs:
        end(program)


def test_they_find_one_that_was_destroyed_and_created_anew(device, tenant, file):
    program = _counting(tenant, *["array"] if device == "soft" else [])
    _save(tenant, file)
    tenant.daemon.destroy("sleeper")
    _create(tenant.daemon, "256M")
    wait_until(lambda: _states(tenant) == ["away"], 10, "the program")
    other = _counting(tenant)  # which has nothing to do with it
    tenant.ctl("restore", str(file), refused="not suspended")
    end(other)
    wait_until(lambda: _states(tenant) == ["away"], 10, "the end of the other")
    tenant.ctl("restore", str(file))
    assert program.line(10)
    end(program)


def test_who_does_not_come_back_is_given_up_by_name_only(tenant, file):
    program, other = _counting(tenant), _counting(tenant)
    _save(tenant, file)
    _end_session(tenant)
    other.kill()
    other.wait()
    wait_until(lambda: _states(tenant) == ["away"], 10, "the one that lives")
    tenant.ctl("restore", str(file), refused="1 of its 2 programs has not come here")
    assert _states(tenant) == ["away"]
    tenant.ctl("restore", str(file), "--without-missing")
    assert program.line(10)
    end(program)


def test_a_file_that_is_not_theirs_gives_them_nothing(tenant, file, tmp_path):
    earlier = tmp_path / "earlier.save"
    program = _counting(tenant)
    _save(tenant, earlier)
    tenant.ctl("restore", str(earlier))
    end(program)
    program = _counting(tenant)
    _save(tenant, file)
    _end_session(tenant)
    whole, bad = file.read_bytes(), tmp_path / "bad"
    for content, words in ((whole[:len(whole) // 2], "cut off"), (whole[:-1] + bytes([whole[-1] ^ 1]), "altered")):
        bad.write_bytes(content)
        tenant.ctl("restore", str(bad), refused=words)
    tenant.ctl("restore", str(earlier), refused="1 of its 1 programs has not come here")
    tenant.ctl("restore", str(file))
    assert program.line(10)
    end(program)


def test_another_kind_of_device_is_refused_and_they_wait_on(device, tenant, file):
    if device != "soft":
        pytest.skip("two devices with different numbers of SMs")
    program = _counting(tenant)
    _save(tenant, file)
    tenant.daemon.destroy("sleeper")
    tenant.daemon.create("sleeper", 50, "--gpu", "soft:1", memory="384M")
    tenant.ctl("restore", str(file), refused="other SMs")
    tenant.daemon.destroy("sleeper")
    tenant.daemon.create("sleeper", 50, "--gpu", "soft:0", memory="384M")
    tenant.ctl("restore", str(file))
    assert program.line(10)
    end(program)


def test_where_nothing_was_saved_programs_end_with_their_session(tenant):
    program = _counting(tenant)
    _end_session(tenant)
    status, output = program.finish(20)
    assert status == 3, output[-300:]


def test_programs_of_two_processes_wait_while_vgpud_is_started_anew(tenant, file):
    programs = [_counting(tenant) for _ in range(2)]
    _save(tenant, file)
    session = tenant.view()["live"]["pid"]
    os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
    os.kill(session, signal.SIGKILL)
    tenant.daemon = _make(tenant.daemon.device, keep=True)
    wait_until(lambda: tenant.view()["live"], 20, "its session")
    tenant.ctl("restore", str(file))
    for program in programs:
        assert program.line(10)
        end(program)
