"""Batches as tensors of PyTorch, which is imported here."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.utils.data

from ._devices import DeviceName, checked_device, require_dtype
from ._tensors import SeriesTensors, required_bytes, series_tensors
from .errors import CapacityError, ConfigError, ForkError
from .loader import GatheredSamples, Loader


_LOG = logging.getLogger("megabatch")


def collate(samples: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """The batch of `DataLoader(ds, batch_size=…, collate_fn=mb.collate)` as tensors, each made of a whole array. Samples
    of another dataset are joined one by one, as PyTorch does."""
    if isinstance(samples, GatheredSamples):
        return {key: torch.tensor(array) for key, array in samples.batch.items()}
    joined: dict[str, torch.Tensor] = torch.utils.data.default_collate(samples)
    return joined


class TensorBatches(torch.utils.data.IterableDataset[dict[str, torch.Tensor]]):
    """Batches of a loader as dicts of tensors. Each tensor has memory of its own, without a copy.

    On another device they are gathered there from the bars of a series, which lie on it once. Windows of a file, and
    bars that do not fit, are gathered on the CPU and copied."""

    def __init__(
        self,
        loader: Loader,
        device: DeviceName | None = None,
        dtype: torch.dtype | None = None,
        overlap: bool = False,
    ) -> None:
        super().__init__()
        self.loader, self._dtype, self._overlap = loader, dtype, overlap
        self._series: SeriesTensors | None = None
        self._series_bytes = 0
        self._device: torch.device | None = None
        if device is None:
            return
        dataset = loader.dataset
        self._device = checked_device(device, dataset.path)
        require_dtype(dtype, dataset.path)
        if dataset.layout == "series":
            try:
                self._series_bytes = required_bytes(dataset, self._device, dtype)
            except CapacityError as error:
                _LOG.warning("%s", error)

    def plan(self) -> dict[str, Any]:
        """What the device holds, reckoned before anything is read: `series_bytes`, the bars, targets and indices of the
        file that lie there, 0 if batches are gathered on the CPU and copied, and `stays`, true in the first case."""
        return {"series_bytes": self._series_bytes, "stays": self._series_bytes > 0}

    def series(self) -> SeriesTensors | None:
        """The series on the device, which is read once; `None` where batches are copied."""
        if self._series is None and self._series_bytes and self._device is not None:
            try:
                self._series = series_tensors(self.loader.dataset, self._device, self._dtype)
            except CapacityError as error:
                # The memory was free when the plan was made.
                _LOG.warning("%s", error)
                self._series_bytes = 0
        return self._series

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        if torch.utils.data.get_worker_info() is not None:
            raise ForkError(
                "megabatch gathers batches on all cores itself, and each worker would give all of them: give PyTorch's "
                "DataLoader num_workers=0"
            )
        # PyTorch's DataLoader asks for the iterator where it knows whether it joins what comes. The locals of other
        # callers would be kept alive by a look at them.
        caller = sys._getframe(1)
        is_fetcher = caller.f_globals.get("__name__") == "torch.utils.data._utils.fetch"
        if is_fetcher and getattr(caller.f_locals.get("self"), "auto_collation", False):
            raise ConfigError(
                "PyTorch's DataLoader would join batches of megabatch into batches of batches: give it batch_size=None",
                key="batch_size",
            )
        return self._batches()

    def _batches(self) -> Iterator[dict[str, torch.Tensor]]:
        series = self.series()
        if series is None:
            yield from map(self._sent, self._gathered())
            return
        for samples in self.loader._samples():
            numbers = np.frombuffer(samples, np.int64)
            first, end = int(numbers[0]), int(numbers[-1]) + 1
            in_order = self._overlap and end - first == len(numbers) and bool(np.all(np.diff(numbers) == 1))
            yield series.batch(slice(first, end) if in_order else torch.from_numpy(numbers), overlap=in_order)

    def _gathered(self) -> Iterator[dict[str, torch.Tensor]]:
        """The batches in memory of the CPU."""
        for samples, tables in self.loader._tables():
            batch = {key: torch.from_dlpack(table) for key, table in zip(self.loader._keys, tables)}
            batch["sample"] = torch.from_numpy(np.frombuffer(samples, dtype=np.int64).copy())
            yield batch

    def _sent(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The batch on the device, its windows in the type that was asked for."""
        if self._device is None:
            return batch
        is_copied = self._device.type != "cpu"
        sent = {}
        for key, tensor in batch.items():
            dtype = None if key in ("targets", "sample") else self._dtype
            held = tensor.pin_memory() if is_copied else tensor
            sent[key] = held.to(device=self._device, dtype=dtype or tensor.dtype, non_blocking=is_copied)
        return sent

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self.loader.epoch

    def set_epoch(self, epoch: int) -> None:
        """Begins at the first batch of `epoch`."""
        self.loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As `Loader.state_dict`."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As `Loader.load_state_dict`."""
        self.loader.load_state_dict(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorBatches, (self.loader, self._device, self._dtype, self._overlap)

    def __repr__(self) -> str:
        size, device = self.loader._order["batch_size"], "" if self._device is None else f" on {self._device}"
        return f"<megabatch.TensorBatches: {len(self)} batches of {size} samples{device}>"
