"""A Xen that lets dom0 map few pages of others: `gnttab_max_maptrack_frames` of its command line."""
import collections.abc

import pytest

from lab import xen_guest
from lab.cuda_programs import Program
from lab.paths import REPO, lab_dir
from lab.shell import wait_until
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

pytestmark = pytest.mark.full
BOOT_SECONDS = 180
FRAMES = 12  # of 256 mappings; a PV dom0 makes two for each page


@pytest.fixture(name="few_mappings", scope="module")
def _few_mappings() -> collections.abc.Iterator[XenHost]:
    program = Program(REPO / "tests/xen/programs/few_grants.cu").compile()
    with XenHost() as host:
        host.folder = lab_dir() / "xen-few-mappings"  # another may run beside it
        host.start(xen_guest.files({}, stays=True, tools={"few_grants": program}),
                   options=f"gnttab_max_maptrack_frames={FRAMES}")
        host.start_vgpud()
        host.must("vgpuctl create web0 --memory 256M; vgpuctl attach web0 guest --hypervisor xen")
        yield host


def test_copies_are_right_and_what_cannot_be_mapped_is_refused(few_mappings: XenHost):
    before = few_mappings.held()
    guest = XenGuest(few_mappings)
    guest.create(runs=False)
    guest.wait("guest: waits", BOOT_SECONDS)
    for _ in range(2):  # what the first one took is there again
        status, output = guest.shell("until [ -e /dev/vgpu0 ]; do sleep 0.1; done; few_grants 32")
        assert status == 0, output + few_mappings.shell("tail -20 /run/bandsaw/web0/session.log")[1]
        for kind in ("pinned", "registered", "managed"):
            assert f"{kind} memory of 32 MiB: out of memory" in output, output
        assert "little pinned memory of 0 MiB: no error" in output
    guest.destroy()
    wait_until(lambda: few_mappings.held() == before, 30, f"that {few_mappings.held()} becomes {before}")
