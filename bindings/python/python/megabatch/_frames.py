"""Bars of pandas, polars and pyarrow frames as columns of numpy."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import functools
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arguments, _megabatch
from .errors import ConfigError, DataError

PRICES = ("open", "high", "low", "close")
UNNAMED = "BARS"
"""The symbol of frames that name none."""
LIBRARIES = ("pandas", "polars", "pyarrow")
"""Libraries whose frames are read, the usual one first."""
_UNNEEDED = ("split_coefficient", "dividend_amount")
"""Columns that are only reported: other values than numbers are no fault of a file either."""
_LISTED_MAX = 5
"""Symbols that a message lists."""
_LEAVING_OUT = ("skip", "repair")
"""Values of `on_error` by which instruments that cannot be used are left out."""
_SHOWN_MAX = 40
"""Letters of a symbol that a message shows."""
_FILE_NAME_MAX = 200
"""Bytes of a symbol that a file may be named after; file systems take 255 with the ending."""
_DAY_NS = 86_400_000_000_000
_OFFSET = re.compile(r":\d{2}(?:\.\d+)?\s*([+-]\d{2}:?\d{2}|Z)$")
"""The offset at the end of a time of day."""
_DATE = re.compile(r"\s*(\d{4})[./-](\d{2})[./-](\d{2})\s*")
"""A date with the year first."""
_NAT = np.iinfo(np.int64).min
_EPOCH_MIN_S, _EPOCH_END_S = 315_532_800, 4_102_444_800
"""1980 and 2100."""


@dataclasses.dataclass(frozen=True)
class Bars:
    """Bars of one instrument."""

    time_ns: npt.NDArray[np.int64]
    is_utc: bool
    columns: dict[str, npt.NDArray[np.float64]]
    """Numbers by the names that a header of a file may have."""
    rows: npt.NDArray[np.int64]
    """The rows of the frame that they are, counted from 0."""
    time_columns: dict[str, npt.NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    """Further columns of times on the same clock, ns since 1970."""
    zone: str | None = None
    """The clock of times that are not UTC; that of the series where there is none."""
    empty_rows: int = 0
    """Rows without prices that were left out."""
    east_s: npt.NDArray[np.int32] | None = None
    """Seconds east of UTC on the clock of each row, which tell its date, where the times have another zone."""

    def is_empty(self) -> bool:
        """True if no row has a price."""
        return bool(np.all([np.isnan(self.columns[name]) for name in PRICES]))

    def emptiness(self) -> str:
        """Description of the rows where none has a price."""
        count = len(self.rows) + self.empty_rows
        found = f"all {count} rows are empty" if count > 1 else "its only row is empty" if count else "it has no rows"
        return f"{found} (a failed download?)"

    def native(self) -> dict[str, Any]:
        """As the native part takes them."""
        columns = [(name, values.tobytes()) for name, values in self.columns.items()]
        times = [(name, values.tobytes()) for name, values in self.time_columns.items()]
        return {
            "time_ns": self.time_ns.tobytes(),
            "is_utc": self.is_utc,
            "east_s": None if self.east_s is None else self.east_s.tobytes(),
            "zone": self.zone,
            "columns": columns,
            "time_columns": times,
        }

    def with_row(self, error: DataError, file: str, lines_before: int = 0, name: str = "the frame") -> DataError:
        """An error in a `file` of these bars, which stand after a header and as many other lines, told of the frame and
        of its rows."""
        text = str(error)
        named = re.search(rf"{re.escape(file)}: (?:line (\d+): )?", text)
        if named is None:
            return error
        row = self._row_in(named[1], lines_before) if named[1] else None
        told, end = f"{name}: ", named.start() + len(f"{file}: ")
        if row is not None:
            error.fields["row"] = row
            told, end = f"row {row} of {name}: ", named.end()

        def other(found: re.Match[str]) -> str:
            row = self._row_in(found[1], lines_before)
            return found[0] if row is None else f"row {row}"

        # An error of several files has a line for each.
        own, *others = text[end:].split("\n", 1)
        own = re.sub(rf"\bline (\d+)\b(?: of {re.escape(file)})?", other, own)
        error.args = ("\n".join([f"{text[: named.start()]}{told}{own}", *others]),)
        return error

    def _row_in(self, line: str, lines_before: int) -> int | None:
        """The row of the frame in a line of a file of these bars; `None` for a line without one."""
        place = int(line) - lines_before - 2
        return int(self.rows[place]) if 0 <= place < len(self.rows) else None

    def remark(self, text: str, file: str) -> str:
        """A remark on a `file` of these bars, which stand after a header, told of the frame and of its row."""

        def row(found: re.Match[str]) -> str:
            return f"row {self.rows[int(found[1]) - 2]} of the frame "

        return re.sub(rf"{re.escape(file)}: line (\d+) ", row, text).replace(file, "the frame")

    def at_rows(self, rows: npt.NDArray[np.int64]) -> Bars:
        """The bars in some of these rows."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        times = {name: values[rows] for name, values in self.time_columns.items()}
        east_s = None if self.east_s is None else self.east_s[rows]
        return Bars(self.time_ns[rows], self.is_utc, columns, self.rows[rows], times, self.zone, east_s=east_s)


