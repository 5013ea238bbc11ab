"""Features of other instruments, looked up by the last of their bars that had closed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _frames, _megabatch
from .errors import DataError


class Context:
    """Base bars of one other instrument. Times without a zone are by the clock `zone`, UTC's for `None`. `prices` and
    `time` are those of `ingest`; bars of days and longer are dated by their day, whatever `time` is."""

    def __init__(
        self, symbol: str, frame: Any, features: Sequence[str], zone: str | None, prices: str, time: str
    ) -> None:
        self.symbol = symbol
        self._features = list(features)
        with _frames.errors_named(symbol, f"context {symbol}"):
            bars = _frames.by_symbol(frame, symbol, None)[symbol]
        self._time_ns = bars.time_ns
        if zone is not None and not bars.is_utc:
            self._time_ns = np.frombuffer(_megabatch.utc_times(self._time_ns.tobytes(), zone), np.int64)
        adjusted_by = [] if prices == "quoted" else [_frames.ADJUSTED_CLOSE]
        self._require_clean({name: bars.columns[name] for name in (*_frames.PRICES, *adjusted_by) if name in bars.columns})
        with _frames.errors_named(symbol, f"context {symbol}"):
            self._columns = bars.as_read(prices).columns
        steps, counts = np.unique(np.diff(self._time_ns), return_counts=True)
        self._base_ns = int(steps[counts.argmax()])
        # A date is often a midnight before the day: its bar closes after it.
        if time == "close" and self._base_ns < _frames.DAY_NS:
            self._time_ns = self._time_ns - self._base_ns

    def _require_clean(self, prices: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Requires bars in order of time, with all `prices`, which are by their names."""
        if len(self._time_ns) < 2:
            raise DataError(f"context {self.symbol}: expected bars, found {len(self._time_ns)} rows", column="time")
        later = np.flatnonzero(np.diff(self._time_ns) <= 0)
        if later.size:
            row = int(later[0]) + 1
            raise DataError(
                f"context {self.symbol}: row {row} is not later than the row before it: expected bars in order of time, each "
                f"once",
                column="time",
                row=row,
            )
        for name, values in prices.items():
            missing = np.flatnonzero(~(values > 0) | ~np.isfinite(values))
            if missing.size:
                row, found = int(missing[0]), values[missing[0]]
                raise DataError(
                    f"context {self.symbol}: row {row}: {name} is {found}: expected a price above 0; drop such rows",
                    column=name,
                    row=row,
                )

    @property
    def until_ns(self) -> int:
        """When the last bar closes."""
        return int(self._time_ns[-1]) + self._base_ns

    def fingerprint(self) -> str:
        """A hash of the bars."""
        found = hashlib.sha256(self._time_ns.tobytes())
        for name, values in sorted(self._columns.items()):
            found.update(name.encode() + values.tobytes())
        return found.hexdigest()[:32]

    def bars(self, first_ns: int, until_ns: int, timeframe: str, bins: str) -> ContextBars:
        """The bars of a timeframe on the clock `bins` that open at `first_ns` or later and end by `until_ns`."""
        own = slice(*np.searchsorted(self._time_ns, [first_ns, until_ns]))
        time_ns, close_ns, duration_ns, columns, features = _megabatch.context_bars(
            {
                "time_ns": self._time_ns[own].tobytes(),
                "columns": {name: values[own].tobytes() for name, values in self._columns.items()},
                "base_ns": self._base_ns,
                "timeframe": timeframe,
                "bins": bins,
                "features": self._features,
                "until_ns": until_ns,
            }
        )
        return ContextBars(time_ns, close_ns, duration_ns, columns, features)


class ContextBars:
    """Closed bars of one timeframe of another instrument, and its features."""

    def __init__(
        self,
        time_ns: bytes,
        close_ns: bytes,
        duration_ns: int,
        columns: Sequence[tuple[str, bytes]],
        features: Sequence[tuple[str, bytes]],
    ) -> None:
        self.duration_ns = duration_ns
        self.given = {**dict(columns), "time": time_ns, "close_time": close_ns}
        """Columns of the bars, as functions get them."""
        self.features = {name: np.frombuffer(values, np.float64) for name, values in features}
        self._close_ns = np.frombuffer(close_ns, np.int64)

    def __len__(self) -> int:
        return len(self._close_ns)

    def looked_up(
        self, columns: Mapping[str, npt.NDArray[np.float64]], close_ns: npt.NDArray[np.int64], bar_ns: int
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Values of the last bar that had closed at each of `close_ns`, and its age in bars of `bar_ns`; NaN before the
        first."""
        place = np.searchsorted(self._close_ns, close_ns, side="right") - 1
        is_known = place >= 0
        place = np.maximum(place, 0)

        def at(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
            return np.where(is_known, values[place], np.nan) if len(self) else np.full(len(close_ns), np.nan)

        age = (close_ns - at(self._close_ns.astype(np.float64))) / bar_ns
        return {**{name: at(values) for name, values in columns.items()}, "age": age}
