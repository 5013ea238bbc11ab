"""PyTorch's memory from megabatch's pool. PyTorch is imported here.

    mb.torch.use_pool()      # before the first CUDA tensor

Without a pool, as on a machine without a GPU, `scope`, `epoch` and `reset_peak` do nothing; what records, tells or writes
something raises `ConfigError`. See docs/guide/out-of-memory.md.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn, Union

from . import _megabatch
from ._arguments import flag
from ._loader_arguments import refuse_unknown
from ._requirements import required
from .errors import ConfigError, DeviceError

with required("megabatch.torch"):
    import torch
    import torch.cuda.memory

__all__ = [
    "MemoryGrowthWarning",
    "epoch",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "record",
    "reset_peak",
    "scope",
    "trace",
    "use_pool",
]

Device = Union[int, str, "torch.device", None]

# The pool of the process, from `use_pool` on.
_pool: _megabatch.TorchPool | None = None
# Bytes of each owner at the end of the last epoch, by device.
_last_epoch: dict[int, dict[str, int]] = {}


class MemoryGrowthWarning(UserWarning):
    """Memory that grows from epoch to epoch."""


def use_pool(
    stitching: bool = True, budget: int | str | None = None, leave: int | str = 1 << 30, **others: NoReturn
) -> None:
    """Gives PyTorch's CUDA tensors memory from megabatch's pool, which does not fragment: scattered free pieces are
    mapped side by side for a large tensor. Call it before anything of CUDA.

    `budget` bounds what tensors may hold on a GPU at once, `leave` is what others keep of its free memory: kernels,
    NCCL, other processes. Both are bytes or a text such as `4GiB`. A shortage is a RuntimeError that begins with
    "CUDA out of memory". CUDA graphs, `torch.compile(mode="reduce-overhead")`, `torch.backends.cudnn.benchmark`,
    `torch.cuda.MemPool` and tensors shared with other processes need PyTorch's own allocator and are refused."""
    global _pool
    refuse_unknown(others, ("stitching", "budget", "leave"), "use_pool()")
    stitching = flag(stitching, "stitching")
    if _pool is not None:
        raise ConfigError("use_pool() was called before: a process has one pool")
    if not torch.backends.cuda.is_built():
        raise DeviceError(f"PyTorch {torch.__version__} was built without CUDA; `mb.doctor()` says how to install one with it")
    if torch.cuda.is_initialized():
        raise ConfigError("use_pool() comes too late: this program has used CUDA. Call it right after the imports")
    if torch.backends.cudnn.benchmark:
        raise ConfigError(
            "torch.backends.cudnn.benchmark measures with PyTorch's own allocator: set it to False, or leave out use_pool()"
        )
    try:
        pool = _megabatch.TorchPool(stitching=stitching, budget=None if budget is None else str(budget), leave=str(leave))
    except DeviceError:
        if torch.cuda.is_available():
            raise
        raise DeviceError(
            "the pool needs a GPU, and PyTorch finds none here; in a program that also runs without one, call use_pool() "
            "after `if torch.cuda.is_available():`"
        ) from None
    functions = dict(pool.callbacks())
    allocator = torch._C._cuda_customAllocator(functions["malloc"], functions["free"])
    allocator.set_record_stream_fn(functions["record_stream"])
    allocator.set_reset_fn(functions["reset"])
    allocator.set_memory_fraction_fn(functions["memory_fraction"])
    allocator.set_base_alloc_fn(functions["base_alloc"])
    allocator.set_begin_allocate_to_pool(functions["begin_allocate_to_pool"])
    torch.cuda.memory.change_current_allocator(torch.cuda.memory._CUDAAllocator(allocator))
    _pool = pool
    _replace_statistics()
    # The pool expects a step to repeat the requests of the one before.
    torch.optim.optimizer.register_optimizer_step_post_hook(lambda *_: pool.step())


