"""Graphs of a file, and batches of them."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Union, overload

import numpy as np
import numpy.typing as npt

from . import _megabatch
from ._arguments import flag, mask_places, require, whole_number, wrong
from ._cross_sections import CrossSections
from ._graph_forms import forms
from ._loader_arguments import (
    InTurn,
    checked_place,
    checked_ranks,
    refuse_unknown,
    warn_of_missing_ranks,
    warn_of_unequal_parts,
)
from ._requirements import required
from .errors import ConfigError, DataError
from .loader import require_same_data, require_same_order

if TYPE_CHECKING:
    import torch

    from .dataset import Dataset

Indices = Union[slice, Sequence[int], list[str], npt.NDArray[np.integer[Any]], npt.NDArray[np.bool_]]
"""Places of graphs, keys in a list, or a mask."""
Key = Union[int, str, datetime.date, np.datetime64]
"""The place of a graph, its key, or the time that the key is."""
Arrays = dict[str, npt.NDArray[Any]]

_INDICES = "places of graphs, keys, a slice or a mask"
_KEYS = (int, np.integer, str, datetime.date, np.datetime64)
_ARRAYS = "without it, graphs.loader() gives batches as arrays of numpy"
_UNKNOWN_NS = np.iinfo(np.int64).min
# By the library whose DataLoader would join graphs: the option of `Graphs.loader` that does, and what it gives.
_BATCHES = {
    "torch": ('device="cpu"', "dicts of tensors"),
    "torch_geometric": ("pyg=True", "Batch objects"),
}
# Arrays of floats; the others are of 64-bit integers.
_FLOATS = ("edge_weight", "edge_attr", "x", "y")


@dataclasses.dataclass(frozen=True)
class Graph:
    """A graph with N nodes and E edges. Arrays of floats are read-only and seen in the file's memory; those of a file
    above 128 MiB are a copy. Absent ones are `None`."""

    key: str
    """Its name in the file, such as a day."""
    edge_index: npt.NDArray[np.int64]
    """`[2, E]`: the nodes that edges come from, then those that they go to."""
    edge_weight: npt.NDArray[np.float32] | None
    """`[E]`."""
    edge_attr: npt.NDArray[Any] | None
    """[E, A], by the file's `edge_attributes`."""
    x: npt.NDArray[Any] | None
    """[N, F], by the file's `node_features`."""
    y: npt.NDArray[Any] | None
    """[N, K] of nodes, or [1, K] of the graph; of `mb.graph.save`, as it was saved. Unknown targets are NaN, unknown
    classes -1."""
    names: list[str] | None
    """`[N]` names of the nodes, such as symbols."""
    known_time: np.datetime64 | None
    """Time from which the graph may be used, UTC."""
    num_nodes: int

    def __repr__(self) -> str:
        return f"<megabatch.graph.Graph {self.key}: {self.num_nodes} nodes, {self.edge_index.shape[1]} edges>"


