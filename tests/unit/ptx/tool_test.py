"""tools/ptx as people call it: tables, JSON, rewritten text, and errors in one sentence."""
import json
import pathlib
import subprocess

import pytest

from lab.paths import BUILD

TOOL, SAMPLES = BUILD / "tools/ptx/ptx", pathlib.Path(__file__).with_name("samples")


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def test_reports():
    done = run("--json", SAMPLES / "rewrites.ptx")
    assert done.returncode == 0, f"JSON fails: {done}"
    report = json.loads(done.stdout)
    kernels = {kernel["name"]: kernel for kernel in report["kernels"]}
    assert report["summary"]["kernels"] == len(kernels) == 15, f"kernels are missing: {done}"
    every, lower = kernels["waits_for_all"], kernels["look_back"]
    assert every["spin"] == "any" and not every["sliceable"], f"spins unseen: {done}"
    assert lower["spin"] == "lower blocks" and lower["sliceable"], f"look-back unseen: {done}"
    assert kernels["leaves_before_barrier"]["not_persistent"] != "", f"lost threads unseen: {done}"
    done = run(SAMPLES / "rewrites.ptx", SAMPLES / "memory.ptx")
    assert done.returncode == 0 and "can be sliced (" in done.stdout, f"no table: {done}"


def test_rewrites():
    done = run("--slice", "shared_turn", SAMPLES / "rewrites.ptx")
    assert done.returncode == 0 and ".visible .entry shared_turn(" in done.stdout, f"no slice: {done}"
    done = run("--persistent", "blocks_leave", SAMPLES / "rewrites.ptx")
    assert done.returncode == 0 and "barrier.sync 1" in done.stdout, f"no persistent variant: {done}"
    done = run("--slice", "waits_for_all", SAMPLES / "rewrites.ptx")
    assert done.returncode == 1 and "may wait in a loop" in done.stderr, f"no reason: {done}"


BAD_ARGUMENTS = [
    ([], "which file"), (["--wrong"], "--wrong"), ([pathlib.Path("/tmp")], "not a file"),
    (["/nonexistent/file"], "cannot open"), (["/bin/true"], "no GPU code"), (["--slice", "k"], "which file"),
    (["--slice", "nobody", SAMPLES / "odd.ptx"], "nobody"), ([SAMPLES / "README.md"], "neither a fatbin"),
]


@pytest.mark.parametrize(("arguments", "part"), BAD_ARGUMENTS)
def test_errors_are_one_sentence(arguments, part):
    is_refused(run(*arguments), part)


def is_refused(done, part):
    assert done.returncode == 1, done
    assert done.stderr.startswith("ptx: ") and done.stderr.count("\n") == 1 and part in done.stderr


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    is_refused(run(tmp_path / "empty"), "empty")


def test_a_broken_file_is_reported_with_its_place(tmp_path):
    broken = tmp_path / "broken.ptx"
    broken.write_text(".version 9.0\n.target sm_90\n.entry k( {")
    done = run(broken)
    assert done.returncode == 0 and "3:11" in done.stdout, done
