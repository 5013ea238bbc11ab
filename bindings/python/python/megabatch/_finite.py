"""Numbers of a windows file that no model is trained on: features are finite, and no target is infinite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import DataError

if TYPE_CHECKING:
    from .dataset import Dataset

_Numbers = npt.NDArray[Any]


def require_finite(dataset: Dataset, samples: npt.NDArray[np.int64], tables: Iterable[_Numbers]) -> None:
    """Refuses a batch of `samples` with windows `[B, T, F]` by timeframe and targets `[B, K]` that are not to be trained
    on. An unknown target is NaN."""
    *windows, targets = tables
    for table, timeframe in zip(windows, dataset.timeframes.values()):
        place = _first(table, np.isfinite)
        if place is not None:
            row, step, feature = place
            fix, aside = "fill the gap", ""
            if np.isinf(table[place]):
                fix = "replace the number"
                aside = "; a finite number beyond the range of float32 is read as an infinite one: scale the feature"
            name = timeframe.features[feature] + (f" of {timeframe.name}" if timeframe.name else "")
            raise DataError(
                f"{dataset.path}: sample {samples[row]}: feature {name} is {table[place]} in row {step} of its window: "
                f"expected a finite number; leave the sample out or {fix} before the file is written{aside}",
                file=str(dataset.path),
                sample=int(samples[row]),
                feature=timeframe.features[feature],
                timeframe=timeframe.name,
            )
    place = _first(targets, lambda numbers: ~np.isinf(numbers))
    if place is not None:
        row, target = place
        raise DataError(
            f"{dataset.path}: sample {samples[row]}: target {target + 1} is {targets[place]}: expected a finite number, or "
            f"NaN for an unknown one",
            file=str(dataset.path),
            sample=int(samples[row]),
            target=target + 1,
        )


def _first(numbers: _Numbers, are_right: Any) -> tuple[int, ...] | None:
    """The place of the first number that is not right."""
    # A sum is quicker than a look at each number, and finite unless it overflows or one of them is not.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(numbers.sum()):
            return None
    wrong = ~are_right(numbers)
    return tuple(int(at) for at in np.unravel_index(int(wrong.argmax()), wrong.shape)) if wrong.any() else None
