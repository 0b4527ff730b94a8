"""Programs that a test listens to."""
import os
import sys

import pytest

from lab.started import Started


def _python(text: str) -> Started:
    return Started(sys.executable, "-uc", text, variables=dict(os.environ))


def test_that_kernels_are_compiled_is_not_the_first_line():
    program = _python("print('libcuda (bandsaw): compiling 1 kernel; the next run'); print('ready')")
    assert program.first_line("ready") == "ready\n"
    assert program.finish() == (0, "")


def test_one_that_says_something_else_and_does_not_end_is_ended():
    program = _python("print('no'); import time; time.sleep(1000)")
    with pytest.raises(AssertionError, match="did not start: no"):
        program.first_line("ready")
