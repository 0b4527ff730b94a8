"""A libvirt domain with a virtual GPU from end to end: from attach to the last fault on the way."""
import json
import os
import pathlib
import signal
import time

import pytest

from lab import cuda_programs, host
from lab.cuda_programs import Program
from lab.paths import REPO, environment
from lab.shell import Failure, wait_until


def test_attach_is_checked(guest):
    host.vgpuctl("destroy", "attach0", check=False)
    host.vgpuctl("create", "attach0", "--memory", "64M", "--compute", "1", "--copy", "1")
    refused = host.vgpuctl("attach", "attach0", "no-such-domain", check=False)
    assert refused.returncode != 0 and "no-such-domain" in refused.stderr, refused.stderr
    refused = host.vgpuctl("attach", "no-such-vgpu", "test", check=False)
    assert refused.returncode != 0 and "no-such-vgpu" in refused.stderr, refused.stderr
    running = host.vgpuctl("attach", "attach0", "test", check=False)
    assert running.returncode != 0 and "running" in running.stderr, running.stderr
    host.vgpuctl("destroy", "attach0")
    xml = host.virsh("dumpxml", "test").stdout
    assert "vfio-user-pci" in xml and "test0" in xml


def test_programs_in_the_guest(guest):
    chosen = [program for program in cuda_programs.programs() if program.in_vm]
    assert len(chosen) >= 12
    cuda_programs.compile_all(chosen)
    wrong = [text for program in chosen if (text := guest.run(program))]
    assert not wrong, "\n".join(wrong)
    guest.kernel_is_content()


@pytest.mark.full
def test_every_program_in_the_guest(guest):
    chosen = [program for program in cuda_programs.programs()
              if not program.in_vm and program.on_soft and "needs" not in program.facts]
    cuda_programs.compile_all(chosen)
    wrong = [text for program in chosen if (text := guest.run(program, 600))]
    assert not wrong, "\n".join(wrong)


def test_killed_process_leaves_nothing(guest):
    guest.runs_programs()
    for delay in (0.0, 0.2, 0.5):
        guest.busy(60)
        time.sleep(delay)
        guest.shell("killall -9 busy")
        wait_until(lambda: not host.live("test0")["processes"], 15, "the runner's end")
        wait_until(lambda: int(host.live("test0")["memory_used"]) == 0, 15, "the return of memory")
    guest.runs_programs()
    guest.kernel_is_content()


def test_programs_wait_while_it_is_suspended(guest):
    rounds = "tail -1 /tmp/suspend.log"
    guest.shell("rm -f /tmp/told; mkfifo /tmp/told; sleep 600 >/tmp/told &")
    guest.start("suspend", "\n3\n", 8, stdin="/tmp/told")
    host.vgpuctl("suspend", "test0")
    try:
        seen = guest.shell(rounds)[1]
        time.sleep(1)
        assert guest.shell(rounds)[1] == seen
        live = host.live("test0")
        assert int(live["memory_used"]) == int(live["memory_swapped"]) > 0, live
    finally:
        host.vgpuctl("resume", "test0")
    wait_until(lambda: guest.shell(rounds)[1] != seen, 20, "the next round")
    guest.shell("echo end >/tmp/told")
    wait_until(lambda: guest.shell(rounds)[1].strip() == "ok", 20, "the comparison of every word")
    guest.kernel_is_content()


def test_a_program_is_checkpointed_by_another(guest):
    rounds = "tail -1 /tmp/suspend.log"
    guest.shell("rm -f /tmp/told; mkfifo /tmp/told; sleep 600 >/tmp/told &")
    guest.agent().put(Program(REPO / "tests/direct/checkpoint.cu").compile(), "/opt/run/checkpoint", 0o755)
    guest.start("suspend", "\n3\n", 8, stdin="/tmp/told")
    pid = guest.shell("pidof suspend")[1].strip()
    assert "0 2" in guest.shell(f"/opt/run/checkpoint {pid} lock checkpoint")[1]
    seen = guest.shell(rounds)[1]
    assert [process["state"] for process in host.live("test0")["processes"]] == ["checkpointed"]
    assert "0 0" in guest.shell(f"/opt/run/checkpoint {pid} restore unlock")[1]
    wait_until(lambda: guest.shell(rounds)[1] != seen, 20, "the next round")
    guest.shell("echo end >/tmp/told")
    wait_until(lambda: guest.shell(rounds)[1].strip() == "ok", 20, "the comparison of every word")
    guest.kernel_is_content()


