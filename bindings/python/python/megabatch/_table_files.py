"""Files of Parquet and of Arrow's IPC format (Feather), which are read as frames."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from . import _frames
from .errors import ConfigError, DataError

_PARQUET, _ARROW = (".parquet", ".pq"), (".feather", ".arrow", ".ipc")


def as_frames(bars: Any, symbol: str | None = None) -> Any:
    """Bars that are table files, or folders of them, as a frame, or frames by symbol; all others as they are.

    A table without a column of symbols is of `symbol`, or of the one that its file is named after."""
    if isinstance(bars, Mapping):
        return {name: read(one) if is_table_file(one) else one for name, one in bars.items()}
    if _frames.is_frame(bars):
        return bars
    given = [bars] if isinstance(bars, (str, os.PathLike)) else list(bars)
    files = [file for one in given for file in _files_in(one)]
    tables = [file for file in files if is_table_file(file)]
    if not tables:
        return bars
    if len(tables) < len(files):
        other = next(file for file in files if not is_table_file(file))
        raise ConfigError(f"{other}: bars are table files or text, and {tables[0]} is the former: ingest one kind", key="bars")
    if len(tables) == 1:
        frame = read(tables[0])
        return frame if symbol is not None or _frames.has_symbols(frame) else {pathlib.Path(tables[0]).stem: frame}
    frames: dict[str, Any] = {}
    for file in tables:
        frame, own = read(file), pathlib.Path(file).stem
        if _frames.has_symbols(frame):
            raise DataError(f"{file}: it has a column of symbols, and it is one of {len(tables)} files: ingest it alone", file=str(file))
        if own in frames:
            raise DataError(f"{file}: a file of the symbol {own} was named before", file=str(file))
        frames[own] = frame
    return frames


def is_table_file(path: object) -> bool:
    """True for a path that ends as table files do."""
    return isinstance(path, (str, os.PathLike)) and str(path).endswith((*_PARQUET, *_ARROW))


def read(path: str | os.PathLike[str]) -> Any:
    """The table of a file, as a frame of the first library that is installed and reads it."""
    name = os.path.expanduser(path)
    if not os.path.isfile(name):
        raise DataError(f"{name}: there is no such file", file=name)
    for reader in (_pandas, _polars, _pyarrow):
        try:
            return reader(name.endswith(_PARQUET))(name)
        except ImportError:
            continue
        except Exception as error:
            raise DataError(f"{name}: {error}", file=name) from error
    raise ConfigError(f"{name}: table files are read by pandas with pyarrow, by polars or by pyarrow: install one of them", key="bars")


def _files_in(path: Any) -> list[Any]:
    """The file, or the table files of a folder that has some; a folder of others is one for the native part."""
    if isinstance(path, (str, os.PathLike)) and os.path.isdir(path):
        own = sorted(str(file) for file in pathlib.Path(path).iterdir() if is_table_file(file))
        return own or [path]
    return [path]


def _pandas(is_parquet: bool) -> Callable[[str], Any]:
    import pandas

    return pandas.read_parquet if is_parquet else pandas.read_feather


def _polars(is_parquet: bool) -> Callable[[str], Any]:
    import polars

    return polars.read_parquet if is_parquet else polars.read_ipc


def _pyarrow(is_parquet: bool) -> Callable[[str], Any]:
    if is_parquet:
        import pyarrow.parquet

        return pyarrow.parquet.read_table  # type: ignore[no-any-return]
    import pyarrow.feather

    return pyarrow.feather.read_table  # type: ignore[no-any-return]
