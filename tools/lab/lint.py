"""The checks that read the tree and run nothing of it: ruff and mypy over Python, clang-format over C, C++ and CUDA,
and the titles of commits."""
import concurrent.futures
import os
import pathlib
import re
import subprocess

from lab.machine import install_packages, wheels
from lab.paths import REPO, cache
from lab.results import Results
from lab.shell import step

TOOLS = ["ruff==0.17.6", "mypy==2.4.1"]  # newer ones may find more: to be chosen by a person
CLANG_FORMAT = "clang-format-19"
FOLDERS = ["backend", "guest-driver", "hypervisor", "memory", "vgpu-sched", "tools", "tests"]
SUFFIXES = {".c", ".cc", ".h", ".cu", ".cuh"}
FILES_AT_ONCE = 40

# What a commit may be about: folders of the tree, by the names that people call them, and what has no folder.
ROOMS = {
    "guest-driver", "uapi", "kernel", "libcuda", "nvml", "cupti", "ptx_preload",
    "hypervisor", "virtio", "vfio_user", "xen", "libvirt",
    "memory", "base", "ledger", "swap", "managed", "segment", "copy",
    "vgpu-sched", "sched", "policy", "slice", "ptx",
    "backend", "device", "soft", "cuda", "session", "runner", "gate", "sandbox", "control", "vgpud", "arbiter",
    "metrics",
    "tools", "vgpuctl", "gen", "lab", "packages", "demo", "bench", "benchmarks", "research", "fleet", "tests", "fuzz",
    "whole tree", "docs", "build", "ci", "changelog", "release",
}


def _tools() -> pathlib.Path:
    """The folder with ruff and mypy, of one version for everybody."""
    folder = cache() / ("lint-" + "-".join(TOOLS).replace("==", "-"))
    install_packages(["python3-pip", "python3-pytest"])  # whose types mypy reads
    wheels(folder, TOOLS, "about 30 MB")
    return folder


def _check(results: Results, name: str, command: list, **options) -> None:
    done = subprocess.run([str(part) for part in command], cwd=REPO, capture_output=True, text=True, check=False,
                          **options)
    results.add(f"lint: {name}", f"exit status {done.returncode}" if done.returncode else "", done.stdout + done.stderr)


def _ruff(results: Results) -> None:
    _check(results, "ruff", [_tools() / "bin/ruff", "check", "--no-cache", "--output-format=concise", "."])


def _mypy(results: Results) -> None:
    environment = {**os.environ, "PYTHONPATH": str(_tools())}
    _check(results, "mypy", ["/usr/bin/python3", "-m", "mypy", "--cache-dir", cache() / "mypy"], env=environment)


def _sources() -> list[pathlib.Path]:
    return [file for folder in FOLDERS for file in sorted((REPO / folder).rglob("*"))
            if file.suffix in SUFFIXES and file.is_file()]


def _misformatted(files: list[pathlib.Path]) -> set[str]:
    done = subprocess.run([CLANG_FORMAT, "--dry-run", *files], capture_output=True, text=True, check=False)
    return set(re.findall(r"^(\S+?):\d+:\d+: ", done.stderr, re.MULTILINE)) or (
        {done.stderr.strip()} if done.returncode else set())


def _clang_format(results: Results) -> None:
    """By the .clang-format nearest to each file: C of the kernel has the kernel's style."""
    install_packages([CLANG_FORMAT])
    files = _sources()
    parts = [files[start:start + FILES_AT_ONCE] for start in range(0, len(files), FILES_AT_ONCE)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = sorted(os.path.relpath(file, REPO) for found in pool.map(_misformatted, parts) for file in found)
    results.add("lint: clang-format", f"{len(bad)} of {len(files)} files are not formatted; mend them with "
                f"{CLANG_FORMAT} -i" if bad else "", "\n".join(bad))


def wrong_title(title: str) -> str:
    """What is wrong with the title of a commit; empty if it says `room: what`, or `room, room: what`."""
    rooms, colon, what = title.partition(": ")
    if not colon or not what.strip():
        return "is not of the form `room: what`"
    strange = [room for room in rooms.split(", ") if room not in ROOMS]
    return f"names {', '.join(strange)}, which is not a room (see ROOMS in tools/lab/lint.py)" if strange else ""


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", REPO, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _commit_titles(results: Results) -> None:
    """Of the commits since this file came; in a clone without all history, of those since its oldest commit."""
    first = _git("log", "--format=%H", "--diff-filter=A", "--", "tools/lab/lint.py")
    if not first:
        results.skip("lint: commit titles", "the history is not here")
        return
    titles = (_git("log", "--no-merges", "--format=%h %s", f"{first.split()[-1]}..HEAD") or "").splitlines()
    wrong = [f"{title.partition(' ')[0]} '{title.partition(' ')[2]}' {why}" for title in titles
             if (why := wrong_title(title.partition(" ")[2]))]
    results.add("lint: commit titles", f"{len(wrong)} of {len(titles)}" if wrong else "", "\n".join(wrong))


CHECKS = {"ruff": _ruff, "mypy": _mypy, "clang-format": _clang_format, "commit titles": _commit_titles}


def check_all(results: Results, only: str) -> None:
    chosen = [check for name, check in CHECKS.items() if only in name]
    with step(f"lint: {', '.join(name for name in CHECKS if only in name)}"):
        for check in chosen:
            check(results)
