"""tools/bench gpu --only frameworks: programs on frameworks that are installed here, each against the driver itself."""
from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from benchmarks.torch_python import has_module, torch_python
from lab.shell import say

if TYPE_CHECKING:
    from benchmarks.gpu import Bench, Samples

FOLDER = pathlib.Path(__file__).parent / "programs/gpu/frameworks"
TIMEOUT_S = 180
# What each program imports.
PROGRAMS = {
    "compiled": "torch",
    "workers": "torch",
    "transformers_gpt2": "transformers",
    "lightning_fit": "pytorch_lightning",
    "geometric_gcn": "torch_geometric",
    "gpytorch_fit": "gpytorch",
    "jax_train": "jax",
    "numpyro_nuts": "numpyro",
    "cupy_mix": "cupy",
}


def _compare_results(bench: Bench, native: Samples, bandsaw: Samples) -> None:
    for name, (wanted, within) in native.numbers.items():
        got = bandsaw.numbers.get(name, ([], 0))[0]
        if len(got) != len(wanted):
            bench.failures.append(f"{name}: bare metal has {len(wanted)} results, Bandsaw {len(got)}")
            continue
        size = max(map(abs, wanted))
        far = max(abs(one - other) / (abs(one) or size or 1) for one, other in zip(wanted, got))
        if far > within:
            bench.failures.append(f"{name}: Bandsaw's results are {far:.2g} off bare metal's, wanted {within:g}")
        else:
            say(f"  {name}: the same results, but for {far:.2g}")


def frameworks(bench: Bench, _binaries: dict[str, pathlib.Path]) -> None:
    python = torch_python()
    if python is None:
        bench.failures.append("frameworks: no python with torch is here (set BANDSAW_TORCH_PYTHON)")
        return
    for name, module in PROGRAMS.items():
        if not has_module(python, module):
            say(f"  {name:12} is left out: {module} is not installed")
            continue
        samples = bench.compare(name, [python, FOLDER / f"{name}.py"], 1, timeout=TIMEOUT_S)
        bench.all_rows(name, samples)
        sides = list(samples.values())
        if len(sides) == 2:
            _compare_results(bench, *sides)
