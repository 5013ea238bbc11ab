"""How an index lies over a tensor: the rows that an operation runs over, and their plan.

An index along one dimension, the usual case, is taken as it is, whatever comes before and after that dimension. An index
that differs between batches, or from number to number, becomes one along a single dimension: batches are then rows and
segments of their own.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _megabatch
from . import _scatter_operators as operators
from . import _scatter_kernels as kernels
from ._arguments import type_name
from ._scatter_kernels import KINDS
from .errors import ConfigError, DataError, DeviceError


def require_tensors(name: str, **arguments: object) -> None:
    """Refuses arrays and lists, and sparse tensors."""
    for argument, given in arguments.items():
        if not isinstance(given, Tensor):
            raise ConfigError(f"{name}: {argument} is {type_name(given)}: expected a tensor; torch.as_tensor makes one")
        if not torch.compiler.is_compiling() and given.layout != torch.strided:
            raise ConfigError(
                f"{name}: {argument} is a sparse tensor, {given.layout}: expected a dense one; {argument}.to_dense() makes one"
            )


def check(name: str, src: Tensor, index: Tensor, out: Tensor | None) -> None:
    """Refuses tensors that no operation takes."""
    require_tensors(name, src=src, index=index)
    if out is not None:
        require_tensors(name, out=out)
    if index.dtype != torch.int64:
        raise ConfigError(
            f"{name}: the index is {index.dtype}, and PyTorch's indices are torch.int64: give index.long()"
        )
    if src.dtype not in KINDS:
        raise ConfigError(f"{name}: tensors of {src.dtype} are not reduced; they may be {', '.join(map(str, KINDS))}")
    if not torch.compiler.is_compiling():
        _refuse_transforms(name, src, index, out)
    if src.device != index.device or (out is not None and out.device != src.device):
        others = f" and out on {out.device}" if out is not None else ""
        raise DeviceError(
            f"{name}: src is on {src.device}, the index on {index.device}{others}: move them to one device"
        )
    if not src.is_cpu and src.device.type not in ("cuda", "meta"):
        raise DeviceError(
            f"{name}: there are no kernels for {src.device.type}: move the tensors to the CPU with .cpu()"
        )
    if out is not None and out.dtype != src.dtype:
        raise ConfigError(f"{name}: out is {out.dtype} and src {src.dtype}: give both the same")


def _refuse_transforms(name: str, *tensors: Tensor | None) -> None:
    """Refuses what the operators have no rules for, and what would lose derivatives without a word."""
    if torch._C._are_functorch_transforms_active():
        functorch = torch._C._functorch
        given = [tensor for tensor in tensors if tensor is not None]
        if any(map(functorch.is_batchedtensor, given)):
            raise ConfigError(f"{name} has no rule for torch.vmap: give tensors with a dimension for the batch")
        if any(map(functorch.is_functorch_wrapped_tensor, given)):
            raise ConfigError(f"{name} has no rule for transforms of torch.func: use torch.autograd.grad or backward()")
    if forward_ad._current_level >= 0:
        for tensor in tensors:
            if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
                raise ConfigError(f"{name} has no forward derivatives: use torch.autograd.grad or backward()")


def dimension(name: str, dim: int, dims: int) -> int:
    """`dim`, counted from the first dimension."""
    if not -dims <= dim < dims:
        raise ConfigError(f"{name}: there is no dimension {dim} of a tensor with {dims}")
    return dim + dims if dim < 0 else dim


def segments(name: str, src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> int:
    """Number of segments: `out` has it, or `dim_size`, or the index."""
    if out is not None:
        if out.dim() != src.dim() or any(
            one != other for k, (one, other) in enumerate(zip(out.shape, src.shape)) if k != dim
        ):
            raise ConfigError(
                f"{name}: out is {list(out.shape)} and src {list(src.shape)}: they may differ in dimension {dim} only"
            )
        return int(out.shape[dim])
    if dim_size is None:
        return bound(index)
    if dim_size < 0:
        raise ConfigError(f"{name}: dim_size is {dim_size}, and no tensor has a negative size")
    return dim_size


def _is_on_cpu(index: Tensor) -> bool:
    """True if native functions may read the numbers of an index."""
    return operators.is_ordinary(index) and index.is_contiguous() and not kernels.is_on_gpu(index)


def bound(index: Tensor) -> int:
    """One more than the greatest index."""
    if torch.compiler.is_compiling() or not _is_on_cpu(index):
        return int(index.max()) + 1 if index.numel() > 0 else 0
    return _megabatch.scatter_index_bound(index.data_ptr(), index.numel())


def along(name: str, src: Tensor, index: Tensor, dim: int) -> Tensor:
    """`index`, broadcast as torch_scatter does: one dimension lies along `dim`, several begin with the first."""
    given = list(index.shape)
    if index.dim() == 1:
        index = index.view([-1 if k == dim else 1 for k in range(src.dim())])
    elif index.dim() < src.dim():
        index = index.view(list(index.shape) + [1] * (src.dim() - index.dim()))
    return expanded(name, index, list(src.shape), given)


def expanded(name: str, index: Tensor, shape: list[int], given: list[int] | None = None) -> Tensor:
    """`index` with the sizes of `shape`; `given` are those that the caller gave it."""
    if index.dim() != len(shape) or any(own not in (1, size) for own, size in zip(index.shape, shape)):
        raise ConfigError(f"{name}: an index of {given or list(index.shape)} does not broadcast to {shape}")
    return index.expand(shape)


def is_along(index: Tensor, dim: int) -> bool:
    """True if an index that was expanded is the same in all dimensions but `dim`."""
    return all(
        k == dim or stride == 0 or size == 1 for k, (size, stride) in enumerate(zip(index.shape, index.stride()))
    )


class Rows:
    """A tensor's rows in segments: `src`, `dim`, `index` and `plan` for an operator, and the way back for its results.

    `shape` is that of the tensor, with all numbers of dimension `dim` in `segments` segments. Where the index differs
    from batch to batch, batches are rows and segments of one dimension."""

    def __init__(self, name: str, shape: torch.Size, index: Tensor, dim: int, segments: int, is_sorted: bool) -> None:
        self.shape, self.dim, self.segments = shape, dim, segments
        self.columns = 1
        make_plan = operators.sorted_plan if is_sorted else operators.plan
        if index.dim() > 1 and index.numel() == 0:
            # No numbers: rows that are there have none, and belong to no segment.
            self.is_flat, self.index = False, index.new_zeros(shape[dim])
            self.plan = index.new_zeros(segments + 2 + shape[dim], dtype=torch.int32)
            return
        if index.dim() == 1 or is_along(index, dim):
            if index.dim() > 1:
                for k in reversed(range(index.dim())):
                    index = index if k == dim else index.select(k, 0)
            self.is_flat, self.index = False, index
            self.plan = make_plan(index, segments)
            return
        is_on_gpu = kernels.is_on_gpu(index)
        if not is_on_gpu and index.numel() > 0 and (int(index.min()) < 0 or int(index.max()) >= segments):
            wrong = index[(index < 0) | (index >= segments)].reshape(-1)[0]
            raise DataError(f"{name}: an index is {int(wrong)}, but indices go from 0 to below {segments}")
        # Batches before `dim`, and numbers after it unless the index is the same for all of them.
        if all(stride == 0 or size == 1 for size, stride in zip(index.shape[dim + 1 :], index.stride()[dim + 1 :])):
            self.columns = math.prod(shape[dim + 1 :])
            for _ in range(dim + 1, index.dim()):
                index = index.select(-1, 0)
        self.is_flat = True
        inner = math.prod(index.shape[dim + 1 :])
        index = index.reshape(math.prod(shape[:dim]), shape[dim], inner)
        batch = torch.arange(index.shape[0], device=index.device).view(-1, 1, 1)
        flat = (batch * segments + index) * inner + torch.arange(inner, device=index.device)
        # Nothing is downloaded from a GPU: the plan tells of a row without a segment.
        index = torch.where((index < 0) | (index >= segments), -1, flat) if is_on_gpu else flat
        if inner > 1:
            self.index = index.reshape(-1)
            self.plan = operators.plan(self.index, batch.shape[0] * segments * inner)
        else:
            self.index = index.reshape(-1)
            self.plan = make_plan(self.index, batch.shape[0] * segments)
        self.inner = inner

    def flat(self, x: Tensor) -> Tensor:
        """Rows or segments for the operator."""
        return x.reshape(-1, self.columns) if self.is_flat else x

    @property
    def flat_dim(self) -> int:
        """The dimension of the rows for the operator."""
        return 0 if self.is_flat else self.dim

    def per_segment(self, x: Tensor) -> Tensor:
        """Results of the operator by segment."""
        if not self.is_flat:
            return x
        return x.view([self.segments if k == self.dim else size for k, size in enumerate(self.shape)])

    def per_row(self, x: Tensor) -> Tensor:
        """Results of the operator by row."""
        return x.reshape(self.shape) if self.is_flat else x

    def arguments(self, found: Tensor) -> Tensor:
        """Rows that the operator has found."""
        if not self.is_flat:
            return found
        rows, all_rows = self.shape[self.dim], self.index.shape[0]
        found = torch.where(found == all_rows, rows, found // self.inner % max(rows, 1))
        return self.per_segment(found)


class Ranges:
    """Rows of a tensor in segments by offsets, `[*, segments + 1]`; as `Rows`.

    Offsets that differ between batches become those of one dimension, with a segment before those of each batch and one
    after them for rows that belong to none."""

    def __init__(self, name: str, leading: list[int], rows: int, indptr: Tensor) -> None:
        self.dim, self.leading, self.rows = indptr.dim() - 1, leading, rows
        self.segments = max(indptr.shape[-1] - 1, 0)
        indptr = expanded(name, indptr, [*leading, indptr.shape[-1]])
        self.is_flat = not is_along(indptr, self.dim)
        self.index: Any = None
        if not self.is_flat:
            for _ in range(self.dim):
                indptr = indptr.select(0, 0) if indptr.shape[0] > 0 else indptr.new_zeros(indptr.shape[1:])
            indptr = indptr if indptr.shape[0] > 0 else indptr.new_zeros(1)
            self.plan = operators.offsets_plan(indptr, rows)
            return
        indptr = indptr.reshape(-1, indptr.shape[-1])
        if int(indptr.min()) < 0 or int(indptr.max()) > rows or bool((indptr[:, 1:] < indptr[:, :-1]).any()):
            raise DataError(f"{name}: offsets in indptr begin at 0, never decrease and end at {rows}")
        start, end = indptr.new_zeros(indptr.shape[0], 1), indptr.new_full((indptr.shape[0], 1), rows)
        batch = torch.arange(indptr.shape[0], device=indptr.device).view(-1, 1)
        ranges = (torch.cat([start, indptr, end], 1) + batch * rows)[:, :-1].reshape(-1)
        ranges = torch.cat([ranges, ranges.new_full((1,), indptr.shape[0] * rows)])
        self.plan = operators.offsets_plan(ranges, indptr.shape[0] * rows)

    @property
    def flat_dim(self) -> int:
        """The dimension of the rows for the operator."""
        return 0 if self.is_flat else self.dim

    def flat(self, x: Tensor) -> Tensor:
        """Rows for the operator."""
        return x.reshape(math.prod(self.leading) * self.rows, -1) if self.is_flat else x

    def flat_segments(self, x: Tensor) -> Tensor:
        """Segments for the operator."""
        if not self.is_flat:
            return x
        x = x.reshape(math.prod(self.leading), self.segments, -1)
        none = x.new_zeros(x.shape[0], 1, x.shape[2])
        return torch.cat([none, x, none], 1).view(-1, x.shape[2])

    def per_segment(self, x: Tensor, shape: torch.Size) -> Tensor:
        """Results of the operator by segment, for a tensor of `shape`."""
        if not self.is_flat:
            return x
        x = x.view(math.prod(self.leading), self.segments + 2, -1)[:, 1:-1]
        return x.reshape([self.segments if k == self.dim else size for k, size in enumerate(shape)])

    def arguments(self, found: Tensor, shape: torch.Size) -> Tensor:
        """Rows that the operator has found."""
        if not self.is_flat:
            return found
        all_rows = math.prod(self.leading) * self.rows
        return self.per_segment(torch.where(found == all_rows, self.rows, found % max(self.rows, 1)), shape)
