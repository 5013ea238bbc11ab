"""Graphs of PyTorch Geometric, or of arrays, into a file."""

from __future__ import annotations

import json
import os
import pathlib
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from . import _graph_forms
from ._arguments import type_name
from ._requirements import required
from .errors import ConfigError, DataError

StrPath = Union[str, "os.PathLike[str]"]
# One graph: a `Data` of PyTorch Geometric, or arrays by the names of its attributes.
GraphLike = Any

_KNOWN = ("edge_index", "edge_weight", "edge_attr", "x", "y")
_TYPES = {"float32": "F32", "int64": "I64"}


def write_tensors(graphs: Iterable[GraphLike], path: pathlib.Path, keys: Sequence[str] | None, ignore: Sequence[str]) -> None:
    """Writes graphs as one safetensors file of the kind `edge-index`."""
    if _is_hetero(graphs):
        raise _hetero_error("graphs")
    if isinstance(graphs, Mapping) or hasattr(graphs, "edge_index"):
        raise ConfigError("graphs is one graph: expected several; give a list, [graph]", key="graphs")
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    types: dict[str, set[np.dtype[Any]]] = {}
    flat: set[str] = set()
    ptr = [0]
    for number, graph in enumerate(graphs):
        arrays, nodes = _arrays(graph, number, ignore)
        if number == 0:
            columns, types = {name: [] for name in arrays}, {name: set() for name in arrays}
            flat = {name for name, array in arrays.items() if array.ndim == 1}
        if set(arrays) != set(columns):
            raise DataError(
                f"graph {number} has {_listed(arrays)}, and those before have {_listed(columns)}: graphs of a file have "
                "the same attributes"
            )
        for name, array in arrays.items():
            rows = _rows(name, array, number)
            first = columns[name][0] if columns[name] else rows
            if rows.shape[1:] != first.shape[1:] or (array.ndim == 1) != (name in flat):
                shape = ["rows"] if name in flat else ["rows", *first.shape[1:]]
                raise DataError(
                    f"graph {number}: {name} is {_described(array)}, and in those before [{', '.join(map(str, shape))}]: "
                    "graphs of a file have the same widths"
                )
            types[name].add(array.dtype)
            columns[name].append(rows + ptr[-1] if name == "edge_index" else rows)
        ptr.append(ptr[-1] + nodes)
    if len(ptr) == 1:
        raise DataError("there are no graphs")
    if keys is not None and len(keys) != len(ptr) - 1:
        raise ConfigError(f"keys has {len(keys)} names for {len(ptr) - 1} graphs", key="keys")
    tensors = {name: np.concatenate(parts, axis=0) for name, parts in columns.items()}
    tensors["edge_index"] = np.ascontiguousarray(tensors["edge_index"].T)
    tensors["ptr"] = np.array(ptr, dtype=np.int64)
    metadata = {} if keys is None else {"keys": json.dumps([str(key) for key in keys])}
    for name, names in _graph_forms.LISTS.items():
        if name not in tensors:
            continue
        form = _form(types[name], name in flat)
        if name == "y" and form.dtype.kind in "iu" and _are_classes(tensors["y"]):
            tensors["y"] = tensors["y"].astype(np.int64)
        else:
            metadata[names] = json.dumps(form.names(name, tensors[name].shape[1]))
    if "y" in tensors:
        metadata["target_level"] = json.dumps("node" if len(tensors["y"]) == ptr[-1] and ptr[-1] != len(ptr) - 1 else "graph")
    header: dict[str, Any] = {"__metadata__": metadata}
    place = 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": _TYPES[tensor.dtype.name],
            "shape": list(tensor.shape),
            "data_offsets": [place, place + tensor.nbytes],
        }
        place += tensor.nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def loaded(folder: pathlib.Path, allow: Sequence[type]) -> Iterable[GraphLike]:
    """The graphs of a folder of files of `torch.save`, by the numbers and letters of their names."""
    with required("mb.graph.save() of a folder of torch.save files", "without it, graphs are mappings with arrays of numpy"):
        import torch
        import torch.serialization

    paths = sorted((*folder.glob("*.pt"), *folder.glob("*.pth")), key=_natural)
    if not paths:
        raise DataError(f"{folder}: there is no file *.pt or *.pth", file=str(folder))
    # Names of classes, which are found in PyG's modules of any version.
    torch.serialization.add_safe_globals([*_classes_of_pyg(), *allow])
    for path in paths:
        try:
            graph = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            found = re.search(r"GLOBAL ([\w.]+)", str(error))
            if found is None:
                raise DataError(f"{path}: torch.load fails: {error}", file=str(path)) from error
            raise DataError(
                f"{path}: it has an object of {found[1]}, whose code would run when it is read: if you trust the file, "
                f"give allow=[{found[1].rsplit('.', 1)[-1]}]",
                file=str(path),
            ) from None
        if isinstance(graph, (list, tuple)):
            yield from graph
        else:
            yield graph


def _classes_of_pyg() -> list[type]:
    import torch_geometric.data.data
    import torch_geometric.data.storage

    modules = (torch_geometric.data.data, torch_geometric.data.storage)
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return [kind for kind in classes if kind.__module__.startswith("torch_geometric.data")]


