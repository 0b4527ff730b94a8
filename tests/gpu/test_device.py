"""The real GPU from end to end: that it is said, shared and lost as the software device is, and reached from a VM."""

import pytest

from lab import cuda_programs, host, qemu_root
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct, run_in_guest
from lab.paths import REPO
from lab.plain_vm import lab_vm
from lab.started import Started

ONE, TWO = "gpu-one", "gpu-two"
VM_SECONDS = 120


def _need_gpu() -> None:
    if not host.current_device().startswith("cuda"):
        pytest.skip("the device is not a GPU")


def _busy(vgpu: str, seconds: float) -> Started:
    program = Program(REPO / "tests/direct/busy.cu").compile()
    process = Started(program, seconds, variables=direct_environment(vgpu))
    process.first_line("round")
    return process


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    for name in (ONE, TWO):
        host.vgpuctl("destroy", name, "--force", check=False)


def test_the_gpu_is_named():
    _need_gpu()
    device = host.vgpuctl_json("status")["device"]
    assert device["kind"] == "cuda" and device["name"] and device["memory"] > 1 << 30, device
    assert device["name"] in host.vgpuctl("status").stdout


def test_a_fault_spares_siblings_and_other_virtual_gpus():
    for name in (ONE, TWO):
        ensure_direct(name, "2G", share=5)
    others = [_busy(ONE, 4), _busy(TWO, 4)]
    fault = Program(REPO / "tests/cuda/fault_illegal_address.cu")
    status, output = fault.run(direct_environment(ONE), 60)
    assert not fault.judge(status, output), f"the faulting program did not see its own error: {output[-500:]}"
    for process in others:
        status, output = process.finish()
        assert status == 0, f"another program was harmed: {status} {output[-500:]}"


def test_programs_in_a_vm():
    if not qemu_root.available():
        pytest.skip("no QEMU >= 10.1 here; tools/pack on another machine packs one into .carry")
    vm = lab_vm("gpu-test", "gpu-vm0")
    chosen = [program for program in cuda_programs.programs() if program.in_vm and program.on_gpu]
    cuda_programs.compile_all(chosen)
    host.start_libvirt()
    wrong = []
    try:
        vm.up("4G")
        for program in chosen:
            parts: list[bytes] = []
            status = run_in_guest(vm.agent(), program.compile(), program.arguments, parts.append, parts.append,
                                  timeout=VM_SECONDS)
            output = b"".join(parts).decode(errors="replace")
            if why := program.judge(status, output):
                wrong.append(f"{program.name}: {why}\n{output[-1000:]}")
        if wrong:
            wrong += ["-- console", vm.console_tail(), "-- session and runner",
                      host.session_log("gpu-vm0").read_text(errors="replace")[-3000:]]
    finally:
        vm.remove()
    assert not wrong, "\n".join(wrong)