class _File:
    """What is read when a file is opened. Numbers of nodes and edges are [graphs, 2], times ns since 1970 UTC."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.native = _megabatch.Graphs(path)
        self.facts: dict[str, Any] = self.native.facts()
        self.forms = forms(self.facts)
        self.sizes = np.frombuffer(self.native.sizes(), dtype=np.int64).reshape(-1, 2)
        self.known_times = np.frombuffer(self.native.known_times(), dtype=np.int64)


class Graphs(Sequence[Graph]):
    """The graphs of a file, or some of them, which lie in memory that all processes share. A number or a key gives a
    graph, a slice or several numbers the same file with these graphs alone."""

    def __init__(self, file: _File, numbers: npt.NDArray[np.int64]) -> None:
        self._file, self._facts, self._numbers = file, file.facts, numbers

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Graphs:
        """The graphs of the file `path`."""
        file = _File(path)
        return cls(file, np.arange(len(file.native), dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.path, self._facts["data"], self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __fspath__(self) -> str:
        """The file, of which these are all graphs: `model={"graph": graphs}` names it."""
        if len(self) != len(self._file.native) or not np.array_equal(self._numbers, np.arange(len(self))):
            raise ConfigError(
                f"these are {len(self)} of the {len(self._file.native)} graphs of {self.path}: expected the whole file, as "
                f"mb.graph.open gives it; run.predict(graphs.path, samples=…) predicts some of its graphs",
                key="graph",
            )
        return self.path

    @property
    def path(self) -> str:
        """The file."""
        return str(self._facts["file"])

    @property
    def facts(self) -> dict[str, Any]:
        """What `megabatch graph inspect --json` says of the whole file."""
        return self._facts

    @property
    def keys(self) -> list[str]:
        """The names of the graphs."""
        keys = self._facts["keys"]
        return [keys[number] for number in self._numbers]

    @property
    def node_features(self) -> list[str]:
        """Names of the F features of nodes."""
        return list(self._facts["node_features"])

    @property
    def edge_attributes(self) -> list[str]:
        """Names of the A attributes of edges."""
        return list(self._facts["edge_attributes"])

    @functools.cached_property
    def _mark(self) -> str | None:
        """What tells the file from others."""
        return self._file.native.fingerprint()

    @functools.cached_property
    def _is_chosen(self) -> npt.NDArray[np.bool_]:
        """`[graphs of the file]`: true for these."""
        chosen = np.zeros(len(self._file.native), np.bool_)
        chosen[self._numbers] = True
        return chosen

    @property
    def targets(self) -> list[str]:
        """Names of the K targets, or classes."""
        return list(self._facts["targets"])

    @property
    def names(self) -> list[str]:
        """Names that nodes of the file have, such as symbols; empty if they have none."""
        return list(self._facts["names"])

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """[graphs, 2] numbers of nodes and edges."""
        return self._file.sizes[self._numbers]

    @property
    def per_node(self) -> tuple[str, ...]:
        """Names of the arrays of a batch that have a row for each node."""
        return ("x",) if self._facts["target_level"] == "graph" else ("x", "y")

    @property
    def known_times(self) -> npt.NDArray[np.datetime64]:
        """Time from which each graph may be used, UTC; NaT where it is not known."""
        return self._file.known_times[self._numbers].view("datetime64[ns]")

    @overload
    def __getitem__(self, which: Key) -> Graph: ...

    @overload
    def __getitem__(self, which: Indices) -> Graphs: ...

    def __getitem__(self, which: Key | Indices) -> Graph | Graphs:
        if isinstance(which, _KEYS) and not isinstance(which, bool):
            return self._graph(self._number(which))
        return Graphs(self._file, self._chosen(which))

    def __getitems__(self, places: Sequence[int]) -> list[Graph]:
        """The graphs at these places, which a `DataLoader` of PyTorch with a `collate_fn` of its own joins."""
        # The locals of other callers would be kept alive by a look at them.
        caller = sys._getframe(1)
        if caller.f_globals.get("__name__") == "torch.utils.data._utils.fetch":
            joins = getattr(caller.f_locals.get("self"), "collate_fn", None)
            library = str(getattr(joins, "__module__", "")).split(".")[0]
            if library in _BATCHES:
                option, gives = _BATCHES[library]
                raise ConfigError(
                    f"a DataLoader cannot join graphs of megabatch: loop over graphs.loader({len(places)}, {option}), which "
                    f"gives {gives}",
                    key="dataset",
                )
        return [self[int(place)] for place in places]

    def __contains__(self, key: object) -> bool:
        try:
            self.index(key)
        except (ValueError, TypeError):
            # A TypeError is that of pandas' NaT, which is no time.
            return False
        return True

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The place of a key, of the time that a key is, or of a graph by its key."""
        key, keys = value.key if isinstance(value, Graph) else value, self.keys
        if isinstance(key, (datetime.date, np.datetime64)):
            key = self._key_of(key)
        try:
            return keys.index(key, start, len(keys) if stop is None else stop)
        except ValueError:
            raise ValueError(f"{key!r} is none of these {len(self)} graphs of {self.path}; {self._span()}") from None

    def arrays(self, which: Key | Indices) -> Arrays:
        """The graphs that `graphs[which]` has, as one graph without edges between them: `edge_index`
        `[2, E]`, `batch` `[N]`, the graph of each node, `ptr` [G + 1], the first node of each graph, `graph` `[G]`, the
        number of each in the file, and, where the file has them, `x` [N, F], `edge_weight` `[E]`, `edge_attr` [E, A] and
        `y`, [N, K] or [G, K]. Of `mb.graph.save`, they have the types and dimensions of what was saved."""
        return self._arrays(self._chosen(which))

    def pyg(self, which: Key) -> Any:
        """A graph as a `Data` of PyTorch Geometric, with edges by the node that they go to. Its tensors of floats lie
        in the file's memory, without a copy: as in a dataset in memory, what is written to one stays for the next
        `pyg` of the graph. It changes neither the file nor batches nor other processes. Of a file above 128 MiB, or in
        half precision, they are a copy, and the next `pyg` is as the file is."""
        with required("graphs.pyg()", "without it, graphs[which] gives a graph as arrays of numpy"):
            import torch
            import torch_geometric.data

        arrays = self._file.native.graph(self._number(which), True)
        nodes = len(arrays.pop("node_names"))
        tensors = {name: torch.from_numpy(array) for name, array in self._as_saved(arrays).items()}
        return torch_geometric.data.Data(**tensors, num_nodes=nodes)

    def loader(
        self,
        batch_size: int | None = None,
        *,
        nodes: int | None = None,
        edges: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        pyg: bool = False,
        device: str | torch.device | None = None,
        dataset: Dataset | None = None,
        **others: NoReturn,
    ) -> GraphLoader:
        """Batches of at most `batch_size` graphs (32 where no bound is given), `nodes` nodes and `edges` edges: as dicts
        of arrays (`Graphs.arrays`), as dicts of tensors on `device`, or with `pyg` as `Batch` objects of PyTorch
        Geometric. Shuffled, each epoch has an order of its own.

        `batch_size` counts the graphs of all ranks, each of which has its part of every batch; a last one of fewer graphs
        than ranks is left out. With `nodes` or `edges` ranks take whole batches in turn, and as many each: up to
        `world_size - 1` of the last are left out.

        With `dataset`, a series of the instruments that the graphs name, or a part of one, a graph is the cross-section
        of a time: its nodes are the samples of that time, in the order of the instruments, with their windows, targets
        and numbers, and its edges those of the last graph known by then. Each time is a graph of the epoch."""
        bounds = {"batch_size": batch_size, "nodes": nodes, "edges": edges}
        options = (*bounds, "shuffle", "seed", "drop_last", "rank", "world_size", "pyg", "device", "dataset")
        refuse_unknown(others, options)
        if all(bound is None for bound in bounds.values()):
            bounds["batch_size"] = 32
        for name, bound in bounds.items():
            bounds[name] = None if bound is None else whole_number(bound, name, 1)
        seed = whole_number(seed, "seed")
        shuffle, drop_last, pyg = flag(shuffle, "shuffle"), flag(drop_last, "drop_last"), flag(pyg, "pyg")
        if dataset is not None:
            from .dataset import Dataset

            require(isinstance(dataset, Dataset), dataset, "dataset", "a dataset of the instruments that the graphs name")
        items = self if dataset is None else CrossSections(self, dataset)
        shared = bounds["batch_size"] if nodes is None and edges is None else None
        rank, world_size = checked_ranks(rank, world_size, shared, len(items), "graphs")
        if pyg or device is not None:
            warn_of_missing_ranks(world_size)
            warn_of_unequal_parts(shared, world_size)
        if device is not None:
            with required("graphs.loader(device=...)", _ARRAYS):
                from ._devices import checked_device

            device = checked_device(device, self.path)
        return GraphLoader(items, bounds, shuffle, seed, drop_last, rank, world_size, pyg, device)

    def _chosen(self, which: Key | Indices) -> npt.NDArray[np.int64]:
        """The numbers of graphs in the file: of a slice, a mask, or places and keys, one or several."""
        if isinstance(which, slice):
            return self._numbers[which]
        given: Any = which
        try:
            places = np.asarray(given)
        except ValueError:
            # Lists of several lengths are no array.
            raise wrong(which, "which", _INDICES) from None
        if places.dtype == np.bool_ and places.ndim:
            return self._numbers[mask_places(places, "which", len(self), "graphs")]
        if places.dtype.kind in "iu" and places.ndim < 2:
            return self._numbers[np.atleast_1d(places).astype(np.int64)]
        keys: list[Any] = [given] if places.ndim == 0 else list(given)
        # Types of pandas may give a mask as objects.
        if places.ndim > 1 or not all(isinstance(key, _KEYS) and not isinstance(key, bool) for key in keys):
            raise wrong(which, "which", _INDICES)
        return np.array([self._number(key) for key in keys], np.int64)

    def _number(self, which: Key) -> int:
        """The number of a graph in the file."""
        if isinstance(which, (datetime.date, np.datetime64)):
            which = self._key_of(which)
        if isinstance(which, str):
            number = self._file.native.find(which)
            if not self._is_chosen[number]:
                raise KeyError(f"{which} is none of these {len(self)} graphs of {self.path}; {self._span()}")
            return number
        # An IndexError, by which a loop over a sequence ends.
        return int(self._numbers[which])

    def _span(self) -> str:
        """The first and the last key, in a message."""
        keys = self.keys
        return f"they go from {keys[0]} to {keys[-1]}" if keys else "there are none"

    def _key_of(self, time: datetime.date | np.datetime64) -> str:
        """The key that a time is: a day, or an instant where the graphs of a file are several a day."""
        if isinstance(time, datetime.datetime) and time.tzinfo is not None:
            time = time.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        instant = f"{np.datetime_as_string(np.datetime64(time), unit='s')}Z"
        has_days = "T" not in next(iter(self._facts["keys"]), "")
        return instant.removesuffix("T00:00:00Z") if has_days else instant

    def _graph(self, number: int) -> Graph:
        arrays = self._as_saved(self._file.native.graph(number, False))
        names = self._facts["names"]
        known = int(self._file.known_times[number])
        return Graph(
            key=self._facts["keys"][number],
            **{name: arrays.get(name) for name in ("edge_index", *_FLOATS)},  # type: ignore[arg-type]
            names=[names[name] for name in arrays["node_names"]] if names else None,
            known_time=None if known == _UNKNOWN_NS else np.datetime64(known, "ns"),
            num_nodes=len(arrays["node_names"]),
        )

    def _arrays(self, numbers: npt.NDArray[np.int64]) -> Arrays:
        read = self._file.native.arrays(numbers.astype(np.int64).tobytes())
        arrays = {
            name: np.frombuffer(memory, dtype=np.float32 if name in _FLOATS else np.int64)
            for name, memory in read.items()
        }
        facts, count, edges = self._facts, len(numbers), len(arrays["edge_index"]) // 2
        arrays["edge_index"] = arrays["edge_index"].reshape(2, edges)
        arrays["graph"] = numbers
        for name, rows, width in (
            ("x", len(arrays["batch"]), len(facts["node_features"])),
            ("edge_attr", edges, len(facts["edge_attributes"])),
            ("y", count if facts["target_level"] == "graph" else len(arrays["batch"]), len(facts["targets"])),
        ):
            has = width > 0 and (name != "y" or facts["target_level"] is not None)
            _put(arrays, name, arrays[name].reshape(rows, width) if has else None)
        if not facts["weighted"]:
            del arrays["edge_weight"]
        return self._as_saved(arrays)

    def _as_saved(self, arrays: Arrays) -> Arrays:
        """Arrays of the file in the forms that they had when they were saved."""
        for name, form in self._file.forms.items():
            arrays[name] = form.restored(arrays[name])
        return arrays

    def __repr__(self) -> str:
        return f"<megabatch.graph.Graphs: {len(self)} of {self.path}>"


