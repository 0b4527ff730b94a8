"""What programs get of NVRTC and nvJitLink where libbandsaw-ptx.so.1 is preloaded. Stand-ins are in their place."""
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

BUILD = pathlib.Path(os.environ["BANDSAW_BUILD"])
HERE = BUILD / "tests/unit/ptx_preload"

COMMON = f"""
import ctypes, struct
nvrtc = ctypes.CDLL("{HERE}/libnvrtc.so.99")
linker = ctypes.CDLL("{HERE}/libnvJitLink.so.99")

def code_of(get_size, get, handle):
    size = ctypes.c_size_t()
    assert get_size(handle, ctypes.byref(size)) == 0
    to = ctypes.create_string_buffer(max(size.value, 1))
    assert get(handle, to) == 0
    return to.raw[:size.value]

def compiled(*options):
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program))
    texts = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    assert nvrtc.nvrtcCompileProgram(program, len(options), texts) == 0
    return code_of(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program).rstrip(b"\\0").decode()

def linked(options, *inputs, create=linker.nvJitLinkCreate):
    link = ctypes.c_void_p()
    texts = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    assert create(ctypes.byref(link), len(options), texts) == 0
    for kind, data in inputs:
        assert linker.nvJitLinkAddData(link, kind, data, ctypes.c_size_t(len(data)), b"unit") == 0
    assert linker.nvJitLinkComplete(link) == 0
    return code_of(linker.nvJitLinkGetLinkedCubinSize, linker.nvJitLinkGetLinkedCubin, link)

A, B = b".version 8.0 a", b".version 8.0 b"
"""


def run(body: str, preload: bool = True) -> None:
    variables = {**os.environ, "LD_PRELOAD": str(BUILD / "guest-driver/ptx_preload/libbandsaw-ptx.so.1")}
    done = subprocess.run([sys.executable, "-c", COMMON + textwrap.dedent(body)], check=False, capture_output=True,
                          text=True, env=variables if preload else {**os.environ})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("option", ["-arch=sm_90", "--gpu-architecture=sm_90"])
def test_machine_code_is_compiled_to_ptx(option):
    run(f"""
        assert compiled("-G", "{option}", "-w") == "PTX -G {option.replace('sm_', 'compute_')} -w"
    """)


def test_an_architecture_may_be_an_option_of_its_own():
    run("""
        assert compiled("-arch", "sm_90a", "-w") == "PTX -arch compute_90a -w"
    """)


def test_what_is_not_for_machine_code_stays():
    run("""
        assert compiled("-arch=sm_90", "-dlto") == "CUBIN -arch=sm_90 -dlto"
    """)


def test_without_the_library_it_is_machine_code():
    run("""
        assert compiled("-arch=sm_90") == "CUBIN -arch=sm_90"
        assert linked(["-arch=sm_90"], (2, A)) == b"CUBIN2\\0"
    """, preload=False)


def test_one_unit_is_handed_over_as_it_is():
    run("""
        assert linked(["-arch=sm_90"], (2, A)) == A + b"\\0"
        assert linked(["-arch=sm_90"], (2, A), create=linker.__getattr__("__nvJitLinkCreate_13_0")) == A + b"\\0"
    """)


def test_several_units_are_a_fatbin():
    run("""
        fatbin = linked(["-arch=sm_90"], (2, A), (1, B))  # NVRTC's "machine code" is PTX
        magic, version, header, size = struct.unpack_from("=IHHQ", fatbin)
        assert (magic, version, header, len(fatbin)) == (0xBA55ED50, 1, 16, 16 + size)
        at, units = 16, []
        while at < len(fatbin):
            kind, _, head, payload = struct.unpack_from("=HHIQ", fatbin, at)
            assert kind == 1 and struct.unpack_from("=I", fatbin, at + 0x1c)[0] == 90
            units.append(fatbin[at + head:at + head + payload].rstrip(b"\\0"))
            at += head + payload
        assert units == [A, B]
    """)


