"""tools/guest-run --direct --timing: programs of any kind, and the table that they get."""
import json
import pathlib
import signal
import subprocess

import pytest

from lab import timing
from lab.cuda_programs import Program
from lab.guest_run import direct_environment
from lab.paths import REPO
from lab.started import Started


@pytest.fixture(autouse=True)
def ended():
    """Its vgpud is its own, and gone afterwards."""
    yield
    timing.stop()


def _run(program: pathlib.Path, *arguments: str, model: str = "h200") -> tuple[int, list[str]]:
    status, text = timing.run_timed(program, list(arguments), direct_environment(timing.NAME), model)
    return status, text.splitlines()


def test_a_table_by_kernel():
    status, lines = _run(Program(REPO / "tests/cuda/atomics.cu").compile())
    assert status == 0
    assert lines[0].startswith("h200 at 1980 MHz, 4 of 132 SMs simulated, policy gto")
    assert lines[1].split()[:3] == ["kernel", "launches", "cycles"]
    rows = {line.split()[0]: line.split() for line in lines[2:6]}
    assert {"on_global", "on_shared", "tickets", "scoped"} <= set(rows)
    assert int(rows["on_global"][2]) > 100
    assert len({len(line) for line in lines[1:6]}) == 1, "columns are aligned"


def test_the_same_program_takes_the_same_cycles():
    program = Program(REPO / "tests/cuda/reduction.cu").compile()
    assert _run(program)[1] == _run(program)[1]


def test_a_program_without_kernels_says_so():
    status, lines = _run(pathlib.Path("/bin/false"))
    assert status == 1
    assert lines == ["timing: the program launched no kernel that could be recorded (only code with PTX can)"]


def test_a_kernel_that_never_ends_has_a_table_when_its_program_is_ended(tmp_path):
    program = Program(REPO / "tests/direct/endless.cu").compile()
    ours = timing.start()
    started = Started(program, variables={**direct_environment(timing.NAME), **ours})
    started.first_line("running")
    for _ in range(60):
        if any(path.stat().st_size > 1 << 20 for path in timing.traces()):
            break
        assert started.poll() is None
        started.line(0.5)
    started.send_signal(signal.SIGKILL)
    started.wait()
    assert timing.collect(tmp_path) == 1
    done = timing.run_tool(["--json", "--cycles", "20000", str(tmp_path)])
    kernel = json.loads(done.stdout)[0]
    assert kernel["cut"] and kernel["cycles"] == 20000 and kernel["instructions"] > 100


@pytest.mark.parametrize("words", [["--timing", "/bin/true"], ["--direct", "--gpu", "--timing", "/bin/true"],
                                   ["--direct", "--timing"], ["--direct", "--timing", "--model", "tnt2", "/bin/true"]])
def test_what_makes_no_sense_is_refused(words: list[str]):
    done = subprocess.run([REPO / "tools/guest-run", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "usage:" in done.stderr


@pytest.mark.parametrize(("words", "says"), [
    ([], "no file is named"), (["--gpu", "x", "f"], "there are h200, gtx480"),
    (["--policy", "x", "f"], "there are lrr, gto, two-level, ccws, dyncta, elf"),
    (["--requeue", "-1", "f"], "not a number"), (["--l1"], "needs a value"),
    (["--strange", "1", "f"], "no option --strange"), (["/nonexistent"], "no file"),
    (["/bin/true"], "not a trace"), (["/dev/zero"], "no file")])
def test_the_tool_says_what_is_wrong(words: list[str], says: str):
    done = subprocess.run([timing.tool(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert says in done.stderr
