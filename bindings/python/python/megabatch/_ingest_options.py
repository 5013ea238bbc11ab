"""Options of `ingest` with their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict, Union

from ._options_help import list_options


class IngestOptions(TypedDict, total=False):
    """Options of `ingest` by their names on the command line, with `_` for `-`."""

    symbol_pattern: str
    """Pattern of file names without extension: `{}` is the symbol, `*` anything else (`DA-{}-T-*`)."""
    pip_size: float | str | Mapping[str, float]
    """Size of a pip in units of the price, for all symbols or by symbol. Known for currency pairs."""
    format: Literal["histdata", "metatrader", "iso", "year-last", "epoch"]
    """Format of the files; recognised by default."""
    date_order: Literal["day-first", "month-first"]
    """Order of day and month in dates with the year last; by default the only one that fits all dates."""
    time: Literal["open", "close"]
    """Meaning of a bar's timestamp, its open by default. Bars of days and longer are dated by their day all the same."""
    zone: str
    """Zone of times that have none: `UTC`, `+02:00`, `America/New_York`, `new-york+7` or `london-5`."""
    base: str
    """Timeframe of the bars, such as `M1`; by default from their spacing."""
    bins: str
    """Clock at whose multiples of a timeframe bars start that are made from shorter ones, `UTC` by default, or any
    zone: `+02:00`, `Europe/Berlin`, `chicago+7`, `Europe/Berlin+1`. Days of `new-york+7` close at 17:00 in New York.
    `exchange` is `zone`, or else the clock that the files tell."""
    own_bars: bool
    """True to take the bars of longer timeframes as a symbol's own files have them, `EURUSD_H1.csv` beside
    `EURUSD_M1.csv`."""
    prices: Literal["auto", "quoted", "adjusted"]
    """Prices as they were quoted, or adjusted for splits and dividends by the adjusted close."""
    on_error: Literal["fail", "skip", "repair"]
    """Treatment of defective rows: an error by default; dropped and counted; or repaired where nothing is invented."""
    repeats: Literal["refuse", "first", "last"]
    """Row kept if several have the same time and daylight saving does not explain it."""
    overlaps: Literal["refuse", "once"]
    """Files of one symbol that cover the same time."""
    calendar: Literal["all", "common"]
    """Bars that are used of several instruments: all, or those at times at which at least half of the listed ones have a
    bar."""
    stride: int
    """Base bars from one sample to the next, 1 by default."""
    longest_hole: str
    """Longest gap between bars that windows may reach across, `4d` by default."""
    weekends: Literal["span", "split"]
    """Windows may reach across weekends, as by default, or may not."""
    scaling: Literal["robust", "standard", "none"]
    """Scaling of features: by median and interquartile range, by mean and deviation, or none."""
    train_fraction: float
    """Share of the earliest samples that the scaling is fitted on, 0.7 by default; the first number of `data.split`."""


list_options(IngestOptions)
