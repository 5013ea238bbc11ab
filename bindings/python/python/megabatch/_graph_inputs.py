"""Inputs of graphs as the files that the builder reads."""

from __future__ import annotations

import contextlib
import csv
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _arguments, _bar_sources, _frames, _megabatch, _table_files
from ._display import log_note
from .errors import ConfigError, DataError

_POINT_KINDS = ("cosine", "euclidean", "radius")


@contextlib.contextmanager
def files(
    inputs: Any, kind: str, on_error: str | None = None
) -> Iterator[tuple[Sequence[str | os.PathLike[str]], str | None]]:
    """Paths of files to build graphs of `kind` from: those of `inputs`, or of files with the contents of frames, for as
    long as they are needed; and the pattern of the names of files that have the bars of frames. `on_error` decides what
    becomes of symbols without a price."""
    is_right = _frames.is_frame(inputs) or isinstance(inputs, (os.PathLike, Iterable))
    _arguments.require(is_right, inputs, "inputs", "a frame, frames by symbol, or paths of files or folders")
    inputs = _bar_sources.with_whole_paths(inputs)
    frames = _table_files.as_frames(inputs)
    if not (_frames.is_frame(frames) or isinstance(frames, Mapping)):
        yield [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs), None
        return
    with tempfile.TemporaryDirectory(prefix="megabatch-") as name:
        folder = pathlib.Path(name)
        if kind == "correlation":
            with _bars(frames, folder, on_error) as paths:
                yield paths, "{}"
        elif kind in _POINT_KINDS and _frames.is_frame(frames):
            yield [_points(frames, folder)], None
        else:
            takes = f"a frame of points for {', '.join(_POINT_KINDS)}, and bars of shares for correlation"
            raise ConfigError(f"kind is {kind}, and inputs are frames: graph.build takes {takes}", key="inputs")


@contextlib.contextmanager
def _bars(frames: Any, folder: pathlib.Path, on_error: str | None) -> Iterator[list[str]]:
    """A file of bars for each symbol."""
    every = _frames.by_symbol(frames, None)
    empty = {symbol: bars.emptiness() for symbol, bars in every.items() if bars.is_empty()}
    _frames.refuse_empty(empty, len(every), on_error)
    for symbol, found in empty.items():
        log_note(f"warning: left out: {symbol}: {found}")
    by_symbol = {symbol: bars for symbol, bars in every.items() if symbol not in empty}
    _frames.require_file_names(by_symbol)
    paths = {symbol: str(folder / f"{symbol}.csv") for symbol in by_symbol}
    for symbol, path in paths.items():
        _megabatch.write_bars(path, by_symbol[symbol].native())
    try:
        yield list(paths.values())
    except DataError as error:
        for symbol, path in paths.items():
            by_symbol[symbol].with_row(error, path, name=_frames.frame_name(symbol, len(paths)))
        raise


def _points(frame: Any, folder: pathlib.Path) -> str:
    """A table with a row for each node: its numbers, and its name in a column `node`."""
    columns = {name: values.tolist() for name, values in _frames.columns(frame).items()}
    # The name comes first in a file.
    names = sorted(columns, key=lambda name: name != "node")
    path = os.path.join(folder, "points.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(names)
        rows.writerows(zip(*(columns[name] for name in names)))
    return path
