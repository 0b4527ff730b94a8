"""tools/bench mps: tenants that do what they are told and answer with a line each."""
import json
import pathlib
import subprocess
import time

from benchmarks.shares_run import TENANT_HEADER, now
from lab.cuda_programs import Program
from lab.daemon import BenchDaemon
from lab.paths import REPO
from lab.shell import Failure
from lab.started import Started

FOLDER = REPO / "tools/benchmarks/tenants/mps"
START_SECONDS = 60


class TenantProgram(Program):
    """tenants/mps/tenant.cu, with PTX: what has none is not cut."""

    def __init__(self):
        super().__init__(FOLDER / "tenant.cu")
        self.facts.setdefault("nvcc", []).append("-O3")

    def binary(self) -> pathlib.Path:
        return self.binary_of("mps", [*sorted(FOLDER.glob("*.h")), TENANT_HEADER])


class BenchTenant:
    """A tenant program that serves; `start` and `answer` belong together."""

    def __init__(self, variables: dict[str, str], vgpu: str, kernel: dict, log_words: int):
        self.vgpu, self.kernel = vgpu, kernel["kernel"]
        words = [f"blocks={kernel['blocks']}", f"rounds={kernel['rounds']}", f"log_words={log_words}"]
        self._process = Started(TenantProgram().compile(), "serve", self.kernel, *words, errors_apart=True,
                                variables=variables)

    def _line(self, seconds: float) -> str:
        line = self._process.line(seconds)
        if not line:
            silent = self._process.poll() is None
            self.kill()
            what = f"did not answer within {seconds:.0f} s" if silent else f"ended with {self._process.returncode}"
            raise Failure(f"the tenant with {self.kernel} on {self.vgpu} {what}: {self._process.error_output()[-800:]}")
        return line

    def ready(self) -> None:
        line = self._line(START_SECONDS).strip()
        if line != "ready":
            self.kill()
            raise Failure(f"the tenant with {self.kernel} on {self.vgpu} did not start: {line}")

    def start(self, *words) -> None:
        try:
            self._process.say(*words)
        except BrokenPipeError:
            pass  # the answer will say why

    def answer(self, seconds: float) -> dict:
        return json.loads(self._line(seconds))

    def instances(self, seconds: float) -> list[tuple[int, int, int]]:
        return [(each[0], each[1], each[2]) for each in self.answer(seconds)["instances"]]

    def end(self) -> None:
        """Lets it end by itself, if it does."""
        try:
            self._process.stdin.close()
            self._process.wait(timeout=5)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def check(tenants: list[BenchTenant]) -> None:
    """Raises where a launch did not do what the host computes."""
    for tenant in tenants:
        tenant.start("check")
    for tenant in tenants:
        if wrong := tenant.answer(60)["wrong"]:
            raise Failure(f"{tenant.kernel} on {tenant.vgpu} went wrong: {wrong}")


def soon(seconds: float = 0.05) -> int:
    """A time at which all tenants can begin together."""
    return now() + int(seconds * 1e9)


def calibrate(daemon: BenchDaemon, kernels: list[str], values: dict) -> dict[str, dict]:
    """How many blocks and rounds make a launch of the wanted length, and what it takes alone."""
    name = "calibrate"
    daemon.create(name, 50)
    try:
        begin = time.monotonic()
        done = subprocess.run([TenantProgram().compile(), "calibrate", ",".join(kernels),
                               *(f"{key}={value}" for key, value in values.items())], text=True, capture_output=True,
                              check=False, timeout=240, env=daemon.program_environment(name))
        if done.returncode != 0:
            raise Failure(f"calibrating failed after {time.monotonic() - begin:.0f} s: {done.stdout[-400:]}"
                          f"{done.stderr[-800:]}")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
    finally:
        daemon.destroy(name)
    return {row["kernel"]: row for row in rows}
