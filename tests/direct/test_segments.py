"""Shared segments: memory of one virtual GPU that programs of another use, as vgpud says."""
import os
import signal
import time

import pytest

from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.paths import REPO
from lab.shell import wait_until
from lab.started import Started
from tenant import Tenant

MIB = 1 << 20
NOT_FOUND, NOT_PERMITTED, ILLEGAL_ADDRESS, INVALID, TAKEN, NO_MEMORY = 500, 800, 700, 1, 208, 2
CREATE, EXCLUSIVE, READ_ONLY = 1, 2, 4


class User(Started):
    """A program that does what it is told (shared_segment.cu)."""

    def __init__(self, daemon: Daemon, vgpu: str):
        program = Program(REPO / "tests/direct/shared_segment.cu").compile()
        super().__init__(program, variables=daemon.program_environment(vgpu))
        self.first_line("ready")

    def ask(self, *words) -> list[str]:
        self.say(*words)
        answer = self.line(60).split()
        assert answer, f"no answer to {words}: {self.poll()}"
        return answer

    def does(self, *words) -> int:
        return int(self.ask(*words)[0])

    def need(self, *words) -> list[str]:
        code, *rest = self.ask(*words)
        assert code == "0", f"{words}: {code}"
        return rest


@pytest.fixture(name="daemon", scope="module")
def _daemon(device):
    soft = device == "soft"
    devices: list = [{"name": f"soft:{i}", "memory": "1G", "sms": 4} for i in range(2)] if soft else [device]
    daemon = Daemon(device, "band+", name="segments-test", devices=devices)
    first = ["--gpu", "soft:0"] if soft else []
    try:
        for name in ("maker", "user"):
            daemon.create(name, 30, *first, memory="256M" if soft else "4G")
        yield daemon
    finally:
        daemon.end()


@pytest.fixture(name="start")
def _start(daemon):
    started: list[User] = []

    def start(vgpu: str) -> User:
        started.append(User(daemon, vgpu))
        return started[-1]
    yield start
    for one in started:
        one.kill()
        one.communicate()
    for segment in listed(daemon):
        if segment["made_by"] == "administrator" and segment["named"]:
            daemon.control.need("DELETE", f"/v1/segments/{segment['name']}?force=1")
    wait_until(lambda: listed(daemon) == [], 10, "the end of all segments")


def listed(daemon: Daemon) -> list[dict]:
    return daemon.control.need("GET", "/v1/segments")


