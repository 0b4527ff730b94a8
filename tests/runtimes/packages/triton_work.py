"""Triton as it comes, without PyTorch: kernels in its language, held against NumPy."""
import ctypes

import numpy
import pytest
import triton  # type: ignore
import triton.language as tl  # type: ignore

RANDOM = numpy.random.default_rng(7)
CUDA = ctypes.CDLL("libcuda.so.1")
NAMES = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "int8": "i8", "int16": "i16", "int32": "i32",
         "int64": "i64", "uint8": "u8", "uint32": "u32", "uint64": "u64"}


def checked(result: int) -> None:
    assert result == 0, f"CUDA error {result}"


class OnDevice:
    """An array that Triton takes as a pointer: what it asks of a tensor is its type and its address."""

    def __init__(self, array: numpy.ndarray):
        self._array, self.dtype = numpy.ascontiguousarray(array), NAMES[str(array.dtype)]
        self._address = ctypes.c_uint64()
        checked(CUDA.cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(array.nbytes)))
        checked(CUDA.cuMemcpyHtoD_v2(self._address, ctypes.c_void_p(self._array.ctypes.data),
                                     ctypes.c_size_t(array.nbytes)))

    def __del__(self):
        CUDA.cuMemFree_v2(self._address)

    def data_ptr(self) -> int:
        return self._address.value

    def get(self) -> numpy.ndarray:
        out = numpy.empty_like(self._array)
        checked(CUDA.cuMemcpyDtoH_v2(ctypes.c_void_p(out.ctypes.data), self._address, ctypes.c_size_t(out.nbytes)))
        return out


@pytest.fixture(autouse=True, scope="module")
def context():
    checked(CUDA.cuInit(0))
    made = ctypes.c_void_p()
    checked(CUDA.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0))
    checked(CUDA.cuCtxSetCurrent(made))


def numbers(*shape: int, dtype: str = "float32") -> numpy.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def empty(*shape: int, dtype: str = "float32") -> OnDevice:
    return OnDevice(numpy.zeros(shape, dtype))


@triton.jit
def add_kernel(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64"])
def test_vector_add(dtype):
    a, b = (10 * numbers(9843)).astype(dtype), (10 * numbers(9843)).astype(dtype)
    out = empty(9843, dtype=dtype)
    add_kernel[(triton.cdiv(9843, 1024),)](OnDevice(a), OnDevice(b), out, 9843, block=1024)
    numpy.testing.assert_array_equal(out.get(), a + b)


@triton.jit
def softmax_kernel(x, out, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=at < columns)


@pytest.mark.parametrize("warps", [1, 4, 8])
def test_softmax(warps):
    a, out = numbers(57, 781), empty(57, 781)
    softmax_kernel[(57,)](OnDevice(a), out, 781, block=1024, num_warps=warps)
    wanted = numpy.exp(a - a.max(axis=1, keepdims=True))
    numpy.testing.assert_allclose(out.get(), wanted / wanted.sum(axis=1, keepdims=True), rtol=1e-5)


@triton.jit
def norm_kernel(x, weight, bias, out, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(values, axis=0) / columns
    apart = tl.where(inside, values - mean, 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, axis=0) / columns + 1e-5)
    result = apart * scale * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, result, mask=inside)


def test_layer_norm():
    a, weight, bias, out = numbers(33, 500), numbers(500), numbers(500), empty(33, 500)
    norm_kernel[(33,)](OnDevice(a), OnDevice(weight), OnDevice(bias), out, 500, block=512)
    wanted = (a - a.mean(1, keepdims=True)) / numpy.sqrt(a.var(1, keepdims=True) + 1e-5) * weight + bias
    numpy.testing.assert_allclose(out.get(), wanted, rtol=1e-4, atol=1e-4)


@triton.jit
def matmul_kernel(a, b, c, m, n, k, tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr,
                  precision: tl.constexpr):
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    inner = tl.arange(0, tile_k)
    total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    for first in range(0, k, tile_k):
        left = tl.load(a + rows[:, None] * k + first + inner[None, :],
                       mask=(rows[:, None] < m) & (first + inner[None, :] < k), other=0.0)
        right = tl.load(b + (first + inner[:, None]) * n + columns[None, :],
                        mask=(first + inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total, input_precision=precision)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


# Blocks of 64 rows and 4 warps are what Hopper's matrix units of a warp group take; smaller ones are a warp's own.
@pytest.mark.parametrize("block", [(16, 16, 16), (32, 32, 32), (64, 64, 32), (128, 64, 64)])
@pytest.mark.parametrize(("dtype", "precision"), [("float16", "ieee"), ("float32", "ieee"), ("float32", "tf32")])
def test_matrix_product(block, dtype, precision):
    m, n, k = 150, 136, 168
    a, b, c = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype), empty(m, n)
    grid = (triton.cdiv(m, block[0]), triton.cdiv(n, block[1]))
    matmul_kernel[grid](OnDevice(a), OnDevice(b), c, m, n, k, *block, precision)
    tolerance = 0.1 if precision == "tf32" else 1e-3
    numpy.testing.assert_allclose(c.get(), a.astype("float64") @ b.astype("float64"), rtol=tolerance, atol=tolerance)


