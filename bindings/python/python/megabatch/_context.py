"""Features of other instruments, looked up by the last of their bars that had closed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _features, _frames, _megabatch
from ._display import log_note
from .errors import ConfigError, DataError

Timing = tuple[str, str | None]
"""The timeframe of the bars beside which other instruments stand, and the clock of their dates where it is behind UTC."""
BY_OWN_TIME: Timing = ("M1", None)
"""No day or week opens before its own time."""


class Context:
    """Base bars of one other instrument. Of its columns those among `features` are read, and with `for_functions` all of
    numbers."""

    def __init__(
        self, symbol: str, frame: Any, features: Sequence[str], read_by: Mapping[str, str], for_functions: bool
    ) -> None:
        if not str(symbol).strip():
            raise ConfigError('context: an instrument has no name; name each, such as {"DXY": frame}', key="context")
        self.symbol = symbol
        self._features = list(features)
        self._read_by = read_by
        self._for_functions = for_functions
        self._timing: Timing | None = None
        self._table: ContextTable | None = None
        with self._errors_named():
            self._bars, self._further = _frames.single_instrument(frame, symbol)

    @property
    def table(self) -> ContextTable:
        """The bars, which `read` has read."""
        assert self._table is not None
        return self._table

    def is_read(self) -> bool:
        """True once there is a table."""
        return self._table is not None

    def read(self, timing: Timing) -> None:
        """Reads the bars as those of its file would be: by the options of `ingest`, and by a timing."""
        if timing == self._timing:
            return
        with self._errors_named():
            self._table, warnings = self._read(timing)
        self._timing = timing
        for warning in warnings:
            log_note(f"warning: context {self.symbol}: {warning}")

    def _errors_named(self) -> contextlib.AbstractContextManager[None]:
        return _frames.errors_named(self.symbol, f"context {self.symbol}")

    def _read(self, timing: Timing) -> tuple[ContextTable, list[str]]:
        """The bars, and doubts about them. Columns that are not among the further ones have a role."""
        bars, further = self._bars, self._further
        named = _megabatch.feature_columns(self._features)
        own = [name for name in further if _features.is_plain(name) and (self._for_functions or name in named)]
        columns = {name: values for name, values in bars.columns.items() if name not in further or name in own}
        written = dataclasses.replace(bars, columns=columns, zone=None)
        options = [(name, value) for name, value in self._read_by.items() if name != "zone" or not bars.is_utc]
        options.append(("symbol", self.symbol))
        for option, names in (("features", self._features), ("function-columns", [f"column:{name}:last" for name in own])):
            if names:
                options.append((option, ",".join(names)))
        with tempfile.TemporaryDirectory(prefix="megabatch-") as folder:
            path = os.path.join(folder, "bars.csv")
            _megabatch.write_bars(path, written.native())
            try:
                time_ns, base_ns, found, warnings = _megabatch.read_context(path, options, timing)
            except DataError as error:
                written.with_row(error, path)
                if error.fields.get("file") == path:
                    # That file is gone.
                    error.fields["file"] = f"context {self.symbol}"
                raise
        values_read = {name: np.frombuffer(values, np.float64) for name, values in found}
        table = ContextTable(self.symbol, self._features, np.frombuffer(time_ns, np.int64), base_ns, values_read)
        return table, [written.remark(warning, path) for warning in warnings]

    def fingerprint(self) -> str:
        """A hash of the bars."""
        found = hashlib.sha256(self.table.time_ns.tobytes())
        for name, values in sorted(self.table.columns.items()):
            found.update(name.encode() + values.tobytes())
        return found.hexdigest()[:32]


@dataclasses.dataclass(frozen=True)
class ContextTable:
    """Base bars of another instrument in order of time."""

    symbol: str
    features: Sequence[str]
    time_ns: npt.NDArray[np.int64]
    """When they open."""
    base_ns: int
    """The length of a bar."""
    columns: Mapping[str, npt.NDArray[np.float64]]

    @property
    def until_ns(self) -> int:
        """When the last bar closes."""
        return int(self.time_ns[-1]) + self.base_ns

    def bars(self, first_ns: int, until_ns: int, timeframe: str, bins: str) -> ContextBars:
        """The bars of a timeframe on the clock `bins` that end by `until_ns`, from the first one on that the features read
        beside a bar which closes at `first_ns`."""
        made = {"base_ns": self.base_ns, "timeframe": timeframe, "bins": bins, "features": self.features}
        opened, end = np.searchsorted(self.time_ns, [first_ns, until_ns])
        start = _megabatch.context_start({**made, "time_ns": self.time_ns[:opened].tobytes(), "close_ns": first_ns})
        time_ns, close_ns, duration_ns, columns, features = _megabatch.context_bars(
            {
                **made,
                "time_ns": self.time_ns[start:end].tobytes(),
                "columns": {name: values[start:end].tobytes() for name, values in self.columns.items()},
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

    def wait(self, close_ns: npt.NDArray[np.int64], until_ns: int) -> Wait:
        """How long each bar, one or more, is the last that had closed, up to `until_ns`."""
        before = close_ns[close_ns <= until_ns]
        place = np.searchsorted(self._close_ns, before, side="right") - 1
        before, place = before[place >= 0], place[place >= 0]
        seen = np.bincount(place, minlength=len(self))
        oldest_ns = int((before - self._close_ns[place]).max(initial=0))
        return Wait(int(self._close_ns[-1]), until_ns, int(seen[-1]), int(seen.max()), oldest_ns)

    def looked_up(
        self, columns: Mapping[str, npt.NDArray[np.float64]], close_ns: npt.NDArray[np.int64], bar_ns: int
    ) -> dict[str, npt.NDArray[np.float64]]:
        """Values of the last bar that had closed at each of `close_ns`, and the time since its close over `bar_ns`, the
        length of a bar; NaN before the first."""
        place = np.searchsorted(self._close_ns, close_ns, side="right") - 1
        is_known = place >= 0
        place = np.maximum(place, 0)

        def at(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
            return np.where(is_known, values[place], np.nan) if len(self) else np.full(len(close_ns), np.nan)

        age = (close_ns - at(self._close_ns)) / bar_ns
        return {**{name: at(values) for name, values in columns.items()}, "age": age}


@dataclasses.dataclass
class Wait:
    """Bars at which the last one of another instrument is the last that had closed."""

    last_ns: int
    """When it closed."""
    reached_ns: int
    """Close of the last bar so far, or the end of the other instrument."""
    bars: int
    longest: int
    """The most bars at which one of the other instrument is the last, before its end."""
    oldest_ns: int
    """The greatest age of such a bar, before its end."""
    after: int = 0
    """Bars that close after its end."""

    def add(self, close_ns: npt.NDArray[np.int64]) -> None:
        """Counts those of the bars that close at these times which come after the last so far."""
        new = close_ns[close_ns > self.reached_ns]
        if new.size:
            self.bars, self.after, self.reached_ns = self.bars + new.size, self.after + new.size, int(new[-1])

    def is_too_long(self) -> bool:
        """True if another bar should have come: more bars wait for it than ever, or for longer."""
        return self.after > 0 and (self.bars > self.longest or self.reached_ns - self.last_ns > self.oldest_ns)
