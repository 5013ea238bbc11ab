"""A series as tensors on a device, and batches gathered there. PyTorch is imported here.

Bars lie on the device once, however many windows see them: a window is rows of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt
import torch

from ._arguments import flag, mask_places, wrong
from ._devices import DEVICE_SHARE_MAX, DeviceName, checked_device, free_bytes, require_dtype
from .errors import CapacityError, ConfigError

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["SeriesTensors"]

Places = Union[slice, Sequence[int], "npt.NDArray[np.int64]", "npt.NDArray[np.bool_]", "torch.Tensor"]


class SeriesTensors:
    """The samples of a series on a device. `len()` is their number, S.

    `windows(places)` and `batch(places)` gather there what a loader gathers on the CPU. Places count the samples of this
    part from 0; `places(batch["sample"])` finds those of numbers in the file."""

    bars: dict[str, torch.Tensor]
    """Bars of the whole file by timeframe, `[bars, F]`."""
    first_bars: dict[str, torch.Tensor]
    """Row of `bars` with which each sample's window begins, `[S]`, by timeframe."""
    steps: dict[str, int]
    """Length of a window in bars, T, by timeframe."""
    targets: torch.Tensor
    """Targets, `[S, K]`."""
    weights: torch.Tensor | None
    """Weight of each sample in the loss, `[S]`, where the file has weights."""
    samples: torch.Tensor
    """Numbers of the samples in the file, `[S]`."""

    def __init__(
        self,
        bars: dict[str, torch.Tensor],
        first_bars: dict[str, torch.Tensor],
        steps: dict[str, int],
        targets: torch.Tensor,
        weights: torch.Tensor | None,
        samples: torch.Tensor,
    ) -> None:
        self.bars, self.first_bars, self.steps = bars, first_bars, steps
        self.targets, self.weights, self.samples = targets, weights, samples
        self._first_bars_on_cpu: dict[str, Any] = {}
        self._whole: SeriesTensors | None = None
        # Places by ascending number in the file, and these numbers, found once.
        self._by_number: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None

    @property
    def device(self) -> torch.device:
        """The device."""
        return self.samples.device

    def part(self, places: Places) -> SeriesTensors:
        """The samples of these places; the bars are shared."""
        chosen = self._chosen(places)
        first_bars = {name: first.index_select(0, chosen) for name, first in self.first_bars.items()}
        targets, samples = self.targets.index_select(0, chosen), self.samples.index_select(0, chosen)
        weights = None if self.weights is None else self.weights.index_select(0, chosen)
        part = SeriesTensors(self.bars, first_bars, self.steps, targets, weights, samples)
        # Others find the bars while one part has them.
        part._whole = self
        return part

    def places(self, samples: Sequence[int] | npt.NDArray[np.int64] | torch.Tensor) -> torch.Tensor:
        """Places of samples by their numbers in the file, such as `sample` of a batch."""
        wanted = np.asarray(samples.to(device="cpu") if isinstance(samples, torch.Tensor) else samples, np.int64)
        if self._by_number is None:
            held = np.asarray(self.samples.to(device="cpu"))
            order = np.argsort(held, kind="stable")
            self._by_number = order, held[order]
        order, numbers = self._by_number
        found = np.minimum(np.searchsorted(numbers, wanted), max(len(numbers) - 1, 0))
        if wanted.size and (not len(numbers) or (numbers[found] != wanted).any()):
            strange = wanted[numbers[found] != wanted][0] if len(numbers) else wanted.flat[0]
            raise IndexError(f"sample {strange} of the file is not in this part of {len(self)} samples")
        return torch.from_numpy(order[found] if len(numbers) else wanted).to(device=self.device)

    def __len__(self) -> int:
        return len(self.samples)

    def windows(self, places: Places, *, overlap: bool = False) -> dict[str, torch.Tensor]:
        """Windows of the samples at these places of the part, `[B, T, F]`, by timeframe, each in memory of its own.

        With `overlap` and a slice, windows that are evenly apart in the bars are views of them: what is written to one
        is seen in others."""
        found = self._views(places) if flag(overlap, "overlap") and isinstance(places, slice) else {}
        chosen = self._chosen(places)
        for name, bars in self.bars.items():
            if name in found:
                continue
            steps = self.steps[name]
            first = self.first_bars[name].index_select(0, chosen)
            rows = (first[:, None] + torch.arange(steps, device=self.device)).reshape(-1)
            found[name] = bars.index_select(0, rows).reshape(len(first), steps, bars.shape[1])
        return {name: found[name] for name in self.bars}

    def batch(self, places: Places, *, overlap: bool = False) -> dict[str, torch.Tensor]:
        """The samples of these places as a loader gives them: `windows`, `targets` `[B, K]` and `sample` `[B]`."""
        chosen = self._chosen(places)
        batch = self.windows(places, overlap=overlap)
        batch["targets"] = self.targets.index_select(0, chosen)
        batch["sample"] = self.samples.index_select(0, chosen)
        return batch

    def _chosen(self, places: Places) -> torch.Tensor:
        if isinstance(places, slice):
            return torch.arange(*places.indices(len(self)), device=self.device)
        if isinstance(places, torch.Tensor) and places.dtype != torch.bool:
            return places.to(device=self.device)
        numbers = np.asarray(places.to(device="cpu") if isinstance(places, torch.Tensor) else places)
        if numbers.dtype == np.bool_:
            numbers = mask_places(numbers, "places", len(self), "samples")
        elif numbers.ndim > 1 or (numbers.size and numbers.dtype.kind not in "iu"):
            raise wrong(places, "places", "a slice, a list of whole numbers or a mask")
        elif numbers.size and not 0 <= numbers.min() <= numbers.max() < len(self):
            raise IndexError(f"places go from {numbers.min()} to {numbers.max()}: there are {len(self)} samples, counted from 0")
        return torch.from_numpy(numbers.astype(np.int64)).to(device=self.device)

    def _views(self, places: slice) -> dict[str, torch.Tensor]:
        """Windows that are seen in the bars."""
        found = {}
        for name, bars in self.bars.items():
            first = self._on_cpu(name)[places]
            apart = np.diff(first)
            if len(first) and np.all(apart == apart[:1]) and np.all(apart >= 0):
                stride, features = int(apart[0]) if len(apart) else 1, bars.shape[1]
                shape = (len(first), self.steps[name], features)
                found[name] = bars.as_strided(shape, (stride * features, features, 1), int(first[0]) * features)
        return found

    def _on_cpu(self, name: str) -> Any:
        """First bars as numpy has them, copied once."""
        if name not in self._first_bars_on_cpu:
            self._first_bars_on_cpu[name] = np.asarray(self.first_bars[name].to(device="cpu"))
        return self._first_bars_on_cpu[name]

    def __repr__(self) -> str:
        bars = ", ".join(f"{name} {list(table.shape)}" for name, table in self.bars.items())
        return f"<megabatch.SeriesTensors on {self.device}: {len(self)} samples; {bars}>"


