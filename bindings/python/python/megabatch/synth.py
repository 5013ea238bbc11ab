"""Made-up data. The same seed gives the same file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Union

from . import _arguments, _megabatch

__all__ = ["bars", "samples", "shares"]

StrPath = Union[str, "os.PathLike[str]"]


def _write(what: str, path: StrPath, **options: Any) -> None:
    path = _arguments.require_path(path, "folder" if what == "shares" else "path", "the path to write to")
    call = {
        "what": what,
        "path": path,
        "days": 0,
        "count": 1,
        "seed": 0,
        "layout": "series",
        "timeframes": "M1:1",
        "features": 1,
        "targets": 1,
        "compression": "gzip",
        **options,
    }
    _megabatch.synthesize(call)


def bars(path: StrPath, *, days: int = 42, seed: int = 0) -> None:
    """Writes one-minute bars of `days` calendar days as CSV."""
    _write("bars", path, days=days, seed=seed)


def shares(folder: StrPath, *, shares: int = 12, days: int = 700, seed: int = 0) -> None:
    """Writes a CSV file of daily bars for each of some shares."""
    _write("shares", folder, count=shares, days=days, seed=seed)


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
    windows = timeframes or {"M1": 480, "M5": 288, "M15": 192, "H1": 96, "H4": 48}
    text = ",".join(f"{name}:{steps}" for name, steps in windows.items())
    _write(
        "samples",
        path,
        count=samples,
        layout=layout,
        timeframes=text,
        features=features,
        targets=targets,
        compression=compression,
        seed=seed,
    )
