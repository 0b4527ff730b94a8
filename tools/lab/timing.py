"""Programs on a software device that records what their kernels do, and what the timing model makes of that.

The device is a vgpud's of its own, which only this uses: recording costs time, and its traces lie in its folder."""
import json
import os
import pathlib
import shutil
import subprocess

from lab import host
from lab.paths import environment, lab_dir
from lab.shell import Failure

NAME = "timing0"
MODELS = ["h200", "gtx480"]
LAUNCHES = 3  # of each kernel, that are recorded
MEMORY, SHARE = "2G", 100


def run_folder() -> pathlib.Path:
    return lab_dir() / "timing" / "run"


def variables() -> dict[str, str]:
    return environment(run_folder())


def traces() -> list[pathlib.Path]:
    """What was recorded since start()."""
    return sorted(path for path in (run_folder().parent / "state").glob("**/timing/*") if path.is_file())


def start(launches: int = LAUNCHES, model: str = MODELS[0]) -> dict[str, str]:
    """A virtual GPU whose kernels are recorded, for the model's GPU, with nothing of earlier ones; what its programs
    need to reach it."""
    stop()
    os.environ["BANDSAW_TIMING"] = f"{launches}:{model}"
    try:
        host.start_vgpud("soft", run_folder())
    finally:
        del os.environ["BANDSAW_TIMING"]
    host.vgpuctl("destroy", NAME, "--force", check=False, variables=variables())
    for trace in traces():
        trace.unlink()
    host.vgpuctl("create", NAME, "--memory", MEMORY, "--compute", str(SHARE), "--copy", str(SHARE),
                 variables=variables())
    return {name: variables()[name] for name in ("BANDSAW_RUN", "BANDSAW_STATE")}


def stop() -> None:
    """Ends that vgpud: runners with it, so that all is written."""
    if run_folder().exists() and host.current_device(run_folder()):
        host.vgpuctl("shutdown", "--force", check=False, variables=variables())
        host.await_end(run_folder())


def collect(folder: pathlib.Path) -> int:
    """Takes the traces of what ran since start() to a folder; how many there are."""
    stop()
    folder.mkdir(parents=True, exist_ok=True)
    found = traces()
    for trace in found:
        shutil.move(trace, folder / trace.name)
    return len(found)


def tool() -> pathlib.Path:
    return host.built("tools/timing/timing")


def run_tool(arguments: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run([tool(), *arguments], stdout=subprocess.PIPE, text=True, check=False)


def replayed(arguments: list[str]) -> list[dict]:
    """What the model says of each kernel of the traces."""
    done = run_tool(["--json", *arguments])
    if done.returncode != 0:
        raise Failure(f"the timing model ended with {done.returncode} for {arguments[-1]}")
    return json.loads(done.stdout)


def run_timed(program: pathlib.Path, arguments: list[str], program_variables: dict[str, str],
              model: str) -> tuple[int, str]:
    """Runs a program and gives its exit status and the model's table. A program that a signal ends, or that a person
    interrupts, has its table too."""
    ours = start(model=model)
    try:
        status = subprocess.run([program, *arguments], env={**program_variables, **ours}, check=False).returncode
    except KeyboardInterrupt:
        status = 130
    folder = run_folder().parent / "traces"
    shutil.rmtree(folder, ignore_errors=True)
    if collect(folder) == 0:
        return status, "timing: the program launched no kernel that could be recorded (only code with PTX can)\n"
    done = run_tool(["--gpu", model, str(folder)])
    if done.returncode != 0 and not done.stdout:
        raise Failure("the timing model gave nothing")
    return (status if status >= 0 else 128 - status), done.stdout
