"""torch_scatter 2.1.2's functions for any PyTorch from 2.4 on, deterministic: `import megabatch.scatter as torch_scatter`.

`scatter` and its kin reduce rows of `src` along `dim` by an index in any order, `segment_coo` by a sorted one,
`segment_csr` by offsets. A result goes to `out` where it is given: sums, means and products are of its numbers too, and
extrema are at least as good as these; `segment_csr` and `gather` overwrite it. See docs/guide/scatter.md.

TorchScript compiles the functions, so that types are written as it reads them.
"""

import sys
from typing import Optional, Tuple

from ._requirements import required

with required("megabatch.scatter"):
    import torch

from . import _scatter_functions as functions
from . import _scatter_peers as peers
from ._scatter_peers import PygPatch
from ._scatter_plan import Plan

__version__ = "2.1.2"
"""Version of torch_scatter whose functions these are."""

__all__ = [
    "Plan",
    "PygPatch",
    "__version__",
    "gather_coo",
    "gather_csr",
    "install",
    "patch_pyg",
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_std",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
]


def _placed(result: torch.Tensor, out: Optional[torch.Tensor]) -> torch.Tensor:
    if out is None:
        return result
    return out.copy_(result)


def scatter_sum(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Sums of the rows of `src` with the same index."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_sum(src, index, dim, out, dim_size)
    else:
        result = functions.scatter_sum(src, index, dim, out, dim_size)
    return _placed(result, out)


def scatter_add(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """As `scatter_sum`."""
    return scatter_sum(src, index, dim, out, dim_size)


def scatter_mul(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Products of the rows of `src` with the same index; 1 of none."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_mul(src, index, dim, out, dim_size)
    else:
        result = functions.scatter_mul(src, index, dim, out, dim_size)
    return _placed(result, out)


def scatter_mean(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Means of the rows of `src` with the same index; 0 of none. Those of integers are rounded down."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_mean(src, index, dim, out, dim_size)
    else:
        result = functions.scatter_mean(src, index, dim, out, dim_size)
    return _placed(result, out)


def scatter_min(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Least of the rows of `src` with the same index, and where each is: 0 and the number of rows for none."""
    if torch.jit.is_scripting():
        values, arguments = torch.ops.megabatch.scatter_min(src, index, dim, out, dim_size)
    else:
        values, arguments = functions.scatter_min(src, index, dim, out, dim_size)
    return _placed(values, out), arguments


def scatter_max(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Greatest of the rows of `src` with the same index, and where each is: 0 and the number of rows for none."""
    if torch.jit.is_scripting():
        values, arguments = torch.ops.megabatch.scatter_max(src, index, dim, out, dim_size)
    else:
        values, arguments = functions.scatter_max(src, index, dim, out, dim_size)
    return _placed(values, out), arguments


def scatter(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduces the rows of `src` with the same index: `reduce` is sum, add, mul, mean, min or max.

    `index` is broadcast to `src`: one dimension lies along `dim`. There are `dim_size` segments, by default one more than
    the greatest index."""
    if reduce == "sum" or reduce == "add":
        return scatter_sum(src, index, dim, out, dim_size)
    if reduce == "mul":
        return scatter_mul(src, index, dim, out, dim_size)
    if reduce == "mean":
        return scatter_mean(src, index, dim, out, dim_size)
    if reduce == "min":
        return scatter_min(src, index, dim, out, dim_size)[0]
    if reduce == "max":
        return scatter_max(src, index, dim, out, dim_size)[0]
    raise ValueError(
        f"reduce is {reduce}, none of sum, add, mul, mean, min and max; for PyTorch's prod, amin and amax write mul, min and max"
    )


def segment_sum_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Sums of rows `indptr[s]` to before `indptr[s + 1]`."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.segment_sum_csr(src, indptr)
    else:
        result = functions.segment_sum_csr(src, indptr)
    return _placed(result, out)


def segment_add_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """As `segment_sum_csr`."""
    return segment_sum_csr(src, indptr, out)


def segment_mean_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Means of rows `indptr[s]` to before `indptr[s + 1]`. Those of integers are rounded towards 0."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.segment_mean_csr(src, indptr)
    else:
        result = functions.segment_mean_csr(src, indptr)
    return _placed(result, out)


def segment_min_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Least of rows `indptr[s]` to before `indptr[s + 1]`, and where each is."""
    if torch.jit.is_scripting():
        values, arguments = torch.ops.megabatch.segment_min_csr(src, indptr)
    else:
        values, arguments = functions.segment_min_csr(src, indptr)
    return _placed(values, out), arguments


def segment_max_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Greatest of rows `indptr[s]` to before `indptr[s + 1]`, and where each is."""
    if torch.jit.is_scripting():
        values, arguments = torch.ops.megabatch.segment_max_csr(src, indptr)
    else:
        values, arguments = functions.segment_max_csr(src, indptr)
    return _placed(values, out), arguments


def segment_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduces rows `indptr[s]` to before `indptr[s + 1]` of `src`: `reduce` is sum, add, mean, min or max.

    Rows lie along the last dimension of `indptr`; those before it are broadcast to `src`."""
    if reduce == "sum" or reduce == "add":
        return segment_sum_csr(src, indptr, out)
    if reduce == "mean":
        return segment_mean_csr(src, indptr, out)
    if reduce == "min":
        return segment_min_csr(src, indptr, out)[0]
    if reduce == "max":
        return segment_max_csr(src, indptr, out)[0]
    raise ValueError(
        f"reduce is {reduce}, none of sum, add, mean, min and max; for PyTorch's amin and amax write min and max"
    )


def gather_csr(
    src: torch.Tensor,
    indptr: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Row `s` of `src` for each of rows `indptr[s]` to before `indptr[s + 1]`."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.gather_csr(src, indptr)
    else:
        result = functions.gather_csr(src, indptr)
    return _placed(result, out)


def segment_sum_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Sums of the rows of `src` with the same index, which is sorted."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.segment_sum_coo(src, index, out, dim_size)
    else:
        result = functions.segment_sum_coo(src, index, out, dim_size)
    return _placed(result, out)


def segment_add_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """As `segment_sum_coo`."""
    return segment_sum_coo(src, index, out, dim_size)


def segment_mean_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Means of the rows of `src` with the same index, which is sorted. Those of integers are rounded towards 0."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.segment_mean_coo(src, index, out, dim_size)
    else:
        result = functions.segment_mean_coo(src, index, out, dim_size)
    return _placed(result, out)


def segment_min_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Least of the rows of `src` with the same index, which is sorted, and where each is."""
    if torch.jit.is_scripting():
        values, arguments = torch.ops.megabatch.segment_min_coo(src, index, out, dim_size)
    else:
        values, arguments = functions.segment_min_coo(src, index, out, dim_size)
    return _placed(values, out), arguments


def segment_max_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Greatest of the rows of `src` with the same index, which is sorted, and where each is."""
    if torch.jit.is_scripting():
        values, arguments = torch.ops.megabatch.segment_max_coo(src, index, out, dim_size)
    else:
        values, arguments = functions.segment_max_coo(src, index, out, dim_size)
    return _placed(values, out), arguments


def segment_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
    reduce: str = "sum",
) -> torch.Tensor:
    """Reduces the rows of `src` with the same index, which is sorted: `reduce` is sum, add, mean, min or max.

    Rows lie along the last dimension of `index`; those before it are broadcast to `src`."""
    if reduce == "sum" or reduce == "add":
        return segment_sum_coo(src, index, out, dim_size)
    if reduce == "mean":
        return segment_mean_coo(src, index, out, dim_size)
    if reduce == "min":
        return segment_min_coo(src, index, out, dim_size)[0]
    if reduce == "max":
        return segment_max_coo(src, index, out, dim_size)[0]
    raise ValueError(
        f"reduce is {reduce}, none of sum, add, mean, min and max; for PyTorch's amin and amax write min and max"
    )


def gather_coo(
    src: torch.Tensor,
    index: torch.Tensor,
    out: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    """Row `index[r]` of `src` for each `r`; the index is sorted."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.gather_coo(src, index)
    else:
        result = functions.gather_coo(src, index)
    return _placed(result, out)


def scatter_std(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
    unbiased: bool = True,
) -> torch.Tensor:
    """Standard deviations of the rows of `src` with the same index. The numbers of `out` are added to the squares. Where
    the deviation is 0, as that of one row is, so is the gradient."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_std(src, index, dim, out, dim_size, unbiased)
    else:
        result = functions.scatter_std(src, index, dim, out, dim_size, unbiased)
    return _placed(result, out)


def scatter_logsumexp(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    out: Optional[torch.Tensor] = None,
    dim_size: Optional[int] = None,
    eps: float = 1e-12,
) -> torch.Tensor:
    """Logarithms of the sums of the exponentials of the rows of `src` with the same index; 0 of none."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_logsumexp(src, index, dim, out, dim_size, eps)
    else:
        result = functions.scatter_logsumexp(src, index, dim, out, dim_size, eps)
    return _placed(result, out)


def scatter_softmax(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Softmax over the rows of `src` with the same index."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_softmax(src, index, dim, dim_size)
    else:
        result = functions.scatter_softmax(src, index, dim, dim_size)
    return result


def scatter_log_softmax(
    src: torch.Tensor,
    index: torch.Tensor,
    dim: int = -1,
    eps: float = 1e-12,
    dim_size: Optional[int] = None,
) -> torch.Tensor:
    """Logarithm of the softmax over the rows of `src` with the same index."""
    if torch.jit.is_scripting():
        result = torch.ops.megabatch.scatter_log_softmax(src, index, dim, eps, dim_size)
    else:
        result = functions.scatter_log_softmax(src, index, dim, eps, dim_size)
    return result


def install() -> None:
    """Puts this module under the name torch_scatter, for programs that import it and for PyTorch Geometric, which looks
    for it when it is imported: call it before."""
    peers.install(sys.modules[__name__])


def patch_pyg() -> PygPatch:
    """Replaces `scatter` and `softmax` of PyTorch Geometric by the functions here, until `undo()` or the end of `with`."""
    return PygPatch()
