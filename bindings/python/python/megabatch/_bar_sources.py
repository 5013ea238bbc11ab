"""Bars that `ingest` and `append` take: frames or files, of one kind or of the bid and of the ask."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from . import _arguments, _frames, _megabatch, _table_files
from ._bars_folder import BarsFolder
from .errors import ConfigError, DataError

BarSource = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]], Mapping[str, Any], Any]
"""A frame, a mapping of frames by symbol, or paths of files: `~` is the user's home, and patterns name what matches. A
mapping by two timeframes or more has the bars of each."""
SourcePaths = tuple[list[str], dict[str, list[str]]]
"""Paths of bars, and those of bid and ask by the option that takes them."""
_BID, _ASK = "bid", "ask"
_TIMEFRAMES = dict(_megabatch.timeframes())
"""The least duration of bars in nanoseconds by timeframe, shortest first."""
_MINUTES_OR_MONTHS = re.compile("[0-9]+M")
"""A name that is a number of minutes to some, and of months to others."""


@dataclasses.dataclass(frozen=True)
class BarSources:
    """The bars of a call."""

    _sides: Mapping[str, Any]
    """By the option that takes them: `bid` and `ask`, or nothing; or by timeframe, the shortest first."""
    are_by_timeframe: bool = False

    @staticmethod
    def open(bars: BarSource | None, bid: BarSource | None, ask: BarSource | None, symbol: str | None) -> BarSources:
        """The bars that were given, table files as the frames in them.

        Raises `ConfigError` where they are not either `bars` or both `bid` and `ask`, and where a side is frames and the
        other files.
        """
        _arguments.require_text(symbol, "symbol", "the name of one instrument")
        given = {"": bars, _BID: bid, _ASK: ask}
        kinds = [name for name, one in given.items() if one is not None]
        for name in kinds:
            is_source = _frames.is_frame(given[name]) or isinstance(given[name], (os.PathLike, Iterable))
            is_empty = isinstance(given[name], Mapping) and not given[name]
            _arguments.require(is_source and not is_empty, given[name], name or "bars", "a frame of bars, frames by symbol, or paths of files")
        if kinds not in ([""], [_BID, _ASK]):
            found = " and ".join(name or "bars" for name in kinds) or "nothing"
            raise ConfigError(f"expected bars, or both bid and ask; given: {found}", key="bars")
        by_timeframe = _by_timeframe(bars)
        if by_timeframe is not None:
            # Files of each are named apart, and are of one symbol.
            own = {name: _table_files.as_frames(with_whole_paths(one), symbol or "") for name, one in by_timeframe.items()}
            if len({_are_frames(one) for one in own.values()}) > 1:
                raise ConfigError("bars by timeframe are frames and files: expected all as frames or all as files", key="bars")
            return BarSources(own, are_by_timeframe=True)
        sides = {name: _table_files.as_frames(with_whole_paths(given[name]), symbol) for name in kinds}
        if len({_are_frames(one) for one in sides.values()}) > 1:
            raise ConfigError("bid and ask are a frame and files: expected both as frames or both as files", key=_ASK)
        return BarSources(sides)

    @property
    def _first(self) -> Any:
        return next(iter(self._sides.values()))

    @property
    def are_frames(self) -> bool:
        return _are_frames(self._first)

    @property
    def library(self) -> str | None:
        """The library of the frames; `None` for files."""
        own = next(iter(self._first.values()), None) if isinstance(self._first, Mapping) else self._first
        found = _frames.library(own)
        return found if found in _frames.LIBRARIES else None

    def own_columns(self) -> list[str] | None:
        """Names of the frames' columns without a role; `None` for files."""
        return _frames.own_columns(self._first) if self.are_frames else None

    def symbol_column(self, known: Sequence[str]) -> str | None:
        """The name of the column of the frames that tells the instrument, by the symbols that are `known`."""
        return next(filter(None, (_frames.symbol_column(one, known) for one in self._sides.values())), None)

    def number_columns(self) -> list[str]:
        """Names of the frames' columns of numbers that the series may have. The mean of bid and ask has none."""
        return [] if _BID in self._sides else _frames.number_columns(self._first)

    def options(self) -> dict[str, Any]:
        """Options of `ingest` that follow from the bars."""
        return {"base": next(iter(self._sides)), "own-bars": True} if self.are_by_timeframe else {}

    def paths(self) -> SourcePaths:
        """Paths of the files."""
        paths = {name: _paths(one) for name, one in self._sides.items()}
        return ([path for own in paths.values() for path in own], {}) if self.are_by_timeframe else _apart(paths)

    def by_symbol(
        self,
        symbol: str | None,
        columns: Sequence[str],
        label_end: str | None,
        unnamed: str = _frames.UNNAMED,
        known: Sequence[str] = (),
    ) -> FrameBars:
        """The bars of frames by instrument, with further `columns` of numbers and the column of times `label_end`; those
        of `unnamed` where nothing tells the instrument. A column with one of the symbols that are `known` tells it."""
        found: dict[str, dict[str, _frames.Bars]] = {}
        for name, one in self._sides.items():
            # Longer bars have the columns that the shortest make.
            has_columns = not self.are_by_timeframe or not found
            own_columns: Sequence[str] = columns if has_columns else ()
            end = label_end if has_columns else None
            found[name] = _frames.by_symbol(one, symbol, own_columns, unnamed, label_end=end, known=known)
            if self.are_by_timeframe:
                for bars in found[name].values():
                    _require_timeframe(bars.time_ns, name)
        return FrameBars(found, self.are_by_timeframe)


