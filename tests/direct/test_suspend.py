"""Virtual GPUs that are suspended: their programs wait, and what they held of the device is free."""
import concurrent.futures
import os
import signal
import time

import pytest

from lab.daemon import Daemon
from lab.host import vgpuctl
from lab.shell import wait_until
from lab.started import Started
from tenant import Tenant, end

TABLES = {"swap": {"memory": "2G"}}
MIB = 1 << 20


def _make(device: str, keep: bool = False, tables: dict | None = None) -> Daemon:
    devices: list = [{"name": "soft:0", "memory": "512M", "sms": 4}] if device == "soft" else [device]
    return Daemon(device, "band+", name="suspend", devices=devices, keep=keep, tables=tables or TABLES)


def _on_device(tenant: Tenant) -> int:
    live = tenant.view()["live"]
    return live["memory_used"] - live["memory_swapped"]


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    daemon = _make(device)
    daemon.create("sleeper", 50, memory="384M" if device == "soft" else "12G")
    try:
        yield Tenant(daemon, "sleeper")
    finally:
        daemon.end()


@pytest.fixture(autouse=True)
def _awake(tenant):
    yield
    vgpuctl("resume", tenant.name, check=False, variables=tenant.daemon.variables)


def _is_silent(program: Started, seconds: float) -> bool:
    """Whether it says nothing for so long, once what it had said before is read."""
    while program.line(0.1):
        pass
    return program.line(seconds) == "" and program.poll() is None


def test_programs_wait_and_go_on(tenant):
    programs = [tenant.counting() for _ in range(2)]
    assert _on_device(tenant) >= 64 * MIB
    before = vgpuctl("list", variables=tenant.daemon.variables).stdout
    assert "suspended" in tenant.ctl("suspend") and "suspended" not in before
    assert all(_is_silent(program, 0.4) for program in programs)
    assert "suspended" in vgpuctl("list", variables=tenant.daemon.variables).stdout
    assert "resume" in tenant.ctl("show")
    view = tenant.view()
    assert view["suspended"] and view["suspended_bytes"] >= 64 * MIB and _on_device(tenant) == 0
    assert tenant.daemon.status()["devices"][0]["memory_given"] == 0
    tenant.ctl("resume")
    for program in programs:
        assert program.line(10) and _on_device(tenant) >= 32 * MIB
        end(program)


def test_twice_is_refused(tenant):
    tenant.ctl("resume", refused="is not suspended")
    tenant.ctl("suspend")
    tenant.ctl("suspend", refused="is suspended already")


def test_again_and_again_while_it_works(tenant):
    program = tenant.counting()
    for _ in range(5):
        tenant.ctl("suspend")
        tenant.ctl("resume")
        assert program.line(10)
    end(program)


def test_of_two_at_once_one_is_refused(tenant):
    program = tenant.counting()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: vgpuctl("suspend", tenant.name, check=False,
                                               variables=tenant.daemon.variables), range(2)))
    assert sorted(one.returncode for one in done) == [0, 1], [one.stderr for one in done]
    tenant.ctl("resume")
    end(program)


def test_what_starts_meanwhile_waits(tenant):
    tenant.ctl("suspend")
    program = tenant.start("suspend.cu", 8)
    assert program.line(0.8) == "" and program.poll() is None
    tenant.ctl("resume")
    program.first_line("ready")
    end(program)


def test_what_is_shared_is_refused(tenant):
    program = tenant.counting(8, "share")
    tenant.ctl("suspend", refused="share")
    assert program.line(10)
    end(program)


def test_without_room_nothing_is_touched(device, tenant):
    others = tenant.daemon
    pid = others.status()["pid"]
    program = tenant.counting()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: vgpuctl("status", check=False, variables=others.variables).returncode != 0, 10, "its end")
    try:
        tenant.daemon = _make(device, keep=True, tables={"swap": {"memory": "16M"}})
        tenant.ctl("suspend", refused="'swap.memory' allows 16.0 MiB")
        assert program.line(10)
    finally:
        os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
        tenant.daemon = _make(device, keep=True)
    end(program)


