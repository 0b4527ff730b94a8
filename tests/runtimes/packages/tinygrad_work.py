"""tinygrad as it comes: kernels that it writes as C, for NVRTC, or as PTX itself; held against NumPy."""
import itertools

import numpy
import pytest
from tinygrad import Context, Device, Tensor, TinyJit, dtypes, nn  # type: ignore
from tinygrad.nn.optim import SGD  # type: ignore
from tinygrad.nn.state import get_parameters  # type: ignore

RANDOM = numpy.random.default_rng(3)
TYPES = [dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.float16, dtypes.bfloat16, dtypes.float32,
         dtypes.float64]


def random(*shape):
    return RANDOM.standard_normal(shape, dtype=numpy.float32)


@pytest.fixture(autouse=True, params=["CUDA", "CUDA:PTX"], ids=["nvrtc", "ptx"])
def _renderer(request):
    with Context(DEV=request.param):
        yield


def same(got, wanted, tolerance=1e-3):
    numpy.testing.assert_allclose(got.numpy(), wanted, rtol=tolerance, atol=tolerance)


def test_it_is_the_virtual_gpu():
    assert Device.DEFAULT == "CUDA"


def test_elementwise_and_reductions():
    a = random(256, 384)
    same(Tensor(a) + 1, a + 1)
    same(Tensor(a).sum(axis=1), a.sum(axis=1))
    exponents = numpy.exp(a - a.max(-1, keepdims=True))
    same(Tensor(a).softmax(), exponents / exponents.sum(-1, keepdims=True))


@pytest.mark.parametrize("kind", [numpy.float32, numpy.float16])
def test_products(kind):
    a, b = random(192, 96).astype(kind), random(96, 128).astype(kind)
    same((Tensor(a) @ Tensor(b)).float(), a.astype(numpy.float32) @ b.astype(numpy.float32),
         1e-3 if kind == numpy.float32 else 5e-2)


def test_sorts_and_prefix_sums():
    a = random(64, 200)
    same(Tensor(a).sort(dim=1)[0], numpy.sort(a, axis=1))
    same(Tensor(a).cumsum(axis=1), numpy.cumsum(a, axis=1))


def test_convolutions():
    x, w = random(2, 8, 32, 32), random(16, 8, 3, 3)
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = sum(numpy.einsum("nchw,oc->nohw", padded[:, :, i:i + 32, j:j + 32], w[:, :, i, j])
                 for i, j in itertools.product(range(3), range(3)))
    same(Tensor(x).conv2d(Tensor(w), padding=1), wanted)


def test_calls_that_become_a_graph():
    @TinyJit
    def step(x):
        return ((x * 2).relu() + 1).realize()

    for _ in range(5):
        values = random(64, 64)
        same(step(Tensor(values).realize()), numpy.maximum(values * 2, 0) + 1)


def test_training_makes_the_loss_smaller():
    first, last = nn.Linear(64, 128), nn.Linear(128, 10)
    optimizer = SGD([*get_parameters(first), *get_parameters(last)], lr=0.1)
    x, y = Tensor(random(256, 64)), Tensor(RANDOM.integers(0, 10, 256).astype(numpy.int32))
    losses = []
    with Context(TRAINING=1):
        for _ in range(10):
            optimizer.zero_grad()
            loss = last(first(x).relu()).sparse_categorical_crossentropy(y).backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_types(kind):
    values = numpy.arange(-20, 20).astype(numpy.int32)
    same((Tensor(values).cast(kind) * 3 + 1).cast(dtypes.float32), values * 3 + 1)
