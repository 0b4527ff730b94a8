"""vgpud's systemd unit: what it leaves open, as systemd itself counts."""
import json
import re
import shutil
import subprocess

import pytest

from lab.paths import BUILD, REPO

UNIT = BUILD / "backend/vgpud/vgpud.service"


@pytest.fixture(autouse=True)
def _systemd():
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")


def test_exposure_is_small():
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=30", str(UNIT)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert float(re.findall(r"exposure level for vgpud.service: ([0-9.]+)", done.stdout)[0]) <= 3.0


def test_units_are_understood():
    for unit in (UNIT, REPO / "backend/vgpud/bandsaw-devices.service"):
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--json=short", str(unit)],
                              capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)
        # A systemd before 254 says that it does not know DelegateSubgroup, and goes on.
        complaints = [line for line in done.stderr.splitlines() if "DelegateSubgroup" not in line]
        assert not complaints, complaints
