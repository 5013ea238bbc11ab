"""Samples of a series joined with graphs between their instruments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import ConfigError
from .loader import file_mark

if TYPE_CHECKING:
    import torch

    from ._graphs import Graphs
    from ._torch import TensorBatches
    from .dataset import Dataset

_UNKNOWN_NS = np.iinfo(np.int64).min
_Numbers = npt.NDArray[np.int64]


class CrossSections:
    """The samples of each time of a series, in the order of the instruments, as the nodes of a graph: the last that was
    known by then. Its edges are those whose ends both have a sample, by the node that they go to. Training with
    `model.graph` joins them in the same way.

    Samples older than the first graph are left out. An instrument that the graph does not have is a node without
    edges."""

    def __init__(self, graphs: Graphs, dataset: Dataset) -> None:
        self._graphs, self._dataset = graphs, dataset
        self._on_device: TensorBatches | None = None
        times, instruments = dataset.times, dataset.sample_instruments
        if dataset.layout != "series" or times is None or instruments is None:
            raise ConfigError(
                f"{dataset.path}: dataset is no series of several instruments, between which a graph could be; "
                f"mb.ingest makes one of many symbols",
                key="dataset",
            )
        if not len(graphs):
            raise ConfigError(f"{graphs.path}: there are no graphs to be joined", key="dataset")
        known = graphs.known_times.astype(np.int64)
        if (known == _UNKNOWN_NS).any():
            key = graphs.keys[int(np.argmax(known == _UNKNOWN_NS))]
            raise ConfigError(
                f"{graphs.path}: graph {key!r} does not tell from when on it was known, so that it cannot be joined with "
                f"bars; graphs of kind correlation do",
                key="dataset",
            )
        names = {name: place for place, name in enumerate(graphs.names)}
        # Place of each instrument among the names of the graphs, or -1.
        name_places = np.array([names.get(name, -1) for name in dataset.instruments], np.int64)
        if (name_places < 0).all():
            raise ConfigError(
                f"{graphs.path}: none of its names, such as {next(iter(names), '')!r}, is an instrument of "
                f"{dataset.path}; graphs are joined with bars by name",
                key="dataset",
            )
        own = times.astype("datetime64[ns]").astype(np.int64)
        order = np.lexsort((dataset.indices, instruments, own))
        by_known = np.argsort(known, kind="stable")
        distinct, starts = np.unique(own[order], return_index=True)
        last = np.searchsorted(known[by_known], distinct, side="right") - 1
        first = int(np.argmax(last >= 0)) if (last >= 0).any() else len(distinct)
        if first == len(distinct):
            raise ConfigError(
                f"{graphs.path}: all samples of {dataset.path} are older than its first graph, which was known at "
                f"{known.min().astype('datetime64[ns]')}",
                key="dataset",
            )
        self._ends = np.append(starts[1:], len(order))[first:]
        self._starts = starts[first:]
        self._samples = dataset.indices[order].astype(np.int64)
        self._rows = name_places[instruments[order]]
        self._known_graphs = by_known[last[first:]]
        self._times = distinct[first:]
        self._numbers: _Numbers = np.arange(len(self._times), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._times)

    @functools.cached_property
    def _mark(self) -> str | None:
        """What tells the two files from others."""
        own = file_mark(self._dataset)
        return None if own is None else f"{self._graphs._mark}-{own}"

    @property
    def keys(self) -> list[str]:
        """Time of each cross-section."""
        return [str(time) for time in self._times.astype("datetime64[ns]")]

    @property
    def sizes(self) -> _Numbers:
        """`[S, 2]` numbers of nodes, and of edges at most."""
        return np.stack([self._ends - self._starts, self._graphs.sizes[self._known_graphs, 1]], axis=1)

    @property
    def per_node(self) -> tuple[str, ...]:
        """Names of the arrays that have a row for each node."""
        return (*(name or "features" for name in self._dataset.timeframes), "targets", "sample")

    def _arrays(self, sections: _Numbers) -> dict[str, Any]:
        """Cross-sections as one graph without edges between them, and the samples that are its nodes."""
        counts = self._ends[sections] - self._starts[sections]
        ptr = np.concatenate([[0], np.cumsum(counts)])
        batch = np.repeat(np.arange(len(sections)), counts)
        places = self._starts[sections][batch] + np.arange(ptr[-1]) - ptr[:-1][batch]
        arrays = self._edges(sections, batch, self._rows[places])
        graph = self._graphs._numbers[self._known_graphs[sections]]
        return {**arrays, "batch": batch, "ptr": ptr, "graph": graph, "sample": self._samples[places]}

    def windows(self, samples: _Numbers) -> dict[str, npt.NDArray[Any]]:
        """Windows and targets of samples."""
        return next(iter(self._dataset._chosen(samples).loader(len(samples))))

    def tensors(self, samples: _Numbers, device: torch.device | None) -> dict[str, torch.Tensor]:
        """As `windows`: on a device, where the bars lie as long as this does, or in memory of the CPU where they do not
        fit."""
        if device is not None and self._on_device is None:
            self._on_device = self._dataset.torch(1, device=device)
        series = self._on_device.series() if self._on_device is not None else None
        if series is not None:
            return series.batch(samples)
        return next(iter(self._dataset._chosen(samples).torch(len(samples))))

    def _edges(self, sections: _Numbers, batch: _Numbers, rows: _Numbers) -> dict[str, Any]:
        """Edges between the nodes of a batch whose names are `rows`, by the node that they go to."""
        known = self._graphs._arrays(self._graphs._numbers[self._known_graphs[sections]])
        # The node of each name in each cross-section, and one place more for no name.
        node = np.full((len(sections), len(self._graphs.names) + 1), -1, np.int64)
        node[batch, rows] = np.arange(len(rows))
        node[:, -1] = -1
        moved = node[known["batch"], known["node_names"]]
        ends = moved[known["edge_index"]]
        kept = np.flatnonzero((ends >= 0).all(axis=0))
        kept = kept[np.argsort(ends[1, kept], kind="stable")]
        section = known["batch"][known["edge_index"][1, kept]]
        edges: dict[str, Any] = {name: known[name][kept] for name in ("edge_weight", "edge_attr") if name in known}
        edge_ptr = np.searchsorted(section, np.arange(len(sections) + 1))
        return {"edge_index": ends[:, kept], "edge_ptr": edge_ptr, **edges}
