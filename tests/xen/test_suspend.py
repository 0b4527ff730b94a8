"""Pausing, saving, restoring and migrating a domain with a virtual GPU."""
import collections.abc

import pytest

from lab.shell import Failure
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

pytestmark = pytest.mark.full
BOOT_SECONDS, SAVE_SECONDS = 180, 400  # xl waits 60 s for a domain that refuses
SAVED = "/tmp/guest.saved"
REFUSED = "a domain with a virtual GPU cannot be suspended"


def begins_anew(xen: XenHost, guest: XenGuest) -> None:
    xen.shell(f"xl destroy {guest.name} 2>/dev/null")
    guest.create(runs=False)
    guest.wait("guest: waits", BOOT_SECONDS)


@pytest.fixture(name="small_guest")
def _small_guest(xen: XenHost, request: pytest.FixtureRequest) -> collections.abc.Iterator[XenGuest]:
    """One whose memory is soon written."""
    guest = XenGuest(xen, kind=getattr(request, "param", "pv"), memory_mib=192)
    xen.must("vgpuctl attach web0 guest --hypervisor xen")
    begins_anew(xen, guest)
    yield guest
    xen.shell(f"xl destroy guest 2>/dev/null; vgpuctl detach web0 guest --hypervisor xen; rm -f {SAVED}")


def works(guest: XenGuest) -> None:
    status, output = guest.shell("until [ -e /dev/vgpu0 ]; do sleep 0.1; done; /programs/vector_add")
    assert status == 0, output


def keeps_busy(guest: XenGuest) -> None:
    guest.shell("busy copy >/tmp/busy 2>&1 & until grep -q 'at it' /tmp/busy; do sleep 0.1; done")


def is_still_busy(guest: XenGuest) -> None:
    status, output = guest.shell("pidof busy && ! grep ended /tmp/busy")
    assert status == 0, output


def is_refused_and_goes_on(xen: XenHost, guest: XenGuest, command: str) -> None:
    keeps_busy(guest)
    status, output = xen.shell(command, SAVE_SECONDS)
    assert status != 0, output
    print(output)
    is_still_busy(guest)
    works(guest)
    assert REFUSED in guest.shell("dmesg")[1]
    assert xen.must("xl list").count("\n") <= 3, "what was to receive the domain is left"


def test_a_domain_that_is_paused_goes_on(xen: XenHost, small_guest: XenGuest):
    keeps_busy(small_guest)
    xen.must("xl pause guest; sleep 12; xl unpause guest")  # longer than any side waits for a ping
    works(small_guest)
    is_still_busy(small_guest)


# Debian's Xen has no shadow paging, so that it migrates no PV domain at all.
@pytest.mark.parametrize(("small_guest", "command"), [("pv", f"xl save guest {SAVED}"),
                                                     ("pvh", "xl migrate -s '' guest 'xl migrate-receive'")],
                         indirect=["small_guest"])
def test_what_would_suspend_the_domain_is_refused_and_it_goes_on(xen: XenHost, small_guest: XenGuest, command: str):
    lost = xen.lost_domains()
    try:
        is_refused_and_goes_on(xen, small_guest, command)
    except (AssertionError, Failure) as failure:
        if xen.lost_domains() == lost:
            raise
        print(f"The emulated processor has lost the domain, so that it is tried once more:\n{failure}")
        begins_anew(xen, small_guest)
        is_refused_and_goes_on(xen, small_guest, command)


def test_a_domain_is_saved_without_its_virtual_gpu_and_has_it_again(xen: XenHost, small_guest: XenGuest):
    works(small_guest)
    xen.must("vgpuctl detach web0 guest --hypervisor xen")
    small_guest.shell("while [ -e /dev/vgpu0 ]; do sleep 0.1; done")
    xen.must(f"xl save guest {SAVED}; xl restore {SAVED}", SAVE_SECONDS)
    small_guest.shell("true")  # its kernel looks for devices that come, once it runs again
    xen.must("vgpuctl attach web0 guest --hypervisor xen")
    works(small_guest)
