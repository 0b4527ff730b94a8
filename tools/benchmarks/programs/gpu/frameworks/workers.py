"""A DataLoader whose workers are forked, then spawned, with pinned memory, beside training."""
import report
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self) -> int:
        return 512

    def __getitem__(self, at: int) -> torch.Tensor:
        return torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(at))


def train(how: str) -> list[float]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(8), nn.Flatten(),
                          nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Numbers(), batch_size=32, num_workers=4, pin_memory=True, multiprocessing_context=how)
    losses: list[float] = []
    for batch in loader:
        loss = model(batch.cuda(non_blocking=True)).square().mean()
        losses.append(report.learn(optimizer, loss))
    return losses


if __name__ == "__main__":
    torch.backends.cudnn.deterministic = True
    for start in ("fork", "spawn"):
        report.timed(f"workers: an epoch, {start}", lambda: report.result(f"workers: {start}", train(start)), steps=2,
                     warm_up=1)
