"""Native operations on segments of tensors, without gradients: `_scatter_operators` makes operators of PyTorch of them.

Tensors are on one device, the CPU or a GPU. `src` is `[*, rows, *]` with its rows in dimension `dim`, results
`[*, segments, *]`. A plan is a tensor of `segments + 2 + rows` 32-bit integers that `plan` has written; no other may be
given.
"""

from __future__ import annotations

import functools
import math
import os

import torch
from torch import Tensor

from . import _megabatch
from .errors import ConfigError

KINDS = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3, torch.int32: 4, torch.int64: 5}
"""Types of numbers, as the native part counts them."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

SUM, MEAN, PRODUCT = range(3)
MAX, MIN = range(2)
WHOLE, EQUAL = range(2)


def is_on_gpu(tensor: Tensor) -> bool:
    """True for a tensor that the kernels of a GPU take."""
    return bool(tensor.is_cuda)


def _place(tensor: Tensor) -> tuple[int, int]:
    """Number of a tensor's GPU, and the driver's handle of PyTorch's current stream there."""
    stream = torch.cuda.current_stream(tensor.device)
    return tensor.device.index, stream.cuda_stream


def _tell(device: int) -> None:
    """Raises at the call itself what kernels find wrong, if CUDA's programs are run so; else a later call raises it."""
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        torch.cuda.synchronize(device)
        _megabatch.scatter_gpu_fault(device)


def _gpu_plan(index: Tensor, segments: int, expects_sorted: bool) -> Tensor:
    rows, (device, stream) = index.shape[0], _place(index)
    written = torch.empty(segments + 2 + rows, dtype=torch.int32, device=index.device)
    workspace = torch.empty(_megabatch.scatter_gpu_plan_bytes(rows), dtype=torch.uint8, device=index.device)
    _megabatch.scatter_gpu_plan(
        device, stream, index.data_ptr(), rows, segments, expects_sorted, written.data_ptr(), workspace.data_ptr()
    )
    _tell(device)
    return written


def plan(index: Tensor, segments: int) -> Tensor:
    """The plan of rows in any order; row `r` belongs to segment `index[r]`."""
    index = index.contiguous()
    if is_on_gpu(index):
        return _gpu_plan(index, segments, False)
    rows = index.shape[0]
    written = torch.empty(segments + 2 + rows, dtype=torch.int32, device=index.device)
    _megabatch.scatter_plan(index.data_ptr(), rows, segments, written.data_ptr(), torch.get_num_threads())
    return written


def sorted_plan(index: Tensor, segments: int) -> Tensor:
    """The plan of rows that must lie in the order of segments."""
    index = index.contiguous()
    if is_on_gpu(index):
        return _gpu_plan(index, segments, True)
    _megabatch.scatter_check_sorted(index.data_ptr(), index.shape[0])
    return plan(index, segments)


def offsets_plan(indptr: Tensor, rows: int) -> Tensor:
    """The plan of rows in the order of segments; segment `s` has those from `indptr[s]` to before `indptr[s + 1]`."""
    indptr = indptr.contiguous()
    offsets = indptr.shape[0]
    written = torch.empty(offsets + 1 + rows, dtype=torch.int32, device=indptr.device)
    if is_on_gpu(indptr):
        device, stream = _place(indptr)
        _megabatch.scatter_gpu_plan_from_offsets(device, stream, indptr.data_ptr(), offsets, rows, written.data_ptr())
        _tell(device)
        return written
    _megabatch.scatter_plan_from_offsets(indptr.data_ptr(), offsets, rows, written.data_ptr())
    return written


