"""Virtual GPUs that share the real GPU in space, through an MPS daemon of vgpud's own.

Each test says what it measured and saw, and a failure brings the logs along.
"""
import os
import pathlib
import signal
import time

import pytest

from lab import cuda_programs, host
from lab.cuda_programs import Program
from lab.daemon import Daemon
from lab.paths import REPO, lab_dir
from lab.shell import say, wait_until
from lab.started import Started

NAME = "mps-gpu"
TIME_SLICED, TIME_SLICED_TOO, ONE, TWO = "time-sliced", "time-sliced-too", "one", "two"
LAUNCHES, BLOCKS, ITERATIONS = 400, 16, 1 << 20  # some 2 ms a kernel
OVERLAPPING, ALTERNATING = 1.4, 1.7  # of the time of one alone, both at once

# What a client of MPS does that others do not: further contexts, memory shared between processes, and so on.
PROGRAMS = ["vector_add", "contexts", "streams", "events", "ipc", "memory_pools", "managed", "host_register", "vmm",
            "graph_capture", "cooperative", "many_threads", "print"]


# On a part of the SMs, further contexts lie over the first, and no stream waits for the legacy one by itself.
PROGRAMS_ON_SMS = [*PROGRAMS, "device_reset", "stale_handles", "per_thread_streams", "callbacks", "graph_explicit",
                   "graph_memory", "async_copy", "launch_forms"]

LONG_BLOCKS, LONG_LAUNCHES = 1056, 100  # fills every SM, some 8 ms a kernel
UNDELAYED = 1.06  # of the time of one alone

SHORT_BLOCKS, SHORT_BLOCK_ITERATIONS = 135168, 1 << 13  # some 8 ms a kernel, in blocks of less than 0.1 ms
BOUND_US = 250


