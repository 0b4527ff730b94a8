"""Virtual GPUs that move from one device to another while their programs count: software devices, or two GPUs."""
import concurrent.futures
import os
import signal
import time

import pytest

from lab.daemon import Daemon
from lab.guest_run import memory_for
from lab.host import vgpuctl
from lab.machine import gpu_count
from lab.shell import wait_until
from tenant import Tenant, end

SOFT: list[str | dict] = [{"name": f"soft:{index}", "memory": "512M", "sms": 4} for index in range(2)]
GPUS: list[str | dict] = ["cuda:0", "cuda:1"]


def _make(kind: str, keep: bool = False) -> Daemon:
    return Daemon(kind, "band+", name="move", devices=SOFT if kind == "soft" else GPUS, keep=keep,
                  tables={"swap": {"memory": "8G"}})


class Mover(Tenant):
    """The one that moves."""
    mib = 16

    def __init__(self, daemon: Daemon, name: str = "mover"):
        super().__init__(daemon, name)
        kind = daemon.device.partition(":")[0]
        self.home, self.away = f"{kind}:0", f"{kind}:1"

    def _launches(self) -> dict[int, int]:
        return {one["process"]: one["usage"]["launches"] for one in self.view()["live"]["processes"]}

    def goes_on(self) -> None:
        """Waits until each of its programs has launched more."""
        before = self._launches()
        wait_until(lambda: all(now > before[process] for process, now in self._launches().items()), 10,
                   f"more launches than {before}")


@pytest.fixture(name="mover", scope="module")
def _mover(device):
    if device != "soft" and gpu_count() < 2:
        pytest.skip("needs two GPUs")
    daemon = _make(device.partition(":")[0])
    daemon.create("mover", 50, "--gpu", f"{device.partition(':')[0]}:0", memory=memory_for(3, 192))
    try:
        yield Mover(daemon)
    finally:
        daemon.end()


@pytest.fixture(autouse=True)
def _at_home(mover):
    yield
    vgpuctl("resume", "mover", check=False, variables=mover.daemon.variables)
    vgpuctl("move", "mover", mover.home, check=False, variables=mover.daemon.variables)


def test_programs_count_through_moves(mover):
    programs = [mover.counting() for _ in range(2)]
    session = mover.view()["live"]["pid"]
    for device in (mover.away, mover.home, mover.away):
        mover.ctl("move", device)
        view = mover.view()
        assert (view["device"], view["live"]["pid"], len(view["live"]["processes"])) == (device, session, 2)
        assert [mover.daemon.device_status(one)["vgpus"] for one in (mover.home, mover.away)] == (
            [1, 0] if device == mover.home else [0, 1])
        mover.goes_on()
    late = mover.counting(8)
    for program in (*programs, late):
        end(program)


def test_the_arbiter_of_its_new_device_charges_it(mover):
    mover.daemon.create("native", 50, "--gpu", mover.away, memory=memory_for(1, 192))
    try:
        native = Tenant(mover.daemon, "native")
        other, program = native.start("busy.cu", 1.5), mover.start("busy.cu", 1.5)
        other.first_line("round")
        program.first_line("round")
        waited = native.view()["engines"]["compute"]["wait_ns"]
        mover.ctl("move", mover.away)
        for process in (other, program):
            status, output = process.finish(30)
            assert status == 0, output[-300:]
        both = {one.name: one.view()["engines"]["compute"] for one in (mover, native)}
        assert both["mover"]["busy_ns"] > 0 and both["mover"]["grants"] > 0, both
        # Where the hardware switches between programs nobody waits.
        waits = mover.home == "cuda:0" or both["native"]["wait_ns"] > waited
        assert waits, f"it has waited for who has come: {both}"
    finally:
        mover.daemon.destroy("native")


def test_a_suspended_one(mover):
    program = mover.counting()
    mover.ctl("suspend")
    mover.ctl("move", mover.away)
    assert (mover.view()["device"], mover.view()["suspended"]) == (mover.away, True)
    while program.line(0.1):
        pass
    mover.ctl("resume")
    mover.goes_on()
    end(program)


def test_what_is_shared_stays(mover):
    program = mover.counting(8, "share")
    mover.ctl("move", mover.away, refused="share")
    assert mover.view()["device"] == mover.home
    mover.goes_on()
    end(program)


def test_a_device_is_emptied_while_programs_count(mover):
    daemon = mover.daemon
    daemon.create("second", 40, "--gpu", mover.home, memory=memory_for(1, 128))
    try:
        second = Mover(daemon, "second")
        programs = [mover.counting(), mover.counting(), second.counting()]
        done = vgpuctl("drain", mover.home, "--move", variables=daemon.variables)
        assert done.stdout.splitlines() == [f"mover is on {mover.away}", f"second is on {mover.away}",
                                            f"{mover.home} takes no new virtual GPUs, and has none"]
        for one in (mover, second):
            one.goes_on()
        mover.ctl("move", mover.home, refused="it is drained")
        for program in programs:
            end(program)
    finally:
        vgpuctl("undrain", mover.home, variables=daemon.variables)
        daemon.destroy("second")


def test_of_two_moves_at_once_one_is_refused(mover):
    program = mover.counting()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: vgpuctl("move", "mover", mover.away, check=False,
                                               variables=mover.daemon.variables), range(2)))
    assert sorted(one.returncode for one in done) == [0, 1], [one.stderr for one in done]
    assert mover.view()["device"] == mover.away
    end(program)


@pytest.mark.parametrize("after_s", [0, 0.01])
def test_a_runner_that_dies_on_the_way_takes_its_program_alone(mover, after_s):
    other, program = mover.counting(), mover.counting(8)
    runner = mover.view()["live"]["processes"][-1]["runner"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(vgpuctl, "move", "mover", mover.away, check=False, variables=mover.daemon.variables)
        time.sleep(after_s)
        os.kill(runner, signal.SIGKILL)
        where = mover.away if asked.result().returncode == 0 else mover.home
    status, output = program.finish(20)
    assert status == 3, output[-300:]
    assert (mover.view()["device"], mover.view()["live"]["suspension"]["state"]) == (where, "running")
    mover.goes_on()
    end(other)


@pytest.mark.full  # it is waited for for 10 s
def test_what_does_not_end_stays(mover):
    endless, program = mover.start("endless.cu"), mover.counting(8)
    endless.first_line("running")
    mover.ctl("move", mover.away, refused="did not end within 10 s")
    assert (mover.view()["device"], mover.view()["live"]["suspension"]["state"]) == (mover.home, "running")
    program.line(10)
    end(program)
    endless.kill()


@pytest.mark.parametrize("after_s", [0.004, 0.03])
def test_vgpud_killed_in_the_middle(mover, after_s):
    program = mover.counting()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(vgpuctl, "move", "mover", mover.away, check=False, variables=mover.daemon.variables)
        time.sleep(after_s)
        os.kill(mover.daemon.status()["pid"], signal.SIGKILL)
        asked.result()
    mover.daemon = _make(mover.daemon.device, keep=True)
    wait_until(lambda: mover.view()["live"], 10, "its session")
    wait_until(lambda: mover.view()["live"]["suspension"]["state"] == "running", 10, "the end of what was begun")
    mover.goes_on()
    end(program)
    end(mover.counting(8))
