"""PyTorch Geometric: a graph convolution network on a random graph."""
import report
import torch
from torch_geometric.nn import GATConv, GCNConv

torch.manual_seed(1)
nodes, edges = 20000, 200000
links = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(2)).cuda()
features = torch.randn(nodes, 64, generator=torch.Generator().manual_seed(3)).cuda()
first, second = GCNConv(64, 64).cuda(), GATConv(64, 16, heads=4).cuda()
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
losses: list[float] = []


def step() -> None:
    loss = second(first(features, links).relu(), links).square().mean()
    losses.append(report.learn(optimizer, loss))


report.timed("geometric: training step", step)
report.result("geometric: losses", losses, within=0.02)
