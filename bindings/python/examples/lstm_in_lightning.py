"""An `nn.LSTM` of PyTorch in Lightning, fed by megabatch's loader."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import lightning.pytorch as pl
import megabatch as mb
import torch
from torch import nn


class Model(pl.LightningModule):
    def __init__(self, features: int, targets: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, 16, batch_first=True)
        self.head = nn.Linear(16, targets)

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        states, _ = self.lstm(batch["M1"])
        return nn.functional.mse_loss(self.head(states[:, -1]), batch["targets"])

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        return self.loss(batch)

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        self.log("validation", self.loss(batch))

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "series.h5"
        mb.synth.samples(file, samples=2000, timeframes={"M1": 30}, features=4, targets=2)
        ds = mb.open(file)
        data = mb.lightning.DataModule(ds, batch_size=64)
        trainer = pl.Trainer(max_epochs=2, logger=False, enable_checkpointing=False, accelerator="cpu")
        trainer.fit(Model(len(ds.features["M1"]), ds.targets), datamodule=data)
        print(trainer.callback_metrics["validation"])


if __name__ == "__main__":
    main()
