"""tools/bench progress: tenants that stay from case to case, under one kind of sharing. Starting PyTorch takes longer
than a case does."""
import os
import subprocess

from benchmarks.progress_cases import (
    MPS,
    NATIVE,
    NATIVE_MPS,
    NATIVE_PRIORITY,
    NONE,
    PRIORITY,
    PRIORITY_VALUE,
    TIME_SLICED,
    Case,
    Who,
)
from benchmarks.progress_math import whole_shares
from benchmarks.progress_run import Group, LeftOut, NativeMps, size_of
from lab import host
from lab.daemon import Daemon, usage
from lab.guest_run import native_environment
from lab.shell import Failure, say

SPARE_MIB = 3000  # of the device, for whoever else is there
WRONG_USAGE = 2   # vgpuctl's exit status


class Pool:
    """Tenants by name. A subclass says what their processes' environment is."""

    def __init__(self, device: str, capacity_mib: int):
        self.device, self._capacity = device, capacity_mib
        self.groups: dict[str, Group] = {}

    def variant(self, who: Who, sharing: str) -> str:
        """What a tenant is started with; one that was started otherwise is started again."""
        raise NotImplementedError

    def variables(self, who: Who, variant: str) -> dict[str, str]:
        raise NotImplementedError

    def prepare(self, case: Case, sharing: str) -> None:
        """Before all tenants of a case begin."""

    def drop(self, name: str) -> None:
        if group := self.groups.pop(name, None):
            group.kill()

    def end(self) -> None:
        for name in list(self.groups):
            self.drop(name)

    def evidence(self) -> str:
        return ""

    def status(self) -> dict:
        """What vgpud says of itself, where there is one."""
        return {}

    def used(self, names: list[str]) -> list[int | None]:
        """GPU time that each was charged, ns; None: nobody says."""
        return [None for _ in names]

    def _make_room(self, wanted: int, keep: set[str]) -> bool:
        """Ends tenants that are not of this case, oldest first, until `wanted` MiB more fit."""
        for name in [name for name in self.groups if name not in keep]:
            if self.free() >= wanted:
                break
            self.drop(name)
        return self.free() >= wanted

    def free(self) -> int:
        """MiB of the device that no tenant was promised."""
        return self._capacity - sum(group.memory for group in self.groups.values())

    def start(self, tenants: list[Who], sharing: str, required: bool = True) -> None:
        """Starts those that are not there, without waiting for them; what is not `required` only if there is room."""
        names = {who.name for who in tenants}
        for who in tenants:
            variant = self.variant(who, sharing)
            if (known := self.groups.get(who.name)) and known.variant == variant:
                continue
            if known and not required:
                continue
            self.drop(who.name)
            memory = who.processes * size_of(who.program, self.device).memory
            if required and not self._make_room(memory, names):
                raise LeftOut(f"the device has no {memory} MiB for {who.name}")
            if self.free() >= memory:
                self.groups[who.name] = Group(who, self.device, self.variables(who, variant), variant)

    def start_ahead(self, tenants: list[tuple[Who, str]]) -> None:
        """Starts as many as there is room for, each as it is needed under that sharing, and waits for them: who still
        loads would disturb what is measured. What fails is started again by who needs it, and fails there."""
        for who, sharing in tenants:
            try:
                self.start([who], sharing, required=False)
            except (Failure, OSError, LeftOut) as failure:
                say(f"  {who.name} could not be started ahead: {failure}")
        for name, group in list(self.groups.items()):
            try:
                group.ready()
            except Failure as failure:
                say(f"  {failure}")
                self.drop(name)

    def ready(self, case: Case, sharing: str) -> list[Group]:
        self.start(list(case.tenants), sharing)
        chosen = [self.groups[who.name] for who in case.tenants]
        for group in chosen:
            group.ready()
        self.prepare(case, sharing)
        return chosen


class NativePool(Pool):
    """Ordinary processes, on the driver that this machine has, with its MPS daemon or without."""

    def __init__(self, device: str, mps: bool, capacity_mib: int | None = None):
        super().__init__(device, _device_mib() - SPARE_MIB if capacity_mib is None else capacity_mib)
        self._mps = NativeMps() if mps else None

    def variant(self, who: Who, sharing: str) -> str:
        return "low" if sharing == NATIVE_PRIORITY and not who.priority else ""

    def variables(self, who: Who, variant: str) -> dict[str, str]:
        more = self._mps.variables if self._mps else {}
        return {**native_environment(), **more, **({"CUDA_MPS_CLIENT_PRIORITY": "1"} if variant else {})}

    def end(self) -> None:
        super().end()
        if self._mps:
            self._mps.end()

    def evidence(self) -> str:
        return self._mps.evidence() if self._mps else ""


