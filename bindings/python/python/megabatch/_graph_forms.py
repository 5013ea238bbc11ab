"""Forms of the arrays of saved graphs, which a file of graphs keeps in the names of their columns.

A file has rows of floats. What was no such row when it was saved comes back as it was:

| saved | names of the columns |
| --- | --- |
| `[rows, K]` of floats | `y_0`, …, which the file gives itself |
| `[rows, K]` of integers or truth values | `y_0:int64`, … |
| `[rows]` of floats | `y`; `x:float32` |
| `[rows]` of integers or truth values | `y:int64` |
| classes, integers in a `y` of one column | `0`, `1`, …, which the file gives itself, one-hot |
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

CLASSES_MAX = 2048
"""Integers in `y` from here on are numbers, as are those of several columns."""

LISTS = {"x": "node_features", "edge_attr": "edge_attributes", "y": "targets"}
"""Names of the lists of a file that have the columns of an array."""

_FLOAT = np.dtype(np.float32)


@dataclasses.dataclass(frozen=True)
class Form:
    """The form that an array had when it was saved."""

    dtype: np.dtype[Any] = _FLOAT
    is_flat: bool = False
    """True for one number a row, without a dimension of its own."""

    def names(self, array: str, columns: int) -> list[str]:
        """Names of the columns."""
        if self == Form(is_flat=True) and array == "y":
            return [array]
        kind = "" if self == Form() else f":{self.dtype}"
        return [f"{array}{kind}"] if self.is_flat else [f"{array}_{column}{kind}" for column in range(columns)]

    def restored(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """An array of a file, `[rows, K]`, as it was saved."""
        own = rows.reshape(len(rows)) if self.is_flat else rows
        return own.astype(self.dtype, copy=False)


class Classes(Form):
    """Classes, -1 where they are not known."""

    def restored(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(np.isnan(rows[:, 0]), -1, rows.argmax(axis=1))


def forms(facts: dict[str, Any]) -> dict[str, Form]:
    """The forms of the arrays of a file that are others than its rows."""
    if not facts["builder"].startswith("edge-index/"):
        return {}
    found = {array: _form(array, facts[columns]) for array, columns in LISTS.items() if facts[columns]}
    return {array: form for array, form in found.items() if form != Form()}


def _form(array: str, columns: Sequence[str]) -> Form:
    if array == "y" and list(columns) == [str(number) for number in range(len(columns))]:
        return Classes(np.dtype(np.int64), is_flat=True)
    name = re.fullmatch(rf"{array}(?P<column>_0)?(?::(?P<type>[a-z]+[0-9]*))?", columns[0])
    if name is None or (name["type"] is None and array != "y"):
        return Form()
    try:
        return Form(np.dtype(name["type"] or _FLOAT), is_flat=name["column"] is None)
    except TypeError:
        # A name that somebody else gave.
        return Form()
