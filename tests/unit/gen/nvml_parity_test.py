"""Holds calls/nvml.toml against nvml.h, and the library against the rows."""

import re
import subprocess

import pytest

import nvml
import wire
from lab.machine import nvml_include
from lab.paths import BUILD, REPO

ROWS = REPO / "guest-driver" / "uapi" / "calls" / "nvml.toml"
LIBRARY = BUILD / "guest-driver/nvml/libnvidia-ml.so.1"
INTERNAL = {"nvmlInternalGetExportTable"}  # in no header, but nvidia-smi asks for it


def declared():
    include = nvml_include()
    if include is None:
        pytest.skip("no nvml.h")
    text = " ".join(subprocess.run(["cc", "-E", "-P", "-x", "c", "-DNVML_NO_UNVERSIONED_FUNC_DEFS",
                                    include / "nvml.h"], capture_output=True, text=True, check=True).stdout.split())
    return {name: " ".join(parameters.split()) for name, parameters in
            re.findall(r"(?:nvmlReturn_t|const char\s*\*)\s*(nvml\w+)\s*\(([^;{]*)\)\s*;", text)}


ROW_OF = {row.symbol: row for row in nvml.load(ROWS)}


class TestRows:
    def test_every_declared_function_has_a_row(self):
        # Rows of functions that a newer header has do no harm.
        assert set(declared()) - set(ROW_OF) == set()

    def test_prototypes(self):
        for name, proto in declared().items():
            assert ROW_OF[name].proto == proto, name

    def test_the_library_exports_the_rows_and_nothing_else(self):
        if not LIBRARY.exists():
            pytest.skip(f"{LIBRARY} is not built")
        done = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True)
        assert {line.split()[2] for line in done.stdout.splitlines()} == set(ROW_OF)
        assert set(ROW_OF) >= INTERNAL


class TestReader:
    def refused(self, table, part, proto="nvmlDevice_t device, unsigned int *value"):
        with pytest.raises(wire.RowError, match=part):
            nvml.parse("group", "nvmlX", {"proto": proto, **table})

    def test_wrong_rows_are_refused(self):
        self.refused({"mood": "good"}, "unknown keys")
        self.refused({"by": "hand", "sensor": "POWER_MW"}, "only one of")
        self.refused({"by": "foot"}, "by = 'foot'")
        self.refused({"gives": ["1", "2"]}, "more values")
        self.refused({"gives": ["1"]}, "of a device", proto="unsigned int *value")

    def test_a_missing_function_looks_at_its_handle(self):
        row = nvml.parse("group", "nvmlX", {"proto": "nvmlDevice_t device, int on"})
        assert nvml.missing(row) == "int nvmlX(void* device) { return refuse(device, Refusal::kNotSupported); }\n"
