"""Compiles a kernel for one architecture with the toolkit's NVRTC and prints the machine code's hash. Not a test."""
import ctypes
import hashlib
import sys

SOURCE = b'extern "C" __global__ void scale(float* values, float by) { values[threadIdx.x] *= by; }'


def main(library: str, architecture: str) -> None:
    nvrtc = ctypes.CDLL(library)
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    options = (ctypes.c_char_p * 1)(f"-arch={architecture}".encode())
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"scale.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, options) == 0
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0 and size.value
    code = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, code) == 0
    print(hashlib.sha256(code.raw).hexdigest())


if __name__ == "__main__":
    main(*sys.argv[1:])
