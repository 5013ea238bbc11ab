"""Functions of bars: called with frames, their columns checked."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from . import _arguments, _features, _frames, _megabatch
from ._context import Context, ContextBars, ContextTable, Timing, Wait
from ._display import log_note
from .errors import ConfigError, DataError

BarFunction = Callable[[Any], Any]
"""Takes a frame of closed bars, and gives as many rows: a frame, a series or arrays by name."""
Features = Union[Sequence[Union[str, BarFunction]], str, BarFunction]
"""Names of features, functions, or both."""

_TIMES = ("time", "close_time")
_DAY_NS = 86_400_000_000_000
_LABEL_END = "label_end"
_Arrays = dict[str, npt.NDArray[np.float64]]
_Column = tuple[str, str, bytes, bool]
"""Function, name, 64-bit floats, and whether they had 32 bits or fewer."""


class Functions:
    """Functions that are features, called with frames of one library, and other instruments beside them."""

    def __init__(
        self,
        features: Sequence[BarFunction],
        target: BarFunction | None,
        library: str | None,
        context: Sequence[Context] = (),
        *,
        context_is_whole: bool = False,
        doubts_end: bool = True,
    ) -> None:
        self._library = library or _first_library()
        self._features = _by_name(features)
        self._target = target
        self._context = context
        # For bars that come one by one: the features of each timeframe of another instrument, all that are known.
        self._whole: dict[tuple[str, str], tuple[ContextBars, _Arrays]] | None = {} if context_is_whole else None
        self._doubts_end = doubts_end
        self._waits: dict[tuple[str, str, str], Wait] = {}
        # Instruments whose end was told.
        self._ended: set[str] = set()

    def native(self) -> dict[str, Any]:
        """As the native part takes them."""
        return {
            "call": self,
            "frames": self._library,
            "has_target": self._target is not None,
            # The first call, with the history, tells where the bars of other instruments begin.
            "needs_all_bars": bool(self._features) or self._whole is None,
            "fingerprints": self._fingerprints(),
        }

    def read_context(self, beside: str, day_zone: str | None) -> list[tuple[str, str]]:
        """Reads the other instruments beside bars of a timeframe, with their dates on a clock, and gives the fingerprints
        of all functions and instruments."""
        timing: Timing = (beside, day_zone)
        for own in self._context:
            own.read(timing)
        return self._fingerprints()

    def _fingerprints(self) -> list[tuple[str, str]]:
        """Those of functions, and of the other instruments that were read."""
        found = [(name, _fingerprint(own)) for name, own in self._features.items()]
        if self._target is not None:
            found.append((f"target {_name(self._target)}", _fingerprint(self._target)))
        return found + [(f"context {own.symbol}", own.fingerprint()) for own in self._context if own.is_read()]

    def features(
        self, instrument: str, timeframe: str, duration_ns: int, bins: str, bars: Mapping[str, bytes]
    ) -> list[_Column]:
        """The columns of all features for bars of one timeframe, as the native part takes them."""
        call = _Call(self._library, instrument, timeframe, duration_ns, bins, bars)
        found = [own for name, function in self._features.items() for own in call.columns(function, name)[0]]
        return [*found, *(column for own in self._context for column in self._context_columns(own.table, call))]

    def context_times(self) -> list[tuple[str, bytes, int, list[str]]]:
        """The other instruments, as the native part takes them: symbol, when bars open, length of one, and features."""
        tables = [(own.symbol, own.table) for own in self._context]
        return [(symbol, table.time_ns.tobytes(), table.base_ns, list(table.features)) for symbol, table in tables]

    def _context_columns(self, context: ContextTable, call: _Call) -> list[_Column]:
        """The features of another instrument at each bar of a call. Its bars begin with those that the features read at the
        first bar of the call, however many come before. They end with those of the call, so that nothing else is seen where
        these end earlier."""
        if not len(call.open_ns):
            return []
        if self._whole is None:
            bars, columns = self._context_bars(context, call, int(call.close_ns[-1]))
        else:
            # The first call has the history.
            place = (context.symbol, call.timeframe)
            if place not in self._whole:
                self._whole[place] = self._context_bars(context, call, context.until_ns)
            bars, columns = self._whole[place]
        looked_up = bars.looked_up(columns, call.close_ns, call.duration_ns)
        if self._doubts_end and len(bars):
            self._doubt_end(context, bars, call)
        name_of = f"context {context.symbol}"
        return [_native(name_of, f"{context.symbol}.{name}", values) for name, values in looked_up.items()]

    def _doubt_end(self, context: ContextTable, bars: ContextBars, call: _Call) -> None:
        """Warns once if more bars see the last one of another instrument than any before it, or see it for longer."""
        place = (context.symbol, call.instrument, call.timeframe)
        if place not in self._waits:
            self._waits[place] = bars.wait(call.close_ns, context.until_ns)
        wait = self._waits[place]
        wait.add(call.close_ns)
        if not wait.is_too_long() or context.symbol in self._ended:
            return
        self._ended.add(context.symbol)
        ended, now = (np.datetime_as_string(np.datetime64(time, "ns"), unit="m") for time in (context.until_ns, wait.reached_ns))
        if self._whole is None:
            count = f"{wait.after:,} {call.timeframe} bar{'' if wait.after == 1 else 's'}"
            seen = f", {count} before those of {call.instrument}: from there on its last values are seen"
        else:
            seen = f", and the bars followed have reached {now} UTC: they see its last values"
        log_note(f"warning: context {context.symbol}: its bars end at {ended} UTC{seen}; give newer bars of it")

    def _context_bars(self, context: ContextTable, call: _Call, until_ns: int) -> tuple[ContextBars, _Arrays]:
        """The closed bars of another instrument that the bars of a call see, up to `until_ns`, and their features."""
        bars = context.bars(int(call.close_ns[0]), until_ns, call.timeframe, call.bins)
        columns = dict(bars.features)
        own = _Call(self._library, context.symbol, call.timeframe, bars.duration_ns, call.bins, bars.given)
        for name, function in self._features.items():
            for _, column, values, _ in own.columns(function, name)[0]:
                if column in columns:
                    raise DataError(
                        f"{name}: {context.symbol}, {call.timeframe}: column {column} is a feature of other instruments already: give "
                        f"it a name of its own",
                        function=name,
                        column=column,
                    )
                columns[column] = np.frombuffer(values, np.float64)
        return bars, columns

    def targets(
        self, instrument: str, timeframe: str, duration_ns: int, bins: str, bars: Mapping[str, bytes]
    ) -> tuple[list[_Column], _Column | None]:
        """The targets of base bars and the ends of their labels, as the native part takes them."""
        assert self._target is not None
        call = _Call(self._library, instrument, timeframe, duration_ns, bins, bars)
        return call.columns(self._target, _name(self._target), ends=True)


class _Call:
    """Bars with which functions are called."""

    def __init__(
        self,
        library: str,
        instrument: str,
        timeframe: str,
        duration_ns: int,
        bins: str,
        bars: Mapping[str, bytes],
    ) -> None:
        self._library = library
        self.instrument, self.timeframe = instrument, timeframe
        self.duration_ns, self.bins = duration_ns, bins
        self._given = {name: np.frombuffer(values, np.float64) for name, values in bars.items() if name not in _TIMES}
        self._times = {name: np.frombuffer(bars[name], np.int64) for name in _TIMES}
        self.open_ns, self.close_ns = self._times["time"], self._times["close_time"]

    def columns(self, function: BarFunction, name: str, ends: bool = False) -> tuple[list[_Column], _Column | None]:
        """The columns of a function, and with `ends` the column of the ends of labels."""
        # A function may write into its frame.
        frame = _frame(self._library, self._times, self._given)
        facts = {"function": name, "instrument": self.instrument, "timeframe": self.timeframe}
        place = f"{name}: {self.instrument}, {self.timeframe}"
        try:
            answer = function(frame)
        except Exception as error:
            raise DataError(f"{place}: {type(error).__name__}: {error}{self._columns_beside(error)}", **facts) from error
        try:
            answer = _in_order(answer, frame, self._times)
            arrays = _arrays(answer, name, frame)
            label_end = self._label_end(answer, arrays) if ends and _LABEL_END in arrays else None
            found = _columns(arrays, {**self._times, **self._given}, len(self._times["time"]))
        except DataError as error:
            error.fields.update(facts)
            error.args = (f"{place}: {error}",)
            raise
        return [_native(name, column, values) for column, values in found.items()], (
            None if label_end is None else _native(name, _LABEL_END, label_end)
        )

    def _columns_beside(self, error: Exception) -> str:
        """The columns of the bars, where an error is on one that they do not have."""
        # Errors of missing columns have no type in common: `KeyError`, and those of polars.
        is_missing = isinstance(error, KeyError) or type(error).__name__ == "ColumnNotFoundError"
        return f"; the bars have the columns {', '.join([*self._times, *self._given])}" if is_missing else ""

    def _label_end(self, answer: Any, arrays: dict[str, npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
        """When the bars close at whose times labels end, ns in whole seconds; NaN where there is none."""
        values = arrays.pop(_LABEL_END)
        time_ns = _frames.times(answer[_LABEL_END], _LABEL_END) if not values.dtype.kind == "M" else (
            values.astype("datetime64[ns]").view(np.int64)
        )
        seconds = -(-(time_ns + self.duration_ns) // 1_000_000_000)
        return np.where(time_ns == np.iinfo(np.int64).min, np.nan, seconds * 1e9)


def _native(function: str, column: str, values: npt.NDArray[Any]) -> _Column:
    single = values.dtype in (np.float32, np.float16)
    return function, column, np.ascontiguousarray(values, np.float64).tobytes(), single


def split_target(target: Any) -> tuple[Any, BarFunction | None]:
    """A target that is named, and one that is a function."""
    return (None, target) if callable(target) else (target, None)


def split(features: Any) -> tuple[list[Any] | None, list[BarFunction]]:
    """Names of features, which may be one text, and functions among them; `None` has no names and no functions."""
    if callable(features):
        return [], [features]
    if features is None:
        return None, []
    if isinstance(features, str):
        return _features.listed(features), []
    _arguments.require(isinstance(features, Iterable), features, "features", "a name, a function, or a list of them")
    named = [own for own in features if not callable(own)]
    return named, [own for own in features if callable(own)]


def given_again(features: Any, data: str | os.PathLike[str] | None) -> list[BarFunction]:
    """The functions among the features of the series file `data`, which may stand beside names of its other ones."""
    stated, called = split(features)
    if not stated or data is None:
        return called
    own = _megabatch.function_inputs(data)[2]
    strange = _features.strange(stated, own)
    if strange:
        beside = f", or beside them names of its other features, which are {', '.join(own)}" if own else ""
        raise ConfigError(
            f"features: {', '.join(strange)}: a series keeps its features; give its functions alone{beside}", key="features"
        )
    return called


def _first_library() -> str:
    found = next((name for name in _frames.LIBRARIES if importlib.util.find_spec(name)), None)
    if found is None:
        raise ConfigError("functions of bars are called with frames: install pandas, polars or pyarrow", key="features")
    return found


def _by_name(functions: Sequence[BarFunction]) -> dict[str, BarFunction]:
    found: dict[str, BarFunction] = {}
    for own in functions:
        name = _name(own)
        if name in found:
            raise ConfigError(
                f"features: two functions are called {name}; give each a name of its own, such as with def", key="features"
            )
        found[name] = own
    return found


def _name(function: BarFunction) -> str:
    if isinstance(function, functools.partial):
        return _name(function.func)
    return getattr(function, "__name__", type(function).__name__)


def _fingerprint(function: BarFunction) -> str:
    """A hash of the source, as far as it can be found."""
    if isinstance(function, functools.partial):
        text = f"{_fingerprint(function.func)} {function.args!r} {sorted(function.keywords.items())!r}"
    else:
        try:
            text = inspect.getsource(function if hasattr(function, "__code__") else type(function))
        except (OSError, TypeError):
            code = getattr(function, "__code__", None)
            text = f"{code.co_code!r} {code.co_names}" if code is not None else _name(function)
        bound = _bound(function)
        text += f" {bound!r}" if bound else ""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _bound(function: BarFunction) -> list[object]:
    """Values of enclosing functions and defaults that a function computes with, as far as they are plain."""
    cells = getattr(function, "__closure__", None) or ()
    found = [cell.cell_contents for cell in cells] + list(getattr(function, "__defaults__", None) or ())
    found += [own for _, own in sorted((getattr(function, "__kwdefaults__", None) or {}).items())]
    return [own for own in found if own is None or isinstance(own, (bool, int, float, str))]


def _frame(library: str, times: Mapping[str, npt.NDArray[np.int64]], given: Mapping[str, npt.NDArray[np.float64]]) -> Any:
    """Bars as a frame, times first."""
    if library == "pandas":
        import pandas

        clock = {name: pandas.DatetimeIndex(values.view("datetime64[ns]"), tz="UTC") for name, values in times.items()}
        return pandas.DataFrame({**clock, **{name: values.copy() for name, values in given.items()}})
    if library == "polars":
        import polars

        own = [polars.Series(name, values).cast(polars.Datetime("ns", "UTC")) for name, values in times.items()]
        return polars.DataFrame([*own, *(polars.Series(name, values) for name, values in given.items())])
    import pyarrow

    clock = {name: pyarrow.array(values).cast(pyarrow.timestamp("ns", "UTC")) for name, values in times.items()}
    return pyarrow.table({**clock, **given})


def _columns(
    arrays: Mapping[str, npt.NDArray[Any]], given: Mapping[str, npt.NDArray[Any]], rows: int
) -> dict[str, npt.NDArray[Any]]:
    """Columns of numbers, without those that the frame had already."""
    found = {}
    for name, values in arrays.items():
        if len(values) != rows:
            raise DataError(
                f"column {name} has {len(values)} values for {rows} bars: expected one a bar, NaN where there is none",
                column=name,
            )
        if name in given:
            if name not in _TIMES and not np.array_equal(values, given[name], equal_nan=values.dtype.kind == "f"):
                raise DataError(f"column {name} is one of the bars, with other values: give it a name of its own", column=name)
            continue
        if values.dtype.kind not in "fiub":
            raise DataError(f"column {name} is of dtype {values.dtype}: expected numbers", column=name)
        if not name or not _features.is_plain(name):
            raise DataError(
                f"column {name!r} has no name, or a comma, a quote, a line's end or blanks around it in its name; rename it",
                column=name,
            )
        found[name] = values
    if not found:
        raise DataError("the answer has no column that the bars do not have already: expected numbers under names of their own")
    return found


def _arrays(answer: Any, function: str, frame: Any) -> dict[str, npt.NDArray[Any]]:
    """The columns of an answer of any kind by their names."""
    if isinstance(answer, Mapping):
        return {str(name): _array(own, str(name)) for name, own in answer.items()}
    if hasattr(answer, "columns") and _frames.library(answer) in _frames.LIBRARIES:
        return _frames.columns(answer)
    name = getattr(answer, "name", None)
    own = _array(answer, function)
    if own.ndim != 1:
        raise DataError(
            f"the answer is {_arguments.type_name(answer)} of {own.ndim} dimensions: expected a frame, a series, or arrays by name"
        )
    # `frame["close"].diff()` is still called close.
    return {function if name is None or str(name) in _names(frame) else str(name): own}


def _array(values: Any, name: str) -> npt.NDArray[Any]:
    if _frames.library(values) in _frames.LIBRARIES:
        return _frames.column(values, name)
    return np.asarray(values)


def _names(frame: Any) -> list[str]:
    return list(frame.column_names if _frames.library(frame) == "pyarrow" else frame.columns)


def _in_order(answer: Any, frame: Any, times: Mapping[str, npt.NDArray[np.int64]]) -> Any:
    """An answer with the rows of the frame in its order. Rows of pandas with times in their index are put by these."""
    if isinstance(answer, Mapping):
        return {name: _in_order(own, frame, times) for name, own in answer.items()}
    if _frames.library(answer) != "pandas" or not hasattr(answer, "index"):
        return answer
    own = frame.index if _frames.library(frame) == "pandas" else None
    if own is not None and answer.index.equals(own):
        return answer
    if type(answer.index).__name__ == "DatetimeIndex":
        return _by_times(answer, times)
    if own is not None and len(answer) == len(own):
        raise DataError(
            "the rows of the answer are in another order than those of the bars, or have another index: give the bars' own "
            "index back, such as with .sort_index() or .reindex(frame.index)"
        )
    return answer


def _by_times(answer: Any, times: Mapping[str, npt.NDArray[np.int64]]) -> Any:
    """The rows of an answer in the order of the bars, by the times in its index: when these open, or when they close."""
    index = answer.index if answer.index.tz is None else answer.index.tz_convert(None)
    found = index.to_numpy("datetime64[ns]").view(np.int64)
    order = np.argsort(found, kind="stable")
    # Times that were shifted by a bar keep their name, and may be those of the other column.
    clocks: Mapping[str, npt.NDArray[np.int64]] = {index.name: times[index.name]} if index.name in times else times
    # Days may be at midnights of their exchange, as in the frame that was given.
    dates = answer.index.tz_localize(None).to_numpy("datetime64[ns]").view(np.int64)
    is_dated = "time" in clocks and not np.any(dates % _DAY_NS) and np.array_equal(dates[order], times["time"])
    if is_dated or any(np.array_equal(found[order], own) for own in clocks.values()):
        return answer.iloc[order]
    name, own = next(iter(clocks.items()))
    verb = "opens" if name == "time" else "closes"
    lacking, strange = np.setdiff1d(own, found), np.setdiff1d(found, own)
    if strange.size:
        fault = f"{_shown(strange[0])}, and no bar {verb} then"
    elif lacking.size:
        fault = f"none for {len(lacking)} of {len(own)} bars, the first of which {verb} at {_shown(lacking[0])}"
    else:
        fault = f"{_shown(found[order][1:][np.diff(found[order]) == 0][0])} twice"
    raise DataError(
        f"the times in the index of the answer are not those of the bars: it has {fault}: give one row a bar, in "
        f"their order and without these times, such as with .to_numpy()"
    )


def _shown(time_ns: np.int64) -> str:
    return f"{np.datetime_as_string(np.datetime64(int(time_ns), 'ns'), unit='s')} UTC"
