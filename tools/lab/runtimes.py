"""The CUDA runtimes that PyPI has, each with a program that uses most of it, on a virtual GPU in direct mode."""
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import re
import subprocess
import time

from lab.guest_run import direct_environment, ensure_direct
from lab.machine import toolkit
from lab.paths import REPO, cache
from lab.results import Results
from lab.shell import Failure, run, say, step

SOURCES = REPO / "tests/runtimes"
SECONDS = 120
# The last of each minor version; a newer one than these is a row of its own.
VERSIONS = ["11.8.89", "12.0.146", "12.1.105", "12.2.140", "12.3.101", "12.4.127", "12.5.82", "12.6.77", "12.8.90",
            "12.9.79", "13.0.96", "13.1.80", "13.2.86", "13.3.29", "13.4.92", "13.5.37"]


@dataclasses.dataclass
class Row:
    """One runtime with the program, and what came of it."""
    version: str
    linked: str
    said: dict[str, str] = dataclasses.field(default_factory=dict)  # by subject
    wrong: str = ""
    output: str = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"cudart {self.version} {self.linked}"

    def count(self, word: str) -> int:
        return sum(said.partition(":")[0] == word for said in self.said.values())


def package(version: str) -> str:
    major = version.partition(".")[0]
    return "nvidia-cuda-runtime" if int(major) >= 13 else f"nvidia-cuda-runtime-cu{major}"


def newest() -> str:
    """As PyPI has it; the newest that is known where PyPI does not answer."""
    done = subprocess.run(["/usr/bin/python3", "-m", "pip", "index", "versions", "nvidia-cuda-runtime"],
                          capture_output=True, text=True, check=False)
    match = re.search(r"\((\d+(?:\.\d+)+)\)", done.stdout)
    return match.group(1) if match else VERSIONS[-1]


def versions(short: bool) -> list[str]:
    if short:
        return [VERSIONS[0], VERSIONS[-1]]
    last = newest()
    return VERSIONS if last in VERSIONS else [*VERSIONS, last]


def wheel(version: str) -> pathlib.Path:
    """The folder with include and lib of a runtime's wheel, which is installed into the cache if it is not there."""
    place = cache() / "runtimes" / version
    if not place.exists():
        temporary = place.with_suffix(".new")
        run(["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir", "--target", temporary,
             f"{package(version)}=={version}"], what=f"installing {package(version)} {version}")
        temporary.rename(place)
    headers = sorted(place.glob("nvidia/*/include/cuda_runtime_api.h"))
    if not headers:
        raise Failure(f"the wheel of {package(version)} {version} has no cuda_runtime_api.h")
    return headers[0].parents[1]