class Gpu(Daemon):
    """A vgpud on the GPU with four virtual GPUs, two of which are MPS ones."""

    def __init__(self, policy: str = "none"):
        if not host.current_device().startswith("cuda"):
            pytest.skip("the device is not a GPU")
        super().__init__(host.current_device(), policy, name=NAME)
        for name, sharing in ((TIME_SLICED, "time-sliced"), (TIME_SLICED_TOO, "time-sliced"),
                              (ONE, "mps"), (TWO, "mps")):
            host.vgpuctl("create", name, "--memory", "6G", "--compute", "20", "--copy", "20", "--sharing", sharing,
                         *(("--group", "ml") if sharing == "mps" else ()),
                         variables=self.variables)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            say(self.evidence())
        self.end()
        left = _processes(("nvidia-cuda-mps",), self.run)
        assert error is not None or not left, f"MPS processes are left: {left}"

    def mps_state(self) -> dict:
        return self.control.need("GET", "/v1/status")["mps"]["daemon"]

    def ready(self) -> dict:
        wait_until(lambda: self.mps_state()["state"] == "running", 20, f"the MPS daemon: {self.mps_state()}")
        return self.mps_state()

    def start(self, vgpu: str, source: str, *arguments) -> Started:
        program = Program(REPO / source).compile()
        process = Started(program, *arguments, variables=self.program_environment(vgpu))
        process.first_line("round", "ready")
        return process

    def busy(self, vgpu: str, seconds: float) -> Started:
        # Rounds of 16 MiB: it makes calls all the time and says little.
        return self.start(vgpu, "tests/direct/busy.cu", seconds, 16)

    def together(self, *vgpus: str) -> float:
        """The seconds that the slowest of them takes for the fixed work, all at once."""
        processes = [self.start(vgpu, "tests/gpu/overlap.cu", LAUNCHES, BLOCKS, ITERATIONS) for vgpu in vgpus]
        for process in processes:
            process.say()
        return max(_seconds(process) for process in processes)

    def beside(self, short: bool, long: bool) -> tuple[float, float]:
        """Seconds of a program of few blocks on ONE and of one that fills all it has on TWO, if they are wanted."""
        started = [self.start(vgpu, "tests/gpu/overlap.cu", launches, blocks, ITERATIONS) if wanted else None
                   for vgpu, launches, blocks, wanted in ((ONE, LAUNCHES, BLOCKS, short),
                                                          (TWO, LONG_LAUNCHES, LONG_BLOCKS, long))]
        for process in started:
            if process:
                process.say()
        few, many = (_seconds(process) if process else 0 for process in started)
        return few, many

    def latency(self, long: bool) -> tuple[float, float]:
        """The 99th percentile of short kernels on ONE, in microseconds, and the seconds of long ones on TWO beside
        them, if they are wanted."""
        work = ("tests/gpu/overlap.cu", LAUNCHES, SHORT_BLOCKS, SHORT_BLOCK_ITERATIONS)
        other = self.start(TWO, *work) if long else None
        short = self.start(ONE, "tests/gpu/latency.cu", 2, 700)
        for process in filter(None, (other, short)):
            process.say()
        return _p99_us(short), _seconds(other) if other else 0

    def bound(self, latency_us: int | str) -> None:
        host.vgpuctl("set", ONE, "--latency-us", str(latency_us), variables=self.variables)
        time.sleep(0.5)  # until its session has heard of it: runners that wait are started anew

    def give_sms(self, vgpu: str, count: int) -> None:
        host.vgpuctl("set", vgpu, "--sms", str(count), variables=self.variables)
        time.sleep(0.5)  # until its session has heard of it: runners that wait are started anew

    def run_programs(self, vgpu: str, names: list[str]) -> None:
        chosen = [program for program in cuda_programs.programs() if program.name in names and program.on_gpu]
        cuda_programs.compile_all(chosen)
        wrong = []
        for program in chosen:
            begin = time.monotonic()
            status, output = program.run(self.program_environment(vgpu), 25)
            why = program.judge(status, output)
            say(f"  {program.name}: {why or 'right'} ({time.monotonic() - begin:.2f} s)")
            if why:
                wrong.append(f"{program.name}: {why}\n{output[-800:]}")
            if len(wrong) == 2:  # the others would take as long to fail
                break
        assert not wrong, "\n".join(wrong)

    def evidence(self) -> str:
        """What the logs end with, the MPS daemon's included."""
        parts = [self.run.parent / "vgpud.log", *self.run.glob("mps.d/*/log/*.log"), *self.run.glob("*/session.log")]
        texts = []
        for path in parts:
            lines = path.read_text(errors="replace").splitlines()[-25:]
            texts += [f"-- {path.relative_to(self.run.parent)}", *lines]
        texts += ["-- processes", *_processes(("nvidia-cuda-mps", "bandsaw", "vgpud"))]
        return "\n".join(texts)


def _seconds(process: Started) -> float:
    status, output = process.finish()
    assert status == 0, f"overlap ended with {status}: {output[-500:]}"
    return float(output.split("seconds ")[1])


def _p99_us(process: Started) -> float:
    status, output = process.finish()
    say(f"  {output.strip()}")
    assert status == 0, f"latency ended with {status}: {output[-500:]}"
    return float(output.split(" p99 ")[1].split()[0])


def _last_words(output: str) -> str:
    """The output without the rounds that went well."""
    return " | ".join(line for line in output.splitlines() if not line.startswith("round"))[-400:]


