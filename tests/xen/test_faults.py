"""What goes wrong around a domain: it, the session or vgpud ends in the middle of work, or it may grant little."""
import collections.abc
import os
import re

import pytest

from lab.shell import wait_until
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

pytestmark = pytest.mark.full
BOOT_SECONDS = 180
# By hand more of them: BANDSAW_XEN_DOMAINS=100 python3 -m pytest -m "" tests/xen -k nothing_leaks
DOMAINS = int(os.environ.get("BANDSAW_XEN_DOMAINS", "3"))


@pytest.fixture
def new_guest(xen: XenHost) -> collections.abc.Iterator[collections.abc.Callable[..., XenGuest]]:
    """Makes domains that have run nothing yet, one at a time."""
    def make(settings: str = "") -> XenGuest:
        guest = XenGuest(xen)
        guest.create(runs=False, settings=settings)
        guest.wait("guest: waits", BOOT_SECONDS)
        return guest

    xen.must("vgpuctl attach web0 guest --hypervisor xen")
    yield make
    xen.shell("xl destroy guest 2>/dev/null; vgpuctl detach web0 guest --hypervisor xen")


def ends(xen: XenHost, guest: XenGuest, before: dict[str, int]) -> None:
    guest.destroy()
    wait_until(lambda: xen.held() == before, 30, f"that {xen.held()} becomes {before} after the domain")


def begins(guest: XenGuest, work: str) -> None:
    done = guest.console().count("busy: at it")
    guest.start(f"busy {work}")
    wait_until(lambda: guest.console().count("busy: at it") > done, 60, f"the beginning of a {work}")


def works(guest: XenGuest) -> None:
    status, output = guest.shell("until [ -e /dev/vgpu0 ]; do sleep 0.1; done; /programs/vector_add")
    assert status == 0, output


def test_a_session_that_is_killed_and_a_vgpud_that_starts_anew(xen: XenHost, new_guest):
    before = xen.held()
    guest = new_guest()
    begins(guest, "copy")
    xen.must("kill -9 $(pidof bandsaw-session)")
    guest.wait("guest: did 1", 60)
    assert "busy: ended with" in guest.console()
    works(guest)
    session = xen.must("pidof bandsaw-session")
    begins(guest, "copy")
    xen.must("kill $(pidof vgpud); while pidof vgpud; do sleep 0.1; done")
    xen.start_vgpud()
    assert xen.must("pidof bandsaw-session") == session, "the session did not wait for the next vgpud"
    assert guest.console().count("guest: did 1") == 1, "the program did not live through it"
    ends(xen, guest, before)


@pytest.mark.parametrize("work", ["copy", "kernel"])
def test_a_domain_is_destroyed_in_the_middle_of(xen: XenHost, new_guest, work: str):
    before = xen.held()
    guest = new_guest()
    begins(guest, work)
    ends(xen, guest, before)


def test_a_domain_with_few_grants(xen: XenHost, new_guest):
    """8 MiB of grants: pageable copies of 32 MiB are right, what would have to be granted as a whole is refused."""
    before = xen.held()
    guest = new_guest("max_grant_frames = 4\n")
    status, output = guest.shell("few_grants 32")
    assert status == 0, output
    for kind in ("pinned", "registered", "managed"):
        assert f"{kind} memory of 32 MiB: out of memory" in output, output
    assert "little pinned memory of 0 MiB: no error" in output
    ends(xen, guest, before)


def test_a_dom0_that_maps_few_grants(xen: XenHost, new_guest):
    before = xen.held()
    limit = "/sys/module/xen_gntdev/parameters/limit"
    guest = new_guest()
    xen.must(f"echo 2048 >{limit}")
    try:
        status, output = guest.shell("few_grants 32")
        assert status == 0, output
        works(guest)
    finally:
        xen.must(f"echo 65536 >{limit}")
    ends(xen, guest, before)


def test_nothing_leaks(xen: XenHost, new_guest):
    before = xen.held()
    for number in range(DOMAINS):
        guest = new_guest()
        works(guest)
        if number % 2:  # each other one with programs that are there when it ends
            begins(guest, "copy")
        ends(xen, guest, before)
        print(f"after {number + 1} of {DOMAINS} domains: {xen.held()}", flush=True)
    assert re.search(r"\S", xen.must("vgpuctl status"))
