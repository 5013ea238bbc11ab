"""Answers that are tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    import polars


class Tabular:
    """An answer that pandas and polars read as a table."""

    def _columns(self) -> dict[str, Any]:
        """Columns by name, all of the same length."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """The table as a frame of pandas."""
        import pandas

        frame: pandas.DataFrame = pandas.DataFrame(self._columns())
        return frame

    def to_polars(self) -> polars.DataFrame:
        """The table as a frame of polars."""
        import polars

        return polars.DataFrame(self._columns())
