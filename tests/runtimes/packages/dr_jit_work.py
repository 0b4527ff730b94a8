"""Dr.Jit as it comes: what its kernels compute is held against NumPy. It writes PTX itself; OptiX is left out."""
import threading

import drjit as dr  # type: ignore
import drjit.cuda as c  # type: ignore
import drjit.cuda.ad as ad  # type: ignore
import numpy
import pytest

RANDOM = numpy.random.default_rng(7)
N = 10007
A = RANDOM.random(N).astype(numpy.float32)
PLACES = RANDOM.integers(0, 16, N).astype(numpy.uint32)


def same(on_device, on_host, rtol=1e-4):
    numpy.testing.assert_allclose(on_device.numpy(), on_host, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("name", "sin cos tan sinh cosh tanh exp exp2 log log2 sqrt cbrt".split())
def test_maths(name):
    same(getattr(dr, name)(c.Float(A + 0.01)), getattr(numpy, name)(A + numpy.float32(0.01)), 2e-4)


@pytest.mark.parametrize("kind", ["Float", "Float64", "Int", "UInt", "Int64", "UInt64"])
@pytest.mark.parametrize("name", ["Add", "Max", "Min"])
def test_reductions(kind, name):
    a = RANDOM.integers(1, 100, N)
    wanted = {"Add": a.sum(), "Max": a.max(), "Min": a.min()}[name]
    values = getattr(c, kind)(a.astype(numpy.float32) if "Float" in kind else a)
    same(dr.reduce(getattr(dr.ReduceOp, name), values), [wanted])


@pytest.mark.parametrize("block", [2, 32, 1024, 8192])
def test_reductions_of_blocks(block):
    a = RANDOM.random(1 << 14).astype(numpy.float32)
    same(dr.block_reduce(dr.ReduceOp.Add, c.Float(a), block), a.reshape(-1, block).sum(1))
    sums = dr.block_prefix_reduce(dr.ReduceOp.Add, c.Float(a), block, exclusive=False)
    same(sums, a.reshape(-1, block).cumsum(1).ravel(), 1e-3)


def test_a_long_sum_of_prefixes():
    a = RANDOM.integers(0, 5, 1000001).astype(numpy.uint32)
    same(dr.prefix_sum(c.UInt(a)), numpy.r_[0, a.cumsum()[:-1]])


@pytest.mark.parametrize("n", [1, 33, 4096, 100001])
def test_compress(n):
    mask = RANDOM.random(n) > 0.3
    same(dr.compress(c.Bool(mask)), numpy.nonzero(mask)[0])


@pytest.mark.parametrize("kind", ["Float", "Float64", "Int", "UInt64"])
@pytest.mark.parametrize("mode", ["Auto", "Direct", "Local"])
def test_sums_in_places(kind, mode):
    a = RANDOM.integers(0, 100, N)
    values = getattr(c, kind)(a.astype(numpy.float32) if "Float" in kind else a)
    sums = dr.zeros(getattr(c, kind), 16)
    dr.scatter_reduce(dr.ReduceOp.Add, sums, values, c.UInt(PLACES), mode=getattr(dr.ReduceMode, mode))
    same(sums, numpy.bincount(PLACES, a, 16))


def test_packets():
    a, order = RANDOM.random(4 * N).astype(numpy.float32), RANDOM.permutation(N).astype(numpy.uint32)
    rows, back = dr.gather(c.Array4f, c.Float(a), c.UInt(order)), dr.zeros(c.Float, 4 * N)
    same(rows, a.reshape(-1, 4)[order].T)
    dr.scatter(back, rows, c.UInt(order))
    same(back, a)


def test_places_by_counting():
    count, numbers = c.UInt(0), dr.arange(c.UInt, N)
    chosen = numbers % 3 == 0
    place, out = dr.scatter_inc(count, dr.zeros(c.UInt, N), chosen), dr.zeros(c.UInt, N)
    dr.scatter(out, numbers, place, chosen)
    dr.eval(out, count)
    assert count.numpy()[0] == (N + 2) // 3
    numpy.testing.assert_array_equal(numpy.sort(out.numpy()[:(N + 2) // 3]), numpy.arange(0, N, 3))


def test_local_memory():
    @dr.syntax
    def weighted(n):
        kept = dr.alloc_local(c.Float, 20, value=dr.zeros(c.Float))
        i = c.UInt(0)
        while i < 20:
            kept[i] = c.Float(i) * n
            i += 1
        total, i = c.Float(0), c.UInt(0)
        while i < 20:
            total += kept[19 - i] * c.Float(i)
            i += 1
        return total

    n = numpy.arange(100, dtype=numpy.float32)
    same(weighted(c.Float(n)), n * sum((19 - i) * i for i in range(20)))


def test_loops_that_write():
    @dr.syntax
    def count_up(counts, most):
        k = c.UInt(0)
        while k < most:
            dr.scatter_reduce(dr.ReduceOp.Add, counts, c.UInt(1), k)
            k += 1

    counts = dr.zeros(c.UInt, 100)
    count_up(counts, dr.arange(c.UInt, 100))
    same(counts, 99 - numpy.arange(100))


def test_functions_by_number_within_others():
    inner = [lambda a: a + 1, lambda a: a * 2]
    outer = [lambda a, i: dr.switch(i % 2, inner, a) + 10, lambda a, i: a - 5,
             lambda a, i: dr.switch((i + 1) % 2, inner, a) * 3]
    i = dr.arange(c.UInt, 1000)
    n = numpy.arange(1000)
    first = numpy.where(n % 2 == 0, n + 1, n * 2)
    second = numpy.where(n % 2 == 1, n + 1, n * 2)
    wanted = numpy.select([n % 3 == 0, n % 3 == 1], [first + 10, n - 5], second * 3)
    same(dr.switch(i % 3, outer, c.Float(i), i), wanted)


def test_derivatives():
    x = dr.linspace(ad.Float, 0, 1, 100)
    dr.enable_grad(x)
    functions = [dr.sin, lambda v: v * v, dr.exp]
    dr.backward(dr.sum(dr.switch(dr.arange(ad.UInt, 100) % 3, functions, x)))
    n, k = x.numpy(), numpy.arange(100) % 3
    same(dr.grad(x), numpy.select([k == 0, k == 1], [numpy.cos(n), 2 * n], numpy.exp(n)))


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_textures_are_like_computed_ones(dimensions, channels):
    shape = (*(7, 5, 6)[:dimensions], channels)
    data = RANDOM.random(shape).astype(numpy.float32)
    at = getattr(c, f"Array{dimensions}f")(*[c.Float(numpy.linspace(0.05, 1.7, 33).astype(numpy.float32))] * dimensions)
    kind = getattr(c, f"Texture{dimensions}f")
    by_hardware, computed = (kind(c.TensorXf(data), use_accel=accel, wrap_mode=dr.WrapMode.Repeat).eval(at)
                             for accel in (True, False))
    for left, right in zip(by_hardware, computed):
        numpy.testing.assert_allclose(left.numpy(), right.numpy(), atol=6e-3)


def test_half_precision():
    x = RANDOM.random(N).astype(numpy.float16)
    same(dr.fma(c.Float16(x), c.Float16(x), c.Float16(1)), x * x + 1, 2e-3)
    same(dr.maximum(c.Float16(x), c.Float16(0.5)), numpy.maximum(x, numpy.float16(0.5)))


def test_frozen_functions():
    @dr.freeze
    def sums(x, n):
        return dr.cumsum(dr.gather(c.Float, x, dr.arange(c.UInt, dr.width(x)))) * n

    for k in range(4):
        a = RANDOM.random(1000).astype(numpy.float32)
        same(sums(c.Float(a), c.Float(k)), a.cumsum() * k, 1e-3)


def test_products_of_matrices():
    a, b = RANDOM.random((33, 50)).astype(numpy.float32), RANDOM.random((50, 21)).astype(numpy.float32)
    same(c.TensorXf(a) @ c.TensorXf(b), a @ b)


def test_events_and_threads():
    event = c.Event()
    event.record()
    event.wait()
    assert event.query()
    found = []
    workers = [threading.Thread(target=lambda n=n: found.append((n, dr.sum(dr.arange(c.Float, n)).numpy()[0])))
               for n in (1000, 2000, 3000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found) == [(n, n * (n - 1) / 2) for n in (1000, 2000, 3000)]
