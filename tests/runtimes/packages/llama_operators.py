"""llama.cpp as Debian has it: its own test of each operator, which holds its CUDA backend against the processor's."""
import re
import subprocess

import pytest

TEST = "/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops"
# By their parameters, where it takes hours to compile all kernels of an operator, or others are cuBLAS's.
CHOSEN = {
    "ARGSORT": r"ne=\[\d{1,3},",
    "CONV_2D": r"ne_input=\[1,",
    "FLASH_ATTN_EXT": r"hsk=64,hsv=64,nh=8,.*kv=1024,nb=32,.*type_K=f16",
    "MUL_MAT": r"type_a=(q4_0|q8_0),type_b=f32,m=16,n=[18],",
    "MUL_MAT_ID": r"type_a=q4_0.*,n=1,",
}
OF_CUBLAS = {"CONV_3D", "OUT_PROD", "SOLVE_TRI", "SSM_SCAN"}  # in part


def names():
    listed = subprocess.run([TEST, "--list-ops"], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", listed)))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", names())
def test_operator(name):
    if name in OF_CUBLAS:
        pytest.skip("some of its cases ask cuBLAS, which is machine code")
    chosen = ["-p", CHOSEN[name]] if name in CHOSEN else []
    done = subprocess.run([TEST, "test", "-b", "CUDA0", "-o", name, *chosen], capture_output=True, text=True,
                          errors="replace", check=False)
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in done.stdout.splitlines()]
    failed = [line for line in lines if line.endswith("FAIL")]
    assert done.returncode == 0 and not failed, "\n".join(failed or lines[-5:]) + done.stderr[-1000:]
    if not any(line.endswith(": OK") for line in lines):
        pytest.skip("none is there for CUDA")
