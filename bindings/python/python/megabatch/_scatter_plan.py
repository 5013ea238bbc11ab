"""An index that stays, sorted once."""

from __future__ import annotations

import torch
from torch import Tensor

from . import _scatter_operators as operators
from ._scatter_functions import check_floats
from ._scatter_layout import check, dimension, require_tensors, segments
from .errors import ConfigError


class Plan:
    """An index `[rows]` that many operations share: it is checked and sorted once, and they skip both.

    Results, gradients and bits are those of the functions of the same names. `dim` is the dimension of the rows."""

    def __init__(self, index: Tensor, dim_size: int | None = None) -> None:
        require_tensors("Plan", index=index)
        if index.dim() != 1:
            raise ConfigError(f"Plan: the index has {index.dim()} dimensions, and a plan is for one")
        check("Plan", index, index, None)
        self.index = index
        self.dim_size = segments("Plan", index, index, 0, None, dim_size)
        self._plan: Tensor = operators.plan(index, self.dim_size)
        self._version = self._index_version()

    def __reduce__(self) -> tuple[type[Plan], tuple[Tensor, int]]:
        return Plan, (self.index, self.dim_size)

    def __repr__(self) -> str:
        return f"Plan({self.index.shape[0]} rows, {self.dim_size} segments)"

    def _index_version(self) -> int:
        # Tensors of inference mode count no changes.
        return 0 if self.index.is_inference() else int(self.index._version)

    def _dim(self, name: str, src: Tensor, dim: int, size: int, out: Tensor | None = None) -> int:
        check(name, src, self.index, out)
        if not torch.compiler.is_compiling() and self._index_version() != self._version:
            raise ConfigError(f"{name}: the index has changed since the plan was made: make another")
        dim = dimension(name, dim, src.dim())
        if src.shape[dim] != size:
            raise ConfigError(f"{name}: src is {list(src.shape)}, and {self!r} wants {size} in dimension {dim}")
        if out is not None and segments(name, src, self.index, dim, out, None) != self.dim_size:
            raise ConfigError(
                f"{name}: out is {list(out.shape)}, and {self!r} wants {self.dim_size} in dimension {dim}"
            )
        return dim

    def _rows(self, name: str, src: Tensor, dim: int, out: Tensor | None = None) -> int:
        return self._dim(name, src, dim, self.index.shape[0], out)

    def sum(self, src: Tensor, dim: int = -1, out: Tensor | None = None) -> Tensor:
        """Sums of segments, added to `out` where it is given, which stays as it is."""
        dim = self._rows("Plan.sum", src, dim, out)
        result: Tensor = operators.segment_sum(src, dim, self.index, self._plan, out)
        return result

    def mean(self, src: Tensor, dim: int = -1) -> Tensor:
        """Means of segments."""
        dim = self._rows("Plan.mean", src, dim)
        result: Tensor = operators.segment_mean(src, dim, self.index, self._plan, None)
        return result

    def mul(self, src: Tensor, dim: int = -1) -> Tensor:
        """Products of segments."""
        dim = self._rows("Plan.mul", src, dim)
        result: Tensor = operators.segment_mul(src, dim, self.index, self._plan, None)
        return result

    def min(self, src: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
        """Minima of segments and their rows."""
        result: tuple[Tensor, Tensor] = operators.segment_min(src, self._rows("Plan.min", src, dim), self._plan, None)
        return result

    def max(self, src: Tensor, dim: int = -1) -> tuple[Tensor, Tensor]:
        """Maxima of segments and their rows."""
        result: tuple[Tensor, Tensor] = operators.segment_max(src, self._rows("Plan.max", src, dim), self._plan, None)
        return result

    def gather(self, values: Tensor, dim: int = -1) -> Tensor:
        """The numbers of each row's segment: `values[index]` along `dim`."""
        dim = self._dim("Plan.gather", values, dim, self.dim_size)
        result: Tensor = operators.gather(values, dim, self.index, self._plan)
        return result

    def softmax(self, src: Tensor, dim: int = -1) -> Tensor:
        """Softmax over the rows of segments."""
        check_floats("Plan.softmax", src)
        dim = self._rows("Plan.softmax", src, dim)
        result: Tensor = operators.segment_softmax(src, dim, self.index, self._plan, None)
        return result

    def log_softmax(self, src: Tensor, dim: int = -1, eps: float = 1e-12) -> Tensor:
        """Logarithm of the softmax over the rows of segments."""
        check_floats("Plan.log_softmax", src)
        dim = self._rows("Plan.log_softmax", src, dim)
        result: Tensor = operators.segment_softmax(src, dim, self.index, self._plan, eps)
        return result