@dataclasses.dataclass(frozen=True)
class FrameBars:
    """Bars of frames by the option that takes them, or by timeframe, and by symbol."""

    _sides: Mapping[str, Mapping[str, _frames.Bars]]
    _are_by_timeframe: bool = False

    @property
    def symbol_pattern(self) -> str:
        """Place of the symbol in the names of files that are written."""
        return "* of {}" if self._are_by_timeframe else "{}"

    def symbols(self) -> list[str]:
        """Every symbol, once."""
        return list(dict.fromkeys(symbol for bars in self._sides.values() for symbol in bars))

    def empty(self) -> dict[str, str]:
        """Symbols without a price, at least on one of the sides, and a description of their rows there."""
        return {
            symbol: f"{name}: {own.emptiness()}" if len(self._sides) > 1 else own.emptiness()
            for name, bars in self._sides.items()
            for symbol, own in bars.items()
            if own.is_empty()
        }

    def missing(self) -> dict[str, int]:
        """Rows without prices that were left out, by symbol; symbols without such rows are not in it."""
        found: dict[str, int] = {}
        for bars in self._sides.values():
            for symbol, own in bars.items():
                if own.empty_rows:
                    found[symbol] = found.get(symbol, 0) + own.empty_rows
        return found

    def without(self, symbols: Iterable[str]) -> FrameBars:
        """The same bars without those of `symbols`."""
        gone = set(symbols)
        sides = {
            name: {symbol: own for symbol, own in bars.items() if symbol not in gone} for name, bars in self._sides.items()
        }
        return dataclasses.replace(self, _sides=sides)

    def are_utc(self) -> bool:
        """True if all times have a zone."""
        return all(bars.is_utc for side in self._sides.values() for bars in side.values())

    def by_clock(self, zone: str | None) -> FrameBars:
        """The same bars, whose times without a zone are by the clock `zone`."""
        def read(side: Mapping[str, _frames.Bars]) -> dict[str, _frames.Bars]:
            return {symbol: dataclasses.replace(bars, zone=zone) for symbol, bars in side.items()}

        return dataclasses.replace(self, _sides={name: read(side) for name, side in self._sides.items()})

    def named_as(self, known: Sequence[str]) -> FrameBars:
        """The same bars, whose symbols have the case of letters of those that are `known`."""
        names = {symbol: _frames.name_among(symbol, known) for symbol in self.symbols()}
        if len(set(names.values())) < len(names):
            return self
        sides = {name: {names[symbol]: bars for symbol, bars in side.items()} for name, side in self._sides.items()}
        return dataclasses.replace(self, _sides=sides)

    @contextlib.contextmanager
    def written(self, folder: BarsFolder) -> Iterator[SourcePaths]:
        """Paths of the bars, as `BarsFolder.with_files` writes them."""
        # The symbol of one instrument is stated.
        if len(self.symbols()) > 1:
            _frames.require_file_names(self.symbols())
        places = [(side, symbol) for side, bars in self._sides.items() for symbol in bars]

        def name(side: str, symbol: str) -> str:
            own = _frames.file_name(symbol)
            return f"{side} of {own}" if self._are_by_timeframe else os.path.join(side, own)

        files = {name(side, symbol): self._sides[side][symbol] for side, symbol in places}
        with folder.with_files(files) as paths:
            if self._are_by_timeframe:
                yield paths, {}
                return
            yield _apart({name: [path for (side, _), path in zip(places, paths) if side == name] for name in self._sides})


