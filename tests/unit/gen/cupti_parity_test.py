"""Holds calls/cupti.toml against the toolkit's headers, and the libraries against the rows."""

import re
import subprocess

import pytest

import cupti
import wire
from lab.machine import toolkit
from lab.paths import BUILD, REPO

HAND, REFUSED = cupti.load(REPO / "guest-driver/uapi/calls/cupti.toml")
HEADERS = sorted((toolkit() / "include").glob("cupti*.h"))


def test_every_declared_function_has_a_row():
    declared = {name for header in HEADERS for name in re.findall(r"CUptiResult\s+CUPTIAPI\s+(cupti\w+)\s*\(",
                                                                 header.read_text())}
    assert len(declared) > 100
    # Declared, and in no library of NVIDIA's.
    assert declared - {*HAND, *REFUSED} <= {"cuptiProfilerHostGetNumOfSubMetrics"}


@pytest.mark.parametrize("version", cupti.VERSIONS)
def test_the_library_exports_the_rows_under_its_version(version):
    library = BUILD / f"guest-driver/cupti/libcupti.so.{version}"
    if not library.exists():
        pytest.skip(f"{library} is not built")
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[2] for line in lines.splitlines()} - {f"libcupti.so.{version}"}
    assert symbols == {f"{name}@@libcupti.so.{version}" for name in (*HAND, *REFUSED)}


def test_a_name_that_stands_there_twice_is_refused(tmp_path):
    rows = tmp_path / "cupti.toml"
    rows.write_text('hand = ["cuptiA"]\n[refused.x]\nwhy = "y"\nnames = ["cuptiA"]\n')
    with pytest.raises(wire.RowError, match="twice"):
        cupti.load(rows)


def test_numbers_of_functions_come_from_the_headers():
    calls = dict(cupti.callbacks(toolkit() / "include", "cupti_driver_cbid.h", "CUPTI_DRIVER"))
    assert calls[307] == "cuLaunchKernel"
    assert (0, "CUPTI_SUCCESS") in cupti.results(toolkit() / "include")