def test_a_program_counts_on_in_a_new_runner(guest, tmp_path):
    rounds = "tail -1 /tmp/save_all.log"
    guest.shell("rm -f /tmp/told; mkfifo /tmp/told; sleep 600 >/tmp/told &")
    guest.start("save_all", "\n3\n", 8, "graph", stdin="/tmp/told")
    before = host.live("test0")["processes"][0]["runner"]
    host.vgpuctl("save", "test0", str(tmp_path / "saved"), "--all")
    wait_until(lambda: host.live("test0")["processes"][0]["state"] == "away", 20, "the end of its runner")
    seen = guest.shell(rounds)[1]
    host.vgpuctl("restore", "test0", str(tmp_path / "saved"))
    assert host.live("test0")["processes"][0]["runner"] not in (0, before)
    wait_until(lambda: guest.shell(rounds)[1] != seen, 20, "the next round")
    guest.shell("echo end >/tmp/told")
    wait_until(lambda: guest.shell(rounds)[1].strip() == "ok", 20, "the comparison of every word")
    guest.kernel_is_content()


def test_a_program_counts_through_sleeps(guest):
    rounds = "tail -1 /tmp/suspend.log"
    guest.shell("rm -f /tmp/told; mkfifo /tmp/told; sleep 600 >/tmp/told &")
    guest.start("suspend", "ready", 8, "steps", stdin="/tmp/told")
    host.vgpuctl("set", "test0", "--idle-suspend", "1")
    try:
        for number in range(1, 4):
            wait_until(lambda: host.live("test0")["suspension"]["asleep"], 20, "its sleep")
            live = host.live("test0")
            assert int(live["memory_used"]) == int(live["memory_swapped"]) > 0, live
            guest.shell("echo step >/tmp/told")
            wait_until(lambda: guest.shell(rounds)[1].strip() == str(number), 20, "the next round")
    finally:
        host.vgpuctl("set", "test0", "--idle-suspend", "default")
    guest.shell("echo end >/tmp/told")
    wait_until(lambda: guest.shell(rounds)[1].strip() == "ok", 20, "the comparison of every word")
    guest.kernel_is_content()


def test_a_program_that_is_reniced_has_another_priority(guest):
    def seen() -> list[int]:
        return [process.get("nice", 0) for process in host.live("test0")["processes"]]
    guest.busy(60)
    try:
        pid = guest.shell("pidof busy")[1].strip()
        assert seen() == [0]
        for nice in (7, 0):
            guest.shell(f"renice {nice} -p {pid}")
            wait_until(lambda: seen() == [nice], 10, f"a nice value of {nice}")
    finally:
        guest.shell("killall busy")
    wait_until(lambda: not host.live("test0")["processes"], 15, "the runner's end")
    guest.kernel_is_content()


@pytest.fixture(name="two_devices")
def _two_devices(device, guest):
    """vgpud has a second device, until the test has ended; sessions and the machine do not hear of it."""
    if device != "soft":
        pytest.skip("programs on a GPU stay there")
    assert guest
    config = pathlib.Path(environment()["BANDSAW_RUN"]).parent / "vgpud.toml"
    before = config.read_text()

    def devices() -> int:
        said = host.vgpuctl("status", "--json", check=False)  # nobody answers while vgpud begins anew
        return len(json.loads(said.stdout)["devices"]) if said.returncode == 0 else 0

    def reload(text: str, count: int) -> None:
        config.write_text(text)
        os.kill(host.vgpuctl_json("status")["pid"], signal.SIGHUP)
        wait_until(lambda: devices() == count, 20, f"{count} devices")
        wait_until(lambda: host.live("test0"), 20, "its session")

    reload('devices = ["soft:0", "soft:1"]\n' + before[before.index("[swap]"):], 2)
    yield
    host.vgpuctl("move", "test0", "soft:0", check=False)
    reload(before, 1)