def _segments(
    src: Tensor, dim: int, rows: int, segments: int, plan: Tensor
) -> _megabatch.TensorSegments | _megabatch.GpuTensorSegments:
    batches, columns = math.prod(src.shape[:dim]), math.prod(src.shape[dim + 1 :])
    if src.dtype not in KINDS:
        raise ConfigError(f"tensors of {src.dtype} have no segments; they may be {', '.join(map(str, KINDS))}")
    kind, address = KINDS[src.dtype], plan.data_ptr()
    if is_on_gpu(src):
        allocate = functools.partial(torch.empty, dtype=torch.uint8, device=src.device)
        return _megabatch.GpuTensorSegments(
            *_place(src), allocate, address, segments, batches, rows, columns, kind
        )
    return _megabatch.TensorSegments(address, segments, batches, rows, columns, kind, torch.get_num_threads())


def _resized(x: Tensor, dim: int, size: int, dtype: torch.dtype | None = None) -> Tensor:
    shape = list(x.shape)
    shape[dim] = size
    return torch.empty(shape, dtype=dtype or x.dtype, device=x.device)


def fold(which: int, src: Tensor, dim: int, plan: Tensor, base: Tensor | None) -> Tensor:
    """Sums, means or products of segments and of `base`."""
    src, rows = src.contiguous(), src.shape[dim]
    segments = plan.shape[0] - 2 - rows
    out = _resized(src, dim, segments)
    held = None if base is None else base.contiguous()
    call = _segments(src, dim, rows, segments, plan)
    call.fold(which, src.data_ptr(), 0 if held is None else held.data_ptr(), out.data_ptr())
    return out


def extremum(which: int, src: Tensor, dim: int, plan: Tensor, base: Tensor | None) -> tuple[Tensor, Tensor]:
    """Maxima or minima of segments and of `base`, and the rows that they are in."""
    src, rows = src.contiguous(), src.shape[dim]
    segments = plan.shape[0] - 2 - rows
    out, arguments = _resized(src, dim, segments), _resized(src, dim, segments, torch.int64)
    held = None if base is None else base.contiguous()
    call = _segments(src, dim, rows, segments, plan)
    call.extremum(which, src.data_ptr(), 0 if held is None else held.data_ptr(), out.data_ptr(), arguments.data_ptr())
    return out, arguments


def extremum_backward(grad: Tensor, dim: int, arguments: Tensor, plan: Tensor) -> Tensor:
    """Gradients of the rows that `extremum` has found."""
    grad, arguments, segments = grad.contiguous(), arguments.contiguous(), grad.shape[dim]
    rows = plan.shape[0] - 2 - segments
    out = _resized(grad, dim, rows)
    if is_on_gpu(out):
        out.zero_()
    call = _segments(grad, dim, rows, segments, plan)
    call.extremum_backward(arguments.data_ptr(), grad.data_ptr(), out.data_ptr())
    return out


def gather(share: int, values: Tensor, dim: int, index: Tensor | None, plan: Tensor) -> Tensor:
    """The numbers of each row's segment, or their equal shares. Without `index` rows lie in the order of segments."""
    values, segments = values.contiguous(), values.shape[dim]
    rows = plan.shape[0] - 2 - segments
    out = _resized(values, dim, rows)
    held = None if index is None else index.contiguous()
    call = _segments(values, dim, rows, segments, plan)
    call.gather(share, 0 if held is None else held.data_ptr(), values.data_ptr(), out.data_ptr())
    return out


def softmax(src: Tensor, dim: int, plan: Tensor, eps: float | None) -> Tensor:
    """Softmax over the rows of segments, or with `eps` its logarithm."""
    src, rows = src.contiguous(), src.shape[dim]
    out = torch.empty_like(src)
    call = _segments(src, dim, rows, plan.shape[0] - 2 - rows, plan)
    call.softmax(eps, src.data_ptr(), out.data_ptr())
    return out


def softmax_backward(y: Tensor, grad: Tensor, dim: int, plan: Tensor, eps: float | None) -> Tensor:
    """Gradients of the rows whose softmax is `y`."""
    y, grad, rows = y.contiguous(), grad.contiguous(), y.shape[dim]
    out = torch.empty_like(y)
    call = _segments(y, dim, rows, plan.shape[0] - 2 - rows, plan)
    call.softmax_backward(eps, y.data_ptr(), grad.data_ptr(), out.data_ptr())
    return out