def series_tensors(dataset: Dataset, device: DeviceName, dtype: torch.dtype | None) -> SeriesTensors:
    """All samples of the file on a device; its parts share them."""
    path = dataset.path
    if dataset.layout != "series":
        raise ConfigError(
            f"{path}: tensors are those of a series, and this is a file of {dataset.layout}; the chunks of "
            f"mb.ChunkDataLoader, which reads windows, lie on a device",
            file=str(path),
        )
    require_dtype(dtype, path)
    found = checked_device(device, path)
    held = dataset._on_devices.get((str(found), dtype))
    if held is not None:
        return held
    required_bytes(dataset, found, dtype)
    made = _loaded(dataset, found, dtype or torch.float32)
    dataset._on_devices[(str(found), dtype)] = made
    return made


def required_bytes(dataset: Dataset, device: torch.device, dtype: torch.dtype | None) -> int:
    """Bytes of bars, targets and indices of all samples of the file, reckoned before they are read.

    Raises `CapacityError` where a GPU has no room for them and does not have them."""
    item = int((dtype or torch.float32).itemsize)
    timeframes = dataset.timeframes.values()
    bars = sum((of.bars or 0) * len(of.features) * item for of in timeframes)
    weights = dataset._native.sample_weights() is not None
    needed = bars + dataset._native.units() * (8 * (len(timeframes) + 1) + 4 * (dataset.targets + weights))
    free = None if (str(device), dtype) in dataset._on_devices else free_bytes(device)
    if free is not None and needed > free * DEVICE_SHARE_MAX:
        raise CapacityError(
            f"{dataset.path}: its bars, targets and indices take {needed / 1e9:.3g} GB, and {device} has "
            f"{free * DEVICE_SHARE_MAX / 1e9:.3g} to give, 0.75 of its free memory; give dtype=torch.bfloat16, or take "
            f"dataset.torch(device=...), which copies batches where the bars do not fit",
            file=str(dataset.path),
            needed_bytes=needed,
            free_bytes=free,
        )
    return needed


def _loaded(dataset: Dataset, device: torch.device, dtype: torch.dtype) -> SeriesTensors:
    native = dataset._native

    def sent(numbers: Any, kind: Any, *shape: int) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(numbers, kind).reshape(shape)).to(device=device)

    bars, first_bars, steps = {}, {}, {}
    for k, (name, timeframe) in enumerate(dataset.timeframes.items()):
        key = name or "features"
        values, last_bars = native.series_bars(k) or (bytearray(), bytearray())
        bars[key] = sent(values, np.float32, -1, len(timeframe.features)).to(dtype=dtype)
        first_bars[key] = sent(last_bars, np.int64, -1) + (1 - timeframe.steps)
        steps[key] = timeframe.steps
    targets = sent(native.series_targets() or bytearray(), np.float32, -1, dataset.targets)
    weights = native.sample_weights()
    samples = torch.arange(native.units(), device=device)
    return SeriesTensors(
        bars, first_bars, steps, targets, None if weights is None else sent(weights, np.float32, -1), samples
    )