def test_a_program_counts_through_moves(guest, two_devices):
    rounds = "tail -1 /tmp/suspend.log"
    guest.shell("rm -f /tmp/told; mkfifo /tmp/told; sleep 600 >/tmp/told &")
    guest.start("suspend", "\n3\n", 8, stdin="/tmp/told")
    before = host.live("test0")["processes"][0]["runner"]
    for device in ("soft:1", "soft:0", "soft:1"):
        host.vgpuctl("move", "test0", device)
        assert host.vgpuctl_json("show", "test0")["device"] == device
        seen = guest.shell(rounds)[1]
        wait_until(lambda seen=seen: guest.shell(rounds)[1] != seen, 20, "the next round")
    assert host.live("test0")["processes"][0]["runner"] == before
    guest.shell("echo end >/tmp/told")
    wait_until(lambda: guest.shell(rounds)[1].strip() == "ok", 20, "the comparison of every word")
    guest.runs_programs()
    guest.kernel_is_content()


def test_endless_kernel_can_be_killed(guest):
    guest.start("endless", "running")
    guest.runs_programs()
    guest.shell("killall -9 endless")
    wait_until(lambda: not host.live("test0")["processes"], 15, "the runner's end")


def test_module_can_be_reloaded(guest):
    guest.runs_programs()
    status, output = guest.shell("rmmod virtio_vgpu && insmod /lib/modules/virtio_vgpu.ko && ls /dev/vgpu0")
    assert status == 0, output
    guest.runs_programs()
    guest.kernel_is_content()


def test_guest_can_reboot(guest):
    guest.runs_programs()
    before = guest.boot_id()
    guest.shell("(sleep 1; reboot -f) >/dev/null 2>&1 </dev/null &")

    def booted_again() -> bool:
        guest.vm.disconnect()
        guest.vm.agent(120)
        try:
            return guest.boot_id() != before
        except (Failure, TimeoutError):
            return False  # it went down under the question

    wait_until(booted_again, 120, "the guest's next boot")
    guest.runs_programs()


def test_killed_qemu_comes_back(guest):
    guest.runs_programs()
    host.virsh("destroy", "test")
    guest.vm.disconnect()
    wait_until(lambda: not host.live("test0")["processes"], 15, "the end of the guest's processes")
    guest.vm.start()
    guest.runs_programs()


def test_vgpud_restarts_under_the_guest(guest):
    guest.runs_programs()
    guest.busy(20)
    os.kill(host.vgpuctl_json("status")["pid"], signal.SIGKILL)
    host.start_vgpud()
    wait_until(lambda: host.live("test0")["pid"], 15, "the session's adoption")
    guest.runs_programs()
    wait_until(lambda: guest.shell("pidof busy")[0] != 0, 60, "the running program's end")
    assert "round" in guest.busy_log(), f"the running program was harmed: {guest.busy_log()}"


def _session() -> int:
    wait_until(lambda: host.live("test0")["pid"], 20, "the session")
    return host.live("test0")["pid"] or _session()


def _kill_session(session: int) -> None:
    os.kill(session, signal.SIGKILL)
    wait_until(lambda: host.live("test0")["pid"] not in (0, session), 20, "a new session")


def test_a_killed_session_is_a_clear_error_and_its_device_comes_back_in_the_running_guest(guest):
    guest.runs_programs()
    boot = guest.boot_id()
    guest.busy(60)
    session = _session()
    os.kill(session, signal.SIGSTOP)  # so that a request of the guest is under way when it dies
    guest.shell("setsid /opt/run/busy 1 >/dev/null 2>&1 </dev/null &")
    time.sleep(0.5)
    _kill_session(session)
    wait_until(lambda: guest.shell("pidof busy")[0] != 0, 10, "the programs' end")
    assert "cudaErrorDevicesUnavailable" in guest.busy_log(), f"no clear error: {guest.busy_log()}"
    for _ in range(2):
        wait_until(lambda: guest.shell("ls /dev/vgpu0")[0] == 0, 20, "the device")
        guest.runs_programs()
        guest.kernel_is_content()
        _kill_session(_session())  # with nothing to lose
    wait_until(lambda: guest.shell("ls /dev/vgpu0")[0] == 0, 20, "the device")
    guest.runs_programs()
    assert guest.vm.running() and guest.boot_id() == boot