def _digest() -> str:
    digest = hashlib.sha256(str(toolkit()).encode())
    for source in sorted(SOURCES.glob("*.*")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def device_code(folder: pathlib.Path) -> None:
    """Fatbins of PTX, by the toolkit that the tests have: runtimes are of any version, device code need not be."""
    for name in ("kernels", "textures"):
        if not (folder / f"{name}.fatbin").exists():
            run([toolkit() / "bin/nvcc", "-arch=compute_75", "-fatbin", "-o", folder / f"{name}.new",
                 SOURCES / f"{name}.cu"], what=f"compiling {name}.cu")
            (folder / f"{name}.new").rename(folder / f"{name}.fatbin")


def compile_programs(version: str, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """The program by how it is linked: with the runtime's shared library and, where the wheel has one, its archive."""
    home = wheel(version)
    programs = {"shared": folder / f"runtime-{version}-shared"}
    libraries = {"shared": [str(next(home.glob("lib/libcudart.so.*"))), f"-Wl,-rpath,{home / 'lib'}"]}
    if (home / "lib/libcudart_static.a").exists():
        programs["static"] = folder / f"runtime-{version}-static"
        libraries["static"] = [str(home / "lib/libcudart_static.a"), "-ldl", "-lrt", "-lpthread"]
    if all(program.exists() for program in programs.values()):
        return programs
    objects = [folder / f"{source.stem}-{version}.o" for source in sorted(SOURCES.glob("*.cc"))]
    for source, made in zip(sorted(SOURCES.glob("*.cc")), objects):
        # -w: the headers of some wheels declare what they call deprecated. Headers of the compiler are the toolkit's.
        run(["g++", "-std=c++20", "-w", "-c", "-o", made, source, "-isystem", home / "include", "-isystem",
             toolkit() / "include", f'-DDEVICE_CODE="{folder / "kernels.fatbin"}"',
             f'-DTEXTURE_CODE="{folder / "textures.fatbin"}"'], what=f"compiling {source.name} for {version}")
    for linked, program in programs.items():
        run(["g++", "-o", program.with_suffix(".new"), *objects, *libraries[linked]],
            what=f"linking {program.name}")
        program.with_suffix(".new").rename(program)
    return programs


def judge(row: Row, status: int, output: str) -> None:
    row.output = output
    for line in output.splitlines():
        if match := re.match(r"([\w ]+): (ok|refused: .*|FAILED: .*)$", line):
            row.said[match.group(1)] = match.group(2)
    failed = [f"{subject}: {said}" for subject, said in row.said.items() if said.startswith("FAILED")]
    if failed or status != 0:
        row.wrong = "; ".join(failed) or f"exit status {status}"
    elif "reset" not in row.said:
        row.wrong = "it did not come to its end"


def run_program(row: Row, program: pathlib.Path) -> Row:
    start = time.monotonic()
    try:
        done = subprocess.run([program], capture_output=True, text=True, errors="replace", check=False,
                              env=direct_environment("direct0"), stdin=subprocess.DEVNULL, timeout=SECONDS)
        judge(row, done.returncode, done.stdout + done.stderr)
    except subprocess.TimeoutExpired:
        row.wrong = f"ran longer than {SECONDS} s"
    row.seconds = time.monotonic() - start
    return row


def table(rows: list[Row]) -> str:
    """Aligned: a line for each runtime; below, what was refused and what failed."""
    lines = [f"{'runtime':<12}{'linked':<9}{'ok':>4}{'refused':>9}{'failed':>8}{'s':>7}  result"]
    for row in rows:
        lines.append(f"{row.version:<12}{row.linked:<9}{row.count('ok'):>4}{row.count('refused'):>9}"
                     f"{row.count('FAILED'):>8}{row.seconds:>7.1f}  {row.wrong or 'passed'}")
    refused: dict[str, int] = {}
    for row in rows:
        for subject, said in row.said.items():
            if said.startswith("refused"):
                refused[f"{subject}: {said}"] = refused.get(f"{subject}: {said}", 0) + 1
    lines += [f"{what} ({count} of {len(rows)})" for what, count in sorted(refused.items())]
    return "\n".join(lines)


def runtime_tests(results: Results, only: str, short: bool) -> None:
    """`short`: the oldest and the newest runtime that are known, with their shared libraries."""
    chosen = [version for version in versions(short)
              if any(only in Row(version, linked).name for linked in ("shared", "static"))]
    if not chosen:
        return
    folder = cache() / "runtimes" / f"programs-{_digest()}"
    folder.mkdir(parents=True, exist_ok=True)
    device_code(folder)
    with step(f"runtimes: installing and compiling for {len(chosen)} of them", len(chosen)) as progress:
        def prepared(version: str) -> list[tuple[Row, pathlib.Path]]:
            return [(Row(version, linked), program) for linked, program in compile_programs(version, folder).items()]

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            programs = [pair for pairs in pool.map(progress.counted(prepared), chosen) for pair in pairs]
    programs = [(row, program) for row, program in programs
                if only in row.name and not (short and row.linked == "static")]
    if not programs:
        return
    ensure_direct("direct0")
    rows = [run_program(row, program) for row, program in programs]
    for row in rows:
        results.add(row.name, row.wrong, row.output)
    for line in table(rows).splitlines():
        say(f"  {line}")
