"""tools/bench host: many virtual GPUs that do nothing, their lives in a row, and vgpud's API while programs work."""
import collections.abc
import dataclasses
import functools
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time
import urllib.request

from benchmarks.shares_run import Tenant, calibrate
from lab import daemon_counts, host
from lab.daemon import Daemon
from lab.daemon_counts import Counts
from lab.paths import REPO
from lab.shell import Failure, step, wait_until

METRICS = 19496  # a port
IDLE_SECONDS = 10
SETTLE_SECONDS = 60
NOTED_SECONDS = 32  # vgpud notes for its reports that nobody uses a new one, and leaves it asleep from then on
BUSY = {"busy0": 75, "busy1": 25}  # percent
TENANT = "lu"
WRK_SCRIPT = REPO / "tools/benchmarks/programs/host/requests.lua"
AS_BUSY = REPO / "tools/benchmarks/programs/host/as_busy.py"
AS_BUSY_PROCESSES = 4  # about as many as are awake at a time: wrk's threads, vgpud, the bridge between them
ROUNDS = 3  # a busy machine is not the same for half a minute
CONNECTIONS, WRK_THREADS, PORT = 64, 2, 19497
PAUSE_MS = 40  # of each connection between an answer and its next request: wrk has no rate
# For libvirt's own driver for tests, which has domains and no VMs: one that is shut off.
TEST_HOST = """<node>
  <domain type='test' xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
    <name>guest</name>
    <memory>8192</memory>
    <os><type>hvm</type></os>
    <test:runstate>5</test:runstate>
  </domain>
</node>
"""


def start(policy: str = "band+") -> Daemon:
    return Daemon("soft", policy, name="host", tables={"metrics": {"listen": f"127.0.0.1:{METRICS}"}})


def counts(daemon: Daemon) -> Counts:
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=20) as answer:
        page = answer.read().decode()
    status = daemon.status()
    cgroups = [pathlib.Path(path)] if (path := status["cgroups"]["path"]) else []
    return daemon_counts.count(status["pid"], daemon.run, [pathlib.Path(status["state"]), *cgroups], page)


def _processes(daemon: Daemon) -> dict[str, list[int]]:
    pid = daemon.status()["pid"]
    below = daemon_counts.descendants(pid)
    return {"vgpud": [pid], "sessions": daemon_counts.named(below, "bandsaw-session"),
            "runners": daemon_counts.named(below, "bandsaw-runner"),
            "logs": daemon_counts.log_writers(daemon.run)}


def _all_warm(daemon: Daemon, number: int) -> bool:
    views = daemon.control.need("GET", "/v1/vgpus")
    return sum((view.get("live") or {}).get("runners", {}).get("warm", 0) for view in views) == number


def _idle_percent(processes: dict[str, list[int]], seconds: float) -> dict[str, float]:
    """Of one processor."""
    begin, before = time.monotonic(), {kind: daemon_counts.cpu_ns(pids) for kind, pids in processes.items()}
    time.sleep(seconds)
    after = {kind: daemon_counts.cpu_ns(pids) for kind, pids in processes.items()}
    lasted_ns = (time.monotonic() - begin) * 1e9
    return {kind: 100 * (after[kind] - before[kind]) / lasted_ns for kind in processes}


