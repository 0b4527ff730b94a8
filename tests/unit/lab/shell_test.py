"""What people see of steps and commands."""
import pathlib
import re
import subprocess
import time

import pytest

from lab.paths import REPO
from lab.shell import Failure, run, step


def test_a_step_says_how_far_a_build_is(capsys):
    ninja = 'for i in 1 2; do echo "[$i/2] Compiling"; sleep 0.2; done'
    with step("building: all of it", every=0.1) as progress:
        assert run(["bash", "-c", ninja], progress=progress).count("Compiling") == 2
    said = capsys.readouterr().out
    assert re.search(r"\.\.\. building: 1 of 2, \d+ s so far", said) and "building: 2 of 2" in said


def test_a_step_counts_what_is_done(capsys):
    with step("compiling", total=2, every=0.05) as progress:
        assert progress.counted(lambda word: word * 2)("ab") == "abab"
        time.sleep(0.2)
    assert "... compiling: 1 of 2," in capsys.readouterr().out


def test_a_command_that_fails_shows_its_end_and_its_log(tmp_path: pathlib.Path):
    with pytest.raises(Failure, match=r"it failed \(exit 3\); the whole output is in .*log\n    oh no"):
        run(["bash", "-c", "echo oh no; exit 3"], log=tmp_path / "log", what="it")
    assert (tmp_path / "log").read_text() == "oh no\n"


@pytest.mark.parametrize("wrong", ["FOO", "=1"])
def test_a_variable_without_a_value_is_an_error_that_says_so(wrong):
    done = subprocess.run([REPO / "tools/guest-run", "--env", wrong, "/bin/true"], capture_output=True, text=True,
                          check=False, timeout=60)
    assert done.returncode == 2, done
    assert f"--env {wrong}" in done.stderr and "NAME=VALUE" in done.stderr and "Traceback" not in done.stderr
