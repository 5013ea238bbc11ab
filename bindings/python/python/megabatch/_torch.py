"""Batches as tensors of PyTorch, which is imported here alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.data

from . import _megabatch
from .errors import ForkError
from .loader import Loader


class TensorBatches(torch.utils.data.IterableDataset[dict[str, torch.Tensor]]):
    """Batches of a loader as dicts of tensors. Each tensor has memory of its own, without a copy."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if torch.utils.data.get_worker_info() is not None:
            raise ForkError(
                "megabatch gathers batches on all cores itself, and each worker would give all of them: give PyTorch's "
                "DataLoader num_workers=0"
            )
        for samples, tables in self.loader._batches(_megabatch.Epoch.next_tables):
            batch = {key: torch.from_dlpack(table) for key, table in zip(self.loader._keys, tables)}
            batch["sample"] = torch.from_numpy(np.frombuffer(samples, dtype=np.int64).copy())
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Begins at the first batch of `epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)


def batches(loader: Loader) -> TensorBatches:
    """The batches of `loader` as tensors."""
    return TensorBatches(loader)
