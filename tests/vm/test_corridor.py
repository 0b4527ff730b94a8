"""The whole corridor: a libvirt domain with a virtual GPU, from attach to detach, with faults on the way."""
import os
import signal
import time

from lab import cuda_programs, host
from lab.cuda_programs import Program
from lab.guest_run import run_in_guest
from lab.paths import REPO
from lab.shell import wait_until
from lab.vm import Vm

VM = Vm("test", "test0")


def _up() -> Vm:
    VM.up()
    return VM


def finish() -> None:
    VM.remove()


def _run(program: Program, timeout: float = 180) -> str:
    parts: list[bytes] = []
    status = run_in_guest(_up().agent(), program.compile(), program.arguments, parts.append, parts.append,
                          timeout=timeout)
    output = b"".join(parts).decode(errors="replace")
    wrong = program.judge(status, output)
    return f"{program.name}: {wrong}\n{output[-1500:]}" if wrong else ""


def _smoke() -> None:
    wrong = _run(Program(REPO / "tests/cuda/vector_add.cu"))
    assert not wrong, wrong


def _busy_in_background(seconds: int) -> None:
    program = Program(REPO / "tests/direct/busy.cu").compile()
    agent = VM.agent()
    agent.put(program, "/opt/run/busy", 0o755)
    agent.shell(f"setsid /opt/run/busy {seconds} 4 >/tmp/busy.log 2>&1 </dev/null &")
    wait_until(lambda: "round" in agent.shell("cat /tmp/busy.log")[1], 30, "the program's first round")


def _busy_log() -> str:
    return VM.agent().shell("tail -3 /tmp/busy.log")[1]


def _no_kernel_trouble() -> None:
    log = VM.agent().shell("dmesg")[1]
    for word in ("BUG:", "Oops", "Call Trace", "WARNING:"):
        assert word not in log, f"the guest's kernel complains:\n{log[-1500:]}"


def test_attach_is_checked():
    host.vgpuctl("destroy", "attach0", check=False)
    host.vgpuctl("create", "attach0", "--memory", "64M", "--compute", "1", "--copy", "1")
    refused = host.vgpuctl("attach", "attach0", "no-such-domain", check=False)
    assert refused.returncode != 0 and "no-such-domain" in refused.stderr, refused.stderr
    refused = host.vgpuctl("attach", "no-such-vgpu", "test", check=False)
    assert refused.returncode != 0 and "no-such-vgpu" in refused.stderr, refused.stderr
    _up()
    running = host.vgpuctl("attach", "attach0", "test", check=False)
    assert running.returncode != 0 and "running" in running.stderr, running.stderr
    host.vgpuctl("destroy", "attach0")
    xml = host.virsh("dumpxml", "test").stdout
    assert "vfio-user-pci" in xml and "test0" in xml


def test_programs_in_the_guest():
    chosen = [program for program in cuda_programs.programs() if program.in_vm]
    assert len(chosen) >= 12
    cuda_programs.compile_all(chosen)
    wrong = [text for program in chosen if (text := _run(program))]
    assert not wrong, "\n".join(wrong)
    _no_kernel_trouble()


def test_every_program_in_the_guest():
    chosen = [program for program in cuda_programs.programs()
              if not program.in_vm and program.on_soft and "needs" not in program.facts]
    cuda_programs.compile_all(chosen)
    wrong = [text for program in chosen if (text := _run(program, 600))]
    assert not wrong, "\n".join(wrong)


test_every_program_in_the_guest.full_only = True


def test_killed_process_leaves_nothing():
    _smoke()
    for delay in (0.0, 0.2, 0.5):
        _busy_in_background(60)
        time.sleep(delay)
        VM.agent().shell("killall -9 busy")
        wait_until(lambda: not host.live("test0")["processes"], 15, "the runner's end")
        wait_until(lambda: int(host.live("test0")["memory_used"]) == 0, 15, "the return of memory")
    _smoke()
    _no_kernel_trouble()


def test_endless_kernel_can_be_killed():
    program = Program(REPO / "tests/direct/endless.cu").compile()
    agent = _up().agent()
    agent.put(program, "/opt/run/endless", 0o755)
    agent.shell("setsid /opt/run/endless >/tmp/endless.log 2>&1 </dev/null &")
    wait_until(lambda: "running" in agent.shell("cat /tmp/endless.log")[1], 30, "the kernel's start")
    _smoke()
    agent.shell("killall -9 endless")
    wait_until(lambda: not host.live("test0")["processes"], 15, "the runner's end")


def test_module_can_be_reloaded():
    _smoke()
    status, output = VM.agent().shell("rmmod virtio_vgpu && insmod /lib/modules/virtio_vgpu.ko && ls /dev/vgpu0")
    assert status == 0, output
    _smoke()
    _no_kernel_trouble()


def test_guest_can_reboot():
    _smoke()
    VM.agent().shell("(sleep 1; reboot -f) >/dev/null 2>&1 </dev/null &")
    VM.disconnect()
    time.sleep(3)
    VM.agent(120)
    _smoke()


def test_killed_qemu_comes_back():
    _smoke()
    host.virsh("destroy", "test")
    VM.disconnect()
    wait_until(lambda: not host.live("test0")["processes"], 15, "the end of the guest's processes")
    VM.start()
    _smoke()


def test_vgpud_restarts_under_the_guest():
    _smoke()
    _busy_in_background(20)
    os.kill(host.vgpuctl_json("status")["pid"], signal.SIGKILL)
    host.start_vgpud()
    wait_until(lambda: host.live("test0")["pid"], 15, "the session's adoption")
    _smoke()
    wait_until(lambda: VM.agent().shell("pidof busy")[0] != 0, 60, "the running program's end")
    assert "round" in _busy_log(), f"the running program was harmed: {_busy_log()}"


def test_killed_session_is_a_clear_error():
    _smoke()
    _busy_in_background(60)
    session = host.live("test0")["pid"]
    os.kill(session, signal.SIGSTOP)  # so that a request of the guest is under way when it dies
    VM.agent().shell("setsid /opt/run/busy 1 >/dev/null 2>&1 </dev/null &")
    time.sleep(0.5)
    os.kill(session, signal.SIGKILL)
    wait_until(lambda: VM.agent().shell("pidof busy")[0] != 0, 60, "the program's end")
    assert "cuda" in _busy_log(), f"no clear error: {_busy_log()}"
    assert VM.running(), "QEMU did not survive its device"
    VM.stop()
    wait_until(lambda: host.live("test0")["pid"], 20, "a new session")
    VM.start()
    _smoke()
