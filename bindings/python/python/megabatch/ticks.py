"""Ticks that become bars."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable
from typing import Any, Literal, Union

from . import _arguments, _megabatch
from ._display import display

__all__ = ["TickBars", "ticks_to_bars"]

StrPath = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class TickBars:
    """A file of bars made from ticks."""

    path: pathlib.Path
    """The bars, CSV with a header."""
    text: str
    """As `megabatch ticks` prints it."""
    facts: dict[str, Any]
    """As `megabatch ticks --json` has them."""

    def __repr__(self) -> str:
        return self.text


def ticks_to_bars(
    files: StrPath | Iterable[StrPath],
    out: StrPath,
    *,
    bars: str = "M1",
    price: Literal["mid", "bid", "ask", "last"] | None = None,
    volume: Literal["ticks", "sum"] | None = None,
    format: Literal["metatrader", "dukascopy", "csv", "histdata", "truefx", "binance", "bi5"] | None = None,
    zone: str | None = None,
    bins: str = "UTC",
    point: float | None = None,
    on_error: Literal["fail", "skip", "repair"] = "fail",
    progress: bool | None = None,
) -> TickBars:
    """Writes bars of the ticks in `files`, of one symbol and in any order, to the CSV file `out`, in one pass.

    `bars` is a timeframe such as `M1`, whose bars `ingest` reads, or `ticks:N` or `volume:V`, whose bars have no fixed
    length and a column `close_time`. `price` is by default `mid` where the ticks have bid and ask, else `last`; `volume`
    the `sum` of volumes for trades and for Dukascopy, else the number of `ticks`. `zone` is the clock of times without
    offset, which MetaTrader's files need (`new-york+7`); `bins` the clock at whose multiples bars start, `exchange`
    for that of `zone`; `point` the price of a point in `.bi5` files. Defective ticks are errors, or dropped and counted
    with `on_error="skip"`."""
    out = _arguments.require_path(out, "out", "the path of the file to write")
    paths = _arguments.require_paths(files, "files", "the path of a file of ticks, or a list of them")
    call = {
        "files": paths,
        "out": out,
        "bars": bars,
        "price": price,
        "volume": volume,
        "format": format,
        "zone": zone,
        "bins": bins,
        "point": point,
        "on_error": on_error,
        "display": display(progress),
    }
    text, facts = _megabatch.bars_of_ticks(call)
    return TickBars(pathlib.Path(out), text, facts)
