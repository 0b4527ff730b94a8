"""tools/bench shares: a vgpud of its own, the tenants' processes, and what vgpud says they used while they ran."""
import contextlib
import dataclasses
import fcntl
import http.client
import json
import os
import pathlib
import select
import socket
import subprocess
import threading
import time

from lab import host
from lab.bench_shares_math import MS, Task
from lab.cuda_programs import Program
from lab.guest_run import direct_environment
from lab.paths import BUILD, REPO, environment, lab_dir
from lab.shell import Failure, say

FOLDER = REPO / "tests/shares"
TENANT_HEADER = FOLDER / "tenant.h"  # of every kind of tenant
START_SECONDS = 60


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class TenantProgram(Program):
    """tests/shares/tenant.cu, compiled for this machine's GPU where there is one."""

    def __init__(self):
        super().__init__(FOLDER / "tenant.cu")
        gpu = pathlib.Path("/dev/nvidiactl").exists()
        self.facts.setdefault("nvcc", []).append("-O3 -arch=native" if gpu else "-O3")

    def binary(self) -> pathlib.Path:
        return self.binary_of("shares", [FOLDER / "kernels.h", TENANT_HEADER])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: pathlib.Path):
        super().__init__("bandsaw", timeout=20)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Control:
    """vgpud's control API over one connection that stays; for one thread."""

    def __init__(self, run: pathlib.Path):
        self._connection = _UnixConnection(run / "control.sock")

    def ask(self, method: str, target: str, body: dict | None = None):
        """The answer, or None where it is a refusal."""
        code, answer = self.request(method, target, body)
        return answer if code < 300 else None

    def request(self, method: str, target: str, body: dict | None = None) -> tuple[int, object]:
        text = None if body is None else json.dumps(body)
        for attempt in (1, 2):
            try:
                self._connection.request(method, target, text, {"Content-Type": "application/json"})
                reply = self._connection.getresponse()
                content = reply.read()
                break
            except (ConnectionError, http.client.HTTPException):
                self._connection.close()  # the daemon closes what was silent for long
                if attempt == 2:
                    raise
        try:
            return reply.status, json.loads(content)
        except ValueError:
            return reply.status, content.decode(errors="replace")

    def need(self, method: str, target: str, body: dict | None = None):
        code, answer = self.request(method, target, body)
        if code >= 300:
            what = answer.get("error", answer) if isinstance(answer, dict) else answer
            raise Failure(f"vgpud refused {method} {target}: {what}")
        return answer


@contextlib.contextmanager
def only_one():
    """One at a time on this machine: two would share folders, and measure each other."""
    with open(lab_dir() / "shares.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another tools/bench shares runs here; waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Daemon:
    """A vgpud with a policy, in a folder of its own beside the lab's."""

    def __init__(self, device: str, policy: str, queues: str = "mrq", name: str = "shares"):
        self.device, self.policy, self.queues = device, policy, queues
        self.run = lab_dir() / name / "run"
        self.variables = environment(self.run)
        self.end()
        self.run.mkdir(parents=True, exist_ok=True)
        self._start()
        self.control = Control(self.run)
        for view in self.control.need("GET", "/v1/vgpus"):
            self.control.need("DELETE", f"/v1/vgpus/{view['name']}?force=1")

    def _start(self) -> None:
        path, log = self.run.parent / "vgpud.toml", self.run.parent / "vgpud.log"
        path.write_text(self._configuration())
        if not self._answers(path, log):
            said = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise Failure(f"vgpud does not answer; its log {log} ends with\n{said}")

    def _configuration(self) -> str:
        kind, _, index = self.device.partition(":")
        return (f'[device]\nname = "{kind}"\nindex = {index or 0}\n[session]\nwarm_runners = 1\n'
                f'[scheduler]\npolicy = "{self.policy}"\nqueues = "{self.queues}"\n')

    def _answers(self, path: pathlib.Path, log: pathlib.Path) -> bool:
        with open(log, "wb") as file:
            daemon = subprocess.Popen([BUILD / "backend/vgpud/vgpud", "--config", path], stdin=subprocess.DEVNULL,
                                      stdout=file, stderr=file, env=self.variables, start_new_session=True)
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline and daemon.poll() is None:
            if host.current_device(self.run):
                return True
            time.sleep(0.05)
        return False

    def end(self) -> None:
        """Ends the vgpud in this folder, if one answers."""
        if not self.run.exists() or not host.current_device(self.run):
            return
        pid = Control(self.run).need("GET", "/v1/status")["pid"]
        host.vgpuctl("shutdown", check=False, variables=self.variables)
        deadline = time.monotonic() + 30
        while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            try:
                os.waitpid(pid, os.WNOHANG)  # one of ours would stay as a zombie
            except ChildProcessError:
                pass
            time.sleep(0.05)

    def create(self, name: str, share: int, *words: str) -> None:
        memory = "192M" if self.device == "soft" else "4G"
        host.vgpuctl("create", name, "--memory", memory, "--compute", str(share), "--copy", str(share), *words,
                     variables=self.variables)

    def set_share(self, name: str, share: int) -> None:
        self.control.need("PATCH", f"/v1/vgpus/{name}", {"compute": share, "copy": share})

    def destroy(self, name: str) -> None:
        self.control.ask("DELETE", f"/v1/vgpus/{name}?force=1")

    def used(self, name: str) -> tuple[int, int]:
        """(compute, copy) nanoseconds of GPU time so far."""
        return usage(self.control.need("GET", f"/v1/vgpus/{name}"))

    def program_environment(self, vgpu: str) -> dict[str, str]:
        ours = {name: self.variables[name] for name in ("BANDSAW_RUN", "BANDSAW_STATE")}
        return {**direct_environment(vgpu), **ours}


def usage(view: dict) -> tuple[int, int]:
    said = (view.get("live") or {}).get("usage") or {}
    return int(said.get("compute_ns", 0)), int(said.get("copy_ns", 0))


class Tenant:
    """A running tenant program; it waits for go()."""

    def __init__(self, daemon: Daemon, vgpu: str, kind: str, values: dict):
        self.vgpu, self.kind = vgpu, kind
        self.log = daemon.run.parent / f"{vgpu}.log"
        self.log.unlink(missing_ok=True)
        words = [f"{name}={value}" for name, value in {**values, "log": self.log}.items()]
        self._process = subprocess.Popen([TenantProgram().compile(), "run", kind, *words], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         env=daemon.program_environment(vgpu))
        self.started = 0
        self.summary: dict = {}

    def ready(self) -> None:
        found, _, _ = select.select([self._process.stdout], [], [], START_SECONDS)
        line = self._process.stdout.readline() if found else ""
        if line.strip() != "running":
            self.kill()
            raise Failure(f"the tenant on {self.vgpu} did not start: {line}{self._process.stderr.read()[-800:]}")

    def _say(self, word: str) -> None:
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def go(self) -> None:
        self.started = now()
        self._say("go")

    def stop(self) -> None:
        if self._process.poll() is None:
            try:
                self._say("stop")
            except BrokenPipeError:
                pass

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
        pauses = [later[0] - earlier[0] for earlier, later in zip(rows, rows[1:])]
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
