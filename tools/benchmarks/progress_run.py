"""tools/bench progress: the tenants' processes, and NVIDIA's own MPS daemon."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import time

from benchmarks.progress_cases import PROGRAMS, Size, Who
from benchmarks.progress_math import Step, Steps
from benchmarks.shares_run import TENANT_HEADER
from benchmarks.torch_python import libraries_of_wheels, torch_python
from lab.cuda_programs import Program
from lab.machine import toolkit
from lab.paths import REPO, lab_dir
from lab.shell import Failure
from lab.started import Started

FOLDER = REPO / "tools/benchmarks/tenants/progress"
START_SECONDS = 150   # PyTorch is read from a disk that may be slow, and compiles some
STOP_SECONDS = 60     # the step that is under way
TORCH_SCRIPT = FOLDER / "torch_tenant.py"


class LeftOut(Exception):
    """Something that this machine, or this version, cannot do; its text says what."""


class TenantProgram(Program):
    """tenants/progress/NAME.cu, with PTX for whatever GPU there is."""

    def __init__(self, name: str):
        super().__init__(FOLDER / f"{name}.cu")
        self.facts.setdefault("nvcc", []).append("-O3")

    def binary(self) -> pathlib.Path:
        return self.binary_of("progress", [*sorted(FOLDER.glob("*.h")), TENANT_HEADER])


def blas_library() -> pathlib.Path | None:
    """Of the toolkit, or of PyTorch's wheels."""
    for folder in [toolkit() / "lib64", *libraries_of_wheels()]:
        if found := sorted(folder.glob("libcublas.so*")):
            return found[-1]
    return None


def missing(program: str) -> str:
    """What this machine lacks for a program; empty if it can run."""
    source = PROGRAMS[program].source
    if source == "torch" and torch_python() is None:
        return "no python with torch is here (set BANDSAW_TORCH_PYTHON)"
    return "no cuBLAS is here" if source == "blas" and blas_library() is None else ""


def size_of(program: str, device: str) -> Size:
    kind = PROGRAMS[program]
    size = kind.soft if device == "soft" else kind.gpu
    if size is None:
        raise LeftOut(f"{program} does not run on {device}")
    return size


def command(program: str, device: str) -> list[str]:
    if why := missing(program):
        raise LeftOut(f"{program}: {why}")
    words = size_of(program, device).words.split()
    source, kind = PROGRAMS[program].source, PROGRAMS[program].kind or program
    if source == "torch":
        return [str(torch_python()), str(TORCH_SCRIPT), kind, *words]
    words += [f"library={blas_library()}"] if source == "blas" else []
    return [str(TenantProgram(source).compile()), "run", kind, *words]


def sources(programs: list[str]) -> list[str]:
    """What nvcc has to compile for these."""
    return sorted({PROGRAMS[program].source for program in programs} - {"torch"})


def _read_steps(path: pathlib.Path) -> list[Step]:
    rows = [line.split() for line in path.read_text().splitlines()]
    return [(int(row[0]), int(row[1])) for row in rows]


class TenantProcess:
    """A program that waits for go()."""

    def __init__(self, words: list[str], name: str, variables: dict[str, str]):
        folder = lab_dir() / "progress-steps"
        folder.mkdir(exist_ok=True)
        self._name, self._steps = name, folder / f"{name}.txt"
        self._process = Started(words[0], *words[1:], errors_apart=True, variables=variables)

    def _expect(self, beginning: str, seconds: float) -> None:
        line = self._process.line(seconds)
        if line.startswith(beginning):
            return
        silent = not line and self._process.poll() is None
        self.kill()
        what = f"was silent for {seconds:.0f} s" if silent else f"ended with {self._process.returncode}"
        raise Failure(f"{self._name} {what} instead of '{beginning}': {line}{self._process.error_output()[-800:]}")

    def ready(self) -> None:
        self._expect("ready", START_SECONDS)

    def go(self) -> None:
        self._steps.unlink(missing_ok=True)
        self._say("go", self._steps)

    def stop(self) -> None:
        self._say("stop")

    def _say(self, *words) -> None:
        with contextlib.suppress(BrokenPipeError):  # what follows will say why
            self._process.say(*words)

    def steps(self) -> Steps:
        """What it did between go and stop."""
        self._expect("done", STOP_SECONDS)
        return Steps(_read_steps(self._steps))

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


class Group:
    """All processes of one tenant."""

    def __init__(self, who: Who, device: str, variables: dict[str, str], variant: str):
        self.who, self.variant = who, variant
        self.memory = who.processes * size_of(who.program, device).memory
        words = command(who.program, device)
        self.processes = [TenantProcess(words, f"{who.name}.{number}", variables) for number in range(who.processes)]
        self._is_ready = False

    def ready(self) -> None:
        if not self._is_ready:
            for process in self.processes:
                process.ready()
        self._is_ready = True

    def kill(self) -> None:
        for process in self.processes:
            process.kill()


class NativeMps:
    """An MPS daemon of the driver's own, in folders of this bench."""

    def __init__(self) -> None:
        smi = shutil.which("nvidia-smi")
        beside = [pathlib.Path(smi).resolve().parent, pathlib.Path(smi).parent] if smi else []
        name = "nvidia-cuda-mps-control"
        places = [shutil.which(name), *(str(place / name) for place in beside)]
        self._control = next((place for place in places if place and pathlib.Path(place).exists()), None)
        if self._control is None:
            raise LeftOut("there is no nvidia-cuda-mps-control in PATH or beside nvidia-smi")
        folder = lab_dir() / "native-mps"
        shutil.rmtree(folder, ignore_errors=True)
        self._log = folder / "log"
        self._log.mkdir(parents=True)
        (folder / "pipe").mkdir()
        self.variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(self._log)}
        done = subprocess.run([self._control, "-d"], env={**os.environ, **self.variables}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=30)
        if done.returncode != 0:
            raise Failure(f"nvidia-cuda-mps-control -d failed: {done.stderr or done.stdout}")

    def evidence(self) -> str:
        lines = [line for path in sorted(self._log.glob("*.log"))
                 for line in path.read_text(errors="replace").splitlines()[-6:]]
        return "\n".join(lines)

    def end(self) -> None:
        """All clients have ended before."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([str(self._control)], input="quit\n", env={**os.environ, **self.variables}, text=True,
                           capture_output=True, check=False, timeout=20)
        time.sleep(0.3)
