"""PyTorch Lightning: its Trainer, in mixed precision, with validation."""
import logging
import warnings

import pytorch_lightning as lightning
import report
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
losses: list[float] = []


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))

    def training_step(self, batch, _):
        loss = (self.net(batch[0]) - batch[0]).square().mean()
        losses.append(loss.item())
        return loss

    def validation_step(self, batch, _):
        return self.training_step(batch, 0)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def fit() -> None:
    losses.clear()
    lightning.seed_everything(1, verbose=False)
    data = DataLoader(TensorDataset(torch.randn(4096, 256)), batch_size=128)
    trainer = lightning.Trainer(accelerator="gpu", devices=1, max_epochs=2, precision="bf16-mixed", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), data, data)


report.timed("lightning: two epochs", fit, steps=3, warm_up=1)
report.result("lightning: losses", losses[-8:], within=0.02)
