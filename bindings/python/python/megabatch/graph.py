"""Graphs, built once into a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _arguments, _graph_inputs, _megabatch
from ._display import display, log_note
from .dataset import Dataset
from .errors import ConfigError

if TYPE_CHECKING:
    from ._graphs import Graph, GraphLoader, Graphs

__all__ = ["Graph", "GraphLoader", "Graphs", "build", "export", "inspect", "open", "save", "verify"]

StrPath = Union[str, "os.PathLike[str]"]
_WRITTEN = "the path of the file to write, .mbg"
_COUNTED = {"lookback": "a whole number of bars", "min_observations": "a whole number of bars"}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # Classes are made when they are used: `import megabatch` is quick.
    if name in ("Graph", "GraphLoader", "Graphs"):
        from . import _graphs

        return getattr(_graphs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open(path: StrPath) -> Graphs:
    """The graphs of the file `path` (`.mbg`), as arrays, tensors or objects of PyTorch Geometric:

        graphs = mb.graph.open("shares.mbg")
        graphs["2019-06-03"].edge_index
        for batch in graphs.loader(batch_size=32, shuffle=True, pyg=True): ...
    """
    from ._graphs import Graphs

    return Graphs.open(_require_file(path))


def save(
    graphs: Iterable[Any] | StrPath,
    path: StrPath,
    *,
    keys: Sequence[str] | None = None,
    allow: Sequence[type] = (),
    ignore: Sequence[str] = (),
) -> Graphs:
    """Writes graphs to the file `path` (`.mbg`), which is replaced if it is there, and opens it: `Data` objects of PyTorch
    Geometric, mappings with arrays of these names, or a folder of `torch.save` files.

    A graph has `edge_index` [2, E] and perhaps `edge_weight`, `edge_attr`, `x`, `y` and `num_nodes`; other attributes
    are refused, unless `ignore` names them. Edges come back by the node that they go to, then by that which they come
    from, with their weights and attributes. Floats are rounded to single precision; numbers beyond its range are
    refused. Integers in a `y` of one column are classes, which come back as integers; -1 is unknown. `keys` names
    the graphs; else they are numbers from 1. Files of a folder come in the order of their numbers, and are read without running code: `allow` lists
    classes of your own in them that may."""
    from . import _graphs_saved

    if isinstance(graphs, (str, os.PathLike)) and not isinstance(path, (str, os.PathLike)):
        raise ConfigError(
            f"graphs is {os.fspath(graphs)!r}, and path {_arguments.type_name(path)}: the arguments are exchanged; give the graphs "
            f"first, mb.graph.save(graphs, {os.fspath(graphs)!r})",
            key="path",
        )
    path = _arguments.require_path(path, "path", _WRITTEN)
    source, folder = _graphs_saved.saved(graphs, path, keys, allow, ignore)
    with folder:
        build(source, path, kind="edge-index", progress=False)
    return open(path)


def export(path: StrPath, out: StrPath, *, format: str = "edge-index", keys: Sequence[str] = ()) -> dict[str, Any]:
    """Writes the graphs of a file for other programs, all or those of `keys`: `format` is `edge-index` (a safetensors
    file with tensors as in PyTorch Geometric, which keeps everything), `tu`, `edge-list` (folders) or `sdf`. What a
    format cannot hold is refused. The answer is the JSON of `megabatch graph export`."""
    path = _require_file(path)
    out = _arguments.require_path(out, "out", "the path of the file or folder to write")
    return _megabatch.export_graphs(path, out, format, list(keys))[1]


def inspect(path: StrPath) -> dict[str, Any]:
    """Contents of a file of graphs: the JSON of `megabatch graph inspect`."""
    return open(path).facts


def verify(path: StrPath) -> dict[str, Any]:
    """Checks every byte of a file of graphs; the answer is the JSON of `megabatch graph verify`."""
    return _megabatch.verify_graphs(_require_file(path))[1]


def build(
    inputs: StrPath | Sequence[StrPath] | Any,
    out: StrPath,
    *,
    kind: str,
    lookback: int | None = None,
    k: int | None = None,
    half_life: float | None = None,
    demean: bool = False,
    min_observations: int | None = None,
    min_degree: int | None = None,
    absolute: bool = False,
    threshold: float | None = None,
    symmetry: str | None = None,
    self_loops: bool = False,
    similarities: StrPath | None = None,
    symbol_pattern: str | None = None,
    on_error: str | None = None,
    radius: float | None = None,
    periodic: tuple[float, float, float] | None = None,
    normalize_features: bool = False,
    targets: StrPath | None = None,
    target: Sequence[str] = (),
    positions: bool = False,
    rewire: int | None = None,
    threads: int | None = None,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Builds graphs of `kind` into the file `out` (`.mbg`), unless it has them already. Options are those of
    `megabatch graph build`, and the answer is its JSON.

    `inputs` are paths of files or folders. Kind correlation also takes a frame of bars with a column `symbol`, frames by
    symbol, and Parquet and Feather files, and kinds cosine, euclidean and radius a frame with a row of numbers for each
    node, which a column `node` may name.

    Doubts about bars, such as splits that prices were not adjusted for, are warnings of the log `megabatch`.

    `open(out)` gives the graphs. `megabatch.open(out)` trains on those that have features of their own; graphs between
    instruments are named by the setting `model.graph`.
    """
    _refuse_dataset(inputs)
    out = _arguments.require_path(out, "out", _WRITTEN)
    for name, path in {"targets": targets, "similarities": similarities}.items():
        if path is not None:
            _arguments.require_path(path, name, "the path of a file")
    for name, word in {"kind": kind, "symmetry": symmetry, "symbol_pattern": symbol_pattern, "on_error": on_error}.items():
        _arguments.require_text(word, name, "a word that the option takes")
    counts = {"lookback": lookback, "k": k, "min_observations": min_observations, "min_degree": min_degree}
    whole: dict[str, int | None] = {
        name: None if count is None else _arguments.whole_number(count, name, takes=_COUNTED.get(name, "a whole number"))
        for name, count in {**counts, "rewire": rewire, "threads": threads}.items()
    }
    for name, number in {"half_life": half_life, "threshold": threshold, "radius": radius}.items():
        if number is not None:
            _arguments.require_number(number, name)
    options = {
        "lookback": whole["lookback"],
        "k": whole["k"],
        "half_life": half_life,
        "demean": _arguments.flag(demean, "demean"),
        "min_observations": whole["min_observations"],
        "min_degree": whole["min_degree"],
        "absolute": _arguments.flag(absolute, "absolute"),
        "threshold": threshold,
        "symmetry": symmetry,
        "self_loops": _arguments.flag(self_loops, "self_loops"),
        "similarities": similarities,
        "on_error": on_error,
        "radius": radius,
        "periodic": periodic,
        "normalize_features": _arguments.flag(normalize_features, "normalize_features"),
        "targets": targets,
        "target": list(target),
        "positions": _arguments.flag(positions, "positions"),
    }
    with _graph_inputs.files(inputs, kind, on_error) as (paths, pattern):
        options["symbol_pattern"] = pattern or symbol_pattern
        call = {
            "inputs": paths,
            "kind": kind,
            "out": out,
            "rewire": whole["rewire"],
            "threads": whole["threads"],
            "options": options,
            "display": display(progress),
        }
        _, facts = _megabatch.build_graphs(call)
    for warning in facts["found"].get("warnings", []):
        log_note(f"warning: {warning}")
    return facts


def _require_file(path: object) -> StrPath:
    """The path of a file of graphs; refuses what is none."""
    return _arguments.require_path(path, "path", "the path of a file of graphs, .mbg, such as mb.graph.save(graphs, path) writes")


def _refuse_dataset(inputs: object) -> None:
    if isinstance(inputs, Dataset):
        raise ConfigError(
            f"graph.build takes files or frames, and this is a dataset: name the files that {inputs.path} was made of",
            key="inputs",
        )
