"""A stand-in for PyTorch and Lightning with what `megabatch._torch` and `megabatch.lightning` use of them. Tensors are numpy's arrays, which take memory over
by DLPack as tensors do."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np


class IterableDataset:
    """Base of datasets."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls


class DataLoader:
    """Batches of a dataset, which makes them itself."""

    def __init__(self, dataset: Any, *, batch_size: None, num_workers: int) -> None:
        self.dataset, self.options = dataset, (batch_size, num_workers)

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def __iter__(self) -> Any:
        return iter(self.dataset)


class LightningDataModule:
    """Base of data modules."""


class Worker:
    """A worker of a DataLoader; `current` is what `get_worker_info` finds."""

    current: object = None


def install() -> None:
    """Puts the stand-in where `import torch` finds it."""
    torch, utils, data = (types.ModuleType(name) for name in ("torch", "torch.utils", "torch.utils.data"))
    torch.Tensor = np.ndarray  # type: ignore[attr-defined]
    torch.from_dlpack = np.from_dlpack  # type: ignore[attr-defined]
    torch.from_numpy = lambda array: array  # type: ignore[attr-defined]
    torch.utils, utils.data = utils, data  # type: ignore[attr-defined]
    data.IterableDataset = IterableDataset  # type: ignore[attr-defined]
    data.DataLoader = DataLoader  # type: ignore[attr-defined]
    data.get_worker_info = lambda: Worker.current  # type: ignore[attr-defined]
    sys.modules.update({"torch": torch, "torch.utils": utils, "torch.utils.data": data})
    lightning, pytorch = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
    pytorch.LightningDataModule = LightningDataModule  # type: ignore[attr-defined]
    sys.modules.update({"lightning": lightning, "lightning.pytorch": pytorch})
