"""What bandsaw-runner must export so that libcuda calls it."""
import os
import pathlib
import subprocess

import pytest


@pytest.mark.parametrize("name", ["ioctl", "mmap", "mmap64"])
def test_it_is_the_runners_own(name):
    runner = pathlib.Path(os.environ["BANDSAW_BUILD"]) / "backend/runner/bandsaw-runner"
    symbols = subprocess.run(["nm", "-D", "--defined-only", runner], check=True, capture_output=True, text=True).stdout
    assert any(line.endswith(f" T {name}") for line in symbols.splitlines()), f"libcuda would call libc's {name}"