def many(number: int) -> dict:
    """Virtual GPUs that do nothing: how long it takes to have them, and what they cost."""
    daemon = start()
    try:
        with step(f"creating and destroying {number} virtual GPUs by the control API"):
            begin = time.monotonic()
            for each in range(number):
                daemon.control.need("POST", "/v1/vgpus", {"name": f"vm-{each}", "memory": 64 << 20})
            created = time.monotonic() - begin
            wait_until(lambda: _all_warm(daemon, number), SETTLE_SECONDS + number, "the warm runners of all")
            begin = time.monotonic()
            for each in range(number):
                daemon.destroy(f"vm-{each}")
            destroyed = time.monotonic() - begin
        with step(f"creating {number} virtual GPUs by vgpuctl"):
            begin = time.monotonic()
            for each in range(number):
                daemon.create(f"vm-{each}", 1, memory="64M")
            by_vgpuctl = time.monotonic() - begin
            wait_until(lambda: _all_warm(daemon, number), SETTLE_SECONDS + number, "the warm runners of all")
            warm = time.monotonic() - begin
        processes = _processes(daemon)
        time.sleep(NOTED_SECONDS)
        with step(f"looking at them for {IDLE_SECONDS} s"):
            idle = _idle_percent(processes, IDLE_SECONDS)
        memory = {kind: [daemon_counts.pss_bytes(pid) for pid in pids] for kind, pids in processes.items()}
        private = {kind: [daemon_counts.private_bytes(pid) for pid in pids] for kind, pids in processes.items()}
    finally:
        daemon.end()
    return {"vgpus": number, "create_s": created, "vgpuctl_create_s": by_vgpuctl, "warm_s": warm,
            "destroy_s": destroyed, "idle_percent": idle,
            "pss_mib": {kind: sum(sizes) / max(1, len(sizes)) / 2**20 for kind, sizes in memory.items()},
            "private_mib": {kind: sum(sizes) / max(1, len(sizes)) / 2**20 for kind, sizes in private.items()}}


def _test_host(daemon: Daemon) -> pathlib.Path:
    path = daemon.run.parent / "test-host.xml"
    if not path.exists():
        path.write_text(TEST_HOST)
    return path


def _one_life(daemon: Daemon, name: str) -> None:
    daemon.create(name, 1, memory="64M")
    variables = {**daemon.variables, "LIBVIRT_DEFAULT_URI": f"test://{_test_host(daemon)}"}
    host.vgpuctl("attach", name, "guest", variables=variables)
    # The test driver forgets what it was told when its client goes: only the record is cleared.
    host.vgpuctl("detach", name, variables=variables)
    host.vgpuctl("destroy", name, variables=variables)


def cycles(number: int) -> dict:
    """Create, attach, detach, destroy, each time by another name; what is left of it."""
    daemon = start()
    try:
        for each in range(10):  # what is made once and stays
            _one_life(daemon, f"first-{each}")
        before = counts(daemon)
        pid = daemon.status()["pid"]
        memory = daemon_counts.private_bytes(pid)
        begin = time.monotonic()
        with step(f"{number} times create, attach, detach, destroy", number) as progress:
            for each in range(number):
                _one_life(daemon, f"one-{each}")
                progress.advance()
        lasted = time.monotonic() - begin
        after = daemon_counts.settled(lambda: counts(daemon), before)
        grown = daemon_counts.private_bytes(pid) - memory
    finally:
        daemon.end()
    return {"cycles": number, "cycle_ms": 1000 * lasted / number, "before": dataclasses.asdict(before),
            "after": dataclasses.asdict(after), "more": after.above(before), "vgpud_grown_bytes": grown}


@dataclasses.dataclass
class Turns:
    """What each busy tenant got of the engine, and how long that took, of all turns of one kind."""
    used: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys(BUSY, 0))
    seconds: float = 0

    def take(self, daemon: Daemon, seconds: float, during: collections.abc.Callable[[], None]) -> None:
        before, begin = {name: sum(daemon.used(name)) for name in BUSY}, time.monotonic()
        during()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
        for name in BUSY:
            self.used[name] += sum(daemon.used(name)) - before[name]
        self.seconds += time.monotonic() - begin

    def percent(self) -> dict[str, float]:
        return {name: 100 * used / max(1, sum(self.used.values())) for name, used in self.used.items()}


