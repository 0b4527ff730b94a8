"""tools/demo: from a fresh machine to CUDA programs running in a VM on a virtual GPU."""
import argparse
import os
import sys

from lab import cuda_programs, host, setup, xen_demo
from lab.guest_run import run_in_guest
from lab.paths import BUILD, lab_dir
from lab.shell import main, say, step
from lab.vm import Vm


def _next_steps(kept: bool) -> str:
    vgpuctl = f"BANDSAW_RUN={lab_dir() / 'run'} {os.path.relpath(BUILD / 'tools/vgpuctl/vgpuctl')}"
    return "\n".join([
        "next: tools/guest-run ./saxpy  runs a CUDA program of yours in such a VM (--direct: without one)",
        f"      {vgpuctl} top  shows who uses it" + ("" if kept else ", after tools/demo --keep"),
        "      README.md, 'Three steps with libvirt', gives a virtual GPU to a domain of your own"])


def _show_usage(name: str) -> None:
    print(host.vgpuctl("show", name).stdout.rstrip(), flush=True)


def _run_programs(vm: Vm, chosen) -> int:
    passed = 0
    width = max(len(program.name) for program in chosen)
    for number, program in enumerate(chosen, 1):
        parts: list[bytes] = []
        status = run_in_guest(vm.agent(), program.compile(), program.arguments, parts.append, parts.append, timeout=120)
        output = b"".join(parts).decode(errors="replace")
        wrong = program.judge(status, output)
        last = output.strip().splitlines()[-1] if output.strip() else ""
        judged = f"FAILED: {wrong}" if wrong else "passed"
        say(f"  {number:2} of {len(chosen)}  {program.name:<{width}}  {judged}  {last[:70]}")
        if wrong:
            sys.stdout.write("".join(f"      {line}\n" for line in output.splitlines()[-10:]))
        passed += not wrong
    return passed


def run() -> int:
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the VM running")
    parser.add_argument("--xen", action="store_true", help="in a Xen domain, whose host is emulated too")
    parser.add_argument("--type", choices=["pv", "pvh", "hvm"], default="pv", help="of the Xen domain (default: pv)")
    options = parser.parse_args()
    if options.xen:
        return xen_demo.run(options.type)
    setup.prepare()
    chosen = [program for program in cuda_programs.programs() if program.in_vm]
    cuda_programs.compile_all(chosen)
    host.start_vgpud()
    host.start_libvirt()
    vm = Vm("demo", "demo0")
    vm.remove()
    say("vgpuctl create demo0 --memory 512M --compute 40 --copy 40")
    vm.create_vgpu()
    vm.define()
    say("vgpuctl attach demo0 demo")
    vm.attach()
    try:
        with step("virsh start demo: the guest boots (about 6 s emulated)"):
            vm.start()
            vm.agent()
        say(f"running {len(chosen)} programs in the guest, compiled by nvcc with its defaults")
        passed = _run_programs(vm, chosen)
        say("what vgpud accounted (vgpuctl show demo0):")
        _show_usage("demo0")
    finally:
        if not options.keep:
            say("shutting down")
            vm.remove()
            host.stop_vgpud()
            host.stop_libvirt()
    print(f"demo: {passed} of {len(chosen)} programs passed in the guest")
    print(_next_steps(options.keep), flush=True)
    return 0 if passed == len(chosen) else 1


if __name__ == "__main__":
    main(run)
