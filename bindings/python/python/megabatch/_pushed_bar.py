"""Bars that are pushed one by one: their fields by the rules of columns, and these as texts."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _frames, _megabatch
from .errors import ConfigError, DataError

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
)
_NAMED_MONTH = re.compile(
    r"(?:(?P<day>\d{1,2})[-/. ](?P<month>[A-Za-z]{3,9})|(?P<first_month>[A-Za-z]{3,9})[-. ]+(?P<second_day>\d{1,2}))"
    r"[-/., ]+(?P<year>\d{4})(?:[T, ]+(?P<clock>\d.*))?"
)
"""A date whose month is a word, and what follows it."""
_DOTTED_DATE = re.compile(r"(\d{4})\.(\d{1,2})\.(\d{1,2})(?=[T ]|$)")
"""A date as MetaTrader writes it."""
_PLACE = re.compile(r"_\d+")
"""The field of a named tuple that is called by its place."""
_PRICES = {*_frames.PRICES, "adj_close"}
"""Numbers that every bar needs if the first one has them: the factor of the prices is one of them."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Numbers of bars that a model is computed from beside their prices."""

    volume: bool
    spread: bool
    columns: frozenset[str]
    """Further columns."""

    def text_without(self, name: str) -> str | None:
        """The text of the number `name` of a bar that lacks it; `None` for one that the model needs."""
        if name == "volume":
            return "nan" if self.volume else "0"
        if name == "spread":
            return None if self.spread else "0"
        return None if name in _PRICES or name in self.columns else "nan"


def is_bar(bar: object) -> bool:
    """True for fields by name: a mapping, a row of a frame, also as a named tuple, and a frame."""
    return isinstance(bar, Mapping) or hasattr(bar, "keys") or _is_named_tuple(bar) or is_table(bar)


def _is_named_tuple(bar: object) -> bool:
    return isinstance(bar, tuple) and hasattr(bar, "_asdict")


def as_bar(row: Any, symbol: str | None) -> Mapping[str, Any]:
    """The fields of a bar, which may be a frame of one row, or a row of a frame of pandas, also of `itertuples`: its time
    is in the index if no field has it, and of columns of two levels one has symbols. Of several those of `symbol` are
    taken. Fields of `itertuples` that are called by their place, such as `_5`, are left out."""
    if is_table(row):
        row = _only_row(row)
    index = getattr(row, "name", None) if _frames.library(row) == "pandas" else None
    if _is_named_tuple(row):
        # `itertuples` calls a column such as `Adj Close` by its place, which tells nothing.
        row = {name: value for name, value in row._asdict().items() if _PLACE.fullmatch(name) is None}
        # It calls the index so.
        index = row.pop("Index", None)
    bar: Mapping[str, Any] = row
    if any(isinstance(key, tuple) for key in row.keys()):
        bar = _with_plain_names(row, symbol)
    if index is None:
        return bar
    stamp, date, clock, *_ = _places(tuple(str(key) for key in bar.keys()))
    if any(place is not None for place in (stamp, date, clock)):
        return bar
    return {**_in_index(index), **{str(key): bar[key] for key in bar.keys()}}


def is_table(bar: object) -> bool:
    """True for a frame, and not for its rows."""
    return _frames.library(bar) in _frames.LIBRARIES and len(getattr(bar, "shape", ())) == 2


def _only_row(frame: Any) -> Any:
    """The row of a frame that has one."""
    if len(frame) != 1:
        raise ConfigError(
            f"push takes one bar, and this is a frame of {len(frame)} rows: push each row, or follow the frame, as "
            f"run.follow(frame)",
            key="bar",
        )
    if _frames.library(frame) == "pandas":
        return frame.iloc[0]
    return frame.to_pylist()[0] if _frames.library(frame) == "pyarrow" else frame.to_dicts()[0]


