"""Virtual GPUs that leave their device when they are idle, and come back at the first call."""
import contextlib
import os
import signal
import time

import pytest

from lab.daemon import Daemon
from lab.host import vgpuctl
from lab.shell import wait_until
from lab.started import Started
from tenant import Tenant, end

MIB = 1 << 20
IDLE_S = 1


def _make(device: str, keep: bool = False, swap: str = "2G") -> Daemon:
    devices: list = [device]
    if device == "soft":
        devices = [{"name": "soft:0", "memory": "512M", "sms": 4}, {"name": "soft:1", "memory": "512M", "sms": 4}]
    return Daemon(device, "band+", name="sleep", devices=devices, keep=keep, tables={"swap": {"memory": swap}})


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    daemon = _make(device)
    daemon.create("sleeper", 50, memory="384M" if device == "soft" else "12G")
    tenant = Tenant(daemon, "sleeper")
    tenant.ctl("set", "--idle-suspend", str(IDLE_S))
    try:
        yield tenant
    finally:
        daemon.end()


def _suspension(tenant: Tenant) -> dict:
    return (tenant.view()["live"] or {"suspension": {"state": "", "asleep": False}})["suspension"]


def _until_asleep(tenant: Tenant) -> dict:
    wait_until(lambda: _suspension(tenant)["asleep"], 20, f"its sleep: {_suspension(tenant)}")
    return tenant.view()


def _log(tenant: Tenant) -> str:
    return (tenant.daemon.run.parent / "vgpud.log").read_text(errors="replace")


def _stepping(tenant: Tenant, *words: str) -> Started:
    program = tenant.start("suspend.cu", tenant.mib, *words, "steps")
    program.first_line("ready")
    return program


def _step(program: Started, number: int) -> None:
    program.say("step")
    assert program.line(30).strip() == f"{number}"


def test_a_program_counts_through_several_sleeps(tenant):
    programs = [_stepping(tenant) for _ in range(2)]
    for number in range(1, 4):
        view = _until_asleep(tenant)
        live = view["live"]
        assert live["memory_used"] >= 64 * MIB and live["memory_swapped"] == live["memory_used"]
        assert live["runners"]["warm"] == 0
        wait_until(lambda: tenant.view()["live"]["runners"]["living"] == 2, 10, "the end of its warm runner")
        assert not view["suspended"] and abs(live["suspension"]["since"] - time.time()) < 30
        for program in programs:
            _step(program, number)
        assert not _suspension(tenant)["asleep"] and tenant.view()["live"]["memory_swapped"] == 0
    for program in programs:
        end(program)


def test_who_works_stays_awake(tenant):
    program = tenant.counting()
    begin = time.monotonic()
    while time.monotonic() < begin + 3 * IDLE_S:
        assert not _suspension(tenant)["asleep"] and program.line(5)
    end(program)


def test_it_says_so(tenant):
    program = _stepping(tenant)
    _until_asleep(tenant)
    variables = tenant.daemon.variables
    assert "asleep" in vgpuctl("list", variables=variables).stdout
    assert "asleep since 20" in tenant.ctl("show") and "after 1 s" in tenant.ctl("show")
    assert '"asleep"' in vgpuctl("top", "--json", "--count", "1", variables=variables).stdout
    wait_until(lambda: "asleep: its programs" in _log(tenant), 10, "vgpud's log")
    _step(program, 1)
    end(program)


def test_without_programs_its_warm_runner_ends_and_the_next_program_gets_one(tenant):
    _until_asleep(tenant)
    wait_until(lambda: tenant.view()["live"]["runners"]["living"] == 0, 10, "the end of its warm runner")
    assert _suspension(tenant)["bytes"] == 0
    end(tenant.counting())


def test_an_administrators_suspend_takes_over_and_stays(tenant):
    program = _stepping(tenant)
    _until_asleep(tenant)
    tenant.ctl("resume", refused="is not suspended")
    tenant.ctl("suspend")
    program.say("step")
    assert program.line(1.0) == "" and tenant.view()["suspended"] and not _suspension(tenant)["asleep"]
    tenant.ctl("resume")
    assert program.line(20).strip() == "1"
    _until_asleep(tenant)
    _step(program, 2)
    end(program)


@pytest.mark.full
def test_calls_that_come_while_it_leaves(tenant):
    """Steps at all moments around the end of the idle time."""
    program = _stepping(tenant)
    for number in range(1, 13):
        time.sleep(IDLE_S + 0.1 * number)
        _step(program, number)
    end(program)


def test_a_runner_killed_while_it_sleeps(tenant):
    program, other = _stepping(tenant), _stepping(tenant)
    view = _until_asleep(tenant)
    runners = [process.get("runner") for process in view["live"]["processes"]]
    os.kill(runners[0], signal.SIGKILL)
    wait_until(lambda: len([p for p in tenant.view()["live"]["processes"] if p.get("runner")]) == 1, 10, "its end")
    program.say("step")
    other.say("step")
    lines = [program.line(20).strip(), other.line(20).strip()]
    assert sorted(line == "1" for line in lines) == [False, True], lines
    for one, line in zip((program, other), lines):
        if line == "1":
            end(one)
        else:
            assert one.finish()[0] == 3


def test_a_new_vgpud_lets_it_sleep_and_wakes_it(device, tenant):
    program = _stepping(tenant)
    _until_asleep(tenant)
    pid = tenant.daemon.status()["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: vgpuctl("status", check=False, variables=tenant.daemon.variables).returncode != 0, 10, "its end")
    _step(program, 1)  # without any
    tenant.daemon = _make(device, keep=True)
    _until_asleep(tenant)
    os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
    time.sleep(0.3)
    tenant.daemon = _make(device, keep=True)
    wait_until(lambda: tenant.view()["live"], 10, "its session")
    assert _suspension(tenant)["asleep"]
    _step(program, 2)
    end(program)


def test_it_moves_while_it_sleeps(device, tenant):
    if device != "soft":
        pytest.skip("programs on a GPU stay where they are")
    program = _stepping(tenant)
    _until_asleep(tenant)
    tenant.ctl("move", "soft:1")
    _step(program, 1)
    _until_asleep(tenant)
    assert "soft:0" in tenant.ctl("move", "soft:0")
    _step(program, 2)
    end(program)


def test_what_is_shared_stays_awake(tenant):
    program = _stepping(tenant, "share")
    time.sleep(2.5 * IDLE_S)
    assert not _suspension(tenant)["asleep"]
    _step(program, 1)
    end(program)


def test_it_is_destroyed_while_it_sleeps(device, tenant):
    tenant.daemon.create("gone", 10, memory="64M" if device == "soft" else "1G")
    gone = Tenant(tenant.daemon, "gone")
    gone.mib = 8
    gone.ctl("set", "--idle-suspend", "1")
    program = _stepping(gone)
    _until_asleep(gone)
    gone.ctl("destroy", "--force")
    program.say("step")
    assert program.finish(20)[0] == 3


@pytest.mark.full
def test_without_room_it_stays(device, tenant):
    program = _stepping(tenant)
    os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
    time.sleep(0.3)
    try:
        tenant.daemon = _make(device, keep=True, swap="16M")
        time.sleep(3 * IDLE_S)
        assert not _suspension(tenant)["asleep"]
        wait_until(lambda: "keeps its place" in _log(tenant), 10, "vgpud's log")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
        time.sleep(0.3)
        tenant.daemon = _make(device, keep=True)
    _step(program, 1)
    end(program)
