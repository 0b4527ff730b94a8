"""What the programs of this folder print: JSON lines, a time, and results that are to be the same on every driver of
the same GPU."""
import json
import statistics
import time
from collections.abc import Callable
from typing import Any


def timed(name: str, step: Callable[[], object], steps: int = 20, warm_up: int = 5) -> None:
    """The median of a step, in ms. `step` returns when the GPU has done it."""
    for _ in range(warm_up):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - begin))
    print(json.dumps({"name": name, "value": statistics.median(times), "unit": "ms"}), flush=True)


def result(name: str, numbers: list[float], within: float = 1e-3) -> None:
    """Numbers that another driver is to repeat, but for this part of them: libraries choose among their algorithms by
    measuring them."""
    print(json.dumps({"name": name, "numbers": numbers, "within": within}), flush=True)


def learn(optimizer: Any, loss: Any) -> float:
    """A step of PyTorch's. The GPU has done it when this returns."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()