@dataclasses.dataclass(frozen=True)
class _Times:
    """Times, ns since 1970; by UTC, or by a clock on a wall, which is `zone`'s, or UTC's as that of a file without it."""

    time_ns: npt.NDArray[np.int64]
    is_utc: bool
    east_s: npt.NDArray[np.int32] | None = None
    """Seconds east of UTC on the clock of each row, where its zone is another."""

    @staticmethod
    def in_zone(time_ns: npt.NDArray[np.int64], wall_ns: npt.NDArray[np.int64], zone: object) -> _Times:
        """Times of a `zone`, whose clock shows `wall_ns`."""
        if is_utc(zone):
            return _Times(time_ns, is_utc=True)
        east_s = np.where(time_ns == _NAT, 0, (wall_ns - time_ns) // 1_000_000_000).astype(np.int32)
        return _Times(time_ns, is_utc=True, east_s=east_s)


def is_utc(zone: object) -> bool:
    """True for UTC. Clocks of other zones may have its offset for a time, as London's in winter, and dates of their own."""
    name = None
    # Some zones, such as `tzlocal` of dateutil, have no name without a time.
    with contextlib.suppress(AttributeError, NotImplementedError, TypeError, ValueError):
        name = zone.tzname(None) if isinstance(zone, datetime.tzinfo) else None
    return _megabatch.is_utc(name or str(zone))


def is_frame(data: object) -> bool:
    """True for a table: not for paths."""
    return hasattr(data, "__arrow_c_stream__") or library(data) in LIBRARIES


def refuse(data: object, purpose: str) -> None:
    """Refuses a frame in the place of a dataset."""
    if is_frame(data):
        raise ConfigError(
            f"{purpose} takes a dataset or the path of one, and this is a frame of {library(data)}: make a dataset of it "
            f"with mb.ingest(frame, …)",
            key="data",
        )


def library(frame: object) -> str:
    """The library of a frame."""
    return type(frame).__module__.split(".")[0]


def by_symbol(
    frame: Any,
    symbol: str | None,
    columns: Sequence[str] | None = (),
    unnamed: str = UNNAMED,
    label_end: str | None = None,
    known: Sequence[str] = (),
) -> dict[str, Bars]:
    """The bars of each instrument of `frame`, with further `columns` of numbers, all that there are for `None`, and the
    column of times `label_end`; those of `unnamed` where nothing tells the instrument. A column with one of the symbols
    that are `known` tells it."""
    if isinstance(frame, Mapping):
        # A lazy frame is collected once.
        frames = {
            str(name): own.collect() if hasattr(own, "collect") else own
            for name, own in frame.items()
            if symbol in (None, str(name))
        }
        if not frames and symbol is not None:
            raise DataError(
                f"no frame has the symbol {symbol}; there are {nearest(symbol, map(str, frame))}", column="symbol", found=symbol
            )
        if columns:
            _require_everywhere(_tables(frames), columns)
        all_bars: dict[str, Bars] = {}
        for name, own in frames.items():
            _require_one_symbol(own, name)
            with errors_named(name, name):
                all_bars.update(by_symbol(own, name, columns, label_end=label_end))
        return all_bars
    tables = _by_ticker(frame)
    if tables is None:
        return _by_rows(_Table.open(frame), symbol, columns, unnamed, label_end, known)
    return _by_columns(tables, symbol, columns, label_end)


def _by_columns(
    tables: Mapping[str, Any], symbol: str | None, columns: Sequence[str] | None, label_end: str | None
) -> dict[str, Bars]:
    """The bars of each instrument whose columns are a frame of `tables`."""
    if symbol is not None and symbol not in tables:
        raise DataError(
            f"no column of the frame has the symbol {symbol}; there are {nearest(symbol, tables)}",
            column="symbol",
            found=symbol,
        )
    chosen = {name: _Table.open(own) for name, own in tables.items() if symbol in (None, name)}
    # All have the same times, whose error is of no ticker.
    next(iter(chosen.values())).times()
    _require_everywhere(chosen, columns)
    found = {}
    for name, table in chosen.items():
        with errors_named(name, name):
            found[name] = _known(_bars(table, columns, label_end))
    return found


def single_instrument(frame: Any, name: str) -> tuple[Bars, list[str]]:
    """The bars in `frame` of the instrument that is called `name`, without rows that have no price, and the names of their
    columns without a role. The only instrument of a frame may have another name there."""
    own = frame.collect() if hasattr(frame, "collect") else frame
    tables = _by_ticker(own)
    symbols: Iterable[Any] | None = _Table.open(own).symbols() if tables is None else tables
    names = list(dict.fromkeys(symbols)) if symbols is not None else []
    symbol = names[0] if len(names) == 1 else name
    bars = by_symbol(own, symbol, columns=None)[symbol]
    if bars.is_empty():
        refuse_empty({symbol: bars.emptiness()}, 1, None)
    return bars, number_columns(own)


def refuse_empty(empty: Mapping[str, str], instruments: int, on_error: str | None) -> None:
    """Refuses instruments without a price, described by `Bars.emptiness`: all by the default of `on_error`, by its other
    values where no other of the `instruments` is left."""
    symbols = list(empty)
    is_nothing_left = len(symbols) == instruments
    if not symbols or (on_error in _LEAVING_OUT and not is_nothing_left):
        return
    more = f" and {len(symbols) - _LISTED_MAX} more" if len(symbols) > _LISTED_MAX else ""
    name = "the frame" if instruments == 1 else ", ".join(symbols[:_LISTED_MAX]) + more
    advice = "" if is_nothing_left else ', leave them out, or pass on_error="skip", which leaves them out'
    raise DataError(f"{name}: {empty[symbols[0]]}: download the bars again{advice}", symbol=symbols[0])


def nearest(symbol: str, symbols: Iterable[str]) -> str:
    """The symbols in a message that misses one of them: all, or those that are most like it."""
    names = list(dict.fromkeys(symbols))
    shown, more = names, ""
    if len(names) > _LISTED_MAX:
        shown, more = difflib.get_close_matches(symbol, names, _LISTED_MAX, 0.0), f" and {len(names) - _LISTED_MAX} more"
    return f"{', '.join(shown)}{more}{did_you_mean(symbol, names)}"


def by_likely_symbol(frame: Any, symbol: str, columns: Sequence[str] | None) -> tuple[str, dict[str, Bars]]:
    """The name that `symbol` has in `frame`, its own, or another form of it if the frame has only that, and its bars as
    `by_symbol` gives them."""
    tables = _by_ticker(frame)
    if tables is not None:
        name = _name_among(symbol, tables)
        return name, _by_columns(tables, name, columns, None)
    table = _Table.open(frame)
    symbols = table.symbols()
    name = symbol if symbols is None else _name_among(symbol, symbols)
    return name, _by_rows(table, name, columns, UNNAMED, None, ())


def _name_among(symbol: str, symbols: Iterable[Any]) -> str:
    names = list(dict.fromkeys(symbols))
    other = None if symbol in names else _megabatch.likely_symbol(symbol, names)
    return symbol if other is None else other


def symbol_in(bar: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    """The name of the field of a bar that tells the instrument, its symbol, and false for a field such as `company`, which
    may have another name of it, by the rules of columns. One bar does not show whether numbers of such a field change
    from bar to bar, and they are no symbols."""
    keys = list(bar.keys())
    sure, likely = _symbol_fields(tuple(str(key) for key in keys))
    place = next(iter([*sure, *likely]), None)
    if place is None or _is_missing(bar[keys[place]]):
        return None
    value = bar[keys[place]]
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    is_feature = is_number and (place not in sure or float(value) % 1 != 0)
    name = str(value).strip()
    return None if is_feature or not name else (str(keys[place]), name, place in sure)


@functools.lru_cache(maxsize=16)
def _symbol_fields(names: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """The fields of bars with these names that tell the instrument. Bars that are pushed have the same names each time."""
    return _megabatch.symbol_columns(names)


def is_in_other_case(name: str, symbol: str) -> bool:
    """True for names that differ in the case of letters at most, which are of one instrument."""
    return name.upper() == symbol.upper()


def name_among(symbol: str, known: Sequence[str]) -> str:
    """The one of the names `known` that `symbol` is but for the case of letters; `symbol` itself where there is none."""
    found = [name for name in known if is_in_other_case(name, symbol)]
    return found[0] if len(found) == 1 else symbol


def did_you_mean(symbol: str, symbols: Iterable[str]) -> str:
    """The end of a message that misses a symbol which is another form of one of `symbols`."""
    meant = _megabatch.likely_symbol(symbol, list(symbols))
    return "" if meant is None else f"; did you mean {meant}?"


def frame_name(name: str, count: int) -> str:
    """The frame of this name, one of `count`, in a message."""
    return "the frame" if count == 1 else f"the frame ({name})"


@contextlib.contextmanager
def errors_named(symbol: str, name: str) -> Iterator[None]:
    """Errors have the instrument, one of several, and begin with its `name`."""
    try:
        yield
    except DataError as error:
        error.fields["symbol"] = symbol
        error.args = (f"{name}: {error}",)
        raise


def _require_everywhere(tables: Mapping[str, _Table], columns: Sequence[str] | None) -> None:
    """Requires that instruments that have tables of their own all have `columns`, or none."""
    for name in columns or ():
        lacking = [symbol for symbol, table in tables.items() if name not in table.names]
        if 0 < len(lacking) < len(tables):
            more = f" and {len(lacking) - _LISTED_MAX} more" if len(lacking) > _LISTED_MAX else ""
            raise DataError(
                f"column {name} is not there for {', '.join(lacking[:_LISTED_MAX])}{more}: expected it for all "
                f"{len(tables)} symbols, NaN where it is not known, or bars without these symbols",
                column=name,
                found=", ".join(symbol for symbol in tables if symbol not in lacking),
            )


def _require_one_symbol(frame: Any, name: str) -> None:
    """Refuses a frame of other symbols under the name of one."""
    tables = _by_ticker(frame)
    symbols: Any = tables
    if tables is None:
        table = _Table.open(frame)
        symbols = None if table.may_rename_one() else table.symbols()
    if symbols is not None and name not in symbols:
        found = list(map(str, dict.fromkeys(symbols)))
        raise DataError(
            f"the frame under the name {name} has symbols of its own, such as {', '.join(found[:_LISTED_MAX])}: give a frame of "
            f"several symbols alone, not in a mapping",
            column="symbol",
            found=", ".join(found),
        )


def has_symbols(frame: Any) -> bool:
    """True if rows or columns tell the instrument."""
    return _by_ticker(frame) is not None or _Table.open(frame).symbol_place() is not None


def symbol_column(frame: Any, known: Sequence[str]) -> str | None:
    """The name of the column that tells the instrument of each row, by the symbols that are `known`."""
    if isinstance(frame, Mapping) or _by_ticker(frame) is not None:
        return None
    table = _Table.open(frame)
    place = table.symbol_place(known)
    return None if place is None else table.names[place]


def require_file_names(symbols: Iterable[str]) -> None:
    """Refuses symbols that no file can be named after, and names that a file of another symbol has."""
    seen: dict[str, str] = {}
    for symbol in symbols:
        fault = _fault_of_file_name(symbol)
        if fault is not None:
            shown = symbol if len(symbol) <= _SHOWN_MAX else f"{symbol[:_SHOWN_MAX]}…"
            raise DataError(
                f"symbol {shown!r} {fault}: expected a name that a file may have, as each of several symbols has a file; "
                f"rename it",
                column="symbol",
                found=symbol,
            )
        other = seen.setdefault(symbol.lower(), symbol)
        if other != symbol:
            raise DataError(
                f"the symbols {other} and {symbol} differ in the case of letters alone, and count as one instrument: rename one "
                f"of them, or leave it out",
                column="symbol",
                found=symbol,
            )


def file_name(symbol: str) -> str:
    """The symbol, or a name for the file of its bars where no file can have it, which then does not tell it."""
    if _fault_of_file_name(symbol) is None:
        return symbol
    return urllib.parse.quote(symbol, safe=" ")[:_FILE_NAME_MAX] or "BARS"


def _fault_of_file_name(symbol: str) -> str | None:
    """Why no file can be named after the symbol."""
    if not symbol.strip():
        return "is empty"
    if os.path.basename(symbol) != symbol or symbol in (os.curdir, os.pardir) or not symbol.isprintable():
        return "has a character that names of files have not"
    length = len(os.fsencode(symbol))
    return f"is {length} bytes long, and {_FILE_NAME_MAX} are the most" if length > _FILE_NAME_MAX else None


def columns(frame: Any) -> dict[str, npt.NDArray[Any]]:
    """Every column of a frame by its name."""
    table = _Table.open(frame)
    return {name: table._values(place) for place, name in enumerate(table.names)}


def column(series: Any, name: str) -> npt.NDArray[Any]:
    """The values of a series or an array of pandas, polars or pyarrow."""
    module = library(series)
    if module == "pandas":
        import pandas

        return _Pandas(pandas.DataFrame({name: series}))._values(0)
    if module == "polars":
        return _Polars(series.to_frame())._values(0)
    import pyarrow

    return _Arrow(pyarrow.table({name: series}))._values(0)


def times(series: Any, name: str) -> npt.NDArray[np.int64]:
    """The times in a series or an array, ns since 1970; those without a zone are UTC."""
    module = library(series)
    if module == "pandas":
        import pandas

        return _Pandas._from_series(pandas.Series(series), name).time_ns
    if module == "polars":
        return _Polars(series.to_frame())._times(0, name).time_ns
    if module == "pyarrow":
        import pyarrow

        return _Arrow(pyarrow.table({name: series}))._times(0, name).time_ns
    raise _no_times(name, getattr(series, "dtype", type(series).__name__))


def number_columns(frame: Any) -> list[str]:
    """Names of the columns of numbers without a role that every frame has."""
    found = [list(table.further_numbers(None)) for table in _tables(frame).values()]
    return [name for name in dict.fromkeys(found[0]) if all(name in own for own in found)] if found else []


def own_columns(frame: Any) -> list[str]:
    """Names of the columns that have no role of their own, each once."""
    return list(dict.fromkeys(name for table in _tables(frame).values() for name in table.own_columns()))


def _tables(frame: Any) -> dict[str, _Table]:
    """The table of each instrument that has one of its own."""
    frames = frame if isinstance(frame, Mapping) else {"": frame}
    by_name = {str(name): _by_ticker(own) or {str(name): own} for name, own in frames.items()}
    return {ticker: _Table.open(own) for tables in by_name.values() for ticker, own in tables.items()}


def _by_rows(
    table: _Table,
    symbol: str | None,
    columns: Sequence[str] | None,
    unnamed: str,
    label_end: str | None,
    known: Sequence[str],
) -> dict[str, Bars]:
    bars = _bars(table, columns, label_end)
    symbols = None if symbol is not None and table.may_rename_one() else table.symbols(known)
    if symbols is None:
        table.refuse_unknown_symbols(bars.time_ns)
        return {symbol or unnamed: _known(bars)}
    rows = _rows_by_symbol(symbols) if symbol is None else {symbol: np.flatnonzero(symbols == symbol)}
    if symbol is not None and not rows[symbol].size:
        raise DataError(
            f"no row of the frame has the symbol {symbol}; there are {nearest(symbol, symbols.tolist())}",
            column="symbol",
            found=symbol,
        )
    return {name: _known(bars.at_rows(own_rows)) for name, own_rows in rows.items()}


def _rows_by_symbol(symbols: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.intp]]:
    """The rows of each symbol, symbols by their first rows."""
    each = symbols.tolist()
    places = {one: place for place, one in enumerate(dict.fromkeys(each))}
    place_of_row = np.fromiter(map(places.__getitem__, each), np.intp, len(each))
    ends = np.cumsum(np.bincount(place_of_row, minlength=len(places)))
    rows = np.split(np.argsort(place_of_row, kind="stable"), ends[:-1])
    return {str(one): own_rows for one, own_rows in zip(places, rows)}


def _bars(table: _Table, further: Sequence[str] | None, label_end: str | None) -> Bars:
    columns = {**table.numbers(), **table.further_numbers(further)}
    times, name_of_time = table.times()
    missing = np.flatnonzero(times.time_ns == _NAT)
    if missing.size:
        row = int(missing[0])
        raise DataError(
            f"row {row} of the frame: {name_of_time} is NaT; drop the {missing.size} rows without a time",
            column=name_of_time,
            row=row,
        )
    ends = {label_end: table.further_times(label_end, times)} if label_end is not None else {}
    return Bars(times.time_ns, times.is_utc, columns, np.arange(len(times.time_ns)), ends, east_s=times.east_s)


def _known(bars: Bars) -> Bars:
    """The bars without rows that have no price, which are missing bars: of several instruments that share times, one that
    was not traded has such a row. So has one whose frame has the times of another."""
    known = bars.at_rows(np.flatnonzero(~np.all([np.isnan(bars.columns[name]) for name in PRICES], axis=0)))
    return dataclasses.replace(known, empty_rows=bars.empty_rows + len(bars.rows) - len(known.rows))


def _by_ticker(frame: Any) -> dict[str, Any] | None:
    """The frame of each ticker, where pandas' columns have two levels, as those of yfinance; else `None`."""
    _require_table(frame)
    if library(frame) != "pandas" or getattr(frame.columns, "nlevels", 1) == 1:
        return None
    for level in range(frame.columns.nlevels if frame.columns.nlevels == 2 else 0):
        names = [str(name) for name in frame.columns.get_level_values(level)]
        *_, numbers, _ = _megabatch.bar_columns(names)
        absent = [name for name in PRICES if name not in {known for known, _ in numbers}]
        if len(absent) == 1:
            raise DataError(
                f"the columns of the frame have no {absent[0]} beside the other prices; there are {', '.join(dict.fromkeys(names))}",
                column=absent[0],
            )
        if absent:
            continue
        tickers = frame.columns.get_level_values(1 - level)
        if all(str(name).lower() == "price" or _names_symbols(str(name)) for name in frame.columns[0]):
            raise _no_second_header(f"the first column is called {frame.columns[0]}")
        if not frame.columns.is_unique:
            first = frame.columns[frame.columns.duplicated()][0]
            raise DataError(
                f"the frame has several columns {first[level]} of {first[1 - level]}: expected each ticker and each column once; "
                f"frame.loc[:, ~frame.columns.duplicated()] keeps the first",
                column=str(first[level]),
                found=str(first[1 - level]),
            )
        # `reset_index` gives the time no ticker: it is every one's.
        own = {str(ticker): frame.loc[:, (tickers == ticker) | (tickers == "")] for ticker in tickers if ticker != ""}
        return {ticker: table.droplevel(1 - level, axis=1) for ticker, table in own.items()}
    raise DataError(
        f"the columns of the frame have {frame.columns.nlevels} levels; expected one, or one of open, high, low and close "
        f"and one of symbols",
        column="open",
    )


def _require_table(frame: Any) -> None:
    """Refuses a column in the place of a frame."""
    # Of the type: a lazy frame would look for them.
    if library(frame) in LIBRARIES and not hasattr(type(frame), "columns"):
        raise DataError(
            f"this is {_arguments.type_name(frame)} of {library(frame)}, one column: expected a frame with open, high, low, close "
            f"and times; give the frame that it is a column of",
            column="open",
        )


class _Table:
    """A frame of one library."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._stamp, self._date, self._clock, numbers, self._others = _megabatch.bar_columns(names)
        self._numbers = dict(numbers)
        self._sure_symbols, likely_symbols = _megabatch.symbol_columns(names)
        self._called_symbols = [*self._sure_symbols, *likely_symbols]

    @staticmethod
    def open(frame: Any) -> _Table:
        """A table of any library."""
        _require_table(frame)
        module = library(frame)
        if module == "pandas":
            return _Pandas(frame)
        if module == "polars":
            return _Polars(frame.collect() if hasattr(frame, "collect") else frame)
        if module == "pyarrow":
            return _Arrow(frame)
        if hasattr(frame, "__arrow_c_stream__"):
            return _Table._from_stream(frame)
        raise DataError(
            f"{_arguments.type_name(frame)} is no frame of bars; expected one of pandas, polars or pyarrow, or paths of files"
        )

    @staticmethod
    def _from_stream(frame: Any) -> _Table:
        """A table of another library, by the Arrow C stream."""
        try:
            import pyarrow
        except ImportError:
            pass
        else:
            return _Arrow(pyarrow.table(frame))
        try:
            import polars
        except ImportError:
            raise DataError("frames of other libraries are read by pyarrow or polars; install one of them") from None
        return _Polars(polars.DataFrame(frame))

    def numbers(self) -> dict[str, npt.NDArray[np.float64]]:
        """Every column of numbers that a file may have; missing ones are NaN."""
        for name in PRICES:
            if name not in self._numbers:
                raise self._without_second_header() or DataError(
                    f"the frame has no column {name}; expected open, high, low and close, and found "
                    f"{', '.join(self.names) or 'no columns'}",
                    column=name,
                )
        self._require_one_column_a_price()
        found = {}
        for role, place in self._numbers.items():
            values, name = self._values(place), self.names[place]
            if values.dtype.kind not in "fiu":
                if role in _UNNEEDED:
                    continue
                raise self._without_second_header() or _no_numbers(name, values.dtype)
            found[role] = _floats(values)
        return found

    def _without_second_header(self) -> DataError | None:
        """The error of a file of several tickers, such as of yfinance, of which one line was read as header."""
        cells = [str(values[0]).strip() for place in range(len(self.names)) if len(values := self._values(place))]
        if {*PRICES} <= {cell.lower() for cell in cells} or (cells and _names_symbols(cells[0])):
            return _no_second_header(f"row 0 of the frame has the names {', '.join(cells[: _LISTED_MAX + 1])}, …")
        return None

    def _require_one_column_a_price(self) -> None:
        """Refuses a second column that is called as a price: the first would be taken without a word."""
        taken = {*self._numbers.values(), *self._others, self._stamp, self._date, self._clock}
        for name in (name for place, name in enumerate(self.names) if place not in taken):
            *_, numbers, _ = _megabatch.bar_columns([name])
            role = numbers[0][0] if numbers else ""
            if role in PRICES:
                first = self.names[self._numbers[role]]
                raise DataError(
                    f"the frame has two columns for the {role}, {first} and {name}: keep one of them, or rename the other",
                    column=name,
                )

    def own_columns(self) -> list[str]:
        """Names of the columns without a role."""
        return [self.names[place] for place in self._without_role()]

    def _without_role(self) -> list[int]:
        """The places of the columns without a role."""
        return sorted([*self._others, *filter(self._is_feature, range(len(self.names)))])

    def _is_feature(self, place: int) -> bool:
        """True for numbers with fractions that are called as symbols are: as in files, they name no instruments."""
        if place not in self._called_symbols:
            return False
        values = self._values(place)
        return values.dtype.kind == "f" and bool(np.any(values[np.isfinite(values)] % 1))

    def further_numbers(self, wanted: Sequence[str] | None) -> dict[str, npt.NDArray[np.float64]]:
        """Columns of numbers by their names; all columns of numbers without a role for `None`."""
        if wanted is None:
            every = {self.names[place]: self._values(place) for place in self._without_role()}
            return {name: _floats(values) for name, values in every.items() if values.dtype.kind in "fiub"}
        found = {}
        for name in dict.fromkeys(wanted):
            values = self._values(self._place(name))
            if values.dtype.kind not in "fiub":
                raise _no_numbers(name, values.dtype)
            found[name] = _floats(values)
        # A role may have the name of another column.
        for role, place in self._numbers.items():
            if role in found and self.names[place] != role:
                raise DataError(
                    f"column {role} is a feature, and {self.names[place]} is taken for the {role}: rename one of them",
                    column=role,
                )
        return found

    def further_times(self, name: str, own: _Times) -> npt.NDArray[np.int64]:
        """A column of times, on the clock of the bars' `own`."""
        found = self._times(self._place(name), name)
        if found.is_utc != own.is_utc:
            known, other = ("have a zone", "has none") if own.is_utc else ("have no zone", "has one")
            raise DataError(f"the times of the frame {known}, and {name} {other}; give both the same", column=name)
        return found.time_ns

    def _place(self, name: str) -> int:
        """The place of the one column with this name."""
        places = [place for place, own in enumerate(self.names) if own == name]
        if len(places) != 1 or (places[0] in self._called_symbols and not self._is_feature(places[0])):
            reason = "has no column" if not places else "has several columns" if len(places) > 1 else "names symbols in"
            raise DataError(
                f"the frame {reason} {name}; it has {', '.join(self.names)}", column=name, found=", ".join(self.names)
            )
        return places[0]

    def times(self) -> tuple[_Times, str]:
        """The times, and the name of their column."""
        place = next((place for place in (self._stamp, self._date, self._clock) if place is not None), None)
        index = self._index()
        if place is None:
            if index is not None:
                return index, "the index"
            raise self._without_times()
        name = self.names[place]
        try:
            if self._stamp is None and self._date is not None and self._clock is not None:
                # Text beside an index of times is what these were made of.
                if index is not None and _midnights(self._values(self._date)) is not None:
                    return index, "the index"
                return self._date_and_clock(self._date, self._clock)
            # Dates beside times may be the days of these.
            if index is not None and self._has_dates(place):
                return index, "the index"
            return self._times(place, name), name
        except DataError:
            if index is None:
                raise
            return index, "the index"

    def _date_and_clock(self, date: int, clock: int) -> tuple[_Times, str]:
        """Times whose dates and times of day stand in two columns, and the name of one of them. Whole times in the place of
        the times of day count by themselves. Beside dates as text, they may be on another clock."""
        date_name, clock_name = self.names[date], self.names[clock]
        whole, clock_name = self._whole_times(date) or (None, clock_name)
        midnights = _midnights(self._values(date))
        try:
            dates = self._times(date, date_name) if midnights is None else _Times(midnights, is_utc=False)
        except DataError:
            if whole is None:
                raise
            return whole, clock_name
        is_known = dates.time_ns != _NAT
        if whole is not None:
            days_apart = np.abs(whole.time_ns[is_known] // _DAY_NS - dates.time_ns[is_known] // _DAY_NS)
            if not np.any(days_apart > (0 if midnights is None else 1)):
                return whole, clock_name
        elif not np.any(dates.time_ns[is_known] % _DAY_NS):
            clock_ns = _clock_ns(self._values(clock), clock_name)
            return _Times(np.where(is_known, dates.time_ns + clock_ns, _NAT), dates.is_utc), date_name
        raise DataError(
            f"the frame has two columns of times, {date_name} and {clock_name}, that are no date and time of day; keep "
            f"one of them",
            column=clock_name,
        )

    def _whole_times(self, date: int) -> tuple[_Times, str] | None:
        """The first column that is called as one of times of day and has whole times, and its name."""
        for place, name in enumerate(self.names):
            if place == date or _megabatch.bar_columns([name])[2] is None:
                continue
            with contextlib.suppress(DataError):
                return self._times(place, name), name
        return None

    def symbols(self, known: Sequence[str] = ()) -> npt.NDArray[Any] | None:
        """The instrument of each row."""
        place = self.symbol_place(known)
        if place is None:
            return None
        symbols = np.asarray(self._values(place), dtype=object)
        # As those in a file, without blanks around them.
        names = {symbol: str(symbol).strip() for symbol in dict.fromkeys(symbols.tolist())}
        for symbol in names:
            if _is_missing(symbol):
                rows = np.flatnonzero([_is_missing(own) for own in symbols])
                name = self.names[place]
                raise DataError(
                    f"row {rows[0]} of the frame: {name} is {symbol}; name the instrument of the {rows.size} rows without one, "
                    f"or drop them",
                    column=name,
                    row=int(rows[0]),
                )
        # Codes such as 7203 are read as numbers.
        if all(symbol == name for symbol, name in names.items()):
            return symbols
        return np.array([names[symbol] for symbol in symbols.tolist()], dtype=object)

    def refuse_unknown_symbols(self, time_ns: npt.NDArray[np.int64]) -> None:
        """Refuses rows of which many share their time, where a column of text without a role tells them apart."""
        if 4 * np.unique(time_ns).size > 3 * len(time_ns):
            return
        for place in self._others:
            values, name = self._values(place), self.names[place]
            if values.dtype.kind not in "OU":
                continue
            texts = [str(value) for value in values]
            found = list(dict.fromkeys(texts))
            if len(found) > 1 and len(set(zip(time_ns.tolist(), texts))) == len(texts):
                raise DataError(
                    f"rows of the frame share times, and the column {name} tells them apart, with {', '.join(found[:_LISTED_MAX])}: "
                    f"if it names instruments, call it symbol, such as with frame.rename(columns={{{name!r}: 'symbol'}}); if not, "
                    f"drop it",
                    column=name,
                    found=", ".join(found[:_LISTED_MAX]),
                )

    def symbol_place(self, known: Sequence[str] = ()) -> int | None:
        """The place of the column of instruments. One with a symbol that is `known` has symbols, whatever its rows are."""
        place = next(iter(self._called_symbols), None)
        if place is None or self._is_feature(place):
            return None
        is_sure = place in self._sure_symbols or self._has_one_of(place, known)
        return place if is_sure or not self._is_renamed(place) else None

    def _has_one_of(self, place: int, symbols: Sequence[str]) -> bool:
        """True if a column has one of the symbols, in letters of any case."""
        wanted = {symbol.upper() for symbol in symbols}
        return bool(wanted) and any(str(value).strip().upper() in wanted for value in set(self._values(place).tolist()))

    def may_rename_one(self) -> bool:
        """True if a column such as `company` has one value at most: as in files, it may be another name of an instrument
        that is stated."""
        place = self.symbol_place()
        if place is None or place in self._sure_symbols:
            return False
        return sum(not _is_missing(value) for value in set(self._values(place).tolist())) < 2

    def _is_renamed(self, place: int) -> bool:
        """True if a column has several values, and no two in rows of one time: as in files, they name one instrument."""
        values = self._values(place).tolist()
        if sum(not _is_missing(value) for value in set(values)) < 2:
            return False
        try:
            time_ns = self.times()[0].time_ns
        except DataError:
            # Whoever reads the times has the error.
            return False
        if np.unique(time_ns).size == len(time_ns):
            return True
        known: dict[int, Any] = {}
        for time, value in zip(time_ns.tolist(), values):
            if time != _NAT and not _is_missing(value) and known.setdefault(time, value) != value:
                return False
        return True

    def _index(self) -> _Times | None:
        return None

    def _has_dates(self, place: int) -> bool:
        """True for a column of Python's dates."""
        return False

    def _without_times(self) -> DataError:
        return DataError(
            "the frame has no times; name a column of them datetime, timestamp, time or date, or make them the index",
            column="time",
        )

    def _values(self, place: int) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _times(self, place: int, name: str) -> _Times:
        raise NotImplementedError


def _names_symbols(name: str) -> bool:
    """True for a name that a column of symbols may have."""
    return any(_megabatch.symbol_columns([name]))


def _is_missing(value: object) -> bool:
    """True for NaN, `None` and what pandas has in their place."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def _no_second_header(found: str) -> DataError:
    return DataError(
        f"{found}: expected prices of several tickers under two lines of header; give the path of the file, or read it with "
        f"pandas.read_csv(path, header=[0, 1], index_col=0, parse_dates=True)",
        column="open",
    )


def _floats(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.ascontiguousarray(values, dtype=np.float64)


def _no_numbers(name: str, found: object) -> DataError:
    return DataError(
        f"column {name} is of dtype {found}: expected numbers; convert it, such as with frame[{name!r}].astype(float)",
        column=name,
        found=str(found),
    )


def _midnights(values: npt.NDArray[Any]) -> npt.NDArray[np.int64] | None:
    """Dates as text with the year first, `2018.01.31`, as files have them; `None` for other values."""
    if values.dtype.kind not in "OTU":
        return None

    def midnight(value: object) -> int | None:
        if _is_missing(value):
            return _NAT
        found = _DATE.fullmatch(value) if isinstance(value, str) else None
        try:
            return None if found is None else int(np.datetime64("-".join(found.groups()), "ns").astype(np.int64))
        except ValueError:
            return None

    dates = values.tolist()
    known = {date: midnight(date) for date in dict.fromkeys(dates)}
    return None if None in known.values() else np.array([known[date] for date in dates], dtype=np.int64)


def _clock_ns(values: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
    """Times of day, ns."""
    if values.dtype.kind == "m":
        own: npt.NDArray[np.int64] = values.astype("timedelta64[ns]").view(np.int64)
        return own

    def one(value: object) -> int:
        try:
            clock = datetime.time.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            clock = None
        if not isinstance(clock, datetime.time):
            raise _no_times(name, values.dtype)
        return ((clock.hour * 60 + clock.minute) * 60 + clock.second) * 1_000_000_000 + clock.microsecond * 1000

    return np.array([one(value) for value in values], dtype=np.int64)


def _no_times(name: str, found: object, values: str = "", call: str = "pandas.to_datetime") -> DataError:
    """What is no times is of the dtype `found`; `values` says what its values are, and `call` converts them."""
    return DataError(
        f"{name} is of dtype {found}{values}: expected times; convert it, such as with {call}",
        column=name,
        found=str(found),
    )


def _dates_of_digits(name: str) -> str:
    """Makes times of whole numbers such as 20240131."""
    return f'pandas.to_datetime({name}.astype(str), format="%Y%m%d")'


def _is_date(number: float) -> bool:
    """True for dates as numbers of eight digits."""
    return 19800101 <= number <= 20991231 and 1 <= number // 100 % 100 <= 12 and 1 <= number % 100 <= 31


def epoch_ns(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Numbers as times since 1970, each in the unit that its size tells, as files have them: the numbers of one unit
    between 1980 and 2099 are never those of another. Fractions are kept to the nanosecond. Other numbers are NaT."""
    times = np.full(len(values), _NAT)
    for unit_ns in (1_000_000_000, 1_000_000, 1_000, 1):
        per_s = 1_000_000_000 // unit_ns
        is_unit = (values >= _EPOCH_MIN_S * per_s) & (values < _EPOCH_END_S * per_s)
        own = values[is_unit]
        whole = own.astype(np.int64)
        times[is_unit] = whole * unit_ns + np.rint((own - whole) * unit_ns).astype(np.int64)
    return times


def _epoch(values: npt.NDArray[Any], name: str) -> _Times:
    """The times of `epoch_ns`. Whole numbers that are NaT and floats that are NaN are missing."""
    are_floats = values.dtype.kind == "f"
    times = epoch_ns(values)
    strange = np.flatnonzero((times == _NAT) & ~(np.isnan(values) if are_floats else values == _NAT))
    if strange.size:
        row = int(strange[0])
        digits = f"frame[{name!r}]{'.astype(int)' if are_floats else ''}"
        call = _dates_of_digits(digits) if _is_date(values[row]) else "pandas.to_datetime"
        raise DataError(
            f"row {row} of the frame: {name} is {values[row]}, which is no time between 1980 and 2099 in s, ms, µs or ns; "
            f"convert the column, such as with {call}",
            column=name,
            row=row,
            found=str(values[row]),
        )
    return _Times(times, is_utc=False)


def _nanoseconds(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = np.ascontiguousarray(values.astype("datetime64[ns]")).view(np.int64)
    return times


def _stamp_times(stamps: Any) -> _Times:
    """The times of timestamps of pyarrow."""
    import pyarrow
    import pyarrow.compute

    def ticks(own: Any) -> npt.NDArray[np.int64]:
        return np.ascontiguousarray(own.cast(pyarrow.int64()).fill_null(_NAT), dtype=np.int64)

    zone = stamps.type.tz
    stamps = stamps.cast(pyarrow.timestamp("ns", zone))
    if zone is None:
        return _Times(ticks(stamps), is_utc=False)
    try:
        wall = pyarrow.compute.local_timestamp(stamps)
    except pyarrow.ArrowInvalid:
        # Of a zone that pyarrow does not know, as older versions know no offsets, the times are known.
        return _Times(ticks(stamps), is_utc=True)
    return _Times.in_zone(ticks(stamps), ticks(wall), zone)


def _are_periods(series: Any) -> bool:
    """True for a series of pandas' periods."""
    return bool(series.dtype.name.startswith("period"))


def _are_dates(series: Any) -> bool:
    """True for a series of Python's dates, which have no time of day."""
    if series.dtype.name != "object":
        return False
    known = series.dropna()
    return len(known) > 0 and all(isinstance(own, datetime.date) and not isinstance(own, datetime.datetime) for own in known)


class _Pandas(_Table):
    def __init__(self, frame: Any) -> None:
        if frame.index.nlevels > 1:
            frame = frame.reset_index()
        super().__init__([str(name) for name in frame.columns])
        self._frame = frame

    def _values(self, place: int) -> npt.NDArray[Any]:
        column = self._frame.iloc[:, place]
        values: npt.NDArray[Any] = column.to_numpy()
        if values.dtype.kind == "O" and column.dtype.name.startswith(("Float", "Int", "UInt")):
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return values

    def _times(self, place: int, name: str) -> _Times:
        return self._from_series(self._frame.iloc[:, place], name)

    def _index(self) -> _Times | None:
        # Periods and dates are objects.
        if self._frame.index.dtype.kind not in "MO":
            return None
        series = self._frame.index.to_series()
        is_time = series.dtype.kind == "M" or _are_periods(series) or _are_dates(series)
        return self._from_series(series, "the index") if is_time else None

    def _has_dates(self, place: int) -> bool:
        return _are_dates(self._frame.iloc[:, place])

    def _without_times(self) -> DataError:
        index = self._frame.index
        if index.dtype.kind in "iuf":
            first = index[0] if len(index) else 0
            if _is_date(first):
                digits = f"frame.index{'.astype(int)' if index.dtype.kind == 'f' else ''}"
                call = f"frame.index = {_dates_of_digits(digits)}"
                return _no_times("the index", index.dtype, f", dates such as {first}", call)
            # An index that begins with NaN is none of times either.
            if not first >= _EPOCH_MIN_S:
                return super()._without_times()
            call = 'frame.rename_axis("time").reset_index(), whose column of numbers is read'
            return _no_times("the index", index.dtype, f", numbers such as {first}", call)
        return self._wrong_times(index.to_series(), "the index")

    @staticmethod
    def _wrong_times(series: Any, name: str) -> DataError:
        """A column, or the index, of values that are no times."""
        place = "frame.index" if name == "the index" else f"frame[{name!r}]"
        known = series.dropna()
        first = known.iloc[0] if len(known) else None
        values, call = "", f"pandas.to_datetime({place})"
        if isinstance(first, str):
            values = f", text such as {first!r}"
            offsets = {found and found[1] for found in map(_OFFSET.search, map(str, known))}
            # Without it pandas refuses several.
            call = f"pandas.to_datetime({place}, utc=True)" if len(offsets) > 1 else call
        elif isinstance(first, datetime.datetime) and first.tzinfo is not None:
            values, call = ", times with a zone each", f"pandas.to_datetime({place}, utc=True)"
        return _no_times(name, series.dtype, values, f"{place} = {call}")

    @staticmethod
    def _from_series(series: Any, name: str) -> _Times:
        if _are_periods(series):
            # A bar opens when its period begins.
            series = series.dt.start_time
        elif _are_dates(series):
            import pandas

            series = pandas.to_datetime(series)
        if series.dtype.kind in "iu":
            return _epoch(series.to_numpy(dtype=np.int64, na_value=_NAT), name)
        if series.dtype.kind == "f":
            return _epoch(series.to_numpy(dtype=np.float64, na_value=np.nan), name)
        if series.dtype.kind != "M":
            raise _Pandas._wrong_times(series, name)
        # Types of pyarrow have their zone elsewhere.
        kind = getattr(series.dtype, "pyarrow_dtype", series.dtype)
        zone = getattr(kind, "tz", None)
        if zone is None:
            return _Times(_nanoseconds(series.to_numpy()), is_utc=False)
        if kind is not series.dtype:
            import pyarrow

            # Before version 3 pandas takes UTC for the clock of these types.
            return _stamp_times(pyarrow.array(series))
        utc, wall = series.dt.tz_convert("UTC").dt.tz_localize(None), series.dt.tz_localize(None)
        return _Times.in_zone(_nanoseconds(utc.to_numpy()), _nanoseconds(wall.to_numpy()), zone)


class _Polars(_Table):
    def __init__(self, frame: Any) -> None:
        super().__init__(list(frame.columns))
        self._frame = frame

    def _values(self, place: int) -> npt.NDArray[Any]:
        series = self._frame.to_series(place)
        if series.dtype.is_decimal():
            series = series.cast(float)
        values: npt.NDArray[Any] = series.to_numpy()
        return values

    def _times(self, place: int, name: str) -> _Times:
        import polars

        series = self._frame.to_series(place)
        if series.dtype == polars.Date:
            series = series.cast(polars.Datetime("ns"))
        if series.dtype.is_integer():
            return _epoch(series.cast(polars.Int64).fill_null(_NAT).to_numpy(), name)
        if series.dtype.is_float():
            return _epoch(series.cast(polars.Float64).fill_null(np.nan).to_numpy(), name)
        if not isinstance(series.dtype, polars.Datetime):
            raise _no_times(name, series.dtype)
        zone = series.dtype.time_zone

        def ticks(own: Any) -> npt.NDArray[np.int64]:
            return np.ascontiguousarray(own.to_physical().fill_null(_NAT).to_numpy(), dtype=np.int64)

        # Physical values are those of UTC where there is a zone.
        times = series.cast(polars.Datetime("ns", zone))
        if zone is None:
            return _Times(ticks(times), is_utc=False)
        return _Times.in_zone(ticks(times), ticks(times.dt.replace_time_zone(None)), zone)


class _Arrow(_Table):
    def __init__(self, table: Any) -> None:
        super().__init__(list(table.schema.names))
        self._table = table

    def _chunked(self, place: int) -> Any:
        found = self._table.column(place)
        return found.combine_chunks() if hasattr(found, "combine_chunks") else found

    def _values(self, place: int) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._chunked(place).to_numpy(zero_copy_only=False)
        return values

    def _times(self, place: int, name: str) -> _Times:
        import pyarrow

        found = self._chunked(place)
        if pyarrow.types.is_date(found.type):
            found = found.cast(pyarrow.timestamp("ns"))
        if pyarrow.types.is_integer(found.type):
            return _epoch(found.cast(pyarrow.int64()).fill_null(_NAT).to_numpy(zero_copy_only=False), name)
        if pyarrow.types.is_floating(found.type):
            return _epoch(found.cast(pyarrow.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False), name)
        if not pyarrow.types.is_timestamp(found.type):
            raise _no_times(name, found.type)
        return _stamp_times(found)
