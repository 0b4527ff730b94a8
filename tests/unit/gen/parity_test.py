"""Holds calls/driver.toml against the newest headers, or where these cannot be had the toolkit's: names, prototypes,
versions; calls/errors.toml against the toolkit's: codes; and the rows against libcuda's objects: the rows marked as
written by hand are exactly the functions that are defined there."""

import re
import subprocess

import pytest

import driver
import errors
import wire
from lab.machine import newest_cuda_include, toolkit
from lab.paths import BUILD, REPO

CALLS = REPO / "guest-driver" / "uapi" / "calls"
TOOLKIT = toolkit()
NEWEST = newest_cuda_include()
LIBRARY = BUILD / "guest-driver/libcuda/libcuda_objects.a"


# CUDA's headers for them include those of OpenGL, VDPAU and EGL, which need not be here: the preprocessor is content.
EXTENSION = REPO / "guest-driver/libcuda/api/bandsaw_shm.h"
GRAPHICS = ["cudaGL.h", "cudaVDPAU.h", "cudaEGL.h"]
INCLUDED = ["GL/gl.h", "vdpau/vdpau.h", "EGL/egl.h", "EGL/eglext.h"]


def declared(folder):
    """name -> parameters of every function that the headers declare."""
    for header in INCLUDED:
        (folder / header).parent.mkdir(exist_ok=True)
        (folder / header).write_text("")
    headers = ["cuda.h", "cudaProfiler.h", *GRAPHICS, EXTENSION]
    source = "#define __CUDA_API_VERSION_INTERNAL 1\n" + "".join(f'#include "{header}"\n' for header in headers)
    includes = [folder, *([NEWEST] if NEWEST else []), TOOLKIT / "include"]
    command = ["cc", "-E", "-P", "-x", "c", *(f"-I{include}" for include in includes), "-"]
    text = " ".join(subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout.split())
    pattern = r"CUresult\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?(cu[A-Za-z0-9_]+)\s*\(([^;{]*)\)\s*;"
    return {name: " ".join(parameters.split()) for name, parameters in re.findall(pattern, text)}


def spaced(proto):
    """Headers put the space before the star, after it or nowhere."""
    return re.sub(r"\s*(\*+)\s*", r" \1", proto)


def types(proto):
    return [c_type.replace(" ", "") for c_type, _ in driver.Function("", "", proto, 0).parameters]


def versions():
    """(name, suffix) -> the versions for which cuda*Typedefs.h has a pointer type, newest first."""
    found: dict[tuple[str, str], set[int]] = {}
    for header in [*(TOOLKIT / "include").glob("cuda*Typedefs.h"), *(NEWEST.glob("cuda*Typedefs.h") if NEWEST else [])]:
        for name, version, suffix in re.findall(r"PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)", header.read_text()):
            found.setdefault((name, suffix), set()).add(int(version))
    return {key: sorted(values, reverse=True) for key, values in found.items()}


def known_to_headers(rows):
    return [row for row in rows if NEWEST or not row.newer]


class TestDriverRows:
    all_rows = driver.load(CALLS / "driver.toml", wire.load(CALLS / "wire.toml", CALLS.parent))
    rows = known_to_headers(all_rows)

    @pytest.fixture(scope="class")
    def declared(self, tmp_path_factory):
        return declared(tmp_path_factory.mktemp("headers"))

    def test_every_declared_function_has_a_row_and_no_other(self, declared):
        symbols = [symbol for row in self.rows for symbol in row.symbols]
        assert sorted(symbols) == sorted(set(symbols))
        assert set(symbols) == set(declared)

    def test_exports_are_those_of_the_toolkits_stub(self):
        stub = TOOLKIT / "lib64" / "stubs" / "libcuda.so"
        if not stub.exists():
            pytest.skip("this toolkit has no stub library")
        done = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True, check=True)
        exported = {line.split()[2] for line in done.stdout.split("\n") if len(line.split()) == 3}
        # The stub leaves out what takes other interfaces' objects (the driver's own library has it), and what is ours.
        names = {symbol for row in self.rows if row.group not in ("graphics", "extension") and not row.newer
                 for symbol in row.symbols}
        assert names <= exported <= {symbol for row in self.rows for symbol in row.symbols}

    def test_prototypes(self, declared):
        for row in self.rows:
            if NEWEST:  # some parameters have other names in older headers
                assert spaced(row.proto) == spaced(declared[row.symbol]), row.symbol
            for symbol in row.symbols:
                assert types(row.proto) == types(declared[symbol]), symbol

    def test_versions_pair_with_symbols_newest_to_newest(self):
        known = versions()
        families: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for row in self.rows:
            if row.group == "extension":
                continue
            families.setdefault((row.base, ""), []).append((row.since, row.symbol))
            if row.suffix:
                families.setdefault((row.base, row.suffix), []).append((row.suffix_since, row.symbol))
        for key, members in families.items():
            members.sort(key=lambda member: int((re.search(r"_v(\d+)$", member[1]) or ["", "1"])[1]), reverse=True)
            assert [since for since, _ in members] == known.get(key), key

    def test_rows_by_hand_are_what_is_defined(self):
        if not LIBRARY.exists():
            pytest.skip(f"{LIBRARY} is not built")
        strong = set(re.findall(r" T (cu[A-Z]\w+)$", subprocess.run(["nm", LIBRARY], capture_output=True, text=True,
                                                                     check=True).stdout, re.M))
        wanted = {symbol for row in self.all_rows if row.implemented for symbol in row.symbols}
        assert sorted(wanted - strong) == [], "marked as implemented, but not defined"
        assert sorted(strong - wanted) == [], "defined, but the row does not say by = \"hand\""


class TestErrorRows:
    def test_codes_are_those_of_the_header(self):
        text = (TOOLKIT / "include" / "cuda.h").read_text()
        header = {name: int(value) for name, value in re.findall(r"^\s+(CUDA_(?:ERROR_\w+|SUCCESS))\s*=\s*(\d+)", text,
                                                                  re.M)}
        table = errors.load(CALLS / "errors.toml")
        assert {name: row["value"] for name, row in table.items()} == header
        assert all(row["text"] for row in table.values())