def test_a_new_vgpud_keeps_it_suspended(device, tenant):
    program = tenant.counting()
    tenant.ctl("suspend")
    os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
    time.sleep(0.3)
    tenant.daemon = _make(device, keep=True)
    wait_until(lambda: tenant.view()["live"], 10, "its session")
    assert tenant.view()["suspended"] and _on_device(tenant) == 0
    assert _is_silent(program, 0.4)
    tenant.ctl("resume")
    end(program)


def test_vgpud_killed_in_the_middle(device, tenant):
    program = tenant.counting()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(vgpuctl, "suspend", tenant.name, check=False, variables=tenant.daemon.variables)
        time.sleep(0.01)
        os.kill(tenant.daemon.status()["pid"], signal.SIGKILL)
        asked.result()
    tenant.daemon = _make(device, keep=True)
    wait_until(lambda: tenant.view()["live"], 10, "its session")
    if tenant.view()["suspended"]:
        tenant.ctl("resume")
    while program.line(1):
        if not tenant.view()["suspended"]:
            break
    end(program)


def test_programs_that_are_killed_meanwhile_leave_nothing(tenant):
    program, other = tenant.counting(), tenant.counting()
    tenant.ctl("suspend")
    program.kill()
    program.wait()
    wait_until(lambda: len(tenant.view()["live"]["processes"]) == 1, 10, "the end of its runner")
    tenant.ctl("resume")
    end(other)
    wait_until(lambda: _on_device(tenant) == 0, 10, "the return of its memory")


def test_a_program_whose_runner_dies_meanwhile_gets_an_error(tenant):
    program = tenant.counting()
    tenant.ctl("suspend")
    (process,) = tenant.view()["live"]["processes"]
    os.kill(process["runner"], signal.SIGKILL)
    status, output = program.finish(20)
    assert status == 3 and "cudaError" in output, f"{status}: {output[-300:]}"
    tenant.ctl("resume")
    end(tenant.counting())


def test_its_session_dies_meanwhile(tenant):
    program = tenant.counting()
    tenant.ctl("suspend")
    session = tenant.view()["live"]["pid"]
    os.kill(session, signal.SIGKILL)
    assert program.finish(20)[0] == 3
    tenant.await_another_session(session)
    assert tenant.view()["suspended"]
    late = tenant.start("suspend.cu", 8)
    assert late.line(0.6) == ""
    tenant.ctl("resume")
    late.first_line("ready")
    end(late)


def test_its_memory_is_for_others_until_it_returns(device, tenant):
    if device != "soft":
        pytest.skip("the GPU's memory is larger than what is promised here")
    program = tenant.counting()
    tenant.ctl("suspend")
    tenant.daemon.create("other", 10, memory="384M")
    try:
        tenant.ctl("resume", refused="is above what is free")
        other = Tenant(tenant.daemon, "other").counting()
        assert _is_silent(program, 0.5)
        end(other)
    finally:
        tenant.daemon.destroy("other")
    tenant.ctl("resume")
    end(program)


def test_a_suspended_one_can_be_destroyed(device, tenant):
    # On a GPU a context alone is more than 64 MiB.
    tenant.daemon.create("gone", 10, memory="64M" if device == "soft" else "1G")
    gone = Tenant(tenant.daemon, "gone")
    program = gone.counting(8)
    gone.ctl("suspend")
    gone.ctl("destroy", refused="is in use")
    gone.ctl("destroy", "--force")
    assert program.finish(20)[0] == 3


@pytest.mark.full
def test_work_that_does_not_end_keeps_it_from_being_suspended(tenant):
    program = tenant.start("endless.cu")
    program.first_line("running")
    tenant.ctl("suspend", refused="did not end within 10 s")
    program.kill()
