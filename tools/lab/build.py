"""Building Bandsaw with meson."""
import json
import os
import pathlib

from lab.machine import nvml_include, toolkit
from lab.paths import BUILD, REPO
from lab.shell import run, step

# What CUDA calls wait for is optimised, and nothing else: this compiles in half the time.
QUICK = ("-Doptimization=0", "-Dcall_path_optimization=2", "-Ddebug=false")
OPTIMIZED = ("-Doptimization=2", "-Ddebug=false")
# Without the preprocessor's run of its own, by which ccache otherwise looks for an object first.
CCACHE = {"CCACHE_DEPEND": "1"}


def configure(folder: pathlib.Path = BUILD, options: tuple = QUICK, environment: dict | None = None,
              source: pathlib.Path = REPO) -> None:
    if (folder / "build.ninja").exists():
        _find_nvml(folder)
        return
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **(environment or {})}
    if "CXX" not in variables and pathlib.Path("/usr/bin/ccache").exists():
        variables |= {"CC": "ccache gcc", "CXX": "ccache g++"}
    with step(f"configuring {os.path.relpath(folder, REPO)}"):
        run(["meson", "setup", folder, source, f"-Dtoolkit={toolkit()}", *options], env=variables,
            log=folder / "configure.log", what="meson setup")
    _find_nvml(folder)


def _find_nvml(folder: pathlib.Path) -> None:
    """libnvidia-ml.so.1 needs nvml.h, which not every toolkit has; without it, it is left out."""
    options = json.loads((folder / "meson-info/intro-buildoptions.json").read_text())
    chosen = next((option["value"] for option in options if option["name"] == "nvml"), None)
    if not chosen and (found := nvml_include()) and found != toolkit() / "include":
        run(["meson", "setup", "--reconfigure", folder, REPO, f"-Dnvml={found}"], what="meson setup")


def optimize(folder: pathlib.Path = BUILD) -> None:
    """From now on all in the folder is optimised, also what no CUDA call waits for."""
    configure(folder, OPTIMIZED)
    run(["meson", "configure", folder, *OPTIMIZED, "-Dcall_path_optimization=same"])


def build(*targets: str, folder: pathlib.Path = BUILD) -> None:
    configure(folder)
    ninja(folder, *targets, text="building Bandsaw")


def ninja(folder: pathlib.Path, *targets: str, text: str) -> None:
    with step(text) as progress:
        run(["ninja", "-C", folder, *targets], env={**os.environ, **CCACHE}, log=folder / "build.log", what=text,
            progress=progress)
