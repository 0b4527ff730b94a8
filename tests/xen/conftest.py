"""One Xen host for all tests here, with vgpud in its dom0; emulated, so that it boots anywhere, slowly."""
import collections.abc

import pytest

from lab import xen_guest
from lab.cuda_programs import Program
from lab.paths import BUILD, REPO
from lab.shell import run
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

PROGRAMS = ["vector_add"]
FAULT_PROGRAMS = ["busy", "few_grants"]
HOSTILE = "tests/xen/hostile/hostile-frontend"


@pytest.fixture(scope="session")
def xen(request: pytest.FixtureRequest) -> collections.abc.Iterator[XenHost]:
    """The host; its domains run PROGRAMS as soon as they have a virtual GPU, and stay."""
    run(["ninja", "-C", BUILD, HOSTILE], what="building the hostile frontend")
    programs = {name: Program(REPO / f"tests/cuda/{name}.cu").compile() for name in PROGRAMS}
    tools = {"hostile-frontend": BUILD / HOSTILE}
    if is_full := request.config.option.markexpr != "not full":
        tools |= {name: Program(REPO / f"tests/xen/programs/{name}.cu").compile() for name in FAULT_PROGRAMS}
    with XenHost() as host:
        host.start(xen_guest.files(programs, stays=True, tools=tools), hvm=is_full)
        host.start_vgpud()
        host.must("vgpuctl create web0 --memory 256M")
        yield host


@pytest.fixture(scope="module")
def guest(xen: XenHost) -> collections.abc.Iterator[XenGuest]:
    """A PV domain with the virtual GPU, in which PROGRAMS have run."""
    made = XenGuest(xen)
    xen.must("vgpuctl attach web0 guest --hypervisor xen")  # which has it when it starts
    made.create()
    made.wait("guest: waits", 180)
    yield made
    xen.shell("xl destroy guest; vgpuctl detach web0 guest --hypervisor xen")
