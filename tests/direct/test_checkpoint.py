"""Programs that have others of their virtual GPU locked and checkpointed, by CUDA's own calls for that."""
import os
import signal
import subprocess
import time

import pytest

from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.host import vgpuctl
from lab.paths import REPO
from lab.shell import wait_until
from tenant import Tenant, end

MIB = 1 << 20
OK, INVALID, OUT_OF_MEMORY, ILLEGAL_STATE, NOT_READY, NOT_PERMITTED, NOT_SUPPORTED = 0, 1, 2, 401, 600, 800, 801
RUNNING, LOCKED, CHECKPOINTED, NONE = 0, 1, 2, 3
NOBODY = 65534


@pytest.fixture(name="tenant", scope="module")
def _tenant(device):
    if device != "soft":
        pytest.skip("sizes are those of a software device")
    daemon = Daemon(device, "band+", name="checkpoint", devices=[{"name": "soft:0", "memory": "512M", "sms": 4}],
                    tables={"swap": {"memory": "160M"}})
    daemon.create("saver", 50, memory="192M")
    try:
        yield Tenant(daemon, "saver")
    finally:
        daemon.end()


def _carry_out(tenant: Tenant, pid: int, *steps: str, user: int | None = None) -> list[tuple[int, int]]:
    """Of each step its code, and the process's state after it."""
    program = Program(REPO / "tests/direct/checkpoint.cu").compile()
    done = subprocess.run([program, str(pid), *steps], env=tenant.daemon.program_environment(tenant.name), user=user,
                          capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}{tenant.daemon.evidence()}"
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == list(steps), done.stdout
    return [(int(code), int(state)) for _, code, state in lines]


def _is_silent(program, seconds: float) -> bool:
    while program.line(0.1):
        pass
    return program.line(seconds) == "" and program.poll() is None


def _used(tenant: Tenant) -> int:
    return tenant.view()["live"]["memory_used"]


def test_a_program_counts_through_it(tenant):
    program = tenant.counting(64)
    assert _carry_out(tenant, program.pid, "state", "lock") == [(OK, RUNNING), (OK, LOCKED)]
    assert _is_silent(program, 0.4)
    before = _used(tenant)
    assert _carry_out(tenant, program.pid, "checkpoint") == [(OK, CHECKPOINTED)]
    assert before - _used(tenant) >= 64 * MIB, "what it has counts against the share"
    assert _is_silent(program, 0.4)
    assert [process["state"] for process in tenant.view()["live"]["processes"]] == ["checkpointed"]
    assert _carry_out(tenant, program.pid, "restore", "unlock") == [(OK, LOCKED), (OK, RUNNING)]
    program.line(5)
    end(program)


def test_its_memory_is_for_others_meanwhile(tenant):
    first = tenant.counting(128)
    assert _carry_out(tenant, first.pid, "lock", "checkpoint")[-1] == (OK, CHECKPOINTED)
    second = tenant.counting(128)
    assert _carry_out(tenant, first.pid, "restore") == [(OUT_OF_MEMORY, CHECKPOINTED)]
    end(second)
    assert _carry_out(tenant, first.pid, "restore", "unlock")[-1] == (OK, RUNNING)
    end(first)


def test_what_is_not_in_order_is_refused(tenant):
    program = tenant.counting(8)
    assert _carry_out(tenant, program.pid, "checkpoint", "restore", "unlock") == [(ILLEGAL_STATE, RUNNING)] * 3
    assert _carry_out(tenant, program.pid, "lock", "lock", "restore") == \
        [(OK, LOCKED), (ILLEGAL_STATE, LOCKED), (ILLEGAL_STATE, LOCKED)]
    assert _carry_out(tenant, program.pid, "checkpoint", "unlock", "pairs") == \
        [(OK, CHECKPOINTED), (ILLEGAL_STATE, CHECKPOINTED), (NOT_SUPPORTED, CHECKPOINTED)]
    assert _carry_out(tenant, program.pid, "restore", "unlock")[-1] == (OK, RUNNING)
    end(program)
    assert _carry_out(tenant, os.getpid(), "state", "lock") == [(INVALID, NONE)] * 2, "it uses no virtual GPU"


def test_nobody_else_may(tenant):
    vgpuctl("set", tenant.name, "--owner", "anybody", check=False, variables=tenant.daemon.variables)
    program = tenant.counting(8)
    codes = _carry_out(tenant, program.pid, "lock", user=NOBODY)
    assert codes == [(NOT_PERMITTED, NONE)], "another user's process was locked"
    end(program)


def test_what_is_shared_stays(tenant):
    program = tenant.counting(8, "share")
    assert _carry_out(tenant, program.pid, "lock") == [(NOT_SUPPORTED, RUNNING)]
    end(program)


def test_there_must_be_room_in_the_hosts_memory(tenant):
    """160 MiB for all: the second finds none."""
    first = tenant.counting(120)
    assert _carry_out(tenant, first.pid, "lock", "checkpoint")[-1] == (OK, CHECKPOINTED)
    second = tenant.counting(60)
    assert _carry_out(tenant, second.pid, "lock", "checkpoint")[-1] == (OUT_OF_MEMORY, LOCKED)
    assert _carry_out(tenant, second.pid, "unlock")[-1] == (OK, RUNNING)
    end(second)
    assert _carry_out(tenant, first.pid, "restore", "unlock")[-1] == (OK, RUNNING)
    end(first)


def test_while_one_is_locked_the_virtual_gpu_is_not_suspended(tenant):
    program = tenant.counting(8)
    assert _carry_out(tenant, program.pid, "lock") == [(OK, LOCKED)]
    tenant.ctl("suspend", refused="is locked by another program")
    assert _carry_out(tenant, program.pid, "unlock") == [(OK, RUNNING)]
    tenant.ctl("suspend")
    tenant.ctl("resume")
    end(program)


@pytest.mark.parametrize("steps", [("lock",), ("lock", "checkpoint")])
def test_one_that_is_killed_meanwhile_leaves_nothing(tenant, steps):
    program = tenant.counting(32)
    assert _carry_out(tenant, program.pid, *steps)[-1][0] == OK
    program.send_signal(signal.SIGKILL)
    program.wait()
    wait_until(lambda: tenant.view()["live"]["processes"] == [] and _used(tenant) == 0, 5, "its end")
    assert _carry_out(tenant, program.pid, "state") == [(INVALID, NONE)]
    end(tenant.counting(128))


def test_who_asked_may_go(tenant):
    """A lock that waits for work that does not end, and whose program is killed."""
    endless = tenant.start("endless.cu")
    time.sleep(0.5)
    program = Program(REPO / "tests/direct/checkpoint.cu").compile()
    asker = subprocess.Popen([program, str(endless.pid), "lock"], env=tenant.daemon.program_environment(tenant.name))
    time.sleep(0.2)
    asker.kill()
    asker.wait()
    assert _carry_out(tenant, endless.pid, "state")[0][0] == OK
    endless.kill()
    endless.wait()
