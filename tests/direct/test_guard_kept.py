"""Guarded virtual GPUs whose programs are suspended, saved, moved, swapped or asleep: they count through it, and the
guard holds after it."""
import pytest

from lab.daemon import Daemon
from lab.shell import wait_until
from lab.started import Started
from tenant import Tenant, end

DEVICES: list = [{"name": f"soft:{index}", "memory": "512M", "sms": 4} for index in range(2)]
KEPT = "a kernel was kept from"  # by the guard, not by the device
IDLE_S = 1


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    if device != "soft":
        pytest.skip("programs on a GPU neither move nor are saved")
    daemon = Daemon("soft", "band+", name="kept", devices=DEVICES, tables={"swap": {"memory": "2G"}})
    daemon.create("guarded", 50, "--gpu", "soft:0", "--guard", "on", memory="192M")
    daemon.create("other", 20, "--gpu", "soft:0", "--guard", "on", memory="64M")
    try:
        yield Tenant(daemon, "guarded")
    finally:
        daemon.end()


def _kept(tenant: Tenant) -> int:
    return (tenant.daemon.run / tenant.name / "session.log").read_text(errors="replace").count(KEPT)


def _stepping(tenant: Tenant) -> Started:
    program = tenant.start("suspend.cu", tenant.mib, "steps")
    program.first_line("ready")
    return program


def _step(program: Started, number: int) -> None:
    program.say("step")
    assert program.line(30).strip() == f"{number}"


def _asleep(tenant: Tenant) -> bool:
    return tenant.view()["live"]["suspension"]["asleep"]


def _suspend(tenant: Tenant, _folder) -> None:
    tenant.ctl("suspend")
    assert tenant.view()["live"]["memory_used"] == tenant.view()["live"]["memory_swapped"]
    tenant.ctl("resume")


def _save(tenant: Tenant, folder) -> None:
    tenant.ctl("save", str(folder / "guarded.save"))
    tenant.ctl("restore", str(folder / "guarded.save"))


def _save_and_move(tenant: Tenant, folder) -> None:
    tenant.ctl("save", str(folder / "guarded.save"))
    tenant.ctl("move", "soft:1")
    tenant.ctl("restore", str(folder / "guarded.save"))
    tenant.ctl("move", "soft:0")


def _move(tenant: Tenant, _folder) -> None:
    tenant.ctl("move", "soft:1")
    tenant.ctl("move", "soft:0")


def _sleep(tenant: Tenant, _folder) -> None:
    tenant.ctl("set", "--idle-suspend", str(IDLE_S))
    wait_until(lambda: _asleep(tenant), 20, "its sleep")
    tenant.ctl("set", "--idle-suspend", "never")


def _swap(tenant: Tenant, _folder) -> None:
    """Not all of its programs' memory has room on the device."""
    assert tenant.view()["live"]["memory_swapped"] > 0


@pytest.mark.parametrize("way", [_suspend, _save, _save_and_move, _move, _sleep, _swap])
def test_programs_count_and_the_guard_holds(tenant, tmp_path, way):
    tenant.ctl("set", "--resident", "64M" if way is _swap else "all")
    neighbour = Tenant(tenant.daemon, "other").counting(8)
    programs = [_stepping(tenant) for _ in range(3)]
    for number in range(1, 3):
        for program in programs:
            _step(program, number)
    before = _kept(tenant)
    way(tenant, tmp_path)
    for program in programs:
        _step(program, 3)
    astray, *others = programs
    astray.say("wild")
    status, output = astray.finish()
    assert status == 0 and output.endswith("ok\ncode 700\n"), f"{status}: {output[-500:]}"
    wait_until(lambda: _kept(tenant) == before + 1, 5, "the guard's line in the log")
    for program in others:
        _step(program, 4)
        end(program)
    end(neighbour)
