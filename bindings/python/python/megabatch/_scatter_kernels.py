"""Native operations on segments of tensors, without gradients: `_scatter_operators` makes operators of PyTorch of them.

Tensors are on the CPU. `src` is `[*, rows, *]` with its rows in dimension `dim`, results `[*, segments, *]`. A plan is a
tensor of `segments + 2 + rows` 32-bit integers that `plan` has written; no other may be given.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import _megabatch
from .errors import ConfigError

KINDS = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3, torch.int32: 4, torch.int64: 5}
"""Types of numbers, as the native part counts them."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

CPU = torch.device("cpu")

SUM, MEAN, PRODUCT = range(3)
MAX, MIN = range(2)
WHOLE, EQUAL = range(2)


def plan(index: Tensor, segments: int) -> Tensor:
    """The plan of rows in any order; row `r` belongs to segment `index[r]`."""
    index = index.contiguous()
    rows = index.shape[0]
    written = torch.empty(segments + 2 + rows, dtype=torch.int32, device=CPU)
    _megabatch.scatter_plan(index.data_ptr(), rows, segments, written.data_ptr(), torch.get_num_threads())
    return written


def sorted_plan(index: Tensor, segments: int) -> Tensor:
    """The plan of rows that must lie in the order of segments."""
    index = index.contiguous()
    _megabatch.scatter_check_sorted(index.data_ptr(), index.shape[0])
    return plan(index, segments)


def offsets_plan(indptr: Tensor, rows: int) -> Tensor:
    """The plan of rows in the order of segments; segment `s` has those from `indptr[s]` to before `indptr[s + 1]`."""
    indptr = indptr.contiguous()
    offsets = indptr.shape[0]
    written = torch.empty(offsets + 1 + rows, dtype=torch.int32, device=CPU)
    _megabatch.scatter_plan_from_offsets(indptr.data_ptr(), offsets, rows, written.data_ptr())
    return written


def _segments(
    shape: torch.Size, dim: int, rows: int, segments: int, dtype: torch.dtype, plan: Tensor
) -> _megabatch.TensorSegments:
    batches, columns = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    if dtype not in KINDS:
        raise ConfigError(f"tensors of {dtype} have no segments; they may be {', '.join(map(str, KINDS))}")
    kind, threads = KINDS[dtype], torch.get_num_threads()
    return _megabatch.TensorSegments(plan.data_ptr(), segments, batches, rows, columns, kind, threads)


def _resized(x: Tensor, dim: int, size: int, dtype: torch.dtype | None = None) -> Tensor:
    shape = list(x.shape)
    shape[dim] = size
    return torch.empty(shape, dtype=dtype or x.dtype, device=CPU)


def fold(which: int, src: Tensor, dim: int, plan: Tensor, base: Tensor | None) -> Tensor:
    """Sums, means or products of segments and of `base`."""
    src, rows = src.contiguous(), src.shape[dim]
    segments = plan.shape[0] - 2 - rows
    out = _resized(src, dim, segments)
    held = None if base is None else base.contiguous()
    call = _segments(src.shape, dim, rows, segments, src.dtype, plan)
    call.fold(which, src.data_ptr(), 0 if held is None else held.data_ptr(), out.data_ptr())
    return out


def extremum(which: int, src: Tensor, dim: int, plan: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor]:
    """Maxima or minima of segments and of `base`, and the rows that they are in."""
    src, rows = src.contiguous(), src.shape[dim]
    segments = plan.shape[0] - 2 - rows
    out, arguments = _resized(src, dim, segments), _resized(src, dim, segments, torch.int64)
    held = None if base is None else base.contiguous()
    call = _segments(src.shape, dim, rows, segments, src.dtype, plan)
    call.extremum(which, src.data_ptr(), 0 if held is None else held.data_ptr(), out.data_ptr(), arguments.data_ptr())
    return out, arguments


def extremum_backward(grad: Tensor, dim: int, arguments: Tensor, plan: Tensor) -> Tensor:
    """Gradients of the rows that `extremum` has found."""
    grad, arguments, segments = grad.contiguous(), arguments.contiguous(), grad.shape[dim]
    rows = plan.shape[0] - 2 - segments
    out = _resized(grad, dim, rows)
    call = _segments(grad.shape, dim, rows, segments, grad.dtype, plan)
    call.extremum_backward(arguments.data_ptr(), grad.data_ptr(), out.data_ptr())
    return out


def gather(share: int, values: Tensor, dim: int, index: Tensor | None, plan: Tensor) -> Tensor:
    """The numbers of each row's segment, or their equal shares. Without `index` rows lie in the order of segments."""
    values, segments = values.contiguous(), values.shape[dim]
    rows = plan.shape[0] - 2 - segments
    out = _resized(values, dim, rows)
    held = None if index is None else index.contiguous()
    call = _segments(values.shape, dim, rows, segments, values.dtype, plan)
    call.gather(share, 0 if held is None else held.data_ptr(), values.data_ptr(), out.data_ptr())
    return out


def softmax(src: Tensor, dim: int, plan: Tensor, eps: float | None) -> Tensor:
    """Softmax over the rows of segments, or with `eps` its logarithm."""
    src, rows = src.contiguous(), src.shape[dim]
    out = torch.empty_like(src)
    call = _segments(src.shape, dim, rows, plan.shape[0] - 2 - rows, src.dtype, plan)
    call.softmax(eps, src.data_ptr(), out.data_ptr())
    return out


def softmax_backward(y: Tensor, grad: Tensor, dim: int, plan: Tensor, eps: float | None) -> Tensor:
    """Gradients of the rows whose softmax is `y`."""
    y, grad, rows = y.contiguous(), grad.contiguous(), y.shape[dim]
    out = torch.empty_like(y)
    call = _segments(y.shape, dim, rows, plan.shape[0] - 2 - rows, y.dtype, plan)
    call.softmax_backward(eps, y.data_ptr(), grad.data_ptr(), out.data_ptr())
    return out
