"""Programs whose libcuda.so.1 is of another release than the host: its opcodes have another order, one call is new, and
one has another structure."""
import pathlib
import random
import re
import shutil
import subprocess

import pytest

from lab import build, host
from lab.cuda_programs import compile_all, programs
from lab.guest_run import direct_environment, ensure_direct
from lab.paths import REPO, cache

NAME = "versions"
SAME_CALLS = ["async_copy", "atomics", "callbacks", "events", "graph_capture", "module_ptx", "print", "symbols"]
OTHER_CALL = "memory_pools"
SECONDS = 60


def _replace(path: pathlib.Path, pattern: str, text) -> None:
    changed, count = re.subn(pattern, text, path.read_text(), flags=re.M)
    assert count, f"{path} has no {pattern}"
    path.write_text(changed)


def _copy_tree(folder: pathlib.Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPO, check=True, capture_output=True,
                            text=True).stdout.splitlines()
    for name in filter(lambda name: (REPO / name).is_file(), listed):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / name, folder / name)


def _make_other(folder: pathlib.Path) -> None:
    rows = folder / "guest-driver/uapi/calls/wire.toml"
    head, first, *rest = re.split(r"(?m)^(?=\[)", rows.read_text())
    random.Random(1).shuffle(rest)
    rest.insert(3, '[new_call]\nmode = "sync"\nout = ["u32 x"]\n')
    rows.write_text(head + first + "".join(row.rstrip() + "\n\n" for row in rest))
    _replace(folder / "guest-driver/uapi/vgpu_wire.h", r"(struct vgpu_pool_props \{\s+__u64) \w+;", r"\1 other;")


def _set_release(folder: pathlib.Path, minor: int) -> None:
    _replace(folder / "meson.build", r"^  version: '(\d+)\.(\d+)\.\d+'",
             lambda found: f"  version: '{found[1]}.{int(found[2]) + minor}.0'")


@pytest.fixture(scope="module", name="library")
def _library(lab):
    """Builds the libcuda.so.1 of a release so many minor numbers away; gives its folder."""
    folder = cache() / "other-release"
    shutil.rmtree(folder, ignore_errors=True)
    _copy_tree(folder)
    _make_other(folder)

    def built(minor: int) -> pathlib.Path:
        _set_release(folder, minor)
        if not (folder / "build/build.ninja").exists():
            build.configure(folder / "build", source=folder)
        build.ninja(folder / "build", "guest-driver/libcuda/libcuda.so.1",
                    text="building the library of another release")
        return folder / "build/guest-driver/libcuda"

    ensure_direct(NAME, share=5)
    yield built
    host.vgpuctl("destroy", NAME, "--force", check=False)
    shutil.rmtree(folder)


def _with_library(folder: pathlib.Path) -> dict[str, str]:
    return {**direct_environment(NAME), "LD_LIBRARY_PATH": str(folder), "BANDSAW_LOG": "warn"}


@pytest.mark.full
def test_the_release_after_this_one(library):
    environment = _with_library(library(1))
    chosen = [program for program in programs() if program.name in [*SAME_CALLS, OTHER_CALL]]
    assert len(chosen) == len(SAME_CALLS) + 1
    compile_all(chosen)
    for program in chosen:
        status, output = program.run(environment, SECONDS)
        if program.name == OTHER_CALL:
            assert status != 0 and 'has no call "pool_create"' in output, output
        else:
            assert not (wrong := program.judge(status, output)), f"{program.name}: {wrong}\n{output}"


@pytest.mark.full
def test_a_release_too_far_away(library):
    environment = _with_library(library(1))  # two away now
    program = next(program for program in programs() if program.name == "vector_add")
    status, output = program.run(environment, SECONDS)
    assert status != 0
    assert re.search(r"is of release \d+\.\d+\.0, the host of [\d.]+: install", output), output
