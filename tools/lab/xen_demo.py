"""tools/demo --xen: from a fresh machine to CUDA programs in a Xen domain, whose host is emulated by QEMU."""
import time

from lab import cuda_programs, setup, xen_guest
from lab.cuda_programs import Program
from lab.paths import REPO
from lab.shell import say, step
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

# Of those for VMs, what two emulated processors do in seconds.
PROGRAMS = ["vector_add", "callbacks", "calls", "cooperative", "divergence", "graph_capture", "host_memory",
            "host_register", "print", "reduction", "state_spaces", "symbols", "warp_ops"]
DOMAIN_SECONDS = 900  # far less where nothing else runs


def _watch(guest: XenGuest, chosen: list[Program]) -> int:
    """Tells of each program as it ends. Returns how many passed."""
    width = max(len(program.name) for program in chosen)
    told: set[str] = set()
    passed = 0
    deadline = time.monotonic() + DOMAIN_SECONDS
    while len(told) < len(chosen):
        console = guest.console()
        over = "guest: done" in console or time.monotonic() > deadline
        for name, (status, output) in xen_guest.results(console).items():
            if name in told:
                continue
            told.add(name)
            wrong = next(program for program in chosen if program.name == name).judge(status, output)
            lines = output.strip().splitlines() or [""]
            judged = f"FAILED: {wrong}" if wrong else "passed"
            say(f"  {len(told):2} of {len(chosen)}  {name:<{width}}  {judged}  {lines[-1][:70]}")
            for line in lines[-10:] if wrong else []:
                say(f"      {line}")
            passed += not wrong
        if over:
            break
        time.sleep(1)
    return passed


def run(kind: str) -> int:
    setup.prepare(xen=True)
    chosen = [Program(REPO / f"tests/cuda/{name}.cu") for name in PROGRAMS]
    cuda_programs.compile_all(chosen)
    files = xen_guest.files({program.name: program.compile() for program in chosen},
                            arguments={program.name: program.arguments for program in chosen})
    with XenHost() as host:
        host.start(files, hvm=kind == "hvm")
        with step("starting vgpud in dom0"):
            host.start_vgpud()
        for command in ("vgpuctl create web0 --memory 512M --compute 40 --copy 40",
                        "vgpuctl attach web0 guest --hypervisor xen"):
            say(command)
            host.must(command)
        say(f"xl create guest.cfg (type {kind})")
        guest = XenGuest(host, kind=kind)
        guest.create()
        say(f"running {len(chosen)} programs in the domain, compiled by nvcc with its defaults")
        passed = _watch(guest, chosen)
        if passed < len(chosen):
            say(f"the domain's console ends with\n{guest.console()[-1500:]}")
            say(host.shell("tail -20 /run/bandsaw/web0/session.log")[1])
    print(f"demo: {passed} of {len(chosen)} programs passed in the Xen guest", flush=True)
    return 0 if passed == len(chosen) else 1
