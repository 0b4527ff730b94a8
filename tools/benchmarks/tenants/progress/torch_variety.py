"""More tenants of tools/bench progress that are PyTorch programs, as unlike each other as programs are: in how long
their kernels are, how they wait, and what the host does between them. Each gives a function that does a step."""
import itertools
import threading
import time

import torch
from torch import nn
from torch.nn import functional

CUDA = "cuda"


def _wait() -> None:
    torch.cuda.synchronize()


def _trainer(model: nn.Module, batches, loss_of):
    """A step of training; what `loss_of` gives for the next of the batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        loss = loss_of(model, next(batches))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss

    return step


class _Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
                                  nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1, bias=False),
                                  nn.BatchNorm2d(channels))

    def forward(self, x):
        return functional.relu(x + self.body(x))


def resnet(_words):
    """Images come from pinned memory each step."""
    torch.backends.cudnn.benchmark = True
    model = nn.Sequential(nn.Conv2d(3, 128, 7, stride=2, padding=3), *[_Residual(128) for _ in range(8)],
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 1000)).to(CUDA)
    images = torch.randn(32, 3, 112, 112).pin_memory()
    labels = torch.randint(1000, (32,), device=CUDA)

    def batches():
        while True:
            yield images.to(CUDA, non_blocking=True)

    train = _trainer(model, batches(), lambda net, x: functional.cross_entropy(net(x), labels))

    def step() -> None:
        train()
        _wait()

    return step


def perceptron(_words):
    """Small layers, and the loss read by the host."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(CUDA)
    x, y = torch.randn(128, 256, device=CUDA), torch.randint(10, (128,), device=CUDA)
    train = _trainer(model, itertools.repeat(x), lambda net, batch: functional.cross_entropy(net(batch), y))

    def step() -> None:
        train().item()

    return step


def lstm(_words):
    model, x = nn.LSTM(512, 512, 2).to(CUDA), torch.randn(64, 32, 512, device=CUDA)
    train = _trainer(model, itertools.repeat(x), lambda net, batch: net(batch)[0].square().mean())

    def step() -> None:
        train()
        _wait()

    return step


def fourier(_words):
    x = torch.randn(64, 1024, 1024, device=CUDA)

    def step() -> None:
        torch.fft.irfft2(torch.fft.rfft2(x) * 0.5)
        _wait()

    return step


def unique(_words):
    """Each step has a result whose size the host must know."""
    x = torch.randint(1 << 20, (1 << 24,), device=CUDA)

    def step() -> None:
        torch.unique(x)

    return step


def solver(_words):
    a, b = torch.randn(16, 512, 512, device=CUDA), torch.randn(16, 512, 64, device=CUDA)

    def step() -> None:
        torch.linalg.solve(a, b)
        _wait()

    return step


def captured(_words):
    """A graph of small operations, launched again and again."""
    x, w = torch.randn(256, 1024, device=CUDA), torch.randn(1024, 1024, device=CUDA) / 32

    def body(y):
        for _ in range(20):
            y = functional.gelu(y @ w) + y * 0.1
        return y

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            body(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        body(x)

    def step() -> None:
        graph.replay()
        _wait()

    return step


def ahead(_words):
    """Waits for the device every twentieth step alone."""
    model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.GELU())]).to(CUDA)
    x = torch.randn(1024, 2048, device=CUDA)
    train = _trainer(model, itertools.repeat(x), lambda net, batch: net(batch).square().mean())
    count = itertools.count(1)

    def step() -> None:
        train()
        if next(count) % 20 == 0:
            _wait()

    return step


def naps(_words):
    """Products with pauses of 3 ms, as a program that has other things to do."""
    a = torch.randn(4096, 4096, device=CUDA, dtype=torch.bfloat16)

    def step() -> None:
        for _ in range(10):
            torch.mm(a, a)
        _wait()
        time.sleep(0.003)

    return step


def feeding(_words):
    """Copies from pinned memory on a stream of their own, beside products."""
    host, here = torch.randn(1 << 24).pin_memory(), torch.empty(1 << 24, device=CUDA)
    a, stream = torch.randn(4096, 4096, device=CUDA, dtype=torch.bfloat16), torch.cuda.Stream()

    def step() -> None:
        with torch.cuda.stream(stream):
            here.copy_(host, non_blocking=True)
        for _ in range(8):
            torch.mm(a, a)
        _wait()

    return step


def uploads(_words):
    """Copies from pinned memory alone, each waited for: they need no time of the compute engine."""
    host, here = torch.randn(1 << 24).pin_memory(), torch.empty(1 << 24, device=CUDA)

    def step() -> None:
        here.copy_(host, non_blocking=True)
        _wait()

    return step


def products(_words):
    """One long product of single precision."""
    torch.backends.cuda.matmul.allow_tf32 = False
    a = torch.randn(12288, 12288, device=CUDA)

    def step() -> None:
        torch.mm(a, a)
        _wait()

    return step


def embedding(_words):
    """Few short kernels and sparse updates."""
    table = nn.EmbeddingBag(1 << 20, 64, mode="sum", sparse=True).to(CUDA)
    indices = torch.randint(1 << 20, (4096, 16), device=CUDA)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)

    def step() -> None:
        loss = table(indices).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        _wait()

    return step


def threads(_words):
    """Two threads with a stream each."""
    a = [torch.randn(2048, 2048, device=CUDA) for _ in range(2)]

    def work(number: int) -> None:
        with torch.cuda.stream(streams[number]):
            for _ in range(10):
                torch.mm(a[number], a[number])
        streams[number].synchronize()

    streams = [torch.cuda.Stream() for _ in range(2)]

    def step() -> None:
        both = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()

    return step


VARIETY = {each.__name__: each for each in (resnet, perceptron, lstm, fourier, unique, solver, captured, ahead, naps,
                                            feeding, uploads, products, embedding, threads)}
