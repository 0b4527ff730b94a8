"""A virtual GPU in a domain of Xen's: the same session, runner and vgpuctl, another way in."""
import json

import pytest

from lab import xen_guest
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

PROGRAM_SECONDS = 180


def has_run_a_program(xen: XenHost, guest: XenGuest) -> None:
    console = guest.console()
    assert "guest: has /dev/vgpu0" in console
    status, output = xen_guest.results(console)["vector_add"]
    assert status == 0, output + xen.shell("cat /run/bandsaw/web0/session.log")[1]
    assert json.loads(xen.must("vgpuctl show web0 --json"))["live"]["xen"]["connected"]


def leaves_nothing(xen: XenHost, guest: XenGuest) -> None:
    """When it is destroyed."""
    guest.destroy()
    xen.must("for i in $(seq 50); do xenstore-ls backend/vgpu 2>/dev/null | grep -q . || exit 0; "
             "sleep 0.2; done; xenstore-ls backend/vgpu; exit 1")
    assert xen.must("xl list").count("\n") <= 2, "a domain that is destroyed is held by grants"


def test_a_program_runs_in_a_pv_guest(xen: XenHost, guest: XenGuest):
    has_run_a_program(xen, guest)


def test_a_hostile_frontend_is_thrown_out_and_the_next_one_served(xen: XenHost, guest: XenGuest, pytestconfig):
    is_short = pytestconfig.option.markexpr == "not full"
    session = xen.must("pidof bandsaw-session")
    status, output = guest.shell("echo vgpu-0 >/sys/bus/xen/drivers/vgpu/unbind; "
                                 "for m in xen-evtchn xen-gntalloc; do insmod /lib/modules/$m.ko; done; "
                                 f"hostile-frontend {'indices' if is_short else ''}")
    assert status == 0, output + xen.shell("tail -30 /run/bandsaw/web0/session.log")[1]
    assert xen.must("pidof bandsaw-session") == session, "the session did not live through it"
    if not is_short:
        status, output = guest.shell("echo vgpu-0 >/sys/bus/xen/drivers/vgpu/bind; "
                                     "until [ -e /dev/vgpu0 ]; do sleep 0.1; done; /programs/vector_add")
        assert status == 0, output


def test_a_destroyed_domain_leaves_nothing(xen: XenHost, guest: XenGuest):
    leaves_nothing(xen, guest)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pvh", "hvm"])
def test_a_program_runs_in_a_guest_with_hardware_paging(xen: XenHost, kind: str):
    guest = XenGuest(xen, kind=kind)
    guest.create()
    guest.wait("guest: waits", PROGRAM_SECONDS)
    has_run_a_program(xen, guest)
    leaves_nothing(xen, guest)
