"""Files of samples and bars, and folders of runs: what is in them."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any, Union

from . import _arguments, _frames, _megabatch
from ._display import display
from ._html import table
from ._wording import in_python
from .dataset import Dataset
from .errors import ConfigError
from .training import Report, Run

__all__ = ["Comparison", "FileReport", "compare", "convert", "inspect"]

StrPath = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class FileReport:
    """Contents of a file, its problems, and what a model would see."""

    text: str
    """As `megabatch inspect` prints it."""
    facts: dict[str, Any]
    """As `megabatch inspect --json` has them."""

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Runs side by side: settings that differ, results, and learning curves on a page if one was asked for."""

    text: str
    """As `megabatch compare` prints it."""
    facts: dict[str, Any]
    """As `megabatch compare --json` has them."""
    page: Report | None
    """The page, which a notebook shows inline."""

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """The page, or a column for each run with the settings that differ and the results."""
        if self.page is not None:
            return self.page._repr_html_()
        runs = self.facts["runs"]
        rows = [[own["key"], *own["values"]] for own in self.facts["differences"]]
        rows.append(["steps", *(run["steps"] for run in runs)])
        rows.append(["best validation loss", *((run["best_validation"] or {}).get("loss", "") for run in runs)])
        errors = [(run["evaluation"] or {}).get("model", {}) for run in runs]
        for name in dict.fromkeys(name for own in errors for name in own):
            rows.append([name, *(_mean(own.get(name)) for own in errors)])
        return table(self.text.partition("\n")[0], ["", *(run["label"] for run in runs)], rows)


def inspect(data: StrPath | Dataset, *, all: bool = False) -> FileReport:
    """Contents of a file of samples (`.h5`) or of bars as text, its problems, and what a model would see.

    The text fits on a screen unless `all` is true; the facts are the same."""
    all = _arguments.flag(all, "all")
    path = _path(data, "inspect")
    if os.path.isfile(os.path.join(path, "config.yaml")):
        raise ConfigError(f"{path} is a run, and inspect takes files of samples and bars: mb.load_run opens it", file=str(path))
    text, facts = _megabatch.inspect(path, all)
    return FileReport(in_python(text), facts)


def convert(
    data: StrPath | Dataset,
    out: StrPath,
    *,
    to: str | None = None,
    storage: str | None = None,
    chunk_rows: int | str | None = None,
    compression: str | None = None,
    timeframe: str | None = None,
    memory: int | str = "512MiB",
    threads: int | None = None,
    progress: bool | None = None,
) -> Dataset:
    """Writes the samples of a file to `out`, which is replaced if it is there, in another layout or storage, verified bit
    for bit, and opens it.

    Overlapping windows become a series, which has every bar once, and a series becomes windows: `to` is `series` or
    `windows`, by default the other one, or the same where a storage is chosen. `storage` is `contiguous` or `chunked`,
    `chunk_rows` the samples or bars of a chunk or `auto`, `compression` `none`, `gzip:LEVEL` or `lzf`, and `timeframe` a
    name such as `M1` for windows that lie in `/features`. Interrupted, the same call goes on where it was."""
    if isinstance(data, Dataset):
        data._require_whole("convert")
    out = _arguments.require_path(out, "out", "the path of the file to write")
    for name, value, takes in (
        ("to", to, "series or windows"),
        ("storage", storage, "contiguous or chunked"),
        ("compression", compression, "none, gzip:LEVEL or lzf"),
        ("timeframe", timeframe, "a name such as M1"),
    ):
        _arguments.require_text(value, name, takes)
    if threads is not None:
        threads = _arguments.whole_number(threads, "threads", 1)
    call = {
        "input": _path(data, "convert"),
        "out": out,
        "to": to,
        "storage": storage,
        "chunk_rows": None if chunk_rows is None else str(chunk_rows),
        "compression": compression,
        "timeframe": timeframe,
        "memory": str(memory),
        "threads": threads,
        "display": display(progress),
    }
    _megabatch.convert(call)
    return Dataset(out)


def compare(*runs: StrPath | Run | Iterable[StrPath | Run], out: StrPath | None = None) -> Comparison:
    """Settings in which runs differ, and their results; with `out` (`.html`), also a page with learning curves.

    `runs` are runs or their folders, one by one or as a list."""
    folders: list[StrPath] = []
    for run in (run for given in runs for run in _each(given)):
        if not isinstance(run, (str, os.PathLike, Run)):
            raise _arguments.wrong(run, "runs", "a run of mb.train, its folder, or a list of them")
        folders.append(run.path if isinstance(run, Run) else os.path.expanduser(run))
    if out is not None:
        out = _arguments.require_path(out, "out", "the path of the page to write, .html")
    text, facts = _megabatch.compare(folders, out)
    return Comparison(in_python(text), facts, None if out is None else Report(pathlib.Path(out)))


def _mean(error: Any) -> object:
    """A number, or its mean over folds."""
    found = error.get("mean") if isinstance(error, dict) else error
    return "" if found is None else found


def _each(runs: Any) -> Iterable[Any]:
    """One run, or those of a list."""
    are_several = isinstance(runs, Iterable) and not isinstance(runs, (str, os.PathLike))
    return runs if are_several else [runs]


def _path(data: StrPath | Dataset, purpose: str) -> StrPath:
    _frames.refuse(data, purpose)
    if isinstance(data, Dataset):
        return data.path
    return _arguments.require_path(data, "data", "a dataset or the path of a file")
