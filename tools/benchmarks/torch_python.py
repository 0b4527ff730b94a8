"""The Python that has PyTorch, if this machine has one."""
import functools
import os
import pathlib
import subprocess


@functools.cache
def has_module(python: str, module: str) -> bool:
    question = f"import importlib.util,sys;sys.exit(not importlib.util.find_spec('{module}'))"
    return subprocess.run([python, "-c", question], check=False, capture_output=True).returncode == 0


@functools.cache
def torch_python() -> str | None:
    places = [os.environ.get("BANDSAW_TORCH_PYTHON"), "/opt/torch/.venv/bin/python3", "/usr/bin/python3"]
    return next((place for place in places if place and pathlib.Path(place).exists() and has_module(place, "torch")),
                None)


@functools.cache
def libraries_of_wheels() -> list[pathlib.Path]:
    """Folders with the libraries that PyTorch's wheels brought: nvidia/*/lib."""
    python = torch_python()
    if python is None:
        return []
    question = "import importlib.util;print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    found = subprocess.run([python, "-c", question], check=False, capture_output=True, text=True).stdout.strip()
    return sorted(pathlib.Path(found).parent.glob("nvidia/*/lib")) if found else []
