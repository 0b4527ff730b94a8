"""Tenants of tools/bench progress that are PyTorch programs: KIND name=value...

training: a bf16 training step of a transformer, with its optimiser; inference: one forward pass of many small kernels;
decoding: a token, read by the host, as greedy decoding with cached keys does; convolution: cuDNN convolutions in a
chain. One synchronise a step. torch_variety.py has more. steps.h, beside this file, says what is read and written.
"""
import select
import sys
import time

import torch
from torch import nn
from torch.nn import functional
from torch_variety import VARIETY

WORDS = 8192
LONGEST = 1024
DECODED = 128  # tokens, then it begins anew


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
        seen = functional.scaled_dot_product_attention(query, key, mine, is_causal=length > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    """A small language model."""

    def __init__(self, width: int, heads: int, layers: int):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(LONGEST, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens, caches=None, at: int = 0):
        places = torch.arange(at, at + tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.places(places)
        for number, layer in enumerate(self.layers):
            x = layer(x, caches[number] if caches else None, at)
        return self.head(self.norm(x))


class Sizes:
    """What the command line says, with defaults by kind; and the device (device=cpu tries a kind without a GPU)."""

    def __init__(self, words: list[str], **otherwise: int):
        said = dict(word.split("=", 1) for word in words)
        self.device = torch.device(said.pop("device", "cuda"))
        self.number = {**otherwise, **{name: int(value) for name, value in said.items()}}

    def __getitem__(self, name: str) -> int:
        return self.number[name]

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def model(self) -> Model:
        torch.manual_seed(1)
        return Model(self["width"], self["heads"], self["layers"]).to(self.device)

    def tokens(self, length: int) -> torch.Tensor:
        return torch.randint(WORDS, (self["batch"], length), device=self.device)


def training(words: list[str]):
    sizes = Sizes(words, layers=12, width=2048, heads=16, batch=8, length=1024)
    model = sizes.model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=sizes.device.type == "cuda")
    tokens = sizes.tokens(sizes["length"] + 1)

    def step() -> None:
        with torch.autocast(sizes.device.type, torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        sizes.wait()

    return step


def inference(words: list[str]):
    sizes = Sizes(words, layers=6, width=1024, heads=16, batch=4, length=128)
    model, tokens = sizes.model().to(torch.bfloat16).eval(), sizes.tokens(sizes["length"])

    @torch.inference_mode()
    def step() -> None:
        model(tokens)
        sizes.wait()

    return step


def decoding(words: list[str]):
    sizes = Sizes(words, layers=8, width=1024, heads=16, batch=1, length=DECODED)
    model = sizes.model().to(torch.bfloat16).eval()
    shape = (sizes["batch"], sizes["heads"], sizes["length"], sizes["width"] // sizes["heads"])
    caches = [[torch.zeros(shape, device=sizes.device, dtype=torch.bfloat16) for _ in range(2)]
              for _ in range(sizes["layers"])]
    state = {"token": sizes.tokens(1), "at": 0}

    @torch.inference_mode()
    def step() -> None:
        logits = model(state["token"], caches, state["at"])
        state["token"] = logits[:, -1:].argmax(-1)
        state["token"].sum().item()  # as a server does, to know when to stop
        state["at"] = (state["at"] + 1) % sizes["length"]

    return step


def convolution(words: list[str]):
    sizes = Sizes(words, batch=64, channels=256, side=56, count=16)
    torch.backends.cudnn.benchmark = True
    layers = nn.Sequential(*[nn.Conv2d(sizes["channels"], sizes["channels"], 3, padding=1)
                             for _ in range(sizes["count"])]).to(sizes.device, torch.bfloat16)
    layers = layers.to(memory_format=torch.channels_last)
    image = torch.randn(sizes["batch"], sizes["channels"], sizes["side"], sizes["side"], device=sizes.device)
    image = image.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)

    @torch.inference_mode()
    def step() -> None:
        layers(image)
        sizes.wait()

    return step


KINDS = {"training": training, "inference": inference, "decoding": decoding, "convolution": convolution,
         **VARIETY}
# Of decoding, all lengths once: the library compiles a kernel for each.
WARM_STEPS = {"training": 3, "convolution": 3, "decoding": DECODED}


def steps_until_told(step) -> list[tuple[int, int]]:
    taken, clock = [], time.CLOCK_MONOTONIC
    while not select.select([sys.stdin], [], [], 0)[0]:
        begin = time.clock_gettime_ns(clock)
        step()
        taken.append((begin, time.clock_gettime_ns(clock)))
    return taken


def main() -> None:
    kind, words = sys.argv[1], sys.argv[2:]
    step = KINDS[kind](words)
    for _ in range(WARM_STEPS.get(kind, 20)):
        step()
    print("ready", flush=True)
    # Lines one at a time: what a buffer here has is not seen by select().
    orders = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    while line := orders.readline():
        order = line.decode().split()
        if order[:1] == ["go"]:
            taken = steps_until_told(step)
            with open(order[1], "w", encoding="ascii") as file:
                file.writelines(f"{begin} {end}\n" for begin, end in taken)
            print("done", len(taken), flush=True)


if __name__ == "__main__":
    main()