def await_answer(user: User, words: str, wanted: int, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while (answer := user.does(words)) != wanted:
        assert time.monotonic() < end, f"{words}: still {answer} after {seconds} s, not {wanted}"
        time.sleep(0.02)


def make(daemon: Daemon, name: str, size: int = 4 * MIB) -> None:
    daemon.control.need("POST", "/v1/segments", {"name": name, "vgpu": "maker", "size": size})


def grant(daemon: Daemon, name: str, access: str, vgpu: str = "user") -> None:
    daemon.control.need("POST", f"/v1/segments/{name}/grant", {"vgpu": vgpu, "access": access})


def revoke(daemon: Daemon, name: str, vgpu: str = "user") -> None:
    daemon.control.need("POST", f"/v1/segments/{name}/revoke", {"vgpu": vgpu})


def used(daemon: Daemon, vgpu: str) -> int:
    return daemon.control.need("GET", f"/v1/vgpus/{vgpu}")["live"]["memory_used"]


def test_two_virtual_gpus_have_the_same_memory(daemon, start):
    make(daemon, "frames")
    grant(daemon, "frames", "write")
    maker, user = start("maker"), start("user")
    for one in (maker, user):
        one.need("get", "frames", 4 * MIB, 0)
        one.need("at", 0)
        assert one.need("stat") == ["frames", str(4 * MIB), "2"]
    maker.need("fill", 7)
    assert user.need("check", 7) == ["0"]
    user.need("fill", 1000)
    assert maker.need("check", 1000) == ["0"]
    user.need("copy_in", 5)
    assert maker.need("copy_out") == ["5"]
    users = {one["vgpu"]: one["count"] for one in listed(daemon)[0]["users"]}
    assert users == {"maker": 1, "user": 1}


def share(daemon: Daemon, start, access: str, flags: int) -> tuple[User, User]:
    """Both virtual GPUs have it, and the owner has filled it."""
    make(daemon, "frames")
    grant(daemon, "frames", access)
    maker, user = start("maker"), start("user")
    for one, how in ((maker, 0), (user, flags)):
        one.need("get", "frames", 0, 0)
        one.need("at", how)
    maker.need("fill", 7)
    return maker, user


def test_who_may_only_read_does_not_write(daemon, start):
    maker, user = share(daemon, start, "read", READ_ONLY)
    assert user.need("check", 7) == ["0"]
    assert user.does("at", 0) == NOT_PERMITTED
    assert user.does("fill", 1) == ILLEGAL_ADDRESS
    copier = start("user")
    copier.need("get", "frames", 0, 0)
    copier.need("at", READ_ONLY)
    # The software device faults as kernels do; NVIDIA's driver looks before it copies.
    assert copier.does("copy_in", 1) in (ILLEGAL_ADDRESS, INVALID)
    assert maker.need("check", 7) == ["0"]


def test_its_owner_alone_is_charged(daemon, start):
    user = start("user")
    user.need("fill", 0)  # whatever else the program takes
    before = {name: used(daemon, name) for name in ("maker", "user")}
    make(daemon, "frames", 64 * MIB)
    assert used(daemon, "maker") == before["maker"] + 64 * MIB
    grant(daemon, "frames", "write")
    user.need("get", "frames", 0, 0)
    user.need("at", 0)
    user.need("fill", 1)
    assert used(daemon, "user") < before["user"] + 64 * MIB
    share = daemon.control.need("GET", "/v1/vgpus/maker")["memory"]
    more = {"name": "more", "vgpu": "maker", "size": share - 32 * MIB}
    status, refusal = daemon.control.request("POST", "/v1/segments", more)
    assert status == 409 and "left of its memory share" in refusal["error"]


def test_revoked_rights_take_the_memory_away(daemon, start):
    maker, user = share(daemon, start, "write", 0)
    revoke(daemon, "frames")
    wait_until(lambda: [one["vgpu"] for one in listed(daemon)[0]["users"]] == ["maker"], 10, "the end of its part")
    assert user.does("check", 7) == ILLEGAL_ADDRESS
    assert user.does("at", 0) == ILLEGAL_ADDRESS, "a fault ends all contexts of the process"
    assert maker.need("check", 7) == ["0"]
    after = start("user")
    assert after.does("get", "frames", 0, 0) == NOT_FOUND


def test_less_than_before_is_a_revocation(daemon, start):
    _, user = share(daemon, start, "write", 0)
    grant(daemon, "frames", "read")
    await_answer(user, "copy_out", INVALID)


def test_rights_are_revoked_while_a_kernel_runs(daemon, start):
    maker, user = share(daemon, start, "write", 0)
    user.need("spin")
    assert user.line(0.2) == "", "it says nothing of its own"
    revoke(daemon, "frames")
    assert user.does("sync") == ILLEGAL_ADDRESS
    maker.need("fill", 8)
    assert maker.need("check", 8) == ["0"]


def test_it_ends_with_its_last_user(daemon, start):
    _, user = share(daemon, start, "write", 0)
    before = used(daemon, "maker")
    daemon.control.need("DELETE", "/v1/segments/frames")
    assert [one["named"] for one in listed(daemon)] == [False]
    assert user.need("check", 7) == ["0"], "who has it keeps it"
    assert start("user").does("get", "frames", 0, 0) == NOT_FOUND
    user.need("dt")
    assert user.does("dt") == INVALID
    assert len(listed(daemon)) == 1
    os.kill(next(one["runner"] for one in daemon.control.need("GET", "/v1/vgpus/maker")["live"]["processes"]),
            signal.SIGKILL)
    wait_until(lambda: listed(daemon) == [], 10, "the end of what a killed runner had")
    assert used(daemon, "maker") <= before - 4 * MIB


def test_force_takes_it_from_all(daemon, start):
    maker, user = share(daemon, start, "write", 0)
    daemon.control.need("DELETE", "/v1/segments/frames?force=1")
    wait_until(lambda: listed(daemon) == [], 10, "its end")
    for one in (maker, user):
        assert one.does("copy_out") == INVALID, "no such memory any more"
        assert one.does("check", 7) == ILLEGAL_ADDRESS


def test_programs_make_their_own(daemon, start):
    first, second, other = start("user"), start("user"), start("maker")
    assert first.does("get", "own", 3 * MIB, 0) == NOT_FOUND
    first.need("get", "own", 3 * MIB, CREATE)
    assert first.does("get", "own", 3 * MIB, CREATE | EXCLUSIVE) == TAKEN
    assert second.does("get", "own", 8 * MIB, 0) == INVALID, "it is smaller"
    for one in (first, second):
        one.need("get", "own", 0, 0)
        one.need("at", 0)
    first.need("fill", 3)
    assert second.need("check", 3) == ["0"]
    assert other.does("get", "own", 0, 0) == NOT_FOUND, "of its virtual GPU alone"
    assert first.does("get", "huge", 1 << 40, CREATE) == NO_MEMORY
    first.need("remove")
    assert second.does("stat") == NOT_FOUND
    assert second.need("check", 3) == ["0"]
    first.finish()
    second.finish()
    wait_until(lambda: listed(daemon) == [], 10, "its end with its last user")


def test_it_ends_with_the_virtual_gpu_of_its_owner(daemon, start):
    daemon.create("brief", 10, *(["--gpu", "soft:0"] if daemon.status()["device"]["kind"] == "soft" else []),
                  memory="64M")
    daemon.control.need("POST", "/v1/segments", {"name": "frames", "vgpu": "brief", "size": 4 * MIB})
    grant(daemon, "frames", "write")
    user = start("user")
    user.need("get", "frames", 0, 0)
    user.need("at", 0)
    user.need("fill", 1)
    status, refusal = daemon.control.request("DELETE", "/v1/vgpus/brief")
    assert status == 409 and "owns the shared segment 'frames'" in refusal["error"]
    daemon.control.need("DELETE", "/v1/vgpus/brief?force=1")
    await_answer(user, "copy_out", INVALID)
    assert listed(daemon) == []


def test_a_session_that_dies_leaves_nothing(daemon, start):
    maker, _ = share(daemon, start, "write", 0)
    session = daemon.control.need("GET", "/v1/vgpus/user")["session"]["pid"]
    os.kill(session, signal.SIGKILL)
    wait_until(lambda: [one["vgpu"] for one in listed(daemon)[0]["users"]] == ["maker"], 10, "their end")
    assert maker.need("check", 7) == ["0"]
    Tenant(daemon, "user").await_another_session(session)
    again = start("user")
    again.need("get", "frames", 0, 0)
    again.need("at", 0)
    assert again.need("check", 7) == ["0"]


def test_a_session_of_its_owner_that_dies_takes_it_from_all(daemon, start):
    _, user = share(daemon, start, "write", 0)
    session = daemon.control.need("GET", "/v1/vgpus/maker")["session"]["pid"]
    os.kill(session, signal.SIGKILL)
    await_answer(user, "copy_out", INVALID)
    Tenant(daemon, "maker").await_another_session(session)
    wait_until(lambda: not listed(daemon)[0]["users"], 10, "the end of all parts in it")
    again = start("user")  # its name is there still, and its memory anew
    again.need("get", "frames", 0, 0)
    again.need("at", 0)
    again.need("fill", 3)
    assert again.need("check", 3) == ["0"]


def test_only_virtual_gpus_of_one_device_share(daemon, device):
    if device != "soft":
        pytest.skip("one GPU is enough here")
    daemon.create("far", 10, "--gpu", "soft:1", memory="64M")
    make(daemon, "frames")
    status, refusal = daemon.control.request("POST", "/v1/segments/frames/grant", {"vgpu": "far", "access": "read"})
    assert status == 409 and "one physical GPU" in refusal["hint"], refusal
    daemon.control.need("DELETE", "/v1/segments/frames")
    daemon.destroy("far")
