"""torch.compile: Triton kernels by Inductor, with CUDA graphs, forward and backward."""
import report
import torch
from torch import nn

torch.manual_seed(1)
layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024))]
model = nn.Sequential(*layers).cuda()
batch = torch.randn(256, 1024, generator=torch.Generator().manual_seed(2)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
compiled = torch.compile(model, mode="reduce-overhead")
losses: list[float] = []


def step() -> None:
    loss = (compiled(batch) - batch).square().mean()
    losses.append(report.learn(optimizer, loss))


report.timed("torch.compile: training step", step)
report.result("torch.compile: losses", losses)
