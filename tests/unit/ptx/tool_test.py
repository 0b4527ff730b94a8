#!/usr/bin/env python3
"""tools/ptx as people call it: tables, JSON, rewritten text, and errors in one sentence."""
import json
import pathlib
import subprocess
import sys
import tempfile

TOOL, SAMPLES = sys.argv[1], pathlib.Path(sys.argv[2])


def run(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60)


def expect(good: bool, what: str, done: subprocess.CompletedProcess) -> None:
    if not good:
        sys.exit(f"{what}\nexit status {done.returncode}\n{done.stdout}\n{done.stderr}")


def reports() -> None:
    done = run("--json", SAMPLES / "rewrites.ptx")
    expect(done.returncode == 0, "JSON fails", done)
    report = json.loads(done.stdout)
    kernels = {kernel["name"]: kernel for kernel in report["kernels"]}
    expect(report["summary"]["kernels"] == len(kernels) == 15, "kernels are missing", done)
    expect(kernels["waits_for_all"]["spin"] == "any" and not kernels["waits_for_all"]["sliceable"], "spins unseen", done)
    expect(kernels["look_back"]["spin"] == "lower blocks" and kernels["look_back"]["sliceable"], "look-back unseen", done)
    expect(kernels["leaves_before_barrier"]["not_persistent"] != "", "lost threads unseen", done)
    done = run(SAMPLES / "rewrites.ptx", SAMPLES / "memory.ptx")
    expect(done.returncode == 0 and "can be sliced (" in done.stdout, "no table", done)


def rewrites() -> None:
    done = run("--slice", "shared_turn", SAMPLES / "rewrites.ptx")
    expect(done.returncode == 0 and ".visible .entry shared_turn(" in done.stdout, "no slice", done)
    done = run("--persistent", "blocks_leave", SAMPLES / "rewrites.ptx")
    expect(done.returncode == 0 and "barrier.sync 1" in done.stdout, "no persistent form", done)
    done = run("--slice", "waits_for_all", SAMPLES / "rewrites.ptx")
    expect(done.returncode == 1 and "may wait in a loop" in done.stderr, "no reason", done)


def errors() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broken = pathlib.Path(folder) / "broken.ptx"
        broken.write_text(".version 9.0\n.target sm_90\n.entry k( {")
        empty = pathlib.Path(folder) / "empty"
        empty.write_bytes(b"")
        for arguments, part in (([], "which file"), (["--wrong"], "--wrong"), ([folder], "not a file"),
                                ([empty], "empty"), (["/nonexistent/file"], "cannot open"), (["/bin/true"], "no GPU code"),
                                (["--slice", "k"], "which file"), (["--slice", "nobody", SAMPLES / "odd.ptx"], "nobody"),
                                ([SAMPLES / "README.md"], "neither a fatbin")):
            done = run(*arguments)
            one_sentence = done.stderr.startswith("ptx: ") and done.stderr.count("\n") == 1
            expect(done.returncode == 1 and one_sentence and part in done.stderr, f"{arguments}: no kind error", done)
        done = run(broken)
        expect(done.returncode == 0 and "3:11" in done.stdout, "where the text is broken is not said", done)


if __name__ == "__main__":
    reports()
    rewrites()
    errors()
