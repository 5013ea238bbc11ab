"""Batches cut from large chunks on a device. PyTorch is imported here.

    loader = mb.ChunkDataLoader("aligned.h5", batch_size=128, chunk_size_gb=12.0, device="cuda")
    for features, targets in loader: ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import threading
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn, Union

import numpy as np
import numpy.typing as npt
import torch

from ._arguments import flag, require, whole_number
from ._devices import DEVICE_SHARE_MAX, checked_device, free_bytes, require_dtype
from ._loader_arguments import (
    InTurn,
    checked_place,
    checked_ranks,
    leaves_out_remainder,
    order_of,
    refuse_unknown,
    warn_of_missing_ranks,
    warn_of_unequal_parts,
)
from .dataset import Dataset, StrPath
from .errors import CapacityError, ConfigError
from .loader import file_mark, require_same_data, require_same_order

__all__ = ["ChunkDataLoader"]

Features = Union["torch.Tensor", dict[str, "torch.Tensor"]]
_Samples = npt.NDArray[np.int64]

_GB = 10**9
_PIECE_BYTES = 32 << 20
"""Bytes of samples in a file that pass through page-locked memory at once."""
_IN_ORDER_BYTES = 30 << 20
"""Bytes of a chunk from which slices are cut on the CPU, a batch at least. The C library gives blocks of less than
32 MiB out again; larger ones are new pages each time, which take longer to make than to fill."""


@dataclasses.dataclass(frozen=True)
class _Order:
    """The samples of every epoch, decided by seed, epoch and the size of chunks."""

    samples: int
    samples_per_chunk: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    rank: int
    world_size: int

    @property
    def batches(self) -> int:
        """Batches in an epoch."""
        is_short = self.drop_last or leaves_out_remainder(self.samples, self.batch_size, self.world_size)
        return self.samples // self.batch_size if is_short else -(-self.samples // self.batch_size)

    @property
    def chunks(self) -> int:
        """Chunks in an epoch."""
        return -(-self.samples // self.samples_per_chunk)

    @property
    def samples_per_epoch(self) -> int:
        """Samples that all ranks visit in an epoch."""
        return min(self.samples, self.batches * self.batch_size)

    def batch_samples(self, batch: int) -> int:
        """Samples of this rank in a batch."""
        start = batch * self.batch_size
        each, one_more = divmod(min(self.batch_size, self.samples_per_epoch - start), self.world_size)
        return each + (self.rank < one_more)

    def chunks_of(self, epoch: int, first_batch: int) -> Iterator[_Samples]:
        """This rank's samples of each chunk of an epoch in the order of the batches, from `first_batch` on; chunks of
        which it has none are left out."""
        chunks: _Samples = np.arange(self.chunks)
        if self.shuffle:
            chunks = np.random.default_rng((self.seed, epoch)).permutation(self.chunks)
        position = 0
        for chunk in chunks.tolist():
            first = chunk * self.samples_per_chunk
            length = min(self.samples_per_chunk, self.samples - first)
            end = position + length
            begin = max(position, first_batch * self.batch_size)
            own = self._own_positions(begin, min(end, self.samples_per_epoch)) - position
            position = end
            if len(own):
                if self.shuffle:
                    own = np.random.default_rng((self.seed, epoch, 1 + chunk)).permutation(length)[own]
                yield own + first

    def _own_positions(self, begin: int, end: int) -> _Samples:
        """Positions of an epoch from `begin` to `end` that are in this rank's part of their batch: the `rank`-th of
        contiguous parts, of which the first have one sample more where they differ."""
        positions = np.arange(begin, max(begin, end), dtype=np.int64)
        if self.world_size == 1:
            return positions
        starts = positions // self.batch_size * self.batch_size
        each, one_more = np.divmod(np.minimum(self.batch_size, self.samples_per_epoch - starts), self.world_size)
        first = starts + self.rank * each + np.minimum(self.rank, one_more)
        own: _Samples = positions[(positions >= first) & (positions < first + each + (self.rank < one_more))]
        return own


class _Chunk:
    """Samples on the device, from which batches are taken."""

    def __init__(self, held: _Samples, tables: list[torch.Tensor], is_copied: Any) -> None:
        self.held = held
        """Numbers of the samples, ascending, `[S]`."""
        self.tables = tables
        """Windows `[S, T, F]` by timeframe, then the targets `[S, K]`."""
        self.is_copied = is_copied
        """Event on CUDA after which the tables are there."""
        self.places: torch.Tensor | None = None
        """Places of the samples in the order of batches; `None` while they come in the order of the tables."""
        self.next = 0
        self.end = 0

    def visited(self, samples: _Samples, shuffle: bool) -> _Chunk:
        """The same memory, from which batches of `samples` are taken in this order."""
        chunk = _Chunk(self.held, self.tables, self.is_copied)
        if shuffle:
            places = torch.from_numpy(np.searchsorted(self.held, samples))
            chunk.places, chunk.end = places.to(self.tables[0].device), len(samples)
        else:
            chunk.next = int(np.searchsorted(self.held, samples[0]))
            chunk.end = chunk.next + len(samples)
        return chunk

    def take(self, samples: int) -> list[torch.Tensor]:
        """The next samples, or those that are left: slices of the tables, or tensors of their own where samples are
        shuffled."""
        rows = slice(self.next, min(self.next + samples, self.end))
        self.next = rows.stop
        if self.is_copied is not None:
            stream = torch.cuda.current_stream(self.tables[0].device)
            stream.wait_event(self.is_copied)
            for tensor in (*self.tables, *(() if self.places is None else (self.places,))):
                tensor.record_stream(stream)
        if self.places is None:
            return [table[rows] for table in self.tables]
        places = self.places[rows]
        return [table.index_select(0, places) for table in self.tables]


class _PageLocked:
    """Page-locked memory for two pieces of samples on their way to a GPU, and the stream of the copies."""

    def __init__(self, device: torch.device, rows: list[tuple[tuple[int, ...], Any]], samples: int) -> None:
        self.stream = torch.cuda.Stream(device)
        self.buffers = [
            [torch.empty((samples, *shape), dtype=dtype, pin_memory=True) for shape, dtype in rows] for _ in range(2)
        ]
        self.are_free = [torch.cuda.Event() for _ in range(2)]
        self.turn = 0

    def copy(self, piece: list[torch.Tensor], tables: list[torch.Tensor]) -> None:
        """Copies `piece`, in memory of the CPU, into `tables`, which have its rows on the GPU."""
        self.are_free[self.turn].synchronize()
        for source, buffer, table in zip(piece, self.buffers[self.turn], tables):
            staged = buffer[: len(source)]
            staged.copy_(source)
            table.copy_(staged, non_blocking=True)
        self.are_free[self.turn].record(self.stream)
        self.turn = 1 - self.turn


class _Reader:
    """Reads chunks of a file in the order in which they are asked for, on a thread of its own."""

    def __init__(self, dataset: Dataset, device: torch.device, dtype: Any) -> None:
        self._dataset, self._device = dataset, device
        windows = [(of.steps, len(of.features)) for of in dataset.timeframes.values()]
        self._rows: list[tuple[tuple[int, ...], Any]] = [(shape, dtype or torch.float32) for shape in windows]
        self._rows.append(((dataset.targets,), torch.float32))
        self._is_taken_over = device.type == "cpu" and dtype in (None, torch.float32)
        self._piece_samples = max(1, _PIECE_BYTES // _file_bytes(self._rows))
        self._page_locked: _PageLocked | None = None
        self._is_abandoned = threading.Event()
        self._thread = ThreadPoolExecutor(1, "megabatch chunks")

    def read(self, held: _Samples, samples: _Samples, shuffle: bool, is_free: Any) -> Future[_Chunk]:
        """The chunk of the samples `held`, to be visited in the order of `samples`. Its memory is taken after the event
        `is_free`, if any."""
        return self._thread.submit(self._read, held, samples, shuffle, is_free)

    def _read(self, held: _Samples, samples: _Samples, shuffle: bool, is_free: Any) -> _Chunk:
        if is_free is not None:
            is_free.synchronize()
        if self._is_taken_over:
            (tables,) = self._pieces(held, len(held))
            return _Chunk(held, tables, None).visited(samples, shuffle)
        if self._device.type == "cpu":
            return _Chunk(held, self._filled(held), None).visited(samples, shuffle)
        if self._page_locked is None:
            self._page_locked = _PageLocked(self._device, self._rows, self._piece_samples)
        with torch.cuda.stream(self._page_locked.stream):
            chunk = _Chunk(held, self._filled(held), torch.cuda.Event()).visited(samples, shuffle)
            chunk.is_copied.record(self._page_locked.stream)
        return chunk

    def _filled(self, held: _Samples) -> list[torch.Tensor]:
        """Tables on the device, filled piece by piece."""
        tables = [torch.empty((len(held), *shape), dtype=dtype, device=self._device) for shape, dtype in self._rows]
        first = 0
        for piece in self._pieces(held, self._piece_samples):
            if self._is_abandoned.is_set():
                break
            parts = [table[first : first + len(piece[0])] for table in tables]
            first += len(piece[0])
            if self._page_locked is not None:
                self._page_locked.copy(piece, parts)
            else:
                for part, source in zip(parts, piece):
                    part.copy_(source)
        return tables

    def _pieces(self, held: _Samples, piece_samples: int) -> Iterator[list[torch.Tensor]]:
        """The samples at the places `held` as tensors of `piece_samples`, which take over the memory that they were read
        into."""
        own = self._dataset._indices
        numbers = held if own is None else own[held]
        loader = self._dataset._chosen(numbers).loader(piece_samples)
        for _, tables in loader._tables():
            yield [torch.from_dlpack(table) for table in tables]

    def close(self) -> None:
        """Ends the thread, after the piece that it reads."""
        self._is_abandoned.set()
        self._thread.shutdown(wait=True, cancel_futures=True)


class ChunkDataLoader(InTurn):
    """Batches `(features, targets)` of a windows file, or of a part of its dataset such as one of `split()`, cut from
    chunks of samples that lie on `device`: `features` is a tensor `[B, T, F]`, or a dict of such tensors by timeframe
    where the file has several; `targets` is `[B, K]`.

    Two chunks are on the device at once: the next one is read and copied while batches are cut from the present one.
    `chunk_size_gb` (1 GB is 10^9 bytes) bounds both together, and so does 0.75 of a GPU's free memory: then
    `chunk_size_gb` is halved until both fit. If all samples fit into half of it, they stay on the device for all
    epochs, and nothing is read again. On the CPU chunks in the order of the file have 30 MiB at most, or one batch.

    Batches come in the order of the file, and are slices of a chunk: what is written to a slice of samples that stay is
    seen in the next epoch. With `shuffle` chunks come in random order, and samples in random order within a chunk; each
    batch is gathered into memory of its own. The order is decided by `seed`, the epoch and the samples of a chunk.
    Every batch but the last is full: the last batch of a chunk goes on with samples of the next.

    `dtype` is that of the features, torch.float16 or torch.bfloat16, into which a chunk is converted once. `batch_size`
    counts the samples of all ranks together, and each rank takes its part of every batch. A last batch with fewer samples
    than ranks is left out by all.

    A feature that is not finite, and an infinite target, raise `DataError` in the first epoch. NaN is an unknown target.

    A loop over the loader is one epoch; the next loop is the next epoch, and one that was broken off begins anew.
    """

    def __init__(
        self,
        hdf5_path: StrPath | Dataset,
        batch_size: int = 128,
        chunk_size_gb: float = 12.0,
        device: str | torch.device = "cuda",
        shuffle: bool = False,
        drop_last: bool = False,
        *,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        rank: int = 0,
        world_size: int = 1,
        **others: NoReturn,
    ) -> None:
        named = ("chunk_size_gb", "device", "shuffle", "drop_last", "seed", "dtype", "rank", "world_size")
        refuse_unknown(others, ("batch_size", *named))
        self._dataset = hdf5_path if isinstance(hdf5_path, Dataset) else Dataset(hdf5_path)
        path = self._dataset.path
        if self._dataset.layout != "windows":
            # The windows of a series overlap, and chunks would hold each bar many times.
            name = "mb.open(path)" if self._dataset.part is None else self._dataset.part
            raise ConfigError(
                f"{path}: hdf5_path is a file of {self._dataset.layout}, and ChunkDataLoader reads one of windows, "
                f"/features and /targets; the bars of a series lie on the device with "
                f"{name}.torch(batch_size={batch_size}, device=...)",
                file=str(path),
                key="hdf5_path",
            )
        samples = len(self._dataset)
        batch_size = whole_number(batch_size, "batch_size", 1, path=path)
        seed = whole_number(seed, "seed", path=path)
        shuffle, drop_last = flag(shuffle, "shuffle", path), flag(drop_last, "drop_last", path)
        rank, world_size = checked_ranks(rank, world_size, batch_size, samples, "samples", path)
        warn_of_missing_ranks(world_size)
        warn_of_unequal_parts(batch_size, world_size)
        is_size = math.isfinite(chunk_size_gb) and chunk_size_gb > 0
        require(is_size, chunk_size_gb, "chunk_size_gb", "more than 0", path)
        require_dtype(dtype, path)
        if drop_last:
            require(batch_size <= samples, batch_size, "batch_size", f"{samples} samples at most with drop_last", path)
        self._device = checked_device(device, path)
        self._dtype = dtype
        itemsize = int((dtype or torch.float32).itemsize)
        numbers = sum(of.steps * len(of.features) for of in self._dataset.timeframes.values())
        self._sample_bytes = numbers * itemsize + self._dataset.targets * 4
        self._order = _Order(samples, samples, batch_size, shuffle, seed, drop_last, rank, world_size)
        self._limit_bytes = self._limit(int(chunk_size_gb * _GB))
        if not self._stays:
            # Batches end where chunks do, but for those of a last chunk that is shorter.
            share = self._limit_bytes // 2
            if self._device.type == "cpu" and not shuffle:
                share = min(share, max(_IN_ORDER_BYTES, self._batch_bytes))
            batches = share // self._batch_bytes
            self._order = dataclasses.replace(self._order, samples_per_chunk=min(samples, batches * batch_size))
        self._resident: _Chunk | None = None
        self._epoch = 0
        self._batch = 0
        self._resumes = False

    @property
    def _batch_bytes(self) -> int:
        """Most bytes that a batch takes on any rank."""
        samples = min(self._order.batch_size, self._order.samples)
        return -(-samples // self._order.world_size) * self._sample_bytes

    @property
    def _chunk_bytes(self) -> int:
        """Most bytes that a chunk takes on any rank."""
        order = self._order
        most = -(-order.samples_per_chunk // order.batch_size) * self._batch_bytes
        return min(most, order.samples * self._sample_bytes)

    @property
    def _chunks_at_once(self) -> int:
        """Two, or three where they fit: then the next one is read while the caller holds a slice of the one before."""
        has_slices = not self._order.shuffle
        return min(self._order.chunks, 3 if has_slices and 3 * self._chunk_bytes <= self._limit_bytes else 2)

    @property
    def _stays(self) -> bool:
        """True if all samples fit into half of what the chunks may take."""
        return self._order.samples * self._sample_bytes <= self._limit_bytes // 2

    def _limit(self, asked_bytes: int) -> int:
        """Bytes that the chunks may take together: what is asked, halved until it fits. Small differences in a GPU's
        free memory then do not change the chunks, and with them the order of samples."""
        limit, least, path = asked_bytes, 2 * self._batch_bytes, self._dataset.path
        if asked_bytes < least:
            raise ConfigError(
                f"{path}: chunk_size_gb is {asked_bytes / _GB:g}: two chunks of one batch take {least / _GB:g}; "
                f"expected that at least, or a smaller batch_size than {self._order.batch_size}",
                file=str(path),
                key="chunk_size_gb",
            )
        if self._device.type != "cuda":
            return limit
        free = free_bytes(self._device) or 0
        usable = int(free * DEVICE_SHARE_MAX)
        while limit > usable:
            limit //= 2
        must_agree = self._order.shuffle and self._order.world_size > 1
        needed = asked_bytes if must_agree else least
        if limit < needed:
            reason = "ranks that shuffle need the same chunks" if must_agree else "two chunks of one batch take as much"
            raise CapacityError(
                f"{path}: chunk_size_gb is {asked_bytes / _GB:g}, and {self._device} has {usable / _GB:.3g} to give, "
                f"0.75 of its free memory: {needed / _GB:g} are needed, as {reason}; give a smaller "
                f"{'chunk_size_gb on all ranks' if must_agree else 'batch_size'}",
                file=str(path),
                key="chunk_size_gb",
                needed_bytes=needed,
                free_bytes=free,
            )
        return limit

    def plan(self) -> dict[str, Any]:
        """What is held on the device: `samples_per_chunk` of all ranks, `chunks` in an epoch, `chunk_bytes` of all
        chunks that are there at once on this rank, and `stays`, true if all samples stay for all epochs."""
        order = self._order
        whole = order.samples if order.shuffle else len(self._held_always())
        return {
            "samples_per_chunk": order.samples_per_chunk,
            "chunks": order.chunks,
            "chunk_bytes": whole * self._sample_bytes if self._stays else self._chunk_bytes * self._chunks_at_once,
            "stays": self._stays,
        }

    @property
    def dataset(self) -> Dataset:
        """The samples."""
        return self._dataset

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._place()[0]

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self._order.batches

    def set_epoch(self, epoch: int) -> None:
        """Begins at the first batch of `epoch`."""
        epoch = whole_number(epoch, "epoch", path=self._dataset.path)
        self._epoch, self._batch, self._resumes = epoch, 0, False

    def __iter__(self) -> Iterator[tuple[Features, torch.Tensor]]:
        epoch, batch = self._place()
        first = batch if self._resumes else 0
        self._resumes = False
        self._epoch, self._batch = epoch, first
        order = self._order
        with contextlib.closing(_EpochBatches(self, order, epoch, first)) as batches:
            for batch in range(first, order.batches):
                tables = batches.take(order.batch_samples(batch))
                self._epoch, self._batch = epoch, batch + 1
                yield self._named(tables)
                # Only the caller holds the batch while the next one is cut.
                del tables
        self._epoch, self._batch = epoch + 1, 0

    def _named(self, tables: list[torch.Tensor]) -> tuple[Features, torch.Tensor]:
        *windows, targets = tables
        if len(windows) == 1:
            return windows[0], targets
        return dict(zip(self._dataset.timeframes, windows)), targets

    def _held_always(self) -> _Samples:
        """Samples that this rank needs in any epoch, ascending."""
        if self._order.shuffle:
            return np.arange(self._order.samples)
        return np.concatenate([*self._order.chunks_of(0, 0), np.arange(0)])

    def _place(self) -> tuple[int, int]:
        """Epoch and batch that come next. An epoch of which every batch was given is over, whether or not the loop has
        seen its end."""
        return (self._epoch, self._batch) if self._batch < len(self) else (self._epoch + 1, 0)

    def _decides(self) -> dict[str, Any]:
        """What decides the order of samples, whatever the ranks."""
        keys = ("samples", "batch_size", "shuffle", "seed", "drop_last")
        own = self._dataset._indices
        chosen = 0 if own is None else zlib.crc32(own.tobytes())
        return {**{key: getattr(self._order, key) for key in keys}, "chosen": chosen}

    @functools.cached_property
    def _mark(self) -> str | None:
        return file_mark(self._dataset)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, for `load_state_dict` of a loader of any rank, world size and device."""
        epoch, batch = self._place()
        order = {**self._decides(), "samples_per_chunk": self._order.samples_per_chunk}
        return {"version": 1, "epoch": epoch, "batch": batch, "order": order, "data": self._mark}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader stood. Shuffled, this one takes chunks of as many samples as the other one."""
        path, others = self._dataset.path, {"samples": "a file of other length", "chosen": "another choice of samples"}
        if "samples_per_chunk" not in order_of(state, "ChunkDataLoader", path):
            raise ConfigError(
                f"{path}: the state is of a loader of another kind: expected what state_dict() of a ChunkDataLoader gives",
                file=str(path),
                key="state",
            )
        require_same_order(state, self._decides(), others, path)
        require_same_data(state, self._mark, path)
        epoch, batch = checked_place(state, lambda _: len(self), path)
        if self._order.shuffle:
            self._take_chunks_of(whole_number(state["order"]["samples_per_chunk"], "samples_per_chunk", 1, path=path))
        self._epoch, self._batch, self._resumes = epoch, batch, True

    def _take_chunks_of(self, samples_per_chunk: int) -> None:
        """Orders samples as chunks of this size do. What stays on the device can be visited in any order."""
        chunks = -(-self._order.samples // samples_per_chunk)
        needed = -(-samples_per_chunk // self._order.batch_size) * self._batch_bytes * min(2, chunks)
        if not self._stays and needed > self._limit_bytes:
            path = self._dataset.path
            raise CapacityError(
                f"{path}: the state is of a loader whose chunks have {samples_per_chunk} samples, and chunk_size_gb "
                f"gives this one {self._limit_bytes / _GB:g}: {needed / _GB:g} are needed for the same order",
                file=str(path),
                key="chunk_size_gb",
                needed_bytes=needed,
            )
        self._order = dataclasses.replace(self._order, samples_per_chunk=samples_per_chunk)

    def __getstate__(self) -> dict[str, Any]:
        # What stays on a device is read again.
        return {**self.__dict__, "_resident": None}

    def __repr__(self) -> str:
        chunks = "all" if self._stays else f"in {self._order.chunks} chunks"
        batches = f"{len(self)} batches of {self._order.batch_size} samples"
        return f"<megabatch.ChunkDataLoader: {batches}, {chunks} on {self._device}>"


class _EpochBatches:
    """The batches of an epoch. Chunks are read one ahead of the one in use."""

    def __init__(self, loader: ChunkDataLoader, order: _Order, epoch: int, first_batch: int) -> None:
        self._loader, self._shuffle = loader, order.shuffle
        self._visits = order.chunks_of(epoch, first_batch)
        self._reader = _Reader(loader._dataset, loader._device, loader._dtype)
        self._ahead: Future[_Chunk] | None = None
        self._chunk: _Chunk | None = None
        self._is_next_due = not loader._stays

    def take(self, samples: int) -> list[torch.Tensor]:
        """The tables of the next batch, of `samples` samples."""
        if self._is_next_due:
            self._read_ahead()
        parts: list[list[torch.Tensor]] = []
        while samples:
            if self._chunk is None or self._chunk.next == self._chunk.end:
                self._chunk = None
                self._chunk = self._next_chunk()
            parts.append(self._chunk.take(samples))
            samples -= len(parts[-1][0])
        return parts[0] if len(parts) == 1 else [torch.cat(tables) for tables in zip(*parts)]

    def _next_chunk(self) -> _Chunk:
        if self._loader._stays:
            return self._resident()
        if self._ahead is None:
            self._read_ahead()
        assert self._ahead is not None, "the chunks of an epoch have the samples of its batches"
        chunk = self._ahead.result()
        self._ahead = None
        # Until it has the next batch, the caller may hold a slice of the chunk before.
        self._is_next_due = True
        if self._shuffle or self._loader._chunks_at_once == 3:
            self._read_ahead()
        return chunk

    def _read_ahead(self) -> None:
        """Has the next chunk read, if there is one, into the memory that was let go last."""
        self._is_next_due = False
        samples = next(self._visits, None)
        if samples is None:
            return
        is_free = None
        if self._loader._device.type == "cuda":
            # It comes after all that the GPU has yet to do with the chunk before, and after the event by which
            # PyTorch's allocator knows that.
            is_free = torch.cuda.Event()
            is_free.record(torch.cuda.current_stream(self._loader._device))
        self._ahead = self._reader.read(np.sort(samples), samples, self._shuffle, is_free)

    def _resident(self) -> _Chunk:
        """What stays on the device, read once, to be visited in the order of the next chunk."""
        samples = next(self._visits)
        if self._loader._resident is None:
            held = self._loader._held_always()
            self._loader._resident = self._reader.read(held, samples, self._shuffle, None).result()
        return self._loader._resident.visited(samples, self._shuffle)

    def close(self) -> None:
        """Ends the thread that reads."""
        self._chunk = self._ahead = None
        self._reader.close()


def _file_bytes(rows: list[tuple[tuple[int, ...], Any]]) -> int:
    """Bytes of a sample in the file, where numbers have four."""
    return sum(4 * math.prod(shape) for shape, _ in rows)


