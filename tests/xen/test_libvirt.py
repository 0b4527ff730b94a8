"""A domain of libvirt's on Xen: what stands in its metadata gives it the virtual GPU when it starts."""
import json

import pytest

from lab import xen_guest, xen_libvirt
from lab.cuda_programs import Program
from lab.paths import REPO, lab_dir
from lab.xen_guest import XenGuest
from lab.xen_host import XenHost

pytestmark = pytest.mark.full
PROGRAM_SECONDS = 180


@pytest.fixture(name="xen_with_libvirt", scope="module")
def _xen_with_libvirt():
    program = Program(REPO / "tests/cuda/vector_add.cu").compile()
    with XenHost() as host:
        host.folder = lab_dir() / "xen-libvirt"  # another may run beside it
        host.start(xen_guest.files({"vector_add": program}, stays=True) | xen_libvirt.files())
        host.start_vgpud()
        xen_libvirt.start(host)
        yield host


def test_metadata_is_enough(xen_with_libvirt: XenHost):
    host = xen_with_libvirt
    host.must("vgpuctl create web0 --memory 256M --compute 40")
    snippet = host.must("vgpuctl xml web0 --hypervisor xen").replace("compute='40'", "compute='30'")
    metadata = snippet[snippet.index("<metadata>"):snippet.index("</metadata>") + len("</metadata>")]
    definition = xen_libvirt.DOMAIN.replace("<vcpu>", metadata + "\n  <vcpu>")
    host.must(f"cat > {xen_guest.FOLDER}/guest.xml <<'EOF'\n{definition}EOF\n"
              f"virsh -c xen:///system define {xen_guest.FOLDER}/guest.xml")
    host.must("virsh -c xen:///system start guest", timeout=180)
    console = XenGuest(host).wait("guest: waits", PROGRAM_SECONDS)
    status, output = xen_guest.results(console)["vector_add"]
    assert status == 0, output + host.shell("cat /run/bandsaw/web0/session.log")[1]
    view = json.loads(host.must("vgpuctl show web0 --json"))
    assert (view["domain"], view["compute"], view["live"]["xen"]["connected"]) == ("guest", 30, True)
    host.must("vgpuctl set web0 --compute 20")
    assert 'compute="20"' in host.must("virsh -c xen:///system dumpxml --inactive guest")
    host.must("vgpuctl detach web0 --hypervisor xen")
    assert "bandsaw" not in host.must("virsh -c xen:///system dumpxml --inactive guest")
    host.must("virsh -c xen:///system destroy guest; virsh -c xen:///system undefine guest")
    host.must("vgpuctl destroy web0")


def test_wrong_metadata_keeps_the_domain_from_starting(xen_with_libvirt: XenHost):
    metadata = ("<metadata><b:vgpus xmlns:b='https://bandsaw.dev/xmlns/libvirt/1.0'><b:vgpu name='nowhere'/>"
                "</b:vgpus></metadata>")
    wrong = xen_libvirt.DOMAIN.replace("<vcpu>", metadata + "<vcpu>")
    xen_with_libvirt.must(f"cat > /tmp/wrong.xml <<'EOF'\n{wrong}EOF\nvirsh -c xen:///system define /tmp/wrong.xml")
    status, output = xen_with_libvirt.shell("virsh -c xen:///system start guest")
    assert status != 0 and "vgpuctl create nowhere" in output, output