def _processes(names: tuple, run: pathlib.Path | None = None) -> list[str]:
    """Processes with such names, of ours if a folder is given: number, user and command."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if not (entry / "comm").read_text().startswith(names):
                continue
            if run is None or str(run) in (entry / "environ").read_text(errors="replace"):
                words = (entry / "cmdline").read_text(errors="replace").replace("\0", " ")
                found.append(f"{entry.name} (user {entry.stat().st_uid}): {words[:160]}")
        except OSError:
            continue
    return found


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    run = lab_dir() / NAME / "run"
    if run.exists() and host.current_device(run):
        host.vgpuctl("shutdown", "--force", check=False, variables={"BANDSAW_RUN": str(run)})


def test_kernels_of_mps_overlap():
    with Gpu() as gpu:
        say(f"  MPS: {gpu.ready()}")
        alone = gpu.together(ONE)
        mps, time_sliced = gpu.together(ONE, TWO), gpu.together(TIME_SLICED, TIME_SLICED_TOO)
        sliced_alone = gpu.together(TIME_SLICED)
        mixed = gpu.together(ONE, TIME_SLICED)
        say(f"  {BLOCKS}-block kernels, fixed work: alone {alone:.3f} s as client of MPS, {sliced_alone:.3f} s "
            f"time-sliced; two MPS ones {mps / alone:.2f}x, two time-sliced {time_sliced / sliced_alone:.2f}x, one of "
            f"each {mixed / alone:.2f}x")
        for path in gpu.run.glob("mps.d/*/log/*.log"):
            say(f"  {path.name} ends with: {' / '.join(path.read_text(errors='replace').splitlines()[-4:])[-600:]}")
        assert time_sliced / sliced_alone > ALTERNATING, "time-sliced ones overlap"
        assert mps / alone < OVERLAPPING, "MPS ones do not overlap"


def test_what_shares_make_of_it():
    """Not judged: under BAND+ MPS ones go beside each other, grid slice by grid slice."""
    with Gpu("band+") as gpu:
        gpu.ready()
        alone, mps = gpu.together(ONE), gpu.together(ONE, TWO)
        say(f"  under band+: alone {alone:.3f} s, two MPS ones {mps / alone:.2f}x")


def test_programs_run_as_clients():
    with Gpu() as gpu:
        gpu.ready()
        gpu.run_programs(ONE, PROGRAMS)


def test_sms_of_their_own():
    """Every way to launch a kernel keeps to a virtual GPU's SMs, and what runs on others' is nothing to it."""
    with Gpu() as gpu:
        gpu.ready()
        partitions = gpu.control.need("GET", "/v1/status")["mps"]["partitions"]
        step, sms = partitions["step"], partitions["sms"]
        wrong = []
        for few, counts in ((0, (sms, sms)), (step, (step, sms - step))):
            if few:
                gpu.give_sms(ONE, few)
            for vgpu, expected in zip((ONE, TWO), counts):
                program = Program(REPO / "tests/gpu/sms.cu")
                status, output = program.run(gpu.program_environment(vgpu), 60)
                say(f"  '{vgpu}', {expected} of {sms} SMs: exit {status}\n    " + "\n    ".join(output.splitlines()))
                seen = [int(line[3:line.index(":")]) for line in output.splitlines() if line.startswith("on ")]
                if status or set(seen) != {expected} or f"device {expected}\n" not in output:
                    wrong.append(f"'{vgpu}' with {few} SMs given to '{ONE}': exit {status}, on {seen} SMs")
        assert not wrong, "\n".join(wrong)


def test_who_has_sms_of_its_own_is_not_delayed():
    with Gpu() as gpu:
        gpu.ready()
        step = gpu.control.need("GET", "/v1/status")["mps"]["partitions"]["step"]
        shared_alone, shared = gpu.beside(True, False)[0], gpu.beside(True, True)
        gpu.give_sms(ONE, step)
        alone = (gpu.beside(True, False)[0], gpu.beside(False, True)[1])
        both = gpu.beside(True, True)
        say(f"  few blocks beside many, all SMs: {shared[0] / shared_alone:.2f}x of alone ({shared_alone:.3f} s); "
            f"{step} SMs of its own: {both[0] / alone[0]:.3f}x ({alone[0]:.3f} s), the many blocks "
            f"{both[1] / alone[1]:.3f}x ({alone[1]:.3f} s)")
        assert both[0] / alone[0] < UNDELAYED, "it is delayed on its own SMs"
        assert both[1] / alone[1] < UNDELAYED, "the other one is delayed"


def test_who_has_a_bound_goes_first():
    """Its kernels, on the default stream too, wait for the end of a block and not of a kernel; the other loses
    nothing."""
    with Gpu("band+") as gpu:
        gpu.ready()
        alone = gpu.latency(False)[0]
        behind, unbounded = gpu.latency(True)
        gpu.bound(BOUND_US)
        first, bounded = gpu.latency(True)
        shown = host.vgpuctl("show", ONE, variables=gpu.variables).stdout
        say(f"  p99 alone {alone:.0f} us, beside long kernels {behind:.0f} us, with a bound {first:.0f} us; the long "
            f"ones take {unbounded:.3f} and {bounded:.3f} s")
        assert "kept by priorities" in shown, shown
        assert first < BOUND_US + alone, "the bound does not hold"
        assert bounded < UNDELAYED * unbounded, "who has no bound is delayed"
        gpu.bound("none")
        assert gpu.latency(True)[0] > first, "without a bound it still goes first"


def test_programs_run_on_sms_of_their_own():
    with Gpu() as gpu:
        gpu.ready()
        gpu.give_sms(ONE, 8)
        gpu.run_programs(ONE, PROGRAMS_ON_SMS)


def test_a_killed_daemon_ends_its_clients_only():
    with Gpu() as gpu:
        first = gpu.ready()
        bystander, hit, other = gpu.busy(TIME_SLICED, 8), gpu.busy(ONE, 60), gpu.busy(TWO, 60)
        os.kill(first["pid"], signal.SIGKILL)
        begin = time.monotonic()
        for name, process in ((ONE, hit), (TWO, other)):
            status, output = process.finish(30)
            say(f"  the daemon was killed: '{name}' ended with {status} after {time.monotonic() - begin:.1f} s: "
                f"{_last_words(output)}")
            assert status == 3, f"expected a CUDA error, got {status}"
        wait_until(lambda: gpu.mps_state()["pid"] not in (0, first["pid"]), 15, "a new MPS daemon")
        say(f"  again: {gpu.ready()} after {time.monotonic() - begin:.1f} s")
        for name in (ONE, TWO):
            status, output = gpu.busy(name, 0.2).finish()
            assert status == 0, f"a fresh program on '{name}': {status} {_last_words(output)}"
        status, output = bystander.finish()
        assert status == 0, f"the time-sliced program was harmed: {status} {_last_words(output)}"
        alone, mps = gpu.together(ONE), gpu.together(ONE, TWO)
        say(f"  and kernels overlap again: {mps / alone:.2f}x")
        assert mps / alone < OVERLAPPING


def test_a_fault_is_shared_by_mps_ones():
    """MPS shares fate: the other client dies of the first one's illegal access. Then both come back."""
    with Gpu() as gpu:
        first = gpu.ready()
        bystander, other = gpu.busy(TIME_SLICED, 6), gpu.busy(TWO, 60)
        fault = Program(REPO / "tests/cuda/fault_illegal_address.cu")
        status, output = fault.run(gpu.program_environment(ONE), 60)
        begin = time.monotonic()
        say(f"  a fault in '{ONE}': itself {status}: {_last_words(output)}")
        assert not fault.judge(status, output), "the faulting program did not see its own error"
        status, output = other.finish(30)
        say(f"  '{TWO}', an MPS one, ended with {status} after {time.monotonic() - begin:.1f} s: {_last_words(output)}")
        assert status == 3, "the other client of MPS went on: the documentation says that it does not"
        wait_until(lambda: gpu.mps_state()["pid"] not in (0, first["pid"]), 20, f"a new MPS daemon: {gpu.mps_state()}")
        say(f"  again: {gpu.ready()} after {time.monotonic() - begin:.1f} s")
        for name in (ONE, TWO):
            status, output = gpu.busy(name, 0.2).finish()
            assert status == 0, f"a fresh program on '{name}': {status} {_last_words(output)}"
        status, output = bystander.finish()
        say(f"  '{TIME_SLICED}', time-sliced: {status}")
        assert status == 0, f"the time-sliced program was harmed: {status} {_last_words(output)}"
