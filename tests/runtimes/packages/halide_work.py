"""Halide as it comes: what its kernels compute is held against NumPy. It compiles to PTX itself."""
import halide as hl  # type: ignore
import numpy
import pytest

RANDOM = numpy.random.default_rng(7)
TARGET = hl.get_host_target().with_feature(hl.TargetFeature.CUDA).with_feature(hl.TargetFeature.CUDACapability80)
Y, X = numpy.mgrid[0:50, 0:100]
x, y, xo, yo, xi, yi = (hl.Var(name) for name in ("x", "y", "xo", "yo", "xi", "yi"))


def same(function, on_host, rtol=1e-4):
    result = function.realize(list(on_host.shape)[::-1], TARGET)
    result.copy_to_host()
    numpy.testing.assert_allclose(numpy.array(result), on_host, rtol=rtol, atol=1e-3)


def tiled(expression):
    function = hl.Func("function")
    function[x, y] = expression
    return function.gpu_tile(x, y, xo, yo, xi, yi, 16, 8)


f = hl.f32


@pytest.mark.parametrize(("expression", "wanted"), [
    (hl.sin(f(x) * f(0.1)) * f(y), numpy.sin(X * 0.1) * Y),
    (hl.exp(f(x) / 50) + hl.pow(f(y) + 1, f(1.5)) + hl.atan2(f(y), f(x) + 1), numpy.exp(X / 50) + (Y + 1.0)**1.5 +
     numpy.arctan2(Y, X + 1)),
    (hl.f64(x) / hl.f64(y + 1) + hl.sqrt(hl.f64(x)), X / (Y + 1.0) + numpy.sqrt(X)),
    (hl.select(x > y, hl.u8(x) * hl.u8(y), hl.absd(hl.u8(x), hl.u8(y))),
     numpy.where(X > Y, (X * Y) % 256, abs(X - Y)).astype(numpy.uint8)),
], ids=["sine", "maths", "doubles", "bytes"])
def test_each_by_itself(expression, wanted):
    same(tiled(expression), wanted)


def test_halves():
    halves = hl.cast(hl.Float(16), f(x) / 3) + hl.cast(hl.Float(16), f(y))
    same(tiled(f(halves)), ((X / 3).astype(numpy.float16) + Y.astype(numpy.float16)).astype(numpy.float32), 2e-3)


def test_products_of_matrices():
    a, b = RANDOM.random((64, 48)).astype(numpy.float32), RANDOM.random((48, 80)).astype(numpy.float32)
    left, right, k, product = hl.Buffer(a), hl.Buffer(b), hl.RDom([(0, 48)]), hl.Func("product")
    product[x, y] = f(0)
    product[x, y] += left[k, y] * right[x, k]
    product.gpu_tile(x, y, xo, yo, xi, yi, 16, 16)
    product.update().gpu_tile(x, y, xo, yo, xi, yi, 16, 16)
    same(product, a @ b)


def test_a_blur_through_shared_memory():
    image = (RANDOM.random((70, 90)) * 65535).astype(numpy.uint16)
    repeated = hl.BoundaryConditions.repeat_edge(hl.Buffer(image))
    across, down = hl.Func("across"), hl.Func("down")
    across[x, y] = hl.u16((hl.u32(repeated[x - 1, y]) + repeated[x, y] + repeated[x + 1, y]) // 3)
    down[x, y] = hl.u16((hl.u32(across[x, y - 1]) + across[x, y] + across[x, y + 1]) // 3)
    down.gpu_tile(x, y, xo, yo, xi, yi, 16, 16)
    across.compute_at(down, xo).gpu_threads(x, y)
    padded = numpy.pad(image, 1, mode="edge").astype(numpy.uint32)
    rows = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) // 3
    same(down, ((rows[:-2] + rows[1:-1] + rows[2:]) // 3).astype(numpy.uint16))


def test_sums_of_columns():
    image = (RANDOM.random((70, 90)) * 65535).astype(numpy.uint16)
    repeated, rows, sums = hl.BoundaryConditions.repeat_edge(hl.Buffer(image)), hl.RDom([(0, 70)]), hl.Func("sums")
    sums[x] = 0
    sums[x] += hl.i32(repeated[x, rows])
    sums.gpu_tile(x, xo, xi, 32)
    sums.update().gpu_tile(x, xo, xi, 32)
    same(sums, image.sum(0).astype(numpy.int32))