def _apart(paths: Mapping[str, list[str]]) -> SourcePaths:
    return paths.get("", []), {name: own for name, own in paths.items() if name}


def _by_timeframe(bars: Any) -> dict[str, Any] | None:
    """Bars by timeframe, the shortest first; `None` for a mapping by symbol, and for what is none.

    Raises `ConfigError` where a name beside those of timeframes may be minutes or months.
    """
    if not isinstance(bars, Mapping) or len(bars) < 2:
        return None
    symbols = [name for name in map(str, bars) if _megabatch.timeframe_name(name) is None]
    if symbols and all(_MINUTES_OR_MONTHS.fullmatch(name) for name in symbols):
        raise ConfigError(
            f"the bars named {symbols[0]} may be of minutes or of months: name them {symbols[0][:-1]}min or, for a month, MN1",
            key="bars",
        )
    named = {_megabatch.timeframe_name(str(name)): own for name, own in bars.items()}
    if len(named) < len(bars) or None in named:
        return None
    return {name: named[name] for name in _TIMEFRAMES if name in named}


def _require_timeframe(time_ns: npt.NDArray[np.int64], timeframe: str) -> None:
    """Refuses bars at `time_ns` that are evidently of another timeframe than their key in a mapping says."""
    distances = np.diff(np.unique(time_ns)) // 1_000_000_000
    if len(distances) < 20:
        return
    expected = _TIMEFRAMES[timeframe] // 1_000_000_000
    least, middle = int(distances.min()), int(np.median(distances))
    if middle < expected or least >= 2 * expected:
        apart = middle if middle < expected else least
        raise ConfigError(
            f"the bars named {timeframe} are {datetime.timedelta(seconds=apart)} apart, which is another timeframe: name each "
            f"frame by the timeframe of its bars",
            key="bars",
        )


def _are_frames(bars: Any) -> bool:
    return _frames.is_frame(bars) or isinstance(bars, Mapping)


def with_whole_paths(bars: Any) -> Any:
    """Frames as they are, and in place of paths those of the files that they name."""
    if _are_frames(bars):
        return bars
    given = [bars] if isinstance(bars, (str, os.PathLike)) else list(bars)
    return [path for own in given for path in (_matches(own) if isinstance(own, (str, os.PathLike)) else [own])]


def _matches(path: str | os.PathLike[str]) -> list[str]:
    """The paths that a path with `~` or of a pattern names. A file that is there is no pattern."""
    own = os.path.expanduser(path)
    if os.path.exists(own) or not glob.has_magic(own):
        return [own]
    folder, name = os.path.split(own)
    pattern = os.path.join(glob.escape(folder), name) if os.path.isdir(folder) else own
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise DataError(f"{own}: no file matches this pattern", file=own)
    return found


def _paths(bars: Any) -> list[str]:
    """Paths of files of bars."""
    paths = [bars] if isinstance(bars, (str, os.PathLike)) else list(bars)
    if not paths:
        raise ConfigError("the bars are an empty list of paths", key="bars")
    frames = [own for own in paths if _frames.is_frame(own)]
    if frames:
        raise DataError(
            f"a list has a frame of {_frames.library(frames[0])} in it: expected paths of files; frames of several symbols "
            f"are a mapping of frames by symbol, and frames of one are one frame, such as of pandas.concat"
        )
    wrong = [path for path in paths if not isinstance(path, (str, os.PathLike))]
    if wrong:
        raise DataError(f"{_arguments.type_name(wrong[0])} is no path of a file of bars and no frame")
    return [os.path.abspath(path) for path in paths]
