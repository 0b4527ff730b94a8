"""A virtual GPU in a domain of Xen's: the same session, runner and vgpuctl, another way in."""
import json

from lab import xen_guest
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

PROGRAM_SECONDS = 180


def test_a_program_runs_in_a_pv_guest(xen: XenHost):
    guest = XenGuest(xen)
    xen.must("vgpuctl create web0 --memory 256M")
    xen.must("vgpuctl attach web0 guest --hypervisor xen")  # which has it when it starts
    guest.create()
    console = guest.wait("guest: waits", PROGRAM_SECONDS)
    assert "guest: has /dev/vgpu0" in console
    status, output = xen_guest.results(console)["vector_add"]
    assert status == 0, output + xen.shell("cat /run/bandsaw/web0/session.log")[1]
    assert json.loads(xen.must("vgpuctl show web0 --json"))["live"]["xen"]["connected"]
    xen.must("xl destroy guest")
    xen.must("for i in $(seq 50); do xenstore-ls backend/vgpu 2>/dev/null | grep -q . || exit 0; "
             "sleep 0.2; done; xenstore-ls backend/vgpu; exit 1")
    assert xen.must("xl list").count("\n") <= 2, "a domain that is destroyed is held by grants"
