"""tools/bench shares: the tenants' processes, and what vgpud says they used while they ran."""
import contextlib
import dataclasses
import itertools
import json
import pathlib
import subprocess
import threading
import time

from benchmarks.shares_math import MS, Task
from lab.cuda_programs import Program
from lab.daemon import Control, Daemon, usage
from lab.paths import REPO
from lab.shell import Failure
from lab.started import Started

FOLDER = REPO / "tools/benchmarks/tenants/shares"
TENANT_HEADER = FOLDER / "tenant.h"  # of every kind of tenant
START_SECONDS = 60


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class TenantProgram(Program):
    """tenants/shares/tenant.cu, compiled for this machine's GPU where there is one."""

    def __init__(self):
        super().__init__(FOLDER / "tenant.cu")
        gpu = pathlib.Path("/dev/nvidiactl").exists()
        self.facts.setdefault("nvcc", []).append("-O3 -arch=native" if gpu else "-O3")

    def binary(self) -> pathlib.Path:
        return self.binary_of("shares", [FOLDER / "kernels.h", TENANT_HEADER])


class Tenant:
    """A running tenant program; it waits for go()."""

    def __init__(self, daemon: Daemon, vgpu: str, kind: str, values: dict):
        self.vgpu, self.kind = vgpu, kind
        self.log = daemon.run.parent / f"{vgpu}.log"
        self.log.unlink(missing_ok=True)
        words = [f"{name}={value}" for name, value in {**values, "log": self.log}.items()]
        self._process = Started(TenantProgram().compile(), "run", kind, *words, errors_apart=True,
                                variables=daemon.program_environment(vgpu))
        self.started = 0
        self.summary: dict = {}

    def ready(self) -> None:
        line = self._process.line(START_SECONDS)
        if line.strip() != "running":
            self.kill()
            raise Failure(f"the tenant on {self.vgpu} did not start: {line}{self._process.error_output()[-800:]}")

    def go(self) -> None:
        self.started = now()
        self._process.say("go")

    def stop(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._process.say("stop")

    def finish(self, seconds: float = 60) -> list[Task]:
        """Waits for the end; the tasks that the program saw end."""
        try:
            self._process.wait(timeout=seconds)  # its few lines fit into the pipes; the end of stdin would stop it
            output, errors = self._process.communicate()
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"the tenant on {self.vgpu} does not end") from None
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if self._process.returncode != 0 or not lines:
            raise Failure(f"the tenant on {self.vgpu} failed ({self._process.returncode}): {errors[-800:]}")
        self.summary = json.loads(lines[-1])
        return self._tasks()

    def _tasks(self) -> list[Task]:
        if not self.log.exists():
            return []
        rows = [line.split() for line in self.log.read_text().splitlines()]
        return [Task(int(row[0]), int(row[1]), float(row[2]), row[3]) for row in rows if len(row) == 4]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Sampler:
    """Asks vgpud every few milliseconds what every virtual GPU has used; a thread and a connection of its own."""

    def __init__(self, daemon: Daemon, every_ms: float):
        self.samples: dict[str, list[tuple[int, int, int]]] = {}  # vgpu -> (time, compute_ns, copy_ns)
        self.failed = ""
        self._control, self._every = Control(daemon.run), every_ms / 1000
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            before = now()
            try:
                views = self._control.ask("GET", "/v1/vgpus") or []
            except OSError as error:
                self.failed = f"vgpud was lost while it was asked: {error}"
                return
            at = (before + now()) // 2
            for view in views:
                if view.get("live"):
                    self.samples.setdefault(view["name"], []).append((at, *usage(view)))
            due = max(due + self._every, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def end(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)
        if self.failed:
            raise Failure(self.failed)

    def of(self, vgpu: str, engine: str) -> list[tuple[int, int]]:
        """`engine`: compute or copy."""
        column = 1 if engine == "compute" else 2
        return [(sample[0], sample[column]) for sample in self.samples.get(vgpu, [])]

    def longest_pause_ms(self) -> float:
        rows = max(self.samples.values(), key=len, default=[])
        pauses = [later[0] - earlier[0] for earlier, later in itertools.pairwise(rows)]
        return max(pauses, default=0) / MS


@dataclasses.dataclass
class Kind:
    """How long the tasks of a kind are, and what one tenant alone gets of the GPU with them."""
    round_ns: float = 0.0
    fixed_ns: float = 0.0
    busy: float = 1.0   # GPU time a second, by the device's measure
    rate: float = 1.0   # nominal work a second


def calibrate(daemon: Daemon, kind: str, copy_mib: int) -> Kind:
    name = "calibrate"
    daemon.create(name, 50)
    try:
        done = subprocess.run([TenantProgram().compile(), "calibrate", kind, f"copy_mib={copy_mib}"], text=True,
                              capture_output=True, check=False, timeout=120, env=daemon.program_environment(name))
        if done.returncode != 0:
            raise Failure(f"calibrating {kind} failed: {done.stderr[-800:]}")
        said = json.loads(done.stdout.splitlines()[-1])
    finally:
        daemon.destroy(name)
    return Kind(said["round_ns"], said["fixed_ns"])


def run_alone(daemon: Daemon, kind: str, values: dict, seconds: float) -> dict:
    """One tenant by itself for a while: its summary, with `busy` and `rate` a second of wall time."""
    name = "alone"
    daemon.create(name, 50)
    try:
        tenant = Tenant(daemon, name, kind, {**values, "seconds": seconds})
        tenant.ready()
        before = sum(daemon.used(name))
        tenant.go()
        tenant.finish(seconds + 60)
        after = sum(daemon.used(name))
    finally:
        daemon.destroy(name)
    wall = max(1, tenant.summary["end_ns"] - tenant.summary["begin_ns"])
    return {**tenant.summary, "busy": (after - before) / wall, "rate": 1000 * tenant.summary["work_us"] / wall,
            "tasks_per_s": 1e9 * tenant.summary["tasks"] / wall}
