"""Answers that are tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._requirements import required

if TYPE_CHECKING:
    import pandas
    import polars


class Tabular:
    """An answer that pandas and polars read as a table."""

    _times: tuple[str, ...] = ()
    """Columns that are times, UTC."""

    def _columns(self) -> dict[str, Any]:
        """Columns by name, all of the same length."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a frame of pandas."""
        with required("to_pandas()", "without it, the arrays of numpy have the same numbers"):
            import pandas

        frame: pandas.DataFrame = pandas.DataFrame(self._columns())
        for name in self._times:
            if name in frame:
                frame[name] = frame[name].dt.tz_localize("UTC")
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The table as a frame of polars."""
        with required("to_polars()", "without it, to_pandas() gives a frame of pandas"):
            import polars

        frame = polars.DataFrame(self._columns())
        own = [polars.col(name).dt.replace_time_zone("UTC") for name in self._times if name in frame.columns]
        return frame.with_columns(own)
