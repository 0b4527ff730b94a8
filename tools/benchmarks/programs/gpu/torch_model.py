"""PyTorch on whichever libcuda.so.1 the loader finds: a matrix product, training steps and greedy decoding.

Prints JSON lines: medians, and digests of the results, which two drivers of the same GPU must share to the last bit.
"""
import argparse
import ctypes
import hashlib
import json
import os
import statistics
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before CUDA starts: the same sums every time

import torch
from torch import nn
from torch.nn import functional


def value(name: str, number: float, unit: str) -> None:
    print(json.dumps({"name": f"torch: {name}", "value": number, "unit": unit}), flush=True)


def digest(name: str, results: list, shown: list) -> None:
    """`results` are compared exactly; `shown` is for a reader who wants to know how far apart they are."""
    text = hashlib.sha256(repr(results).encode()).hexdigest()[:16]
    print(json.dumps({"name": name, "digest": text, "shown": shown}), flush=True)


def bits(tensor: torch.Tensor) -> str:
    here = tensor.detach().cpu().contiguous()
    return hashlib.sha256(ctypes.string_at(here.data_ptr(), here.nbytes)).hexdigest()


class Block(nn.Module):
    """One layer of a transformer decoder; `cache` holds the keys and values of the tokens before."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache=None, at: int = 0):
        batch, length, width = x.shape
        parts = self.query_key_value(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, mine = parts.permute(2, 0, 3, 1, 4)
        if cache is not None:
            cache[0][:, :, at:at + length], cache[1][:, :, at:at + length] = key, mine
            key, mine = cache[0][:, :, :at + length], cache[1][:, :, :at + length]
        # Written out, because not every fused attention repeats its own gradients.
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        if length > 1:
            hidden = torch.ones(length, key.shape[2], dtype=torch.bool, device=x.device).triu(1 + at)
            scores = scores.masked_fill(hidden, float("-inf"))
        seen = scores.softmax(-1) @ mine
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A small language model."""

    def __init__(self, words: int, width: int, heads: int, layers: int, longest: int):
        super().__init__()
        self.words, self.longest = nn.Embedding(words, width), longest
        self.places = nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens, caches=None, at: int = 0):
        places = torch.arange(at, at + tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for number, layer in enumerate(self.layers):
            x = layer(x, caches[number] if caches else None, at)
        return self.head(self.norm(x))


class Run:
    """Sizes, and the device to run on."""

    def __init__(self, options):
        self.device = torch.device(options.device)
        small = options.small
        self.quick = options.quick
        self.side = 256 if small else 8192
        self.words, self.width, self.heads, self.layers = (256, 64, 4, 2) if small else (8192, 1024, 16, 8)
        self.batch, self.length = (2, 32) if small else (8, 512)
        self.kind = torch.float32 if small else torch.bfloat16

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def times_ms(self, count: int, work, warm: int = 3) -> list[float]:
        """Milliseconds of each of `count` runs after a few to warm up."""
        times = []
        for number in range(warm + count):
            self.wait()
            begin = time.perf_counter()
            work()
            self.wait()
            if number >= warm:
                times.append((time.perf_counter() - begin) * 1e3)
        return times

    def model(self) -> Model:
        torch.manual_seed(1)
        return Model(self.words, self.width, self.heads, self.layers, self.length).to(self.device)


def matrix_product(run: Run) -> None:
    torch.manual_seed(2)
    a = torch.randn(run.side, run.side, device=run.device).to(torch.bfloat16)
    b = torch.randn(run.side, run.side, device=run.device).to(torch.bfloat16)
    ms = statistics.median(run.times_ms(30 if run.quick else 100, lambda: a @ b))
    value("bf16 matrix product", ms, "ms")
    value("bf16 matrix product, rate", 2 * run.side**3 / ms / 1e9, "TFLOP/s")
    digest("matrix product", [bits(a @ b)], [])


def training(run: Run) -> None:
    model = run.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    torch.manual_seed(3)
    tokens = torch.randint(run.words, (4, run.batch, run.length + 1), device=run.device)
    losses: list[float] = []

    def one_step() -> None:
        batch = tokens[len(losses) % len(tokens)]
        with torch.autocast(run.device.type, run.kind, enabled=run.kind != torch.float32):
            logits = model(batch[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    times = run.times_ms(20 if run.quick else 60, one_step)
    value("training step", statistics.median(times), "ms")
    digest("training losses", losses + [bits(parameter) for parameter in model.parameters()],
           [round(loss, 6) for loss in losses[::5]])


@torch.inference_mode()
def inference(run: Run) -> None:
    model = run.model().to(run.kind).eval()
    torch.manual_seed(4)
    prompt = torch.randint(run.words, (1, 16), device=run.device)
    count = 16 if run.length < 64 else 128
    shape = (1, run.heads, run.length, run.width // run.heads)
    answers = []

    def answer() -> None:
        caches = [[torch.zeros(shape, device=run.device, dtype=run.kind) for _ in range(2)] for _ in range(run.layers)]
        token, at, said = prompt, 0, []
        for _ in range(count):
            logits = model(token, caches, at)
            at += token.shape[1]
            token = logits[:, -1:].argmax(-1)
            said.append(token.item())  # as a server does, to know when to stop
        answers.append(said)

    times = run.times_ms(3 if run.quick else 10, answer, warm=1)
    value("inference, a token", statistics.median(times) / count, "ms")
    digest("decoded tokens", answers, answers[0][:12])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script out")
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    begin = time.perf_counter()
    run = Run(parser.parse_args())
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.zeros(1, device=run.device)
    run.wait()
    value("first tensor on the device", (time.perf_counter() - begin) * 1e3, "ms")
    for part in (matrix_product, training, inference):
        part(run)


if __name__ == "__main__":
    main()
