"""tools/bench attach: from `vgpuctl attach --live` on a guest that has booted to the end of its first CUDA call.

The virtual GPU is made before; the guest has the driver's module and libcuda.so.1. A program in the guest waits for the
device and then makes its first call, so the time holds what the virtual machine and libvirt take to plug a device, what
the guest's kernel takes to find it, the session's answer, and the runner that serves the program. Times are of the
host's clock, at the host's end of the guest's serial port. Without KVM the guest's processor is emulated, and the
guest's part is many times what it would be; the table says which it was."""
import argparse
import concurrent.futures
import contextlib
import json
import statistics
import sys
import time

from benchmarks.results import columns
from lab import host, setup
from lab.cuda_programs import Program
from lab.daemon import only_one
from lab.paths import REPO
from lab.shell import Failure, need_root, step, wait_until
from lab.vm import SHARED, Vm, kvm_works, root_ports

NAME = "attach0"  # of the domain, and of the virtual GPU
DEVICE = "/dev/vgpu0"
PROGRAM = f"/opt/run/{NAME}"
LIMIT_SECONDS = 120
GUEST_WAITS = f"until test -c {DEVICE}; do sleep 0.02; done; exec {PROGRAM}"


def _booted(vm: Vm) -> None:
    """Without a virtual GPU, and with a place where one can be plugged."""
    vm.remove()
    vm.create_vgpu("256M", 50, 50)
    vm.define(devices=root_ports(), backing=SHARED)
    vm.start()
    vm.agent().put(Program(REPO / "tools/benchmarks/programs/slurm/first_call.cu").compile(), PROGRAM, 0o755)


def _one(vm: Vm) -> dict[str, float]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        program = pool.submit(vm.agent().shell, GUEST_WAITS, LIMIT_SECONDS)
        time.sleep(1)  # it waits
        begin = time.monotonic()
        host.vgpuctl("attach", NAME, NAME, "--live")
        plugged = time.monotonic()
        status, text = program.result()
        end = time.monotonic()
    if status != 0:
        raise Failure(f"the program in the guest ended with {status}: {text[-500:]}")
    begin_again = time.monotonic()
    status, text = vm.agent().shell(PROGRAM, LIMIT_SECONDS)
    if status != 0:
        raise Failure(f"the second program in the guest ended with {status}: {text[-500:]}")
    again = time.monotonic() - begin_again
    host.vgpuctl("detach", NAME, "--live")
    wait_until(lambda: vm.agent().shell(f"test -e {DEVICE}")[0] != 0, LIMIT_SECONDS, f"the end of {DEVICE}")
    return {"first_call_s": end - begin, "vgpuctl_s": plugged - begin, "next_program_s": again}


def measure(rounds: int) -> list[dict[str, float]]:
    vm = Vm(NAME, NAME)
    try:
        _booted(vm)
        with step(f"attach to first CUDA call, {rounds} times", rounds) as progress:
            found = []
            for _ in range(rounds):
                found.append(_one(vm))
                progress.advance()
            return found
    finally:
        vm.remove()


def table(found: list[dict[str, float]]) -> str:
    processor = "KVM" if kvm_works() else "emulated"
    rows: list[tuple[str, ...]] = [("guest's processor: " + processor, "median, s", "least", "most")]
    for key, text in {"first_call_s": "from attach to the end of the first CUDA call",
                      "vgpuctl_s": "of that, until vgpuctl attach has ended",
                      "next_program_s": "the next program alone, with its first call"}.items():
        values = [one[key] for one in found]
        rows.append((text, *[f"{value:.2f}" for value in (statistics.median(values), min(values), max(values))]))
    return "\n".join(columns(rows))


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench attach", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often (default 5)")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    need_root("a libvirt of the lab")
    with contextlib.redirect_stdout(sys.stderr), only_one():
        setup.prepare()
        host.start_vgpud()
        try:
            host.start_libvirt()
            found = measure(options.rounds)
        finally:
            host.stop_libvirt()
            host.stop_vgpud()
    print(json.dumps({"kvm": kvm_works(), "rounds": found}, indent=1) if options.json else table(found))
    return 0
