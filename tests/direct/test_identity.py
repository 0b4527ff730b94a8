"""Each virtual GPU has a UUID and a PCI bus id of its own, the same for every program and after a new start."""
import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct
from lab.paths import REPO

NAMES = ["identity-a", "identity-b"]


@pytest.fixture(scope="module", autouse=True)
def _ready(lab):
    for name in NAMES:
        ensure_direct(name, "64M", share=5)
    yield
    for name in NAMES:
        host.vgpuctl("destroy", name, "--force", check=False)


def _seen(name: str, **variables: str) -> tuple[str, str]:
    """UUID and bus id, as a program sees them."""
    program = Program(REPO / "tests/direct/identity.cu")
    program.compile()
    status, output = program.run({**direct_environment(name), **variables}, 30)
    assert status == 0, output
    uuid, bus = output.split()
    return uuid, bus


def test_no_two_have_one():
    seen = [_seen(name) for name in NAMES]
    assert seen[0][0] != seen[1][0] and seen[0][1] != seen[1][1]


def test_vgpud_says_what_programs_see():
    for name in NAMES:
        live = host.live(name)
        assert _seen(name) == (live["uuid"], live["pci_bus_id"].upper())


def test_a_new_one_of_the_same_name_has_the_same_uuid():
    before = _seen(NAMES[0])
    host.vgpuctl("destroy", NAMES[0], "--force")
    ensure_direct(NAMES[0], "64M", share=5)
    assert _seen(NAMES[0])[0] == before[0]


def test_a_program_finds_it_by_its_uuid():
    uuid, _ = _seen(NAMES[0])
    assert _seen(NAMES[0], CUDA_VISIBLE_DEVICES=uuid)[0] == uuid
    program = Program(REPO / "tests/direct/identity.cu")
    status, output = program.run({**direct_environment(NAMES[1]), "CUDA_VISIBLE_DEVICES": uuid}, 30)
    assert status != 0 and "no CUDA-capable device" in output
