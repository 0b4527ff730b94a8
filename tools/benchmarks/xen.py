"""tools/bench xen: calls, copies and pinned pages in a Xen domain beside the same in a VM, one after the other.

Both are emulated on the software device, the domain within an emulated Xen host: only the ratios mean something."""
import argparse
import contextlib
import json
import os
import sys
import time

from benchmarks.basic import Figure
from benchmarks.results import columns, json_lines
from lab import host, setup, xen_guest
from lab.guest_run import run_in_guest
from lab.shell import Failure, say
from lab.vm import Vm
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

PROGRAM = "guest"
SECONDS = 900
# 64 MiB pinned twice, and what a domain's devices have.
SETTINGS = "max_grant_frames = 128\n"
FIRST_CALL = "from the machine's start to the first completed call"


def _figures(output: str) -> dict[str, tuple[float, str]]:
    return {line["name"]: (line["value"], line["unit"]) for line in json_lines(output)}


def in_domain(kind: str) -> dict[str, tuple[float, str]]:
    with XenHost() as xen:
        xen.start(xen_guest.files({PROGRAM: Figure(PROGRAM).compile()}, stays=True), hvm=kind == "hvm")
        xen.start_vgpud()
        xen.must("vgpuctl create web0 --memory 256M")
        xen.must("vgpuctl attach web0 guest --hypervisor xen")
        guest = XenGuest(xen, kind=kind, memory_mib=768)
        begin = time.monotonic()
        guest.create(runs=False, settings=SETTINGS)
        guest.wait("guest: waits", SECONDS)
        guest.start(f"/programs/{PROGRAM}")
        guest.wait('{"name"', SECONDS)
        first = time.monotonic() - begin
        say(f"the first call was completed {first:.1f} s after xl create")
        console = guest.wait("guest: did ", SECONDS)
        if "guest: did 0" not in console:
            raise Failure(f"{PROGRAM} failed in the domain: {console[-1000:]}")
        return {FIRST_CALL: (first, "s"), **_figures(console)}


def in_vm() -> dict[str, tuple[float, str]]:
    host.start_vgpud()
    host.start_libvirt()
    vm = Vm("bench", "bench1", memory_mib=768)
    try:
        vm.create_vgpu("256M")
        vm.define()
        vm.attach()
        begin = time.monotonic()
        vm.start()
        parts: list[bytes] = []
        first: list[float] = []

        def output(part: bytes) -> None:
            if not first and b'{"name"' in part:
                first.append(time.monotonic() - begin)
            parts.append(part)

        status = run_in_guest(vm.agent(), Figure(PROGRAM).compile(), [], output, parts.append, timeout=SECONDS)
        text = b"".join(parts).decode(errors="replace")
        if status != 0 or not first:
            raise Failure(f"{PROGRAM} failed in the VM: {text[-1000:]}")
        return {FIRST_CALL: (first[0], "s"), **_figures(text)}
    finally:
        vm.remove()
        host.stop_vgpud()
        host.stop_libvirt()


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench xen", description=__doc__)
    parser.add_argument("--type", choices=["pv", "pvh", "hvm"], default="pv", help="of the domain (default: pv)")
    parser.add_argument("--json", action="store_true", help="JSON on standard output instead of a table")
    options = parser.parse_args(arguments)
    with contextlib.redirect_stdout(sys.stderr):
        setup.prepare(xen=True)
        Figure(PROGRAM).compile()
        load = os.getloadavg()[0]
        say(f"in a {options.type} domain")
        xen = in_domain(options.type)
        say("in a VM")
        vm = in_vm()
    if options.json:
        results = [{"figure": name, "unit": unit, "xen": value, "vm": vm[name][0], "ratio": value / vm[name][0]}
                   for name, (value, unit) in xen.items()]
        print(json.dumps({"type": options.type, "load_before": load, "results": results}, indent=1))
        return 0
    rows = [("figure", f"{options.type} domain", "VM", "unit", "domain / VM")]
    rows += [(name, f"{value:.4g}", f"{vm[name][0]:.4g}", unit, f"{value / vm[name][0]:.2f}")
             for name, (value, unit) in xen.items()]
    print("\n".join(columns(rows)))
    return 0
