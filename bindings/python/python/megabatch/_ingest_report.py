"""Rows that were read, repaired and dropped for a series."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ._display import log
from ._wording import in_python

_SYMBOLS_MAX = 10
"""Symbols that the log has a line of, each."""
_COPY = "copy of an earlier row"
_MISSING_BAR = "row without prices"


@dataclasses.dataclass(frozen=True)
class IngestReport:
    """Rows that were read, repaired and dropped for a series."""

    text: str
    """As `megabatch ingest` prints it."""
    facts: dict[str, Any]
    """As `megabatch ingest --json` has them."""

    def __repr__(self) -> str:
        return self.text

    @property
    def warnings(self) -> list[str]:
        """Doubts about the bars. Those about the files of one of several symbols begin with it."""
        return [in_python(warning) for warning in self.facts.get("warnings", [])]

    @property
    def dropped(self) -> dict[str, dict[str, int]]:
        """Rows that became no bar, by symbol and reason; symbols without such rows are not in it."""
        return self._rows("dropped")

    @property
    def repaired(self) -> dict[str, dict[str, int]]:
        """Rows that were repaired, by symbol and repair."""
        return self._rows("repaired")

    @property
    def left_out(self) -> dict[str, str]:
        """Reason of each symbol that has no part in the series."""
        return {one["symbol"]: in_python(one["reason"]) for one in self.facts.get("universe", {}).get("left_out", [])}

    @property
    def unused_columns(self) -> list[str]:
        """Columns of the bars that are no features, and have no other use."""
        return list(self.facts.get("unused_columns", []))

    def _rows(self, treatment: str) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for instrument in self.facts.get("source", {}).get("instruments", []):
            for file in instrument["files"]:
                for reason, count in file[treatment].items():
                    own = found.setdefault(instrument["symbol"], {})
                    own[reason] = own.get(reason, 0) + count["rows"]
        return found

    def log(self) -> None:
        """Says to the log `megabatch` what a user would want to know before training."""
        # Bars that are appended may overlap those of before.
        usual = {_COPY} if "appended" in self.facts else set()
        # Instruments that share times lack bars at some of them.
        if len(self.facts.get("source", {}).get("instruments", [])) > 1:
            usual.add(_MISSING_BAR)
        dropped = {symbol: rows for symbol, rows in self.dropped.items() if rows.keys() - usual}
        told = [f"{symbol}: {_counted(rows)} dropped" for symbol, rows in dropped.items()]
        told += [f"{symbol}: {_counted(rows)} repaired" for symbol, rows in self.repaired.items()]
        told += [f"left out: {reason}" for reason in self.left_out.values()]
        if self.unused_columns:
            unused = ", ".join(self.unused_columns)
            told.append(f"columns that are not used: {unused}; a column is a feature once `features` names it")
        for sentence in [*self.warnings, *_first(told)]:
            log.warning("%s", sentence)
        log.info("%s", self.text)


def count_missing(facts: dict[str, Any], rows: Mapping[str, int]) -> list[str]:
    """Counts rows of frames that have no price, by symbol, among those that became no bar, and gives the line on them."""
    for instrument in facts.get("source", {}).get("instruments", []):
        count = rows.get(instrument["symbol"])
        if count is not None and instrument["files"]:
            instrument["files"][-1]["dropped"][_MISSING_BAR] = {"rows": count}
    if not rows:
        return []
    named = ", ".join(f"{symbol} {count}" for symbol, count in list(rows.items())[:_SYMBOLS_MAX])
    more = f" and {len(rows) - _SYMBOLS_MAX} symbols more" if len(rows) > _SYMBOLS_MAX else ""
    return [f"rows without prices, which are missing bars: {named}{more}"]


def _counted(rows: dict[str, int]) -> str:
    return ", ".join(f"{count} as {reason}" for reason, count in rows.items())


def _first(sentences: list[str]) -> Iterable[str]:
    yield from sentences[:_SYMBOLS_MAX]
    more = len(sentences) - _SYMBOLS_MAX
    if more > 0:
        yield f"{more} more of this kind: the dataset's report has all"