def _reopened(path: str, data: str, numbers: npt.NDArray[np.int64]) -> Graphs:
    """The graphs of a file in another process."""
    file = _File(path)
    if file.facts["data"] != data:
        raise DataError(f"{path}: it has other graphs than when it was opened before", file=path)
    return Graphs(file, numbers)


class GraphLoader(InTurn):
    """Batches of graphs. A loop over it is one epoch, after which it stands at the next one."""

    def __init__(
        self,
        graphs: Graphs | CrossSections,
        bounds: dict[str, int | None],
        shuffle: bool,
        seed: int,
        drop_last: bool,
        rank: int,
        world_size: int,
        pyg: bool,
        device: torch.device | None,
    ) -> None:
        self._graphs, self._bounds, self._sizes = graphs, bounds, graphs.sizes
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self._rank, self._world_size, self._pyg, self._device = rank, world_size, pyg, device
        self._epoch, self._batch, self._resumes = 0, 0, False
        self._planned: tuple[int, list[npt.NDArray[np.int64]]] | None = None
        self._order = {
            "graphs": len(graphs),
            "chosen": zlib.crc32(graphs._numbers.tobytes()),
            **bounds,
            "shuffle": shuffle,
            "seed": seed,
            "drop_last": drop_last,
        }
        for place, name in enumerate(("nodes", "edges")):
            bound = bounds[name]
            if bound is not None and len(graphs) and self._sizes[:, place].max() > bound:
                largest = int(self._sizes[:, place].argmax())
                size = self._sizes[largest, place]
                raise ConfigError(
                    f"{name} is {bound}, and graph {graphs.keys[largest]} has {size}: give {size} or more", key=name
                )

    def __len__(self) -> int:
        """Batches of this rank in the epoch that comes next."""
        return len(self._batches(self._place()[0]))

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._place()[0]

    def set_epoch(self, epoch: int) -> None:
        """Begins at the first batch of `epoch`."""
        self._epoch, self._batch, self._resumes = whole_number(epoch, "epoch"), 0, False

    def __iter__(self) -> Iterator[Any]:
        epoch, batch = self._place()
        first = batch if self._resumes else 0
        self._resumes = False
        batches = self._batches(epoch)
        for number in range(first, len(batches)):
            self._epoch, self._batch = epoch, number + 1
            yield self._made(self._graphs._arrays(self._graphs._numbers[batches[number]]))
        self._epoch, self._batch = epoch + 1, 0

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, for `load_state_dict` of one with the same graphs and options, of any rank. With
        `nodes` or `edges`, another world size goes on where its ranks have had as many batches each."""
        epoch, batch = self._place()
        return {
            "version": 1,
            "epoch": epoch,
            "batch": batch,
            "world_size": self._world_size,
            "order": dict(self._order),
            "data": self._graphs._mark,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where another loader stood."""
        require_same_order(state, self._order, {"graphs": "other graphs", "chosen": "another choice of graphs"})
        require_same_data(state, self._graphs._mark)
        place = self._own_place(state) if self._is_bounded_by_size() else state
        self._epoch, self._batch = checked_place(place, lambda epoch: len(self._batches(epoch)))
        self._resumes = True

    def _own_place(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state whose batches are those of this rank. Ranks take whole batches in turn, so that the batches which all
        ranks of the other loader have had are shared out anew."""
        own = self._world_size
        ranks = whole_number(state.get("world_size", own), "world_size", 1)
        if ranks == own:
            return state
        taken = whole_number(state.get("batch"), "batch") * ranks
        if taken % own:
            raise ConfigError(
                f"the state is of a loader with world_size={ranks}, whose ranks have had {taken} batches together, and "
                f"{own} ranks cannot have had as many each: give a state of world_size={own}, or one at the start of an epoch",
                key="world_size",
            )
        return {**state, "batch": taken // own}

    def _is_bounded_by_size(self) -> bool:
        """True if batches are bounded by nodes or edges, so that ranks take whole ones."""
        return self._bounds["nodes"] is not None or self._bounds["edges"] is not None

    def _place(self) -> tuple[int, int]:
        batches = len(self._batches(self._epoch))
        return (self._epoch, self._batch) if self._batch < max(batches, 1) else (self._epoch + 1, 0)

    def _batches(self, epoch: int) -> list[npt.NDArray[np.int64]]:
        """Places of the graphs of each batch of this rank, in an epoch."""
        if self._planned is None or self._planned[0] != epoch:
            order = np.arange(len(self._graphs), dtype=np.int64)
            if self._shuffle:
                np.random.default_rng([self._seed, epoch]).shuffle(order)
            self._planned = (epoch, self._own(self._filled(order)))
        return self._planned[1]

    def _filled(self, order: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
        """Batches of all ranks: each takes graphs in their order until the next would pass a bound."""
        count, nodes, edges = (self._bounds[name] for name in ("batch_size", "nodes", "edges"))
        if nodes is None and edges is None:
            assert count is not None
            ends = list(range(count, len(order), count)) + ([len(order)] if len(order) else [])
            is_full = len(order) % count == 0
        else:
            ends, is_full = self._ends_by_size(order), False
        starts = [0, *ends[:-1]] if ends else []
        batches = [order[start:end] for start, end in zip(starts, ends)]
        return batches[:-1] if self._drop_last and not is_full else batches

    def _ends_by_size(self, order: npt.NDArray[np.int64]) -> list[int]:
        big = np.iinfo(np.int64).max
        count, nodes, edges = (self._bounds[name] or big for name in ("batch_size", "nodes", "edges"))
        ends, graphs_in, nodes_in, edges_in = [], 0, 0, 0
        for place, (own_nodes, own_edges) in enumerate(self._sizes[order].tolist()):
            if graphs_in and (graphs_in + 1 > count or nodes_in + own_nodes > nodes or edges_in + own_edges > edges):
                ends.append(place)
                graphs_in = nodes_in = edges_in = 0
            graphs_in, nodes_in, edges_in = graphs_in + 1, nodes_in + own_nodes, edges_in + own_edges
        return [*ends, len(order)] if len(order) else ends

    def _own(self, batches: list[npt.NDArray[np.int64]]) -> list[npt.NDArray[np.int64]]:
        ranks = self._world_size
        if ranks == 1:
            return batches
        if not self._is_bounded_by_size():
            # A rank without graphs would take no step.
            parts = (np.array_split(batch, ranks) for batch in batches if len(batch) >= ranks)
            return [part[self._rank] for part in parts]
        whole = len(batches) // ranks * ranks
        return batches[self._rank : whole : ranks]

    def _made(self, arrays: Arrays) -> Any:
        arrays.pop("node_names", None)
        edge_ptr = arrays.pop("edge_ptr")
        joined = self._graphs if isinstance(self._graphs, CrossSections) else None
        if not self._pyg and self._device is None:
            return {**arrays, **joined.windows(arrays["sample"])} if joined else arrays
        with required("graphs.loader(pyg=True)", _ARRAYS):
            import torch

        device = self._device
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if joined:
            tensors.update(joined.tensors(arrays["sample"], device))
        sent = tensors if device is None else {name: _sent(tensor, device) for name, tensor in tensors.items()}
        return _pyg_batch(tensors, sent, torch.from_numpy(edge_ptr), self._graphs.per_node) if self._pyg else sent

    def __repr__(self) -> str:
        bounds = ", ".join(f"{name}={bound}" for name, bound in self._bounds.items() if bound is not None)
        return f"<megabatch.graph.GraphLoader: {len(self)} batches, {bounds}>"


def _sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    pinned = tensor.pin_memory() if device.type == "cuda" and tensor.device.type == "cpu" else tensor
    return pinned.to(device, non_blocking=True)


def _pyg_batch(
    tensors: dict[str, Any], sent: dict[str, Any], edge_ptr: Any, per_node: tuple[str, ...]
) -> Any:
    """A `Batch` as `Batch.from_data_list` makes it, of tensors that are joined already, and `sent` to their device; those
    of `per_node` have a row for each node."""
    import torch

    ptr, graph = tensors["ptr"], tensors["graph"]
    nodes = (ptr[1:] - ptr[:-1]).tolist()
    # PyG makes a class for each new batch, but not for a copy.
    made: Any = copy.copy(_empty_batch())
    made._store._mapping.update(sent, num_nodes=int(ptr[-1]))
    whole = torch.arange(len(graph) + 1)
    by_edge = ("edge_index", "edge_weight", "edge_attr")
    slices = {}
    for name, tensor in tensors.items():
        if name in by_edge:
            slices[name] = edge_ptr
        elif name in ("batch", *per_node):
            slices[name] = ptr
        else:
            slices[name] = whole
    del slices["batch"], slices["ptr"]
    increments = {name: ptr[:-1] if name == "edge_index" else None for name in slices}
    # As attributes, each would look for a property of that name.
    made._store.__dict__.update(_num_graphs=len(graph), _slice_dict=slices, _inc_dict=increments, _num_nodes=nodes)
    return made


@functools.cache
def _empty_batch() -> Any:
    with required("graphs.loader(pyg=True)", _ARRAYS):
        from torch_geometric.data import Batch

    return Batch()  # type: ignore[no-untyped-call, unused-ignore]


def _put(arrays: Arrays, name: str, array: npt.NDArray[Any] | None) -> None:
    if array is None:
        del arrays[name]
    else:
        arrays[name] = array
