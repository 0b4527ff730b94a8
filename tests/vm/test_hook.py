"""libvirt's hook: what stands in a domain's metadata is in force when it starts, or it does not start."""
import xml.etree.ElementTree

import pytest

from lab import host
from lab.vm import Vm

VM = Vm("hook0", "hook0")
NAMESPACE = "https://bandsaw.dev/xmlns/libvirt/1.0"
MIB = 1 << 20
OTHERS = {"memory": 32 * MIB, "compute": 1, "copy": 1, "cap": 100, "reserve": 0, "priority": 0,
          "latency_us": 0, "sharing": "time-sliced", "sms": 0}
WANTED = {"memory": 48 * MIB, "compute": 3, "copy": 2, "cap": 50, "reserve": 1, "priority": 7,
          "latency_us": 250, "sharing": "mps", "sms": 0}
WANTED_TEXT = "memory='48M' compute='3' copy='2' cap='50' reserve='1' priority='7' latency_us='250' sharing='mps'"


def _metadata(shares: str, name: str = "hook0") -> str:
    return f"<bandsaw:vgpus xmlns:bandsaw='{NAMESPACE}'><bandsaw:vgpu name='{name}' {shares}/></bandsaw:vgpus>"


def _shares() -> dict:
    shown = host.vgpuctl_json("show", "hook0")
    return {name: shown[name] for name in OTHERS}


def _definition() -> str:
    return host.virsh("dumpxml", "--inactive", "hook0").stdout


def _written() -> dict:
    """The virtual GPU in the domain's metadata."""
    found = xml.etree.ElementTree.fromstring(_definition()).findall(f"metadata/*/{{{NAMESPACE}}}vgpu")
    assert len(found) == 1
    return found[0].attrib


def _set_behind_libvirt() -> None:
    """vgpud's shares become others than those in the domain's metadata."""
    host.vgpuctl("set", "hook0", "--memory", "32M", "--compute", "1", "--copy", "1", "--cap", "100", "--reserve", "0",
                 "--priority", "0", "--latency-us", "none", "--sharing", "time-sliced", "--record-only")
    assert _shares() == OTHERS


def _attached(shares: str) -> None:
    """The domain with this metadata, and the virtual GPU, made with other shares, attached to it."""
    if not host.has_hook():
        pytest.skip("libvirt here is the host's own, with the hooks that its administrator gave it")
    VM.remove()
    VM.create_vgpu("32M", 1, 1)
    VM.define(metadata=_metadata(shares))
    VM.attach()


def _redefine(shares: str, name: str = "hook0") -> None:
    """As `virsh edit` would; what attach has written stays but for the metadata."""
    head, _, rest = _definition().partition("<metadata>")
    path = VM.folder / "edited.xml"
    path.write_text(f"{head}<metadata>{_metadata(shares, name)}</metadata>{rest.partition('</metadata>')[2]}")
    host.virsh("define", str(path))


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    VM.remove()


def test_attach_keeps_and_sets_what_the_metadata_says():
    _attached("compute='3' priority='7'")
    assert _shares() == OTHERS | {"compute": 3, "priority": 7}
    assert _written() == {"name": "hook0", "memory": "32M", "compute": "3", "copy": "1", "cap": "100", "reserve": "0",
                          "priority": "7", "latency_us": "0", "sharing": "time-sliced", "sms": "0"}
    host.vgpuctl("set", "hook0", "--compute", "2")
    assert _written()["compute"] == "2", "vgpuctl set did not reach the domain"


def test_start_sets_what_the_metadata_says():
    _attached(WANTED_TEXT)
    _set_behind_libvirt()
    VM.start()
    try:
        assert VM.running()
        assert _shares() == WANTED
    finally:
        VM.destroy()


def test_wrong_metadata_keeps_the_domain_from_starting():
    _attached(WANTED_TEXT)
    _set_behind_libvirt()
    wrong = {
        "compute='3' speed='9'": "'speed', which is not a share",
        "compute='lots'": "compute",
        "compute='3' sharing='mine'": "no sharing 'mine'",
        "compute='3' memory='9000T'": "above what is free",
        "reserve='60' cap='50'": "a reserve of 60 % is above the cap of 50 %",
    }
    for shares, reason in wrong.items():
        _redefine(shares)
        _is_refused(reason)
    _redefine("compute='3'", name="nowhere0")
    _is_refused("vgpuctl create nowhere0")
    _redefine(WANTED_TEXT)
    VM.start()
    VM.destroy()


def _is_refused(reason: str) -> None:
    refused = host.virsh("start", "hook0", check=False)
    assert refused.returncode != 0, f"it starts, and should not because of: {reason}"
    assert "domain 'hook0' does not start" in refused.stderr and reason in refused.stderr, refused.stderr
    assert host.virsh("domstate", "hook0").stdout.strip() == "shut off"
    assert _shares() == OTHERS
