"""A vgpud that takes the software device, or a runner that only speaks the link's language, for a GPU with MPS."""
import json
import pathlib

UUID = "01234567-89ab-cdef-0123-456789abcdef"
MPS = pathlib.Path(__file__).with_name("mps_stand_in.py")

RUNNER = """#!/bin/sh
if [ "$1" = --probe ]; then
  echo '{{"name": "Stand-in GPU", "uuid": "{uuid}", "memory": 17179869184, "driver": "13000", "sms": 20, "sm_step": 8}}'
  exit
fi
if [ "$1" = --watch-gpu ]; then exit 1; fi
env > '{notes}'/$$
export BANDSAW_DEVICE=soft
exec '{runner}'
"""

# Of a device that fails while there is a file gone-DEVICE in the folder: runners end at once, and the probe says why.
FAILING_RUNNER = """#!/bin/sh
if [ "$1" = --probe ]; then device=$2:$3; else device=$BANDSAW_DEVICE; fi
if [ -e '{folder}'/"gone-$device" ]; then echo 'its power is gone' >&2; exit 1; fi
exec '{runner}' "$@"
"""


def make_runner(folder: pathlib.Path, runner: pathlib.Path) -> pathlib.Path:
    """A program for `session.runner` that answers the probe for a GPU, and for each runner notes its environment."""
    notes = folder / "notes"
    notes.mkdir()
    notes.chmod(0o1777)  # runners are users of their own
    script = folder / "runner.sh"
    script.write_text(RUNNER.format(uuid=UUID, notes=notes, runner=runner))
    script.chmod(0o755)
    return script


def configuration(script: pathlib.Path, mps: str, warm: int = 1) -> str:
    return (f'[device]\nname = "cuda"\nindex = 0\n[session]\nrunner = "{script}"\nwarm_runners = {warm}\n'
            f'[mps]\ncommand = "{mps}"\n[sandbox]\nmode = "off"\n')  # a script needs a shell


def environment_of(folder: pathlib.Path, pid: int) -> dict[str, str]:
    """What the runner was started with."""
    lines = (folder / "notes" / str(pid)).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def daemons(run: pathlib.Path) -> list[dict]:
    """How the MPS daemons that have a folder were started."""
    return [json.loads(path.read_text()) for path in run.glob("mps.d/*/started.json")]
