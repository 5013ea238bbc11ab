"""Bars of pandas, polars and pyarrow frames as columns of numpy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import DataError

_TIMES = ("datetime", "timestamp", "time", "date", "open_time", "utc")
_SYMBOLS = ("symbol", "ticker", "instrument")
_PRICES = ("open", "high", "low", "close")


@dataclasses.dataclass(frozen=True)
class Bars:
    """Bars of one instrument."""

    time_ns: npt.NDArray[np.int64]
    is_utc: bool
    columns: dict[str, npt.NDArray[np.float64]]

    def native(self) -> dict[str, Any]:
        """As the native part takes them."""
        names = (*_PRICES, "volume", "spread")
        values = {name: self.columns[name].tobytes() if name in self.columns else None for name in names}
        return {"time_ns": self.time_ns.tobytes(), "is_utc": self.is_utc, **values}


@dataclasses.dataclass(frozen=True)
class _Times:
    """Times, ns since 1970; by UTC, or by a clock on a wall."""

    time_ns: npt.NDArray[np.int64]
    is_utc: bool


def is_frame(data: object) -> bool:
    """True for a table: not for paths."""
    return hasattr(data, "__arrow_c_stream__") or type(data).__module__.split(".")[0] in ("pandas", "polars", "pyarrow")


def by_symbol(frame: Any, symbol: str | None, zone: str | None, unnamed: str = "BARS") -> dict[str, Bars]:
    """The bars of each instrument of `frame`; those of `unnamed` where nothing tells the instrument."""
    if isinstance(frame, Mapping):
        all_bars: dict[str, Bars] = {}
        for name, own in frame.items():
            all_bars.update(by_symbol(own, str(name), zone))
        return all_bars
    table = _Table.of(frame)
    times, name_of_time = table.times()
    columns = {name: table.numbers(name) for name in _PRICES}
    for name in ("volume", "spread"):
        if table.has(name):
            columns[name] = table.numbers(name)
    _refuse_nat(times, name_of_time)
    # With a zone, times without one are a clock on a wall; else they are UTC.
    is_utc = times.is_utc or zone is None
    symbols = table.symbols()
    if symbols is None:
        return {symbol or unnamed: Bars(times.time_ns, is_utc, columns)}
    found: dict[str, Bars] = {}
    for one in dict.fromkeys(symbols.tolist()) if symbol is None else [symbol]:
        own_rows = np.flatnonzero(symbols == one)
        if not own_rows.size:
            raise DataError(f"no row of the frame has the symbol {one}", column="symbol", found=str(one))
        own_columns = {name: column[own_rows] for name, column in columns.items()}
        found[str(one)] = Bars(times.time_ns[own_rows], is_utc, own_columns)
    return found


def _refuse_nat(times: _Times, name: str) -> None:
    missing = np.flatnonzero(times.time_ns == np.iinfo(np.int64).min)
    if missing.size:
        row = int(missing[0])
        raise DataError(
            f"row {row} of the frame: {name} is NaT; drop the {missing.size} rows without a time", column=name, row=row
        )


class _Table:
    """A frame of one library."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    @staticmethod
    def of(frame: Any) -> _Table:
        module = type(frame).__module__.split(".")[0]
        if module == "pandas":
            return _Pandas(frame)
        if module == "polars":
            return _Polars(frame.collect() if hasattr(frame, "collect") else frame)
        if module == "pyarrow":
            return _Arrow(frame)
        if hasattr(frame, "__arrow_c_stream__"):
            return _Table._of_stream(frame)
        raise DataError(
            f"a {type(frame).__name__} is no frame of bars; expected one of pandas, polars or pyarrow, or paths of files"
        )

    @staticmethod
    def _of_stream(frame: Any) -> _Table:
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

    def has(self, name: str) -> bool:
        return name in self._names

    def _column(self, name: str) -> Any:
        if name not in self._names:
            raise DataError(
                f"the frame has no column {name}; expected open, high, low and close, and found "
                f"{', '.join(map(str, self._names.values())) or 'no columns'}",
                column=name,
            )
        return self._names[name]

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers; missing ones are NaN."""
        values = self._values(self._column(name))
        if values.dtype.kind not in "fiu":
            raise DataError(
                f"column {name} is of dtype {values.dtype}: expected numbers; convert it, such as with "
                f"frame[{name!r}].astype(float)",
                column=name,
                found=str(values.dtype),
            )
        return np.ascontiguousarray(values, dtype=np.float64)

    def times(self) -> tuple[_Times, str]:
        """The times, and the name of their column."""
        for name in _TIMES:
            if name in self._names:
                return self._times(self._names[name], name), name
        index = self._index()
        if index is not None:
            return index, "the index"
        raise DataError(
            f"the frame has no times; name a column of them {', '.join(_TIMES[:3])} or {_TIMES[3]}, or make them the index",
            column="time",
        )

    def symbols(self) -> npt.NDArray[Any] | None:
        """The instrument of each row."""
        for name in _SYMBOLS:
            if name in self._names:
                return np.asarray(self._values(self._names[name]), dtype=object)
        return None

    def _index(self) -> _Times | None:
        return None

    def _values(self, column: Any) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _times(self, column: Any, name: str) -> _Times:
        raise NotImplementedError


def _no_times(name: str, found: object) -> DataError:
    return DataError(
        f"{name} is of dtype {found}: expected times; convert it, such as with pandas.to_datetime, which has to know "
        f"the unit of numbers",
        column=name,
        found=str(found),
    )


def _nanoseconds(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    times: npt.NDArray[np.int64] = np.ascontiguousarray(values.astype("datetime64[ns]")).view(np.int64)
    return times


class _Pandas(_Table):
    def __init__(self, frame: Any) -> None:
        super().__init__({str(name).strip().lower(): name for name in frame.columns})
        self._frame = frame

    def _values(self, column: Any) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = self._frame[column].to_numpy()
        if values.dtype.kind == "O" and self._frame[column].dtype.name.startswith(("Float", "Int", "UInt")):
            values = self._frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
        return values

    def _times(self, column: Any, name: str) -> _Times:
        return self._of(self._frame[column], name)

    def _index(self) -> _Times | None:
        index = self._frame.index
        return self._of(index.to_series(), "the index") if index.dtype.kind == "M" else None

    @staticmethod
    def _of(series: Any, name: str) -> _Times:
        if series.dtype.kind != "M":
            raise _no_times(name, series.dtype)
        if getattr(series.dtype, "tz", None) is None:
            return _Times(_nanoseconds(series.to_numpy()), is_utc=False)
        return _Times(_nanoseconds(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()), is_utc=True)


class _Polars(_Table):
    def __init__(self, frame: Any) -> None:
        super().__init__({name.strip().lower(): name for name in frame.columns})
        self._frame = frame

    def _values(self, column: Any) -> npt.NDArray[Any]:
        series = self._frame[column]
        if series.dtype.is_decimal():
            series = series.cast(float)
        values: npt.NDArray[Any] = series.to_numpy()
        return values

    def _times(self, column: Any, name: str) -> _Times:
        import polars

        series = self._frame[column]
        if series.dtype == polars.Date:
            series = series.cast(polars.Datetime("ns"))
        if not isinstance(series.dtype, polars.Datetime):
            raise _no_times(name, series.dtype)
        zone = series.dtype.time_zone
        # Physical values are those of UTC where there is a zone.
        ticks = series.cast(polars.Datetime("ns", zone)).to_physical()
        filled = ticks.fill_null(np.iinfo(np.int64).min)
        return _Times(np.ascontiguousarray(filled.to_numpy(), dtype=np.int64), is_utc=zone is not None)


class _Arrow(_Table):
    def __init__(self, table: Any) -> None:
        super().__init__({name.strip().lower(): name for name in table.schema.names})
        self._table = table

    def _chunked(self, column: Any) -> Any:
        found = self._table.column(self._table.schema.names.index(column))
        return found.combine_chunks() if hasattr(found, "combine_chunks") else found

    def _values(self, column: Any) -> npt.NDArray[Any]:
        found = self._chunked(column)
        values: npt.NDArray[Any] = found.to_numpy(zero_copy_only=False)
        return values

    def _times(self, column: Any, name: str) -> _Times:
        import pyarrow

        found = self._chunked(column)
        if pyarrow.types.is_date(found.type):
            found = found.cast(pyarrow.timestamp("ns"))
        if not pyarrow.types.is_timestamp(found.type):
            raise _no_times(name, found.type)
        ticks = found.cast(pyarrow.timestamp("ns", found.type.tz)).cast(pyarrow.int64())
        filled = ticks.fill_null(np.iinfo(np.int64).min)
        values = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)
        return _Times(values, is_utc=found.type.tz is not None)
