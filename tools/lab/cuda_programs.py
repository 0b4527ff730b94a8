"""The CUDA programs under tests/cuda: compiling them with nvcc's defaults, once per content."""
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess

from lab.machine import toolkit
from lab.paths import BUILD, REPO, cache
from lab.shell import run, step

SOURCES = REPO / "tests/cuda"
FACTS = ("nvcc", "vm", "arguments", "expect", "output", "device", "native", "needs", "long", "alone", "same")


def _included_from_elsewhere(source: pathlib.Path) -> set[pathlib.Path]:
    """Files of other folders that a program includes by way of "../", and what these include beside them."""
    found: set[pathlib.Path] = set()
    waiting = [source]
    while waiting:
        file = waiting.pop()
        for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
            included = (file.parent / name).resolve()
            if included.parent != SOURCES and included.is_file() and included not in found:
                found.add(included)
                waiting.append(included)
    return found


class Program:
    """One program; comment lines `// name: value` at its head say what it needs.

    nvcc: further options of nvcc      vm: yes runs in the VM on every test run      arguments: of the program
    expect: the exit status, 0 if absent     output: a text that its output must contain
    device: soft leaves the program out where the device is a real GPU; gpu, where it is not
    native: no where the program does what the driver's own library may crash of; then it runs only on Bandsaw
    needs: a library of the toolkit (nvcc's -l name); without it the program is left out
    long: yes where the software device needs half a minute or more; it then runs beside the others
    alone: yes where it takes all memory of its virtual GPU; no other program shares that with it
    same: yes where its output on Bandsaw is that on the GPU's own driver, but for tests/cuda/answers.differ
    """

    def __init__(self, source: pathlib.Path):
        self.source, self.name = source, source.stem
        self.facts: dict[str, list[str]] = {}
        for line in source.read_text().splitlines():
            match = re.match(rf"//\s*({'|'.join(FACTS)}):\s*(.*)", line)
            if match:
                self.facts.setdefault(match.group(1), []).append(match.group(2).strip())
            elif line and not line.startswith("//"):
                break

    def _words(self, name: str) -> list[str]:
        return " ".join(self.facts.get(name, [])).split()

    @property
    def in_vm(self) -> bool:
        return self._words("vm")[:1] == ["yes"]

    @property
    def is_long(self) -> bool:
        return self._words("long")[:1] == ["yes"]

    @property
    def is_alone(self) -> bool:
        return self._words("alone")[:1] == ["yes"]

    @property
    def prints_the_same(self) -> bool:
        return self._words("same")[:1] == ["yes"]

    @property
    def on_gpu(self) -> bool:
        return self._words("device") != ["soft"]

    @property
    def on_soft(self) -> bool:
        return self._words("device") != ["gpu"]

    @property
    def on_native(self) -> bool:
        return self._words("native") != ["no"]

    @property
    def arguments(self) -> list[str]:
        return self._words("arguments")

    @property
    def expected_status(self) -> int:
        return int((self._words("expect") or ["0"])[0])

    @property
    def expected_output(self) -> list[str]:
        return self.facts.get("output", [])

    @property
    def available(self) -> bool:
        return all((toolkit() / "lib64" / f"{library}.so").exists() for library in self._words("needs"))

    def binary(self) -> pathlib.Path:
        digest = hashlib.sha256(self.source.read_bytes() + str(toolkit()).encode())
        for header in sorted(SOURCES.glob("*.h")):
            digest.update(header.read_bytes())
        for header in sorted(SOURCES.glob("*.cuh")):  # of few programs each
            if f'"{header.name}"' in self.source.read_text():
                digest.update(header.read_bytes())
        for file in sorted(_included_from_elsewhere(self.source)):
            digest.update(file.read_bytes())
        return cache() / "cuda-programs" / f"{self.name}-{digest.hexdigest()[:12]}" / self.name

    def binary_of(self, kind: str, headers: list[pathlib.Path]) -> pathlib.Path:
        """For programs elsewhere, whose `nvcc` facts may differ by machine."""
        digest = hashlib.sha256(f"{toolkit()} {self.facts['nvcc']}".encode())
        for source in [self.source, *headers]:
            digest.update(source.read_bytes())
        return cache() / "cuda-programs" / f"{kind}-{self.name}-{digest.hexdigest()[:12]}" / self.name

    def _options(self) -> list[str]:
        # Programs of the driver API link against our own library; a toolkit from wheels brings no stub.
        own = str(BUILD / "guest-driver/libcuda/libcuda.so.1")
        words = self._words("nvcc")
        options = [part for word in words for part in (["-Xlinker", own] if word == "-lcuda" else [word])]
        # The loader need not know a toolkit outside the usual prefix.
        return [*options, "-Xlinker", f"-rpath={toolkit() / 'lib64'}"]

    def compile(self) -> pathlib.Path:
        binary = self.binary()
        if binary.exists():
            return binary
        binary.parent.mkdir(parents=True, exist_ok=True)
        temporary = binary.with_suffix(".new")
        run([toolkit() / "bin/nvcc", "-std=c++17", "-o", temporary, self.source, *self._options()],
            what=f"compiling {self.source.name}")
        temporary.rename(binary)
        return binary

    def run(self, environment: dict, seconds: float) -> tuple[int, str]:
        """Exit status as a shell would give it (-1: it ran too long) and all output, as a process of this host."""
        try:
            done = subprocess.run([self.compile(), *self.arguments], capture_output=True, text=True, errors="replace",
                                  check=False, env=environment, stdin=subprocess.DEVNULL, timeout=seconds)
            return 128 - done.returncode if done.returncode < 0 else done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as expired:
            parts = [(part or b"").decode(errors="replace") for part in (expired.stdout, expired.stderr)]
            return -1, f"{''.join(parts)}\nran longer than {seconds:.0f} s"

    def judge(self, status: int, output: str) -> str:
        """Empty if the run was right, else what was wrong."""
        if status != self.expected_status:
            return f"exit status {status}, expected {self.expected_status}"
        for text in self.expected_output:
            if text not in output:
                return f"the output lacks '{text}'"
        return ""


def programs() -> list[Program]:
    found = [Program(source) for source in sorted(SOURCES.glob("*.cu"))]
    return [program for program in found if program.available]


def compile_all(chosen: list[Program]) -> None:
    waiting = [program for program in chosen if not program.binary().exists()]
    if not waiting:
        return
    with step(f"compiling {len(waiting)} CUDA programs with nvcc", len(waiting)) as progress:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(progress.counted(Program.compile), waiting))