@triton.jit
def attention_kernel(q, k, v, out, length, scale, tile_rows: tl.constexpr, tile_columns: tl.constexpr,
                     width: tl.constexpr):
    head = tl.program_id(1) * length * width
    rows, depth = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows), tl.arange(0, width)
    queries = tl.load(q + head + rows[:, None] * width + depth[None, :])
    most = tl.full((tile_rows,), -float("inf"), dtype=tl.float32)
    weight = tl.zeros((tile_rows,), dtype=tl.float32)
    total = tl.zeros((tile_rows, width), dtype=tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * tile_rows, tile_columns):
        columns = first + tl.arange(0, tile_columns)
        keys = tl.load(k + head + columns[None, :] * width + depth[:, None])
        scores = tl.where(rows[:, None] >= columns[None, :], tl.dot(queries, keys) * scale, -float("inf"))
        higher = tl.maximum(most, tl.max(scores, axis=1))
        shares = tl.exp(scores - higher[:, None])
        weight = weight * tl.exp(most - higher) + tl.sum(shares, axis=1)
        values = tl.load(v + head + columns[:, None] * width + depth[None, :])
        total = total * tl.exp(most - higher)[:, None] + tl.dot(shares.to(tl.float16), values)
        most = higher
    tl.store(out + head + rows[:, None] * width + depth[None, :], total / weight[:, None])


@pytest.mark.parametrize("rows", [32, 64])
def test_causal_attention(rows):
    heads, length, depth = 2, 128, 64
    q, k, v = (numbers(heads, length, depth, dtype="float16") for _ in range(3))
    out = empty(heads, length, depth)
    attention_kernel[(length // rows, heads)](OnDevice(q), OnDevice(k), OnDevice(v), out, length, depth ** -0.5,
                                              rows, 32, depth)
    scores = numpy.einsum("hqd,hkd->hqk", q.astype("f8"), k.astype("f8")) * depth ** -0.5
    scores = numpy.where(numpy.tri(length, dtype=bool), scores, -numpy.inf)
    shares = numpy.exp(scores - scores.max(-1, keepdims=True))
    wanted = shares / shares.sum(-1, keepdims=True) @ v.astype("f8")
    numpy.testing.assert_allclose(out.get(), wanted, rtol=1e-2, atol=1e-2)


@triton.jit
def dropout_kernel(x, out, n, p, seed, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    keep = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(keep, tl.load(x + at, mask=at < n) / (1 - p), 0.0), mask=at < n)


def test_random_numbers():
    out, again = empty(4096), empty(4096)
    ones = OnDevice(numpy.ones(4096, "float32"))
    dropout_kernel[(4,)](ones, out, 4096, 0.25, 123, block=1024)
    dropout_kernel[(4,)](ones, again, 4096, 0.25, 123, block=1024)
    assert abs(out.get().mean() - 1) < 0.05
    numpy.testing.assert_array_equal(out.get(), again.get())


@triton.jit
def sorted_kernel(x, out, prefix, count: tl.constexpr):
    at = tl.arange(0, count)
    values = tl.load(x + at)
    tl.store(out + at, tl.sort(values))
    tl.store(prefix + at, tl.cumsum(values, 0))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_sort_and_scan(dtype):
    a, out, prefix = (100 * numbers(512)).astype(dtype), empty(512, dtype=dtype), empty(512, dtype=dtype)
    sorted_kernel[(1,)](OnDevice(a), out, prefix, count=512)
    numpy.testing.assert_array_equal(out.get(), numpy.sort(a))
    numpy.testing.assert_allclose(prefix.get(), numpy.cumsum(a), rtol=1e-3, atol=1e-2)


@triton.jit
def histogram_kernel(x, out, lock, n, bins: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.atomic_add(out + tl.arange(0, bins), tl.histogram(tl.load(x + at, mask=at < n, other=0), bins))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(lock + 1, tl.load(lock + 1) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_atomics_and_locks():
    a = RANDOM.integers(0, 64, 4096).astype("int32")
    out, lock = empty(64, dtype="int32"), empty(2, dtype="int32")
    histogram_kernel[(8,)](OnDevice(a), out, lock, 4096, bins=64, block=512)
    numpy.testing.assert_array_equal(out.get(), numpy.bincount(a, minlength=64))
    numpy.testing.assert_array_equal(lock.get(), [0, 8])


@triton.jit
def functions_kernel(x, out, count: tl.constexpr):
    at = tl.arange(0, count)
    value = tl.load(x + at)
    tl.store(out + at, tl.sin(value))
    tl.store(out + count + at, tl.log2(value))
    tl.store(out + 2 * count + at, tl.math.erf(value))
    tl.store(out + 3 * count + at, tl.sqrt_rn(value))
    tl.store(out + 4 * count + at, tl.math.fma(value, value, 1.0))


def test_functions():
    a, out = numpy.abs(numbers(256)) + 0.01, empty(5, 256)
    functions_kernel[(1,)](OnDevice(a.astype("float32")), out, count=256)
    got = out.get()
    numpy.testing.assert_allclose(got[0], numpy.sin(a), rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(got[1], numpy.log2(a), rtol=1e-4, atol=1e-5)
    numpy.testing.assert_allclose(got[3], numpy.sqrt(a), rtol=1e-6)
    numpy.testing.assert_allclose(got[4], a * a + 1, rtol=1e-6)


@triton.jit
def transposed_kernel(x, out, count: tl.constexpr, stages: tl.constexpr):
    at = tl.arange(0, count)
    for tile in tl.range(0, 4, num_stages=stages):
        square = tl.load(x + tile * count * count + at[:, None] * count + at[None, :])
        tl.store(out + tile * count * count + at[:, None] * count + at[None, :], tl.trans(square))


@pytest.mark.parametrize("stages", [1, 3])
def test_transposition(stages):
    a, out = numbers(4, 64, 64), empty(4, 64, 64)
    transposed_kernel[(1,)](OnDevice(a), out, count=64, stages=stages)
    numpy.testing.assert_array_equal(out.get(), a.transpose(0, 2, 1))