class BandsawPool(Pool):
    """Programs on virtual GPUs, a virtual GPU for each tenant, in direct mode."""

    def __init__(self, device: str, policy: str, sharing: str):
        self.daemon = Daemon(device, policy, name="progress")
        memory = self.daemon.status()["device"]["memory"] // 2**20
        super().__init__(device, memory - (0 if device == "soft" else SPARE_MIB))
        self._sharing = sharing
        self._with_bound = False  # somebody in the case has a bound on latency

    def ready(self, case: Case, sharing: str) -> list[Group]:
        self._with_bound = sharing == PRIORITY and any(who.latency_us for who in case.tenants)
        return super().ready(case, sharing)

    def variant(self, who: Who, sharing: str) -> str:
        if sharing == PRIORITY and who.priority:
            return "prior"
        return "beside a bound" if self._with_bound else ""  # what it may use is settled when its program starts

    def variables(self, who: Who, variant: str) -> dict[str, str]:
        prior = variant == "prior"
        words = ["--sharing", self._sharing, *(["--priority", str(PRIORITY_VALUE)] if prior else [])]
        if prior and who.latency_us:
            words += ["--latency-us", str(who.latency_us)]
        memory = who.processes * size_of(who.program, self.device).memory
        self._share_out({})
        self.daemon.create(who.name, 1, *words, memory=f"{memory}M")
        if self._sharing == MPS:
            self.daemon.await_mps()
        return self.daemon.program_environment(who.name)

    def drop(self, name: str) -> None:
        super().drop(name)
        self.daemon.destroy(name)

    def _share_out(self, shares: dict[str, int]) -> None:
        """Those that are not named have the least; the sum is never above 100."""
        for name in self.groups:
            if name not in shares:
                self.daemon.set_share(name, 1)
        for name in shares:
            self.daemon.set_share(name, 1)
        for name, share in shares.items():
            self.daemon.set_share(name, share)

    def prepare(self, case: Case, sharing: str) -> None:
        whole = whole_shares([who.share for who in case.tenants], len(self.groups) - len(case.tenants))
        self._share_out({who.name: share for who, share in zip(case.tenants, whole)})
        for who in case.tenants:
            if who.latency_us and sharing in (TIME_SLICED, PRIORITY):
                self._bound(who, required=sharing == TIME_SLICED)

    def _bound(self, who: Who, required: bool) -> None:
        done = host.vgpuctl("set", who.name, "--latency-us", str(who.latency_us), check=False,
                            variables=self.daemon.variables)
        if done.returncode == WRONG_USAGE:
            if required:
                raise LeftOut("this vgpuctl knows no 'set --latency-us'")
        elif done.returncode != 0:
            raise Failure(f"a bound of {who.latency_us} us is refused: {(done.stderr or done.stdout).strip()}")

    def end(self) -> None:
        super().end()
        self.daemon.end()

    def evidence(self) -> str:
        return self.daemon.evidence()

    def status(self) -> dict:
        return self.daemon.status()

    def used(self, names: list[str]) -> list[int | None]:
        return [usage(self.daemon.control.need("GET", f"/v1/vgpus/{name}"))[0] for name in names]


# Those that one pool serves, one after the other for each case.
FAMILIES = [[NATIVE], [NATIVE_MPS, NATIVE_PRIORITY], [NONE], [TIME_SLICED], [MPS, PRIORITY]]


def open_pool(family: list[str], device: str) -> Pool:
    if NATIVE in family or NATIVE_MPS in family:
        return NativePool(device, mps=NATIVE_MPS in family)
    if NONE in family:
        return BandsawPool(device, "none", "time-sliced")
    return BandsawPool(device, "band+", "mps" if MPS in family else "time-sliced")


def _device_mib() -> int:
    index = os.environ.get("BANDSAW_LAB_DEVICE", "cuda:0").partition(":")[2] or "0"
    done = subprocess.run(["nvidia-smi", f"--id={index}", "--query-gpu=memory.total", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise Failure(f"nvidia-smi does not say how much memory the GPU has: {done.stderr or done.stdout}")
    return int(done.stdout.split()[0])
