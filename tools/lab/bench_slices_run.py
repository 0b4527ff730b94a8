"""CUDA programs through a vgpud of their own that cuts their kernels into slices, and what it counted."""
import dataclasses
import json
import pathlib
import subprocess
import time

from lab import host
from lab.cuda_programs import Program
from lab.guest_run import direct_environment
from lab.paths import BUILD, environment, lab_dir
from lab.shell import Failure, wait_until

VGPU = "slices0"
COUNTERS = ("kernels", "sliceable", "launches", "slices", "fallbacks")


@dataclasses.dataclass
class Setting:
    """What [slices] of the configuration says. With `force_blocks` all launches are cut, else those that take longer than
    `threshold_us`; with neither, none."""
    device: str
    force_blocks: int = 0
    threshold_us: int = 0
    form: str = "slice"

    @property
    def memory(self) -> str:
        """On a GPU, each program's context alone takes half a GiB."""
        return "2G" if self.device == "soft" else "32G"

    def text(self) -> str:
        kind, _, index = self.device.partition(":")
        enabled = "true" if self.force_blocks or self.threshold_us else "false"
        return (f'[device]\nname = "{kind}"\nindex = {index or 0}\n[session]\nwarm_runners = 2\n'
                f'[slices]\nenabled = {enabled}\nthreshold_us = {self.threshold_us}\n'
                f'force_blocks = {self.force_blocks}\nform = "{self.form}"\n')


@dataclasses.dataclass
class Outcome:
    program: str
    wrong: str  # empty: as it should be
    output: str
    seconds: float


class SlicingDaemon:
    """One vgpud with one virtual GPU; the code that it has compiled stays for the next one."""

    def __init__(self, setting: Setting):
        self.run_dir = lab_dir() / "slices" / "run"
        self.variables = environment(self.run_dir)
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self.end()
        path, log = self.run_dir.parent / "vgpud.toml", self.run_dir.parent / "vgpud.log"
        path.write_text(setting.text())
        with open(log, "wb") as file:
            daemon = subprocess.Popen([BUILD / "backend/vgpud/vgpud", "--config", path], stdin=subprocess.DEVNULL,
                                      stdout=file, stderr=file, env=self.variables, start_new_session=True)
        deadline = time.monotonic() + 40
        while not host.current_device(self.run_dir):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"vgpud does not answer: {log.read_text(errors='replace')[-1000:]}")
            time.sleep(0.05)
        if self._ask("show", VGPU, "--json", check=False).returncode != 0:
            self._ask("create", VGPU, "--memory", setting.memory, "--compute", "100", "--copy", "100")
        self._before = self._usage()

    def _ask(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        return host.vgpuctl(*arguments, check=check, variables=self.variables)

    def _usage(self) -> dict:
        wait_until(lambda: not self._live().get("processes"), 20, "the end of the programs' runners")
        return self._live()["usage"]["slices"]

    def _live(self) -> dict:
        return json.loads(self._ask("show", VGPU, "--json").stdout).get("live") or {}

    def session_log(self) -> pathlib.Path:
        return self.run_dir / VGPU / "session.log"

    def counted(self) -> dict:
        """Since the last time: how many kernels there were, and why some ran whole."""
        now, before = self._usage(), self._before
        self._before = now
        refused = {reason: number - before["refused"].get(reason, 0) for reason, number in now["refused"].items()}
        return {**{name: now[name] - before[name] for name in COUNTERS},
                "refused": {reason: number for reason, number in refused.items() if number}}

    def environment(self) -> dict[str, str]:
        return {**self.variables, **direct_environment(VGPU, self.run_dir)}

    def run(self, program: Program, seconds: float = 300) -> Outcome:
        begin = time.monotonic()
        status, output = program.run(self.environment(), seconds)
        return Outcome(program.name, program.judge(status, output), output, time.monotonic() - begin)

    def end(self) -> None:
        if host.current_device(self.run_dir):
            self._ask("shutdown", check=False)
            wait_until(lambda: not host.current_device(self.run_dir), 20, "the end of the vgpud that runs")
