"""A PVH dom0, which a host with a real GPU takes: granted pages are neighbours there if their numbers are."""
import collections.abc
import os

import pytest

from lab import xen_guest
from lab.cuda_programs import Program
from lab.paths import REPO, lab_dir
from lab.shell import wait_until
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

# By hand: on a machine that does anything else, Xen's own tools take minutes there, and devices are given up.
pytestmark = [pytest.mark.full, pytest.mark.skipif("BANDSAW_XEN_PVH_DOM0" not in os.environ,
                                                   reason="BANDSAW_XEN_PVH_DOM0=1 runs it")]
BOOT_SECONDS, PROGRAM_SECONDS = 420, 420  # each of its exits is emulated twice


@pytest.fixture(name="pvh_dom0", scope="module")
def _pvh_dom0() -> collections.abc.Iterator[XenHost]:
    program = Program(REPO / "tests/cuda/vector_add.cu").compile()
    with XenHost() as host:
        host.folder = lab_dir() / "xen-pvh"  # another may run beside it
        host.start(xen_guest.files({"vector_add": program}, stays=True), pvh=True, seconds=BOOT_SECONDS)
        host.start_vgpud()
        host.must("vgpuctl create web0 --memory 256M; vgpuctl attach web0 guest --hypervisor xen")
        yield host


def test_a_program_runs_and_nothing_is_left(pvh_dom0: XenHost):
    assert pvh_dom0.must("cat /sys/hypervisor/guest_type").strip() == "PVH"
    before = pvh_dom0.held()
    guest = XenGuest(pvh_dom0)
    guest.create()
    console = guest.wait("guest: waits", PROGRAM_SECONDS)
    status, output = xen_guest.results(console)["vector_add"]
    assert status == 0, output + pvh_dom0.shell("cat /run/bandsaw/web0/session.log")[1]
    guest.destroy()
    wait_until(lambda: pvh_dom0.held() == before, 60, f"that {pvh_dom0.held()} becomes {before}")
