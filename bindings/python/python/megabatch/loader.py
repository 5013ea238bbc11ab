"""Batches of a dataset."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar, overload

import numpy as np
import numpy.typing as npt

from . import _megabatch
from ._arguments import flag, whole_number
from ._finite import require_finite
from ._loader_arguments import InTurn, checked_place, checked_ranks, leaves_out_remainder, order_of, refuse_unknown
from ._options_help import given, list_options
from .errors import ConfigError

if TYPE_CHECKING:
    from .dataset import Dataset

Batch = dict[str, npt.NDArray[Any]]
_T = TypeVar("_T")
_E = TypeVar("_E")

__all__ = ["Batch", "Loader", "LoaderOptions", "TensorOptions"]


class GatheredSamples(Sequence[Batch]):
    """Samples that were gathered as one batch, each by itself once one of them is asked for."""

    def __init__(self, *, batch: Batch) -> None:
        # PyTorch pins and converts a sequence by giving a list to its type. As the argument must
        # be named, that is a TypeError here, and PyTorch keeps the list.
        self.batch = batch
        self._parted: list[Batch] | None = None

    def _samples(self) -> list[Batch]:
        if self._parted is None:
            self._parted = [dict(zip(self.batch, rows)) for rows in zip(*self.batch.values())]
        return self._parted

    def __len__(self) -> int:
        return len(next(iter(self.batch.values())))

    @overload
    def __getitem__(self, place: int) -> Batch: ...
    @overload
    def __getitem__(self, place: slice) -> list[Batch]: ...
    def __getitem__(self, place: int | slice) -> Batch | list[Batch]:
        return self._samples()[place]

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._samples())


class TensorOptions(TypedDict, total=False):
    """Options of a loader whose batches become tensors."""

    shuffle: bool
    """Samples come in the order of training with the same seed; else in that of the file. Of a series, neighbours stay
    together as `run_length` says: a batch then has a few runs of consecutive samples, which is faster and less random."""
    seed: int
    """Decides the order of shuffled samples, 0 by default."""
    run_length: int | None
    """Consecutive samples that stay together when they are shuffled: by default as many as training takes, up to a whole
    batch of a series. 1 shuffles fully, as PyTorch does."""
    drop_last: bool
    """Samples at an epoch's end that do not fill a batch are left out."""
    rank: int
    """The process whose part of each batch is taken, counted from 0. A last batch with fewer samples than there are
    processes is left out by all."""
    world_size: int
    """Number of processes, 1 by default."""
    chunk_bytes: int
    """Bytes that are read ahead at once of samples in a windows file, 64 MiB by default."""


class LoaderOptions(TensorOptions, total=False):
    """Options of a loader."""

    overlap: bool
    """Windows that are evenly apart in the bars of an unshuffled series are views of these bars."""


list_options(TensorOptions, LoaderOptions)


CHUNK_BYTES = 64 << 20
"""Bytes that a loader reads ahead by default."""


def require_same_order(state: Any, order: dict[str, Any], others: dict[str, str], path: Any = None) -> None:
    """Refuses the state of a loader whose batches are others than those of `order`. `others` says by key what the other
    loader has, where that is no value that a user gave."""
    found = order_of(state, "loader", path)
    for key, own in order.items():
        theirs = found.get(key)
        if theirs != own:
            where = "" if path is None else f"{path}: "
            what = others.get(key, f"{key}={theirs}, and this one has {own}")
            raise ConfigError(
                f"{where}the state is of a loader with {what}: their batches differ",
                key=key,
                **({} if path is None else {"file": str(path)}),
            )


def require_same_data(state: Mapping[str, Any], own: str | None, path: Any = None) -> None:
    """Refuses the state of a loader of other data than those whose mark is `own`."""
    if None not in (own, state.get("data")) and own != state["data"]:
        where = "" if path is None else f"{path}: "
        raise ConfigError(
            f"{where}the state is of a loader with other data: their batches differ",
            key="data",
            **({} if path is None else {"file": str(path)}),
        )


