"""`megabatch.scatter` in the places of torch_scatter and of PyTorch Geometric's own functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

import torch
from torch import Tensor

from . import _scatter_operators as operators
from ._scatter_kernels import KINDS
from ._scatter_plan import Plan
from .errors import ConfigError

_SUBMODULES = ("composite", "scatter", "segment_coo", "segment_csr")
"""Modules of torch_scatter that programs import its functions from."""


def install(module: ModuleType) -> None:
    """Puts `module` under the name torch_scatter."""
    present = sys.modules.get("torch_scatter")
    if present is module:
        return
    if present is not None:
        raise ConfigError("torch_scatter has been imported already: call megabatch.scatter.install() before")
    if "torch_geometric" in sys.modules:
        raise ConfigError(
            "torch_geometric has been imported already and has looked for torch_scatter: call megabatch.scatter.install() "
            "before, or megabatch.scatter.patch_pyg() now"
        )
    sys.modules["torch_scatter"] = module
    sys.modules.update({f"torch_scatter.{name}": module for name in _SUBMODULES})


class PygPatch:
    """Functions of PyTorch Geometric that are replaced. `with` puts them back at its end, and so does `undo`."""

    def __init__(self) -> None:
        import torch_geometric.utils as utils

        self._replaced: list[tuple[str, Any, Any]] = []
        plans = _Plans()
        for name, replacement in (("scatter", _scatter), ("softmax", _softmax)):
            original = getattr(utils, name)
            if getattr(original, "replaces", None) is not None:
                raise ConfigError("PyTorch Geometric is patched already: undo the first patch")
            self._replaced.append((name, original, replacement(original, plans)))
        for name, original, ours in self._replaced:
            _replace(name, original, ours)

    def undo(self) -> None:
        """Puts PyTorch Geometric's functions back."""
        for name, original, ours in self._replaced:
            _replace(name, ours, original)
        self._replaced = []

    def __enter__(self) -> PygPatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.undo()


def _replace(name: str, old: Any, new: Any) -> None:
    """Replaces a function in all modules that have it: those of PyTorch Geometric import it by name, and so do the ones
    that it writes for layers."""
    for module in list(sys.modules.values()):
        members = getattr(module, "__dict__", {})
        if members.get(name) is old:
            members[name] = new


def _takes(src: Tensor, index: Tensor) -> bool:
    """True for tensors that the operators take; others, an `Index` of PyTorch Geometric say, go to its own function."""
    return (
        operators.is_ordinary(src)
        and type(index) is Tensor
        and index.dim() == 1
        and index.dtype == torch.int64
        and src.dtype in KINDS
        and not torch.compiler.is_compiling()
    )


class _Plans:
    """The plan of the last index, which a layer reduces by several times. A view of the same numbers is the same index.

    Memory of numpy and of others is compared, as they write to it without PyTorch's knowledge."""

    def __init__(self) -> None:
        self._last: tuple[Any, Plan, Tensor | None] | None = None
        """What tells an index, its plan, and its numbers where others may write them."""

    def get(self, index: Tensor, dim_size: int | None) -> Plan:
        """The plan of an index."""
        if index.is_inference():
            return Plan(index, dim_size)
        stream = torch.cuda.current_stream(index.device).cuda_stream if index.is_cuda else None
        key = (index.data_ptr(), index._version, index.shape[0], index.stride(0), dim_size, index.device, stream)
        if self._last is not None:
            known, plan, numbers = self._last
            if known == key and (numbers is None or torch.equal(numbers, index)):
                return plan
        is_lent = index.device.type == "cpu" and not index.untyped_storage().resizable()
        plan = Plan(index, dim_size)
        self._last = (key, plan, index.clone() if is_lent else None)
        return plan


def _scatter(original: Callable[..., Tensor], plans: _Plans) -> Callable[..., Tensor]:
    reductions = {
        "sum": Plan.sum,
        "add": Plan.sum,
        "mean": Plan.mean,
        "mul": Plan.mul,
        "min": Plan.min,
        "amin": Plan.min,
        "max": Plan.max,
        "amax": Plan.max,
    }

    def scatter(src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Tensor:
        function: Any = reductions.get(reduce)
        if function is None or not _takes(src, index):
            return original(src, index, dim, dim_size, reduce)
        result = function(plans.get(index, dim_size), src, dim)
        return result[0] if isinstance(result, tuple) else result

    scatter.replaces = original  # type: ignore[attr-defined]
    return scatter


def _softmax(original: Callable[..., Tensor], plans: _Plans) -> Callable[..., Tensor]:
    def softmax(
        src: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        num_nodes: int | None = None,
        dim: int = 0,
    ) -> Tensor:
        if index is None or ptr is not None or not src.is_floating_point() or not _takes(src, index):
            return original(src, index, ptr, num_nodes, dim)
        return plans.get(index, num_nodes).softmax(src, dim)

    softmax.replaces = original  # type: ignore[attr-defined]
    return softmax