def _in_index(index: Any) -> dict[str, Any]:
    """The time and the symbol that the index of a row has, which may be of several levels."""
    levels = index if isinstance(index, tuple) else (index,)
    times = [place for place, own in enumerate(levels) if _is_time(own)]
    if len(times) != 1:
        return {}
    # Codes such as 7203 are symbols too.
    names = [own for place, own in enumerate(levels) if place != times[0] and isinstance(own, (str, int, np.integer))]
    return {"time": levels[times[0]], **({"symbol": names[0]} if len(names) == 1 else {})}


def _is_time(value: Any) -> bool:
    if isinstance(value, str):
        return _megabatch.is_time(_in_iso(value))
    if isinstance(value, (datetime.date, np.datetime64)) or _is_period(value):
        return True
    try:
        return bool(_epoch_time(value))
    except DataError:
        # The rows of a frame without times are counted.
        return False


def _with_plain_names(row: Any, symbol: str | None) -> dict[str, Any]:
    """The fields of a bar whose keys have two levels, one of names and one of symbols."""
    keys = list(row.keys())
    for level in (0, 1) if all(not isinstance(key, tuple) or len(key) == 2 for key in keys) else ():
        named = [_name_and_symbol(key, level) for key in keys]
        *_, numbers, _ = _places(tuple(name for name, _ in named))
        if not {*_frames.PRICES} <= {name for name, _ in numbers}:
            continue
        symbols = list(dict.fromkeys(own for _, own in named if own))
        several = symbol if symbol in symbols else _megabatch.likely_symbol(symbol or "", symbols)
        own = symbols[0] if len(symbols) == 1 else several
        if symbols and own is None:
            listed = ", ".join(symbols[:3])
            if symbol is None:
                raise ConfigError(f"the bar has {len(symbols)} symbols, such as {listed}; name one with symbol", key="symbol")
            raise DataError(
                f"the bar has {len(symbols)} symbols, such as {listed}, and the bars of {symbol} are followed",
                column="symbol",
                found=", ".join(symbols),
            )
        fields = {name: row[key] for key, (name, found) in zip(keys, named) if found in ("", own)}
        return {**({"symbol": own} if symbols else {}), **fields}
    raise DataError(
        f"the fields of the bar have names such as {next(key for key in keys if isinstance(key, tuple))!r}: expected one "
        f"name each, or one of open, high, low and close and one of symbols",
        column="open",
    )


def _name_and_symbol(key: Any, level: int) -> tuple[str, str]:
    """The name that a field has in a level, and the symbol in the other. `reset_index` gives the time no symbol."""
    if not isinstance(key, tuple):
        return str(key), ""
    name, symbol = str(key[level]), str(key[1 - level])
    return (name, symbol) if name else (symbol, "")


@functools.lru_cache(maxsize=16)
def _places(names: tuple[str, ...]) -> tuple[int | None, int | None, int | None, list[tuple[str, int]], list[int]]:
    """Places of the fields of bars with these names, which bars that are pushed have each time."""
    return _megabatch.bar_columns(list(names))


def time_in(bar: Mapping[str, Any]) -> Any:
    """The time of a bar, by the rules of columns: of a date and a time of day, both as a text."""
    keys = list(bar.keys())
    stamp, date, clock, *_ = _places(tuple(str(key) for key in keys))
    place = next((place for place in (stamp, clock, date) if place is not None), None)
    if place is None:
        raise DataError("the bar has no 'time'; expected time, open, high, low, close and perhaps volume", column="time")
    own = bar[keys[place]]
    is_clock = isinstance(own, datetime.time) or (isinstance(own, str) and re.match(r"\s*\d{1,2}:\d{2}", own) is not None)
    if place != clock or date is None or not is_clock:
        return own
    day = bar[keys[date]]
    return f"{day.isoformat()[:10] if isinstance(day, datetime.date) else day} {own}"