def memory_stats(device: Device = None) -> dict[str, Any]:
    """The counters of PyTorch's `torch.cuda.memory_stats` that the pool has, by PyTorch's keys, and its own:
    `stitches`, `driver_calls`, and `owners` with the bytes of each scope. Bytes, and numbers of blocks."""
    facts = _memory(device)
    stats: dict[str, Any] = {}
    for key in ("allocated_bytes", "requested_bytes", "reserved_bytes", "inactive_split_bytes"):
        _put(stats, key, facts[key], facts[f"{key}_peak"])
    _put(stats, "active_bytes", facts["allocated_bytes"], facts["allocated_bytes_peak"])
    for key in ("allocation", "active"):
        _put(stats, key, facts["blocks"], facts["blocks_peak"])
        stats[f"{key}.all.allocated"] = facts["allocations_total"]
        stats[f"{key}.all.freed"] = facts["allocations_total"] - facts["blocks"]
    stats["num_ooms"] = facts["shortages_total"]
    stats["num_alloc_retries"] = 0
    stats["stitches"] = facts["stitches_total"]
    stats["driver_calls"] = facts["driver_calls_total"]
    stats["owners"] = facts["owners"]
    return stats


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The memory of a GPU in a few lines, with its owners unless `abbreviated`."""
    abbreviated = flag(abbreviated, "abbreviated")
    facts = _memory(device)
    lines = [
        f"{name:>12}  {_size(facts[key])} now, {_size(facts[f'{key}_peak'])} at the peak"
        for name, key in (("allocated", "allocated_bytes"), ("reserved", "reserved_bytes"))
    ]
    lines.append(f"{'may hold':>12}  {_size(facts['capacity_bytes'])}")
    lines.append(f"{'largest free':>12}  {_size(facts['largest_free_block_bytes'])} at consecutive addresses")
    if not abbreviated:
        owners = sorted(facts["owners"].items(), key=lambda item: -item[1]["allocated_bytes"])
        lines += [f"{owner:>12}  {_size(usage['allocated_bytes'])}" for owner, usage in owners]
    return "\n".join(lines)


def reset_peak(device: Device = None) -> None:
    """Sets all peaks to the current values."""
    if _pool is not None:
        _pool.reset_peak(_index(device))


def memory_snapshot(path: str | os.PathLike[str] | None = None, device: Device = None) -> dict[str, Any]:
    """The pool's blocks, and its last events if `record` was called before, in the format of
    `torch.cuda.memory._snapshot`; `path` gets it as a pickle for https://pytorch.org/memory_viz."""
    pickled = _the_pool().snapshot(_index(device))
    if path is not None:
        with open(path, "wb") as file:
            file.write(pickled)
    snapshot: dict[str, Any] = pickle.loads(pickled)
    return snapshot


def record(device: Device = None) -> None:
    """Records the last 200,000 events from now on, for `memory_snapshot`."""
    _the_pool().record(_index(device), None)


@contextlib.contextmanager
def trace(path: str | os.PathLike[str], device: Device = None) -> Iterator[None]:
    """Writes every allocation in a `with` block to `path`, for `megabatch memory replay`."""
    pool, index = _the_pool(), _index(device)
    pool.record(index, path)
    try:
        yield
    finally:
        pool.finish_trace(index, path)


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """Memory that is allocated in a `with` block, on any thread, belongs to `name`."""
    pool = _pool
    if pool is None:
        yield
        return
    pool.enter_scope(name)
    try:
        yield
    finally:
        pool.leave_scope()


def epoch(device: Device = None) -> dict[str, int]:
    """Ends an epoch: the bytes by which each owner's memory has changed since the last one, without those that have
    not. Warns where memory grew by more than 100 MB in three epochs or more."""
    if _pool is None:
        return {}
    index = _index(device)
    leak = _pool.epoch(index)
    owners = {owner: usage["allocated_bytes"] for owner, usage in _memory(device)["owners"].items()}
    before = _last_epoch.get(index, {})
    _last_epoch[index] = owners
    if leak is not None:
        growth = ", ".join(f"{one['owner']} by {_size(one['bytes'])} in {one['epochs']} epochs" for one in leak["owners"])
        warnings.warn(
            f"memory of cuda:{index} grows from epoch to epoch: {growth}. Something keeps tensors, such as a list of "
            "losses that was not detached",
            MemoryGrowthWarning,
            stacklevel=2,
        )
    if not before:
        return {}
    changes = {owner: owners.get(owner, 0) - before.get(owner, 0) for owner in {*owners, *before}}
    return {owner: change for owner, change in sorted(changes.items()) if change}


def _the_pool() -> _megabatch.TorchPool:
    if _pool is None:
        raise ConfigError("there is no pool: call mb.torch.use_pool() before anything of CUDA")
    return _pool


def _memory(device: Device) -> dict[str, Any]:
    return _the_pool().memory(_index(device))


def _index(device: Device) -> int:
    if device is None:
        return int(torch.cuda.current_device())
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return int(torch.cuda.current_device()) if index is None else int(index)


def _put(stats: dict[str, Any], key: str, now: int, peak: int) -> None:
    stats[f"{key}.all.current"], stats[f"{key}.all.peak"] = now, peak


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 1 << 30 else f"{size / 2**20:.1f} MiB"


def _replace_statistics() -> None:
    """Has the functions of `torch.cuda` that ask PyTorch's own allocator ask the pool."""

    def refused(name: str, instead: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise RuntimeError(f"torch.cuda.memory.{name} looks into PyTorch's own allocator; with use_pool() call {instead}")

        return refuse

    replacements: dict[str, Any] = {
        "memory_stats": memory_stats,
        "memory_summary": memory_summary,
        "reset_peak_memory_stats": reset_peak,
        "memory_snapshot": lambda *_, **__: memory_snapshot()["segments"],
        "reset_accumulated_memory_stats": lambda *_, **__: None,
        "_snapshot": lambda device=None, **__: memory_snapshot(device=device),
        "_dump_snapshot": lambda filename="dump_snapshot.pickle", **__: memory_snapshot(filename),
        "_record_memory_history": refused("_record_memory_history", "mb.torch.record()"),
    }
    for name, function in replacements.items():
        setattr(torch.cuda.memory, name, function)
        if hasattr(torch.cuda, name):
            setattr(torch.cuda, name, function)