def _arrays(graph: GraphLike, number: int, ignore: Sequence[str]) -> tuple[dict[str, npt.NDArray[Any]], int]:
    """Arrays of a graph, rows first, and its number of nodes."""
    if _is_hetero(graph):
        raise _hetero_error(f"graph {number}")
    if not isinstance(graph, Mapping) and not hasattr(graph, "to_dict"):
        raise ConfigError(
            f"graph {number} is {type_name(graph)}: expected a Data of PyTorch Geometric, or a dictionary of arrays with "
            f"edge_index",
            key="graphs",
        )
    found = dict(graph) if isinstance(graph, Mapping) else dict(graph.to_dict())
    nodes = found.pop("num_nodes", None)
    found = {name: value for name, value in found.items() if value is not None and name not in ignore}
    if unknown := [name for name in found if name not in _KNOWN]:
        raise ConfigError(
            f"graph {number} has {_listed(unknown)}, which a file of graphs cannot hold: it has {_listed(_KNOWN)}. "
            f"Name what may be left out: ignore={unknown!r}",
            key="ignore",
        )
    if "edge_index" not in found:
        raise DataError(f"graph {number} has no edge_index")
    arrays = {name: _array(name, value, number) for name, value in found.items()}
    edges = arrays["edge_index"]
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"graph {number}: edge_index is {_described(edges)}, expected [2, E] of integers")
    arrays["edge_index"] = edges.T
    if nodes is None:
        nodes = len(arrays["x"]) if "x" in arrays else int(edges.max(initial=-1)) + 1
    if edges.size and not 0 <= edges.min() <= edges.max() < nodes:
        raise DataError(f"graph {number}: edge_index has nodes {edges.min()} to {edges.max()}, and there are {nodes}")
    rows = {"edge_weight": edges.shape[1], "edge_attr": edges.shape[1], "x": nodes}
    for name, expected in rows.items():
        if name in arrays and len(arrays[name]) != expected:
            raise DataError(f"graph {number}: {name} has {len(arrays[name])} rows, expected {expected}")
    if "y" in arrays and len(arrays["y"]) not in (1, nodes):
        raise DataError(f"graph {number}: y has {len(arrays['y'])} rows, expected 1 for the graph or {nodes} for nodes")
    return arrays, int(nodes)


def _is_hetero(graph: object) -> bool:
    """True for a `HeteroData` of PyTorch Geometric."""
    return any(kind.__name__ == "HeteroData" for kind in type(graph).__mro__)


def _hetero_error(name: str) -> ConfigError:
    """The error of a graph with nodes of several types."""
    return ConfigError(
        f"{name} is a HeteroData, and a file of graphs has nodes and edges of one type: give graph.to_homogeneous() of each, with "
        f"ignore=['node_type', 'edge_type']",
        key="graphs",
    )


def _array(name: str, value: Any, number: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (TypeError, ValueError) as error:
        raise DataError(f"graph {number}: {name} is no array: {error}") from None
    if name == "y" and array.ndim == 0:
        array = array.reshape(1)
    if array.dtype.kind not in "fiub" or array.ndim not in (1, 2):
        raise DataError(f"graph {number}: {name} is {_described(array)}, expected numbers of 1 or 2 dimensions")
    return array


def _rows(name: str, array: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
    """An array as the file has it: in single precision, and with a dimension of columns but for weights."""
    wanted = np.int64 if name == "edge_index" else np.float32
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    # Floats are rounded, as those of HDF5 files are.
    is_float = array.dtype.kind == "f"
    kept = np.isfinite(converted) == np.isfinite(array) if is_float else converted.astype(array.dtype) == array
    if not kept.all():
        raise DataError(f"graph {number}: {name} of {array.dtype} has numbers that {wanted.__name__} cannot hold: convert it first")
    return converted.reshape(-1, 1) if array.ndim == 1 and name in _graph_forms.LISTS else converted


def _form(types: set[np.dtype[Any]], is_flat: bool) -> _graph_forms.Form:
    """The form in which an array comes back: numbers of several types are floats, as PyTorch joins them."""
    is_float = len(types) > 1 or any(kind.kind == "f" for kind in types)
    return _graph_forms.Form(np.dtype(np.float32) if is_float else next(iter(types)), is_flat)


def _are_classes(y: npt.NDArray[Any]) -> bool:
    """True for integers of one column that are classes."""
    if y.shape[1] > 1 or y.max() >= _graph_forms.CLASSES_MAX:
        return False
    if y.min() < -1 or y.max() < 0:
        raise DataError(
            f"y has integers from {int(y.min())} to {int(y.max())}, which are taken as classes: expected some from 0 on, and -1 "
            f"for an unknown one; if they are numbers, give floats"
        )
    return True


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _described(array: npt.NDArray[Any]) -> str:
    return f"{list(array.shape)} of {array.dtype}"


def _natural(path: pathlib.Path) -> list[Any]:
    """Numbers by their size: 9 comes before 10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", path.name)]


def saved(
    graphs: Iterable[GraphLike] | StrPath, out: StrPath, keys: Sequence[str] | None, allow: Sequence[type], ignore: Sequence[str]
) -> tuple[pathlib.Path, tempfile.TemporaryDirectory[str]]:
    """A temporary file of the graphs, in a folder beside `out` that the caller removes."""
    source = loaded(pathlib.Path(graphs), allow) if isinstance(graphs, (str, os.PathLike)) else graphs
    folder = tempfile.TemporaryDirectory(prefix=".megabatch-", dir=pathlib.Path(out).resolve().parent)
    path = pathlib.Path(folder.name) / "graphs.safetensors"
    try:
        write_tensors(source, path, keys, ignore)
    except BaseException:
        folder.cleanup()
        raise
    return path, folder