def columns_in(bar: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The numbers of a bar by the names that a header of a file may have, the volume also where it has none."""
    keys = list(bar.keys())
    *_, numbers, others = _places(tuple(str(key) for key in keys))
    known = {name: keys[place] for name, place in numbers}
    known |= {str(keys[place]): keys[place] for place in others if isinstance(bar[keys[place]], (int, float, np.number))}
    names = dict.fromkeys(["open", "high", "low", "close", "volume", *known])
    return [(name, known.get(name, name)) for name in names]


def time_text(time: Any, zone: str | None) -> str:
    """The time of a bar as a text. Rows are sent with times that can be read alone: the first shows the format of all."""
    text = _as_text(time, zone)
    if not _megabatch.is_time(text):
        raise DataError(f"the time of the bar is {time!r}: expected one such as 2024-01-31 17:00", column="time")
    return text


def _as_text(time: Any, zone: str | None) -> str:
    if isinstance(time, str):
        return _in_iso(time)
    if _is_period(time):
        time = time.start_time
    if isinstance(time, np.datetime64):
        text = str(np.datetime_as_string(time, unit="ns"))
    elif isinstance(time, datetime.datetime):
        if time.tzinfo is not None:
            return _with_offset(time)
        text = time.isoformat()
    elif isinstance(time, datetime.date):
        text = f"{time.isoformat()}T00:00:00"
    else:
        text = _epoch_time(time)
    return text if zone else f"{text}Z"


def _with_offset(time: datetime.datetime) -> str:
    """A time with a zone, whose offset tells the date on its clock."""
    east = time.utcoffset() or datetime.timedelta()
    if _frames.is_utc(time.tzinfo) or east % datetime.timedelta(minutes=1):
        return time.astimezone(datetime.timezone.utc).replace(tzinfo=None).isoformat() + "Z"
    # Many programs write +00:00 behind times in UTC, and so it has a name for London in winter.
    return time.isoformat() + ("" if east else "[local]")


def _in_iso(text: str) -> str:
    """A time as ISO 8601 has it where its month is a word, `24-Mar-2021 17:00`, `March 24, 2021`, or dots are between the
    parts of its date, `2021.03.24 17:00`."""
    found = _NAMED_MONTH.fullmatch(text.strip())
    if found is None:
        return _DOTTED_DATE.sub(r"\1-\2-\3", text.strip(), count=1)
    parts = found.groupdict()
    word = (parts["month"] or parts["first_month"]).lower()
    number = next((number for number, name in enumerate(_MONTHS, 1) if name.startswith(word)), None)
    if number is None:
        return text
    date = f"{parts['year']}-{number:02}-{int(parts['day'] or parts['second_day']):02}"
    return f"{date} {parts['clock']}" if parts["clock"] else date


def _is_period(time: Any) -> bool:
    """True for a period of pandas, which begins when its bar opens."""
    return type(time).__name__ == "Period" and hasattr(time, "start_time")


def _epoch_time(time: Any) -> str:
    """A number since 1970, in the unit that its size tells."""
    is_float = isinstance(time, (float, np.floating))
    is_number = (is_float or isinstance(time, (int, np.integer))) and not isinstance(time, bool)
    if is_number and abs(float(time)) < 1 << 63:
        own = np.array([time], np.float64 if is_float else np.int64)
        known = np.datetime64(int(_frames.epoch_ns(own)[0]), "ns")
        if not np.isnat(known):
            return str(np.datetime_as_string(known, unit="ns"))
    raise DataError(
        f"the time of the bar is {time!r}: expected a datetime, a numpy time, a text, or a number of s, ms, µs or ns since "
        f"1970 that is a time between 1980 and 2099",
        column="time",
    )


def number_text(bar: Mapping[str, Any], name: str, own: Any, inputs: Inputs) -> str:
    """The number of a bar that is `own` in it and `name` in a header, for a model with these inputs."""
    without = inputs.text_without(name)
    if own not in bar:
        if without is not None:
            return without
        expected = "; expected time, open, high, low, close and perhaps volume"
        reason = expected if name in ("open", "high", "low", "close") else ", which the first bar had"
        raise DataError(f"the bar has no {own!r}{reason}", column=name)
    if bar[own] is None and name not in _frames.PRICES:
        return without or "nan"
    try:
        return repr(float(bar[own]))
    except (TypeError, ValueError):
        raise DataError(f"{own} of the bar is {bar[own]!r}: expected a number", column=name) from None