class Loader(InTurn):
    """Batches of a dataset, as dicts of arrays: a window `[B, T, F]` for each timeframe, `targets` `[B, K]` and
    `sample` `[B]`, the numbers of the samples in their file.

    A loop over the loader is one epoch. After the last batch, seen by the loop or counted by it, the loader stands at
    the next epoch, whose order is another one. `batch_size` counts the samples of all ranks together, as in training.
    All ranks have as many batches: a last one with fewer samples than ranks is left out.

    A feature of a windows file that is not finite, and an infinite target, raise `DataError` with their place. NaN is an
    unknown target.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 256,
        *,
        shuffle: bool = False,
        seed: int = 0,
        run_length: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        chunk_bytes: int = CHUNK_BYTES,
        overlap: bool = False,
        **others: NoReturn,
    ) -> None:
        options: dict[str, Any] = {"batch_size": batch_size, **given(LoaderOptions, locals())}
        refuse_unknown(others, ("batch_size", *LoaderOptions.__annotations__))
        if dataset.layout == "graphs":
            raise ConfigError(
                f"{dataset.path}: a file of graphs, which another loader gathers: mb.graph.open(path).loader()",
                file=str(dataset.path),
            )
        for name, least in (("batch_size", 1), ("seed", 0), ("chunk_bytes", 0)):
            options[name] = whole_number(options[name], name, least)
        if options["run_length"] is not None:
            options["run_length"] = whole_number(options["run_length"], "run_length", 1)
        for name in ("shuffle", "drop_last", "overlap"):
            options[name] = flag(options[name], name)
        ranks = checked_ranks(options["rank"], options["world_size"], options["batch_size"], len(dataset), "samples")
        options["rank"], options["world_size"] = ranks
        self._options = options
        indices = dataset._indices
        self._dataset = dataset
        self._keys = [*(name or "features" for name in dataset.timeframes), "targets"]
        chosen = None if indices is None else indices.tobytes()
        is_short = leaves_out_remainder(len(dataset), options["batch_size"], options["world_size"])
        native = {**options, "drop_last": options["drop_last"] or is_short}
        self._native = _megabatch.Loader(dataset._native, chosen, self._keys, native)
        self._epoch = 0
        self._batch = 0
        self._resumes = False
        # What decides the order of samples, whatever the ranks.
        self._order = {
            "samples": len(dataset),
            "chosen": 0 if chosen is None else zlib.crc32(chosen),
            **{name: options[name] for name in ("batch_size", "shuffle", "seed")},
            "run_length": self._native.run_length(),
            "drop_last": options["drop_last"],
        }

    @property
    def dataset(self) -> Dataset:
        """The samples."""
        return self._dataset

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._place()[0]

    @property
    def run_length(self) -> int | None:
        """Consecutive samples that stay together when they are shuffled."""
        return self._native.run_length()

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self._native.batches_per_epoch()

    def set_epoch(self, epoch: int) -> None:
        """Begins at the first batch of `epoch`."""
        self._epoch, self._batch, self._resumes = whole_number(epoch, "epoch"), 0, False

    def __iter__(self) -> Iterator[Batch]:
        return self._batches(self._native.epoch, _megabatch.Epoch.next_arrays, self._require_finite_arrays)

    def _writable_batches(self) -> Iterator[Batch]:
        """The batches as arrays that may be written."""
        return self._batches(self._native.epoch, _megabatch.Epoch.next_writable_arrays, self._require_finite_arrays)

    def _tables(self) -> Iterator[tuple[bytes, list[_megabatch.Table]]]:
        """The batches as their samples and tables to be taken over."""
        return self._batches(self._native.epoch, _megabatch.Epoch.next_tables, self._require_finite_tables)

    def _samples(self) -> Iterator[bytearray]:
        """The samples of the batches, 64-bit integers, without the batches."""
        return self._batches(self._native.epoch_samples, _megabatch.EpochSamples.next_samples)

    def _require_finite_arrays(self, batch: Batch) -> None:
        self._require_finite(batch["sample"], (batch[key] for key in self._keys))

    def _require_finite_tables(self, batch: tuple[bytes, list[_megabatch.Table]]) -> None:
        samples, tables = batch
        self._require_finite(np.frombuffer(samples, np.int64), map(np.from_dlpack, tables))

    def _require_finite(self, samples: npt.NDArray[np.int64], tables: Iterable[npt.NDArray[Any]]) -> None:
        """Refuses samples of a windows file that are not to be trained on, each when it is gathered first. Those of a
        series were checked when it was opened."""
        are_checked = self._dataset._are_checked
        if are_checked is None or are_checked[samples].all():
            return
        require_finite(self._dataset, samples, tables)
        are_checked[samples] = True

    def _batches(
        self,
        begin: Callable[[int, int], _E],
        take: Callable[[_E], _T | None],
        check: Callable[[_T], None] | None = None,
    ) -> Iterator[_T]:
        """The batches of an epoch, as `take` takes them of what `begin` gives for an epoch and its first batch. Each
        passes `check` before it is given."""
        epoch, batch = self._place()
        first = batch if self._resumes else 0
        self._resumes = False
        self._epoch, self._batch = epoch, first
        native = begin(epoch, first)
        while (taken := take(native)) is not None:
            if check is not None:
                check(taken)
            self._epoch, self._batch = epoch, self._batch + 1
            yield taken
            # Only the caller holds the batch while the next one is gathered.
            del taken
        self._epoch, self._batch = epoch + 1, 0

    def _place(self) -> tuple[int, int]:
        """Epoch and batch that come next. An epoch of which every batch was given is over, whether or not the loop has
        seen its end."""
        return (self._epoch, self._batch) if self._batch < len(self) else (self._epoch + 1, 0)

    @functools.cached_property
    def _mark(self) -> str | None:
        return file_mark(self._dataset)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, for `load_state_dict` of a loader of any rank and world size."""
        epoch, batch = self._place()
        return {"version": 1, "epoch": epoch, "batch": batch, "order": dict(self._order), "data": self._mark}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader stood. Both have the same samples in the same order."""
        require_same_order(state, self._order, {"samples": "other data", "chosen": "another choice of samples"})
        require_same_data(state, self._mark)
        self._epoch, self._batch = checked_place(state, lambda _: len(self))
        self._resumes = True

    def __reduce__(self) -> tuple[Any, ...]:
        return _reloaded, (self._dataset, self._options, (self._epoch, self._batch, self._resumes))

    def __repr__(self) -> str:
        return f"<megabatch.Loader: {len(self)} batches of {self._order['batch_size']} samples>"


def file_mark(dataset: Dataset) -> str | None:
    """What tells a file from others of its length without reading it whole: the fingerprint of a verified series, and
    of other files a checksum of their times and of three samples. `None` for a file without samples."""
    native = dataset._native
    mark = native.marked_fingerprint()
    if mark is not None or not native.units():
        return mark
    places = np.unique(np.array([0, native.units() // 2, native.units() - 1], dtype=np.int64))
    loader = Loader(dataset._chosen(places), len(places))
    batch = next(loader._batches(loader._native.epoch, _megabatch.Epoch.next_arrays))
    checksum = zlib.crc32(native.sample_times() or b"")
    for key, array in batch.items():
        checksum = zlib.crc32(f"{key} {array.shape}".encode() + array.tobytes(), checksum)
    return f"{checksum:08x}"


def _reloaded(dataset: Dataset, options: dict[str, Any], place: tuple[int, int, bool]) -> Loader:
    """A copy of a loader that stands at the same place."""
    loader = Loader(dataset, **options)
    loader._epoch, loader._batch, loader._resumes = place
    return loader