def _wrk(seconds: float, pause_ms: int) -> dict:
    done = subprocess.run(["wrk", f"-t{WRK_THREADS}", f"-c{CONNECTIONS}", f"-d{seconds:.0f}s", "-s", WRK_SCRIPT,
                           f"http://127.0.0.1:{PORT}", "--", str(pause_ms), *BUSY],
                          capture_output=True, text=True, check=False, timeout=seconds + 60)
    found = re.search(r"^\{.*\}$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or not found:
        raise Failure(f"wrk failed: {done.stdout[-800:]}{done.stderr[-800:]}")
    return json.loads(found[0])


def _vgpud_cpu(daemon: Daemon) -> int:
    return daemon_counts.cpu_ns([daemon.status()["pid"]])


def _asking_cpu(daemon: Daemon, bridge: subprocess.Popen) -> float:
    """Seconds of processor time so far of all that requests keep busy: who asks, the bridge, vgpud and sessions."""
    fields = pathlib.Path(f"/proc/{bridge.pid}/stat").read_text().rpartition(")")[2].split()
    bridged = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # its children's too
    asked = resource.getrusage(resource.RUSAGE_CHILDREN)
    processes = _processes(daemon)
    answered = daemon_counts.cpu_ns(processes["vgpud"] + processes["sessions"]) / 1e9
    return asked.ru_utime + asked.ru_stime + bridged + answered


def _as_busy(seconds: float, percent: float) -> None:
    """Programs that have nothing to do with Bandsaw take as much of a processor."""
    words = [sys.executable, str(AS_BUSY), str(seconds), str(percent / AS_BUSY_PROCESSES)]
    for process in [subprocess.Popen(words) for _ in range(AS_BUSY_PROCESSES)]:
        process.wait(seconds + 60)


def api(seconds: float, pause_ms: int = PAUSE_MS) -> dict:
    """wrk asks for status, list and single ones, while two programs use all of the software device; then others take as
    much processor time as that took, since on the software device kernels are processor time."""
    daemon = start()
    bridge, tenants, answers = None, [], []
    alone, asked, beside = Turns(), Turns(), Turns()
    cpu, taken = 0, 0.0  # ns, s
    try:
        known = calibrate(daemon, TENANT, 0)
        for name, share in BUSY.items():
            daemon.create(name, share)
            tenants.append(Tenant(daemon, name, TENANT, {"depth": 32, f"{TENANT}_round_ns": known.round_ns,
                                                        f"{TENANT}_fixed_ns": known.fixed_ns}))
        for tenant in tenants:
            tenant.ready()
        for tenant in tenants:
            tenant.go()
        # wrk speaks TCP alone.
        bridge = subprocess.Popen(["socat", f"TCP-LISTEN:{PORT},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=256",
                                   f"UNIX-CONNECT:{daemon.run}/control.sock"], stdin=subprocess.DEVNULL)
        time.sleep(2)
        with step(f"shares without requests, with them, beside others, {seconds:.0f} s each, {ROUNDS} times"):
            for _ in range(ROUNDS):
                alone.take(daemon, seconds, lambda: None)
                cpu -= _vgpud_cpu(daemon)
                taken -= _asking_cpu(daemon, bridge)
                asked.take(daemon, seconds, lambda: answers.append(_wrk(seconds, pause_ms)))
                cpu += _vgpud_cpu(daemon)
                taken += _asking_cpu(daemon, bridge)
                taken_percent = 100 * taken / asked.seconds
                beside.take(daemon, seconds, functools.partial(_as_busy, seconds, taken_percent))
    finally:
        if bridge:
            bridge.terminate()
            bridge.wait()
        for tenant in tenants:
            tenant.kill()
        daemon.end()
    worst = {key: max(one[key] for one in answers) for key in ("latency_p50_ms", "latency_p99_ms", "not_answered")}
    return {"promised_percent": BUSY, "without_percent": alone.percent(), "during_percent": asked.percent(),
            "beside_others_percent": beside.percent(), "asking_cpu_percent": taken_percent,
            "vgpud_cpu_percent": 100 * cpu / (1e9 * asked.seconds), **worst,
            "requests_a_second": sum(one["requests_a_second"] for one in answers) / len(answers)}
