"""Arguments that loaders share, and what is said of wrong ones."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from ._arguments import require, whole_number, wrong
from .errors import ConfigError

_WORKERS = "all cores gather batches in this process"
# Options of PyTorch's DataLoader that loaders do not have, and why.
_OF_PYTORCH = {
    **dict.fromkeys(("num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn"), _WORKERS),
    **dict.fromkeys(("multiprocessing_context", "timeout"), _WORKERS),
    **dict.fromkeys(("pin_memory", "pin_memory_device"), 'device="cuda" gives batches that lie on the GPU'),
    **dict.fromkeys(("sampler", "batch_sampler"), "shuffle=, seed=, rank= and world_size= choose the samples"),
    "generator": "seed= decides the order",
    "collate_fn": "a batch comes as whole tensors",
}


def checked_ranks(
    rank: Any, world_size: Any, batch_size: int | None, count: int, unit: str, path: Any = None
) -> tuple[int, int]:
    """Rank and world size as whole numbers. Refuses numbers of processes that cannot each have a part of a batch of
    `batch_size`, out of `count` units."""
    rank, world_size = whole_number(rank, "rank", path=path), whole_number(world_size, "world_size", 1, path=path)
    require(rank < world_size, rank, "rank", f"0 to {world_size - 1}, as world_size is {world_size}", path)
    if batch_size is not None:
        least = f"{world_size} or more, one of the {unit} for each of world_size={world_size} processes"
        require(batch_size >= world_size, batch_size, "batch_size", least, path)
        most = f"{count} at most, as there are {count} {unit} and each process needs one"
        require(world_size == 1 or count >= world_size, world_size, "world_size", most, path)
    return rank, world_size


def warn_of_missing_ranks(world_size: int) -> None:
    """Warns the caller's caller where each process of `torch.distributed` would have all batches."""
    # A program that has not imported it has no processes of it.
    distributed: Any = sys.modules.get("torch.distributed")
    if world_size > 1 or distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return
    processes = distributed.get_world_size()
    if processes > 1:
        warnings.warn(
            f"torch.distributed has {processes} processes, and each gets all batches of this loader: give "
            "rank=torch.distributed.get_rank() and world_size=torch.distributed.get_world_size()",
            stacklevel=3,
        )


def warn_of_unequal_parts(batch_size: int | None, world_size: int) -> None:
    """Warns the caller's caller where processes have unequal parts of a batch; they share none if `batch_size` is `None`."""
    if batch_size is not None and batch_size % world_size:
        warnings.warn(
            f"batch_size={batch_size} is no multiple of world_size={world_size}: the processes have unequal parts of a "
            "batch, and DistributedDataParallel averages their means; take a multiple and drop_last=True, or weight the "
            "loss by the samples of each",
            stacklevel=3,
        )


def leaves_out_remainder(count: int, batch_size: int, world_size: int) -> bool:
    """True if a last batch has fewer samples than there are processes: one without a sample would take no step, or one
    whose loss is NaN."""
    return 0 < count % batch_size < world_size


def order_of(state: Any, kind: str, path: Any = None) -> Mapping[str, Any]:
    """What decides the order of the loader that gave `state`, which is of `kind` and version 1."""
    if not isinstance(state, Mapping):
        raise wrong(state, "state", f"what state_dict() of a {kind} gives", path)
    where = "" if path is None else f"{path}: "
    version = state.get("version", 1)
    if version != 1:
        raise ConfigError(f"{where}the state is of version {version}, and this {kind} reads 1", key="version")
    if not isinstance(state.get("order"), Mapping):
        inner = [key for key, own in state.items() if isinstance(own, Mapping) and "order" in own]
        advice = f"give state[{inner[0]!r}] of it" if inner else f"expected what state_dict() of a {kind} gives"
        names = ", ".join(map(str, state)) or "nothing"
        raise ConfigError(f"{where}the state has {names}: {advice}", key="state")
    found: Mapping[str, Any] = state["order"]
    return found


def checked_place(state: Mapping[str, Any], batches_in: Callable[[int], int], path: Any = None) -> tuple[int, int]:
    """Epoch and batch of a loader's state. `batches_in` an epoch are those of the loader that goes on: after as many its
    epoch is over."""
    epoch = whole_number(state.get("epoch"), "epoch", path=path)
    batch, most = whole_number(state.get("batch"), "batch", path=path), batches_in(epoch)
    require(batch <= most, batch, "batch", f"0 to {most}, the batches of an epoch", path)
    return epoch, batch


def refuse_unknown(names: Iterable[str], options: Iterable[str], owner: str = "a loader") -> None:
    """Refuses names that are no options of `owner`."""
    for name in names:
        if name in _OF_PYTORCH:
            raise TypeError(f"leave out {name}, an option of PyTorch's DataLoader: {_OF_PYTORCH[name]}")
        known = list(options)
        nearest = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {nearest[0]}? Its" if nearest else "its"
        raise TypeError(f"{owner} has no option {name}; {meant} options are {', '.join(known)}")


class InTurn:
    """Base of loaders, whose batches come one after the other."""

    def __getitem__(self, _: Any) -> NoReturn:
        # PyTorch's DataLoader takes what is no IterableDataset by number.
        raise TypeError(f"batches of a {type(self).__name__} have no numbers: loop over it, without PyTorch's DataLoader")
