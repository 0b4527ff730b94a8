"""A vgpud with settings of its own, beside the lab's: for tests and benchmarks that need a policy, a mode, slicing."""
import contextlib
import fcntl
import functools
import http.client
import json
import os
import pathlib
import socket
import subprocess
import time

from lab import build, host
from lab.guest_run import direct_environment
from lab.paths import environment, lab_dir
from lab.shell import Failure, say, wait_until

PRODUCTION, RESEARCH = "backend/vgpud/vgpud", "tools/benchmarks/research/vgpud-lab"
START_SECONDS = 40  # a GPU's driver may have to wake
Tables = dict[str, dict]


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
        try:
            status, content = self._once(method, target, text)
        except (ConnectionError, http.client.HTTPException):
            self._connection.close()  # the daemon closes what was silent for long
            status, content = self._once(method, target, text)
        try:
            return status, json.loads(content)
        except ValueError:
            return status, content.decode(errors="replace")

    def _once(self, method: str, target: str, text: str | None) -> tuple[int, bytes]:
        self._connection.request(method, target, text, {"Content-Type": "application/json"})
        reply = self._connection.getresponse()
        return reply.status, reply.read()

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
            say("another measurement runs here; waiting for its end")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _value(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else json.dumps(value)


def _toml(tables: Tables, devices: list[str | dict]) -> str:
    head = f"devices = {_value(devices)}\n" if devices else ""
    return head + "".join(f"[{name}]\n" + "".join(f"{key} = {_value(value)}\n" for key, value in table.items())
                   for name, table in tables.items())


@functools.cache
def _build_research() -> None:
    build.build(RESEARCH)


class Daemon:
    """A vgpud in a folder of its own beside the lab's; `tables` of its configuration come after the usual ones.

    `devices`: those that it has instead of the one `device`, as its configuration names them. `log`: the level of all
    its processes' logs. It begins without virtual GPUs, unless those of the last one with this name are to be kept."""

    def __init__(self, device: str, policy: str = "none", queues: str = "mrq", name: str = "shares",
                 tables: Tables | None = None, keep: bool = False, devices: list[str | dict] | None = None,
                 log: str = ""):
        self.device, self.policy, self.queues = device, policy, queues
        self.devices = devices or []
        self.run = lab_dir() / name / "run"
        self.variables = {**environment(self.run), **({"BANDSAW_LOG": log} if log else {})}
        self.program = PRODUCTION
        if tables and "lab" in tables:  # which production's vgpud refuses
            self.program = RESEARCH
            _build_research()
        self.end()
        self.run.mkdir(parents=True, exist_ok=True)
        self._start(self._tables(tables or {}))
        self.control = Control(self.run)
        for view in [] if keep else self.control.need("GET", "/v1/vgpus"):
            self.control.need("DELETE", f"/v1/vgpus/{view['name']}?force=1")

    def _tables(self, more: Tables) -> Tables:
        kind, _, index = self.device.partition(":")
        tables: Tables = {"session": {"warm_runners": 1},
                          "scheduler": {"policy": self.policy, "queues": self.queues}}
        if not self.devices:
            tables["device"] = {"name": kind, "index": int(index or 0)}
        if self.program != PRODUCTION:  # it lies elsewhere than they do
            tables["session"] |= {"program": str(host.built("backend/session/bandsaw-session")),
                                  "runner": str(host.built("backend/runner/bandsaw-runner"))}
        return tables | {name: {**tables.get(name, {}), **table} for name, table in more.items()}

    def _start(self, tables: Tables) -> None:
        path, log = self.run.parent / "vgpud.toml", self.run.parent / "vgpud.log"
        path.write_text(_toml(tables, self.devices))
        if not self._answers(path, log):
            said = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise Failure(f"vgpud does not answer; its log {log} ends with\n{said}")

    def _answers(self, path: pathlib.Path, log: pathlib.Path) -> bool:
        with open(log, "wb") as file:
            daemon = subprocess.Popen([host.built(self.program), "--config", path], stdin=subprocess.DEVNULL,
                                      stdout=file, stderr=file, env=self.variables, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
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
        host.vgpuctl("shutdown", "--force", check=False, variables=self.variables)
        deadline = time.monotonic() + 30
        while pathlib.Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            try:
                os.waitpid(pid, os.WNOHANG)  # one of ours would stay as a zombie
            except ChildProcessError:
                pass
            time.sleep(0.05)

    def create(self, name: str, share: int, *words: str, memory: str = "") -> None:
        memory = memory or ("192M" if self.device == "soft" else "4G")
        if "mps" in words and "--group" not in words:
            words = (*words, "--group", "lab")  # all that one makes trust each other
        host.vgpuctl("create", name, "--memory", memory, "--compute", str(share), "--copy", str(share), *words,
                     variables=self.variables)

    def set_share(self, name: str, share: int) -> None:
        self.control.need("PATCH", f"/v1/vgpus/{name}", {"compute": share, "copy": share})

    def destroy(self, name: str) -> None:
        self.control.ask("DELETE", f"/v1/vgpus/{name}?force=1")

    def used(self, name: str) -> tuple[int, int]:
        """(compute, copy) nanoseconds of GPU time so far."""
        return usage(self.control.need("GET", f"/v1/vgpus/{name}"))

    def status(self) -> dict:
        return self.control.need("GET", "/v1/status")

    def device_status(self, name: str) -> dict:
        """What it says of one of its devices."""
        return next(one for one in self.status()["devices"] if one["id"] == name)

    def await_mps(self) -> None:
        """Until clients can join. On the software device there is no MPS, and nothing to wait for."""
        def state() -> dict | None:
            return (self.status().get("mps") or {}).get("daemon")
        if state() is not None:
            wait_until(lambda: (state() or {}).get("state") == "running", 20, f"the MPS daemon ({state()})")

    def program_environment(self, vgpu: str) -> dict[str, str]:
        ours = {name: self.variables[name] for name in ("BANDSAW_RUN", "BANDSAW_STATE")}
        return {**direct_environment(vgpu), **ours}

    def session_log(self, name: str) -> pathlib.Path:
        return self.run / name / "session.log"

    def evidence(self) -> str:
        """What the logs end with, the MPS daemon's included."""
        texts = []
        for path in [self.run.parent / "vgpud.log", *self.run.glob("mps.d/*/log/*.log"),
                     *sorted(self.run.glob("*/session.log"))]:
            lines = path.read_text(errors="replace").splitlines()[-8:]
            texts += [f"-- {path.relative_to(self.run.parent)}", *lines]
        return "\n".join(texts)


def usage(view: dict) -> tuple[int, int]:
    said = view.get("used") or {}
    return int(said.get("compute_ns", 0)), int(said.get("copy_ns", 0))


class BenchDaemon(Daemon):
    """A vgpud that cuts long kernels (`slices`: the variant, or empty; `cut`: more of how) or does not, and with a
    planning mode."""

    def __init__(self, device: str, policy: str = "none", slices: str = "", mode: str = "mps", seed: int = 1,
                 count: bool = True, cut: dict | None = None, log: str = ""):
        super().__init__(device, policy, name="mps", log=log, tables={
            "scheduler": {"planning": mode},
            "slices": {"enabled": bool(slices), "variant": slices or "sliced", **(cut or {})},
            "lab": {"plan_seed": seed, "count": count}})

    def cut(self, name: str) -> dict:
        """What its session says of kernels cut so far."""
        view = self.control.need("GET", f"/v1/vgpus/{name}")
        return ((view.get("live") or {}).get("usage") or {}).get("slicing") or {}

    def planned(self) -> dict[str, int]:
        """What a mode that plans has counted so far."""
        plan = (self.status().get("mps") or {}).get("plan") or {}
        counters = ("plans", "pairs", "alone", "granted", "resized", "observed", "room_requests", "sm_requests",
                    "unplanned")
        return {key: plan[key] for key in counters if key in plan}

    def found(self, name: str) -> list[str]:
        """What its runners have found of a kernel, by their log: how many blocks are best alone, what a block does."""
        lines = self.session_log(name).read_text(errors="replace").splitlines()
        return [line.split("runs best with ")[1] for line in lines if "runs best with " in line] + [
            line.split(": ", 2)[2] for line in lines if "a block has " in line]
