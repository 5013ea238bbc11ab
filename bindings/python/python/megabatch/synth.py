"""Made-up data. The same seed gives the same file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Union

from . import _arguments, _megabatch

__all__ = ["bars", "samples", "shares"]

StrPath = Union[str, "os.PathLike[str]"]


_LEAST = {"days": 1, "shares": 1, "samples": 1, "features": 1, "targets": 1, "seed": 0}
"""Numbers that calls take, and the least of each."""


def _write(what: str, path: StrPath, numbers: Mapping[str, int], **options: Any) -> None:
    path = _arguments.require_path(path, "folder" if what == "shares" else "path", "the path to write to")
    whole = {name: _arguments.whole_number(number, name, _LEAST[name]) for name, number in numbers.items()}
    # Shares and samples are counted by the argument that is called as they are.
    count = whole.pop(what, 1)
    call = {
        "what": what,
        "path": path,
        "days": 0,
        "count": count,
        "seed": 0,
        "layout": "series",
        "timeframes": "M1:1",
        "features": 1,
        "targets": 1,
        "compression": "gzip",
        **whole,
        **options,
    }
    _megabatch.synthesize(call)


def bars(path: StrPath, *, days: int = 42, seed: int = 0) -> None:
    """Writes one-minute bars of `days` calendar days as CSV."""
    _write("bars", path, {"days": days, "seed": seed})


def shares(folder: StrPath, *, shares: int = 12, days: int = 700, seed: int = 0) -> None:
    """Writes a CSV file of daily bars for each of some shares."""
    _write("shares", folder, {"shares": shares, "days": days, "seed": seed})


def samples(
    path: StrPath,
    *,
    samples: int = 1000,
    layout: str = "series",
    timeframes: Mapping[str, int] | None = None,
    features: int = 16,
    targets: int = 36,
    compression: str = "gzip",
    seed: int = 0,
) -> None:
    """Writes samples as HDF5, in the layout `series` or `windows`; compression is `contiguous`, `none`, `gzip` or
    `lzf`."""
    _arguments.require(layout in ("series", "windows"), layout, "layout", "series or windows")
    _arguments.require_text(compression, "compression", "contiguous, none, gzip or lzf")
    is_mapping = timeframes is None or isinstance(timeframes, Mapping)
    _arguments.require(is_mapping, timeframes, "timeframes", 'lengths of windows by timeframe, such as {"M1": 480}')
    windows = timeframes or {"M1": 480, "M5": 288, "M15": 192, "H1": 96, "H4": 48}
    text = ",".join(f"{name}:{steps}" for name, steps in windows.items())
    _write(
        "samples",
        path,
        {"samples": samples, "features": features, "targets": targets, "seed": seed},
        layout=layout,
        timeframes=text,
        compression=compression,
    )
