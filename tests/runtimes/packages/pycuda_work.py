"""PyCUDA as it comes: it has nvcc compile what the program gives it."""
import numpy
import pycuda.autoinit  # type: ignore
import pycuda.driver  # type: ignore
import pycuda.gpuarray  # type: ignore
from pycuda.compiler import SourceModule  # type: ignore

RANDOM = numpy.random.default_rng(7)
A = RANDOM.random(400).astype(numpy.float32)
B = RANDOM.random(400).astype(numpy.float32)


def test_a_module_of_the_program():
    module = SourceModule("__global__ void times(float *d, float *a, float *b) {"
                          " const int i = threadIdx.x; d[i] = a[i] * b[i]; }")
    out = numpy.zeros_like(A)
    module.get_function("times")(pycuda.driver.Out(out), pycuda.driver.In(A), pycuda.driver.In(B), block=(400, 1, 1))
    numpy.testing.assert_array_equal(out, A * B)


def test_arrays():
    a, b = pycuda.gpuarray.to_gpu(A), pycuda.gpuarray.to_gpu(B)
    numpy.testing.assert_allclose((2 * a + b).get(), 2 * A + B, rtol=1e-6)
    numpy.testing.assert_allclose(pycuda.gpuarray.sum(a).get(), A.sum(), rtol=1e-5)


def test_events_and_streams():
    stream, begin, end = pycuda.driver.Stream(), pycuda.driver.Event(), pycuda.driver.Event()
    begin.record(stream)
    a = pycuda.gpuarray.to_gpu_async(A, stream=stream)
    end.record(stream)
    end.synchronize()
    assert end.time_since(begin) >= 0
    numpy.testing.assert_array_equal(a.get(), A)
