"""What bandsaw-runner must export so that libcuda calls it."""
import os
import pathlib
import subprocess


def test_ioctl_is_the_runners_own():
    runner = pathlib.Path(os.environ["BANDSAW_BUILD"]) / "backend/runner/bandsaw-runner"
    symbols = subprocess.run(["nm", "-D", "--defined-only", runner], check=True, capture_output=True, text=True).stdout
    assert any(line.endswith(" T ioctl") for line in symbols.splitlines()), "libcuda would call libc's ioctl"
