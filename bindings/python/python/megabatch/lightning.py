"""A data module of Lightning, which is imported here alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.utils.data

from .dataset import Dataset

try:
    from lightning.pytorch import LightningDataModule
except ImportError:
    from pytorch_lightning import LightningDataModule

__all__ = ["DataModule"]


class DataModule(LightningDataModule):
    """The parts of a dataset, split as training does, as batches of tensors. Batches of training are shuffled, and
    the place among them is kept in Lightning's checkpoints."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 256,
        *,
        fractions: Sequence[float] = (0.7, 0.15, 0.15),
        purge: str = "auto",
        seed: int = 0,
        run_length: int | None = None,
    ) -> None:
        super().__init__()
        self.train_part, self.validation_part, self.test_part = dataset.split(fractions, purge=purge)
        self.batch_size = batch_size
        self.train_batches = self.train_part.torch(batch_size, shuffle=True, seed=seed, run_length=run_length)

    def _data_loader(self, batches: Any) -> torch.utils.data.DataLoader[Any]:
        return torch.utils.data.DataLoader(batches, batch_size=None, num_workers=0)

    def train_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of training."""
        return self._data_loader(self.train_batches)

    def val_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of validation, in the order of time."""
        return self._data_loader(self.validation_part.torch(self.batch_size))

    def test_dataloader(self) -> torch.utils.data.DataLoader[Any]:
        """Batches of the test, in the order of time."""
        return self._data_loader(self.test_part.torch(self.batch_size))

    predict_dataloader = test_dataloader

    def state_dict(self) -> dict[str, Any]:
        """The place among the batches of training."""
        batches: Any = self.train_batches
        state: dict[str, Any] = batches.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on at that place."""
        batches: Any = self.train_batches
        batches.load_state_dict(state_dict)
