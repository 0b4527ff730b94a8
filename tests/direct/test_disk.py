"""What the host keeps on disk for a tenant has a bound, whatever the tenant compiles."""
import pathlib

import pytest

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment, ensure_direct
from lab.paths import REPO, lab_dir
from lab.shell import wait_until
from lab.started import Started

NAME = "disk"
STEPS = 1000
KERNEL_BYTES = 20 << 10  # at least, of such a kernel's code
MANY, FEW = 70, 3
MIB = 1 << 20


@pytest.fixture(scope="module", autouse=True)
def _ready(lab, device):
    if device != "soft":
        pytest.skip("NVIDIA's driver keeps what it compiles by itself")
    ensure_direct(NAME, "64M", share=5)
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _folder() -> pathlib.Path:
    return lab_dir() / "state/vgpus" / NAME / "cache"


def _on_disk() -> int:
    return sum(file.stat().st_blocks * 512 for file in _folder().iterdir())


def _limit(mib: int | str) -> None:
    host.vgpuctl("set", NAME, "--limit", f"disk_mib={mib}")
    wait_until(lambda: mib == "default" or host.live(NAME)["limits"]["disk_mib"]["most"] == mib, 5, "the new limit")


def _compile(seed: int, kernels: int) -> list[str]:
    """What the kernels compute."""
    program = Program(REPO / "tests/direct/compiling.cu").compile()
    status, output = Started(program, seed, STEPS, kernels, variables=direct_environment(NAME)).finish(180)
    results = [line for line in output.splitlines() if line.isdigit()]
    assert (status, len(results)) == (0, kernels), f"{status}: {output[-500:]}"
    return results


def _used() -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in _folder().iterdir()}


@pytest.mark.full
def test_what_is_compiled_fills_no_more_than_the_limit_and_nothing_is_lost():
    _limit("default")
    first = _compile(1000, MANY)
    assert _on_disk() > MANY * KERNEL_BYTES > MIB
    _limit(1)
    wait_until(lambda: _on_disk() <= MIB, 5, "room")
    assert _compile(1000, MANY) == first
    assert MIB // 2 < _on_disk() <= MIB
    held = host.live(NAME)["limits"]["disk_mib"]
    assert (held["held"], held["most"]) == (1, 1)
    assert "disk_mib 1 of 1" in host.vgpuctl("show", NAME).stdout


def test_where_nothing_may_be_kept_it_says_so_and_programs_run():
    _limit(0)
    first = _compile(9000, FEW)
    assert not _used() and _compile(9000, FEW) == first
    assert "may keep 0 MiB" in host.session_log(NAME).read_text(errors="replace")


def test_what_is_kept_is_found_again():
    _limit("default")
    first = _compile(20000, FEW)
    kept = _used()
    assert len(kept) >= FEW and _on_disk() >= FEW * KERNEL_BYTES
    assert _compile(20000, FEW) == first
    again = _used()
    assert again.keys() == kept.keys() and all(again[name] > kept[name] for name in kept), "the cache was not asked"
