"""torch_scatter's functions without `out` as a place: each gives a new tensor, of `src` and of the numbers of `out`.

`scatter.py` has the functions that people call. TorchScript calls these as `torch.ops.megabatch.<name>`, composites of
the operators in `_scatter_operators`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import _scatter_operators as operators
from ._scatter_kernels import FLOATS
from ._scatter_layout import Ranges, Rows, along, check, dimension, expanded, require_tensors, segments
from ._scatter_operators import Operator
from .errors import ConfigError


def rows(
    name: str, src: Tensor, index: Tensor, dim: int, out: Tensor | None = None, dim_size: int | None = None
) -> Rows:
    """The rows of `src` by an index along `dim`."""
    check(name, src, index, out)
    dim = dimension(name, dim, src.dim())
    if index.dim() != 1 or index.shape[0] != src.shape[dim]:
        index = along(name, src, index, dim)
    return Rows(name, src.shape, index, dim, segments(name, src, index, dim, out, dim_size), False)


def coo_rows(name: str, src: Tensor, index: Tensor, out: Tensor | None, dim_size: int | None) -> Rows:
    """The rows of `src` by a sorted index along its last dimension."""
    check(name, src, index, out)
    dim = index.dim() - 1
    if not 0 <= dim < src.dim():
        raise ConfigError(
            f"{name}: the index has {dim + 1} dimensions and src {src.dim()}; it has at least 1 and no more"
        )
    if index.dim() != 1 or index.shape[0] != src.shape[dim]:
        index = expanded(name, index, list(src.shape[: dim + 1]))
    return Rows(name, src.shape, index, dim, segments(name, src, index, dim, out, dim_size), True)


def folded(operator: Operator, src: Tensor, rows: Rows, out: Tensor | None) -> Tensor:
    """Sums, means or products of segments."""
    base = None if out is None else rows.flat(out)
    return rows.per_segment(operator(rows.flat(src), rows.flat_dim, rows.index, rows.plan, base))


def found(operator: Operator, src: Tensor, rows: Rows, out: Tensor | None) -> tuple[Tensor, Tensor]:
    """Extrema of segments and the rows that they are in."""
    base = None if out is None else rows.flat(out)
    values, arguments = operator(rows.flat(src), rows.flat_dim, rows.plan, base)
    return rows.per_segment(values), rows.arguments(arguments)


def scatter_sum(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> Tensor:
    return folded(operators.segment_sum, src, rows("scatter_sum", src, index, dim, out, dim_size), out)


def scatter_mul(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> Tensor:
    # The gradient needs the numbers that `out` has now.
    base = out if out is None or not torch.is_grad_enabled() else out.clone()
    return folded(operators.segment_mul, src, rows("scatter_mul", src, index, dim, out, dim_size), base)


def scatter_mean(src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None) -> Tensor:
    return folded(operators.segment_mean, src, rows("scatter_mean", src, index, dim, out, dim_size), out)


def scatter_min(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None
) -> tuple[Tensor, Tensor]:
    return found(operators.segment_min, src, rows("scatter_min", src, index, dim, out, dim_size), out)


def scatter_max(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None
) -> tuple[Tensor, Tensor]:
    return found(operators.segment_max, src, rows("scatter_max", src, index, dim, out, dim_size), out)


def segment_sum_coo(src: Tensor, index: Tensor, out: Tensor | None, dim_size: int | None) -> Tensor:
    return folded(operators.segment_sum, src, coo_rows("segment_sum_coo", src, index, out, dim_size), out)


def segment_mean_coo(src: Tensor, index: Tensor, out: Tensor | None, dim_size: int | None) -> Tensor:
    segmented = coo_rows("segment_mean_coo", src, index, out, dim_size)
    if src.dtype in FLOATS:
        return folded(operators.segment_mean, src, segmented, out)
    # torch_scatter rounds integers down in scatter_mean, and towards 0 here.
    sums = folded(operators.segment_sum, src, segmented, out)
    ones = folded(operators.segment_sum, torch.ones_like(src), segmented, None).clamp(min=1)
    return sums.div(ones, rounding_mode="trunc")


def segment_min_coo(src: Tensor, index: Tensor, out: Tensor | None, dim_size: int | None) -> tuple[Tensor, Tensor]:
    return found(operators.segment_min, src, coo_rows("segment_min_coo", src, index, out, dim_size), out)


def segment_max_coo(src: Tensor, index: Tensor, out: Tensor | None, dim_size: int | None) -> tuple[Tensor, Tensor]:
    return found(operators.segment_max, src, coo_rows("segment_max_coo", src, index, out, dim_size), out)


def gather_coo(src: Tensor, index: Tensor) -> Tensor:
    name = "gather_coo"
    check(name, src, index, None)
    dim = index.dim() - 1
    if not 0 <= dim < src.dim():
        raise ConfigError(
            f"{name}: the index has {dim + 1} dimensions and src {src.dim()}; it has at least 1 and no more"
        )
    index = expanded(name, index, [*src.shape[:dim], index.shape[-1]])
    shape = torch.Size([*index.shape, *src.shape[dim + 1 :]])
    segmented = Rows(name, shape, index, dim, src.shape[dim], True)
    values = operators.gather(segmented.flat(src), segmented.flat_dim, segmented.index, segmented.plan)
    return segmented.per_row(values)


def ranges(name: str, src: Tensor, indptr: Tensor, rows: int) -> Ranges:
    """Segments of `rows` rows by offsets, whose batches are those of `src`."""
    check(name, src, indptr, None)
    if not 1 <= indptr.dim() <= src.dim():
        raise ConfigError(
            f"{name}: indptr has {indptr.dim()} dimensions and src {src.dim()}; it has at least 1 and no more"
        )
    return Ranges(name, list(src.shape[: indptr.dim() - 1]), rows, indptr)


def csr_rows(name: str, src: Tensor, indptr: Tensor) -> Ranges:
    """The rows of `src` in segments by offsets."""
    require_tensors(name, src=src, indptr=indptr)
    return ranges(name, src, indptr, src.shape[indptr.dim() - 1] if indptr.dim() <= src.dim() else 0)


def csr_folded(operator: Operator, src: Tensor, ranges: Ranges) -> Tensor:
    """Sums or means of segments."""
    return ranges.per_segment(operator(ranges.flat(src), ranges.flat_dim, None, ranges.plan, None), src.shape)


def csr_found(operator: Operator, src: Tensor, ranges: Ranges) -> tuple[Tensor, Tensor]:
    """Extrema of segments and the rows that they are in."""
    values, arguments = operator(ranges.flat(src), ranges.flat_dim, ranges.plan, None)
    return ranges.per_segment(values, src.shape), ranges.arguments(arguments, src.shape)


def segment_sum_csr(src: Tensor, indptr: Tensor) -> Tensor:
    return csr_folded(operators.segment_sum, src, csr_rows("segment_sum_csr", src, indptr))


def segment_mean_csr(src: Tensor, indptr: Tensor) -> Tensor:
    segmented = csr_rows("segment_mean_csr", src, indptr)
    if src.dtype in FLOATS:
        return csr_folded(operators.segment_mean, src, segmented)
    ones = csr_folded(operators.segment_sum, torch.ones_like(src), segmented).clamp(min=1)
    return csr_folded(operators.segment_sum, src, segmented).div(ones, rounding_mode="trunc")


def segment_min_csr(src: Tensor, indptr: Tensor) -> tuple[Tensor, Tensor]:
    return csr_found(operators.segment_min, src, csr_rows("segment_min_csr", src, indptr))


def segment_max_csr(src: Tensor, indptr: Tensor) -> tuple[Tensor, Tensor]:
    return csr_found(operators.segment_max, src, csr_rows("segment_max_csr", src, indptr))


def gather_csr(src: Tensor, indptr: Tensor) -> Tensor:
    name = "gather_csr"
    require_tensors(name, src=src, indptr=indptr)
    dim = indptr.dim() - 1
    size = int(indptr.reshape(-1)[-1]) if src.numel() > 0 and indptr.numel() > 0 else 0
    segmented = ranges(name, src, indptr, size)
    if src.shape[dim] not in (0, segmented.segments):
        raise ConfigError(
            f"{name}: src has {src.shape[dim]} segments in dimension {dim} and indptr {segmented.segments}"
        )
    shape = [size if k == dim else length for k, length in enumerate(src.shape)]
    if src.numel() == 0:
        return src.reshape(shape) if size == src.shape[dim] else src.new_zeros(shape)
    values: Tensor = operators.gather(segmented.flat_segments(src), segmented.flat_dim, None, segmented.plan)
    return values.view(shape)


def check_floats(name: str, src: Tensor) -> None:
    """Refuses integers."""
    require_tensors(name, src=src)
    if src.dtype not in FLOATS:
        raise ConfigError(f"{name} is computed for floating-point numbers only, and src is {src.dtype}")


def scatter_softmax(src: Tensor, index: Tensor, dim: int, dim_size: int | None) -> Tensor:
    check_floats("scatter_softmax", src)
    segmented = rows("scatter_softmax", src, index, dim, None, dim_size)
    y = operators.segment_softmax(segmented.flat(src), segmented.flat_dim, segmented.index, segmented.plan, None)
    return segmented.per_row(y)


def scatter_log_softmax(src: Tensor, index: Tensor, dim: int, eps: float, dim_size: int | None) -> Tensor:
    check_floats("scatter_log_softmax", src)
    segmented = rows("scatter_log_softmax", src, index, dim, None, dim_size)
    y = operators.segment_softmax(segmented.flat(src), segmented.flat_dim, segmented.index, segmented.plan, eps)
    return segmented.per_row(y)


def scatter_logsumexp(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None, eps: float
) -> Tensor:
    """ln(Σ exp(x − m) + eps) + m, where m is the maximum of a segment and of `out`; an empty segment has 0 or `out`."""
    check_floats("scatter_logsumexp", src)
    segmented = rows("scatter_logsumexp", src, index, dim, out, dim_size)
    x, along = segmented.flat(src), segmented.flat_dim
    base = None if out is None else segmented.flat(out)
    with torch.no_grad():
        # No row has more than the least number: an empty segment's maximum.
        least = torch.full_like(maxima_of(x, segmented), -torch.inf) if base is None else base
        maxima, _ = operators.segment_max(x.detach(), along, segmented.plan, least.detach())
        finite = torch.where(maxima == -torch.inf, 0, maxima)
        row_maxima = operators.gather(finite, along, segmented.index, segmented.plan)
    terms = None if base is None else (base - finite).exp()
    sums = operators.segment_sum((x - row_maxima).exp(), along, segmented.index, segmented.plan, terms)
    values = (sums + eps).log() + finite
    empty = maxima == -torch.inf
    return segmented.per_segment(torch.where(empty, torch.zeros_like(maxima) if base is None else base, values))


def maxima_of(x: Tensor, segmented: Rows) -> Tensor:
    """A tensor as maxima of segments are."""
    dim = segmented.flat_dim
    return x.new_empty([segmented.plan.shape[0] - 2 - size if k == dim else size for k, size in enumerate(x.shape)])


def scatter_std(
    src: Tensor, index: Tensor, dim: int, out: Tensor | None, dim_size: int | None, unbiased: bool
) -> Tensor:
    """√(Σ (x − mean)² ∕ (n − 1 + 10⁻⁶)), of n rows at least 2; without `unbiased` by n."""
    check_floats("scatter_std", src)
    segmented = rows("scatter_std", src, index, dim, out, dim_size)
    x, along = segmented.flat(src), segmented.flat_dim
    means = operators.segment_mean(x, along, segmented.index, segmented.plan, None)
    deviations = x - operators.gather(means, along, segmented.index, segmented.plan)
    base = None if out is None else segmented.flat(out)
    squares = operators.segment_sum(deviations * deviations, along, segmented.index, segmented.plan, base)
    counts = operators.counts(segmented.plan, squares, along)
    if unbiased:
        counts = (counts - 1).clamp(min=1)
    variances = squares / (counts + 1e-6)
    # The slope of a root is infinite at 0, and times the deviations it would be NaN.
    is_zero = variances == 0
    return segmented.per_segment(torch.where(is_zero, 0, torch.where(is_zero, 1, variances).sqrt()))


_SCATTER = "Tensor src, Tensor index, int dim, Tensor? out, int? dim_size"
_COO = "Tensor src, Tensor index, Tensor? out, int? dim_size"
_CSR = "Tensor src, Tensor indptr"
_PAIR = "(Tensor, Tensor)"

_COMPOSITES: list[tuple[Any, str, str]] = [
    (scatter_sum, _SCATTER, "Tensor"),
    (scatter_mul, _SCATTER, "Tensor"),
    (scatter_mean, _SCATTER, "Tensor"),
    (scatter_min, _SCATTER, _PAIR),
    (scatter_max, _SCATTER, _PAIR),
    (segment_sum_coo, _COO, "Tensor"),
    (segment_mean_coo, _COO, "Tensor"),
    (segment_min_coo, _COO, _PAIR),
    (segment_max_coo, _COO, _PAIR),
    (gather_coo, "Tensor src, Tensor index", "Tensor"),
    (segment_sum_csr, _CSR, "Tensor"),
    (segment_mean_csr, _CSR, "Tensor"),
    (segment_min_csr, _CSR, _PAIR),
    (segment_max_csr, _CSR, _PAIR),
    (gather_csr, _CSR, "Tensor"),
    (scatter_softmax, "Tensor src, Tensor index, int dim, int? dim_size", "Tensor"),
    (scatter_log_softmax, "Tensor src, Tensor index, int dim, float eps, int? dim_size", "Tensor"),
    (scatter_logsumexp, f"{_SCATTER}, float eps", "Tensor"),
    (scatter_std, f"{_SCATTER}, bool unbiased", "Tensor"),
]
for _function, _arguments, _result in _COMPOSITES:
    operators.LIBRARY.define(f"{_function.__name__}({_arguments}) -> {_result}")
    operators.LIBRARY.impl(_function.__name__, _function, "CompositeImplicitAutograd")
