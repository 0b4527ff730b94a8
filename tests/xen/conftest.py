"""One Xen host for all tests here, with vgpud in its dom0; emulated, so that it boots anywhere, slowly."""
import pytest

from lab import xen_guest
from lab.cuda_programs import Program
from lab.paths import REPO
from lab.xen_host import XenHost

PROGRAMS = ["vector_add"]


@pytest.fixture(scope="session")
def xen():
    """The host; its domain `guest` runs PROGRAMS as soon as it has a virtual GPU, and waits."""
    programs = {name: Program(REPO / f"tests/cuda/{name}.cu").compile() for name in PROGRAMS}
    with XenHost() as host:
        host.start(xen_guest.files(programs, script="echo 'guest: waits'; sleep 1000"))
        host.start_vgpud()
        yield host
