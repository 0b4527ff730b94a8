"""Building Bandsaw with meson."""
import os
import pathlib

from lab.machine import toolkit
from lab.paths import BUILD, REPO
from lab.shell import run, step

OPTIMIZED = ("-Doptimization=2", "-Ddebug=false")


def configure(folder: pathlib.Path = BUILD, options: tuple = OPTIMIZED, environment: dict | None = None) -> None:
    if (folder / "build.ninja").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **(environment or {})}
    if "CXX" not in variables and pathlib.Path("/usr/bin/ccache").exists():
        variables |= {"CC": "ccache gcc", "CXX": "ccache g++"}
    with step(f"configuring {os.path.relpath(folder, REPO)}"):
        run(["meson", "setup", folder, REPO, f"-Dtoolkit={toolkit()}", *options], env=variables,
            log=folder / "configure.log", what="meson setup")


def build(*targets: str, folder: pathlib.Path = BUILD) -> None:
    configure(folder)
    with step("building Bandsaw") as progress:
        run(["ninja", "-C", folder, *targets], log=folder / "build.log", what="the build", progress=progress)