def test_link_time_optimisation_ends_in_ptx():
    run("""
        assert linked(["-arch=sm_90", "-lto"], (3, b"LTO")) == b"PTX3\\0"
    """)


def test_ptx_beside_what_is_optimised_at_link_time():
    run("""
        fatbin = linked(["-arch=sm_90", "-lto"], (2, A), (3, b"LTO"))  # nvJitLink saw the second alone
        assert fatbin.find(A) > 0 and fatbin.find(b"PTX3\\0") > fatbin.find(A)
        assert linked(["-arch=sm_90", "-lto"], (2, A)) == A + b"\\0"
    """)


def test_machine_code_stays_what_it_is():
    run("""
        assert linked(["-arch=sm_90"], (2, A), (1, b"\\x7fELF")) == b"CUBIN21\\0"
    """)


LINKED_PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
int nvJitLinkCreate(void**, uint32_t, const char**), nvJitLinkAddData(void*, int, const void*, size_t, const char*);
int nvJitLinkComplete(void*), nvJitLinkGetLinkedCubinSize(void*, size_t*), nvJitLinkGetLinkedCubin(void*, void*);
int main(void) {
  const char *options[] = {"-arch=sm_90"}, ptx[] = ".version 8.0 a";
  char code[64];
  size_t bytes = 0;
  void* link;
  if (nvJitLinkCreate(&link, 1, options) || nvJitLinkAddData(link, 2, ptx, sizeof ptx, "a") ||
      nvJitLinkComplete(link) || nvJitLinkGetLinkedCubinSize(link, &bytes) ||
      bytes > sizeof code || nvJitLinkGetLinkedCubin(link, code)) return 1;
  return puts(code) < 0;
}
"""


@pytest.mark.parametrize("create", ["nvJitLinkCreate", "__nvJitLinkCreate_13_0"])
def test_a_program_that_is_linked_with_nvjitlink_gets_ptx_too(tmp_path, create):
    source, program = tmp_path / "linked.c", tmp_path / "linked"
    source.write_text(f"#define nvJitLinkCreate {create}\n{LINKED_PROGRAM}")
    subprocess.run(["cc", "-o", program, source, HERE / "libnvJitLink.so.99", f"-Wl,-rpath,{HERE}"], check=True)
    preload = {**os.environ, "LD_PRELOAD": str(BUILD / "guest-driver/ptx_preload/libbandsaw-ptx.so.1")}
    for variables, wanted in ((preload, ".version 8.0 a"), (None, "CUBIN2")):
        done = subprocess.run([program], check=True, capture_output=True, text=True, env=variables)
        assert done.stdout.strip() == wanted


def test_nvjitlink_is_not_found_where_it_is_not_loaded():
    preload = {**os.environ, "LD_PRELOAD": str(BUILD / "guest-driver/ptx_preload/libbandsaw-ptx.so.1")}
    subprocess.run([sys.executable, "-c", "import ctypes; f = ctypes.CDLL(None)\n"
                    "assert not hasattr(f, 'nvJitLinkCreate') and not hasattr(f, 'nvrtcCompileProgram')"],
                   check=True, env=preload)


PTXAS = pathlib.Path(__file__).resolve().parents[3] / "guest-driver/ptx_preload/bin/ptxas"


def test_ptxas_hands_ptx_over(tmp_path):
    source, made = tmp_path / "kernel.ptx", tmp_path / "kernel.o"
    source.write_text(".version 8.7")
    subprocess.run([PTXAS, "-lineinfo", "-v", "--opt-level", "1", "--gpu-name=sm_90a", source, "-o", made], check=True)
    assert made.read_bytes() == b".version 8.7\0"  # which ends it for the driver


def test_ptxas_says_which_release_it_stands_for():
    said = subprocess.run([PTXAS, "--version"], check=True, capture_output=True, text=True).stdout
    assert "release 12.8, V12.8" in said


def test_ptxas_without_an_output_is_refused(tmp_path):
    done = subprocess.run([PTXAS, tmp_path / "kernel.ptx"], check=False, capture_output=True, text=True)
    assert done.returncode == 2 and "usage" in done.stderr
