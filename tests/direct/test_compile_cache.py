"""NVRTC keeps what it has compiled in libcuda's cache, as it does with NVIDIA's driver."""
import pathlib
import subprocess
import sys

import pytest

from lab import host
from lab.guest_run import direct_environment, ensure_direct
from lab.machine import toolkit
from lab.paths import REPO

NAME = "compile-cache"
NVRTC = next(iter(sorted(toolkit().glob("lib*/libnvrtc.so.13"))), None)
pytestmark = pytest.mark.skipif(NVRTC is None, reason="the toolkit has no NVRTC of CUDA 13")


@pytest.fixture(scope="module", autouse=True)
def _ready(lab):
    ensure_direct(NAME, "64M", share=5)
    yield
    host.vgpuctl("destroy", NAME, "--force", check=False)


def _compile(architecture: str = "sm_90", **variables: str) -> str:
    command = [sys.executable, str(REPO / "tests/direct/nvrtc_compile.py"), str(NVRTC), architecture]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100,
                          env={**direct_environment(NAME), **variables})
    assert done.returncode == 0, done.stderr
    assert "libcuda" not in done.stderr, done.stderr
    return done.stdout


def _files(folder: pathlib.Path) -> dict[str, int]:
    return {file.name: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def test_what_was_compiled_is_found_again(tmp_path):
    first = _compile(CUDA_CACHE_PATH=str(tmp_path))
    kept = _files(tmp_path)
    assert len(kept) == 2, "PTX and machine code"
    assert _compile(CUDA_CACHE_PATH=str(tmp_path)) == first
    again = _files(tmp_path)
    assert again.keys() == kept.keys()
    assert all(again[name] > kept[name] for name in kept), "the cache was not asked"
    _compile("sm_80", CUDA_CACHE_PATH=str(tmp_path))
    assert len(_files(tmp_path)) == 4


def test_damage_is_compiled_again(tmp_path):
    first = _compile(CUDA_CACHE_PATH=str(tmp_path))
    for file in filter(pathlib.Path.is_file, tmp_path.rglob("*")):
        file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert _compile(CUDA_CACHE_PATH=str(tmp_path)) == first


def test_it_can_be_turned_off(tmp_path):
    _compile(CUDA_CACHE_PATH=str(tmp_path), CUDA_CACHE_DISABLE="1")
    assert not _files(tmp_path)
