"""Virtual GPUs that share a GPU in space: who becomes a client of the MPS daemon, and what its end means to whom.

On this machine the software device is taken for the GPU, and a program that only listens for the MPS daemon. What
NVIDIA's own do is in tests/gpu/test_mps.py.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

import stand_ins
from lab import host
from lab.cuda_programs import Program
from lab.daemon import Daemon, Tables
from lab.paths import BUILD, REPO, lab_dir
from lab.shell import wait_until
from lab.started import Started

TIME_SLICED, ONE, TWO = "mps-bystander", "mps-one", "mps-two"


class StandIn(Daemon):
    """A vgpud that takes the software device for a GPU."""

    def __init__(self, mps: str):
        if host.current_device().startswith("cuda") or not (BUILD / "backend/device/soft").exists():
            pytest.skip("the software device stands for the GPU here; tests/gpu/test_mps.py has the real one")
        self.mps = mps
        super().__init__("soft", "none", name="mps-test")

    def _start(self, _tables: Tables) -> None:
        folder = self.run.parent
        shutil.rmtree(folder / "notes", ignore_errors=True)
        folder.chmod(0o755)
        (folder / "vgpud.toml").write_text(stand_ins.configuration(
            stand_ins.make_runner(folder, BUILD / "backend/runner/bandsaw-runner"), self.mps))
        assert self._answers(folder / "vgpud.toml", folder / "vgpud.log"), self.log()

    def log(self) -> str:
        return (self.run.parent / "vgpud.log").read_text(errors="replace")[-3000:]

    def make(self, name: str, sharing: str) -> str:
        group = ("--group", "ml") if sharing == "mps" else ()
        return host.vgpuctl("create", name, "--memory", "192M", "--sharing", sharing, *group,
                            variables=self.variables).stdout

    def view(self, name: str) -> dict:
        return self.control.need("GET", f"/v1/vgpus/{name}")

    def mps_state(self) -> dict:
        return self.control.need("GET", "/v1/status")["mps"]["daemon"]

    def ready(self) -> dict:
        wait_until(lambda: self.mps_state()["state"] == "running", 10, "the MPS daemon")
        return self.mps_state()

    def start_busy(self, name: str, seconds: float) -> Started:
        program = Program(REPO / "tests/direct/busy.cu").compile()
        process = Started(program, seconds, variables=self.program_environment(name))
        process.first_line("round")
        return process

    def environment_of(self, name: str, process: Started) -> dict[str, str]:
        runner = next(entry["runner"] for entry in self.view(name)["live"]["processes"] if entry["pid"] == process.pid)
        return stand_ins.environment_of(self.run.parent, runner)


@pytest.fixture(scope="module", autouse=True)
def _cleaned_up(lab):
    yield
    if (lab_dir() / "mps-test").exists() and host.current_device(lab_dir() / "mps-test/run"):
        host.vgpuctl("shutdown", "--force", check=False, variables={"BANDSAW_RUN": str(lab_dir() / "mps-test/run")})


def _stand_in(mps: str = str(stand_ins.MPS), vgpus: tuple = (TIME_SLICED, ONE, TWO)) -> StandIn:
    daemon = StandIn(mps)
    for name in vgpus:
        daemon.make(name, "time-sliced" if name == TIME_SLICED else "mps")
    return daemon


def test_programs_of_mps_become_clients():
    daemon = _stand_in()
    try:
        pipe = daemon.ready()["log"].replace("/log", "/pipe")
        bystander, together = daemon.start_busy(TIME_SLICED, 1), daemon.start_busy(ONE, 1)
        time_sliced, mps = daemon.environment_of(TIME_SLICED, bystander), daemon.environment_of(ONE, together)
        assert mps["CUDA_MPS_PIPE_DIRECTORY"] == pipe and mps["CUDA_VISIBLE_DEVICES"] == f"GPU-{stand_ins.UUID}", mps
        pipe_of_other = time_sliced["CUDA_MPS_PIPE_DIRECTORY"]
        assert not os.path.exists(pipe_of_other), "a time-sliced program could find an MPS daemon"
        assert "BANDSAW_MPS" not in time_sliced, time_sliced
        assert mps["BANDSAW_SHARING"] == "mps" and time_sliced["BANDSAW_SHARING"] == "time-sliced"
        for process in (bystander, together):
            status, output = process.finish()
            assert status == 0, f"{status} {output[-300:]}"
    finally:
        daemon.end()


def test_a_killed_daemon_ends_its_clients_only():
    daemon = _stand_in()
    try:
        first = daemon.ready()
        bystander = daemon.start_busy(TIME_SLICED, 8)
        hit, other = daemon.start_busy(ONE, 60), daemon.start_busy(TWO, 60)
        os.kill(first["pid"], signal.SIGKILL)
        begin = time.monotonic()
        for process in (hit, other):
            status, output = process.finish(20)
            assert status == 3, f"expected a CUDA error, got {status}: {output[-300:]}"
        assert time.monotonic() - begin < 10, "the programs' end took too long"
        wait_until(lambda: daemon.mps_state()["pid"] not in (0, first["pid"]), 10, "a new MPS daemon")
        assert daemon.ready()["restarts"] == 1, daemon.mps_state()
        again = daemon.start_busy(ONE, 0.1)
        assert daemon.environment_of(ONE, again)["CUDA_MPS_PIPE_DIRECTORY"] != first["log"].replace("/log", "/pipe")
        assert again.finish()[0] == 0
        status, output = bystander.finish()
        assert status == 0, f"the time-sliced program was harmed: {status} {output[-300:]}"
        assert "was killed by signal 9" in daemon.log()
    finally:
        daemon.end()


def test_without_a_daemon_programs_are_refused_and_told_why():
    daemon = _stand_in("no-such-mps-control", (TIME_SLICED, ONE))
    try:
        assert daemon.mps_state()["state"] == "waiting", daemon.mps_state()
        program = Program(REPO / "tests/direct/busy.cu").compile()
        done = subprocess.run([program, "0.1"], env=daemon.program_environment(ONE), capture_output=True, text=True,
                              check=False, timeout=60)
        assert done.returncode == 3, f"the program ran without MPS: {done.returncode} {done.stdout[-300:]}"
        assert "no MPS daemon: there is no 'no-such-mps-control'" in done.stderr, done.stderr
        assert daemon.start_busy(TIME_SLICED, 0.1).finish()[0] == 0
        host.vgpuctl("set", ONE, "--sharing", "time-sliced", variables=daemon.variables)
        assert daemon.start_busy(ONE, 0.1).finish()[0] == 0
    finally:
        daemon.end()


def test_nothing_is_left():
    daemon = _stand_in()
    pid = daemon.ready()["pid"]
    daemon.end()
    assert not pathlib.Path(f"/proc/{pid}").exists(), "the MPS daemon has outlived `vgpuctl shutdown`"
    assert not list(daemon.run.glob("mps.d/*"))


def test_the_software_device_takes_the_attribute():
    if host.current_device().startswith("cuda"):
        pytest.skip("the device is a GPU")
    host.start_vgpud()
    try:
        said = host.vgpuctl("create", ONE, "--memory", "192M", "--sharing", "mps").stdout
        assert "there, mps only lets work" in said, said
        assert host.vgpuctl_json("show", ONE)["sharing"] == "mps"
    finally:
        host.vgpuctl("destroy", ONE, "--force", check=False)
