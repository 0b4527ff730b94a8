"""CuPy as it comes: what its kernels compute is held against NumPy. cuBLAS and the like are machine code."""
import cupy
import numpy
import pytest

RANDOM = numpy.random.default_rng(7)
A = RANDOM.random((37, 53)).astype(numpy.float32)
B = RANDOM.random((37, 53)).astype(numpy.float32)


def same(on_device, on_host):
    numpy.testing.assert_allclose(cupy.asnumpy(on_device), on_host, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "arctan2", "power"])
def test_two_operands(name):
    same(getattr(cupy, name)(cupy.asarray(A), cupy.asarray(B)), getattr(numpy, name)(A, B))


@pytest.mark.parametrize("name", ["sqrt", "exp", "log", "sin", "tanh", "floor", "sign", "negative", "isfinite"])
def test_one_operand(name):
    same(getattr(cupy, name)(cupy.asarray(A)), getattr(numpy, name)(A))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "argmax", "any", "std"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_reductions(name, axis):
    same(getattr(cupy, name)(cupy.asarray(A), axis=axis), getattr(numpy, name)(A, axis=axis))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float16", "float64", "complex64", "bool"])
def test_types(dtype):
    same(cupy.arange(100).astype(dtype), numpy.arange(100).astype(dtype))


def test_indexing():
    a = cupy.asarray(A)
    same(a[3:20:2, ::-1], A[3:20:2, ::-1])
    same(a[a > 0.5], A[A > 0.5])
    rows = [5, 1, 30]
    same(a[cupy.asarray(rows)], A[rows])
    same(cupy.where(a > 0.5, a, -a), numpy.where(A > 0.5, A, -A))
    same(cupy.concatenate([a, a], axis=1), numpy.concatenate([A, A], axis=1))


def test_kernels_of_the_program():
    square = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
    same(square(cupy.asarray(A)), A * A)
    raw = cupy.RawKernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }', "twice")
    data = cupy.arange(32, dtype=cupy.float32)
    raw((1,), (32,), (data,))
    same(data, numpy.arange(32) * 2)
    total = cupy.ReductionKernel("float32 x", "float32 y", "x", "a + b", "y = a", "0", "total")
    same(total(cupy.asarray(A)), A.sum())


def test_streams_and_pools():
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        b = cupy.asarray(A) * 3
    stream.synchronize()
    same(b, A * 3)
    assert cupy.get_default_memory_pool().used_bytes() > 0
