"""What a case of LeakBench is, and how a function becomes one."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa


@dataclass(frozen=True)
class Case:
    """A function of bars. `kind` is how it leaks, or its family if it does not. `source` names a
    known issue of that kind, if there is one. `library` says which frames the function takes."""

    name: str
    kind: str
    source: str
    function: Callable[[Any], Any]
    library: str = "pandas"

    def compute(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """The columns of the function for these bars, in double precision."""
        return columns(self.function(of_library(frame, self.library)), self.name)


def of_library(frame: pd.DataFrame, library: str) -> Any:
    """The frame as the library has it: `pandas`, `polars` or `pyarrow`."""
    if library == "pandas":
        return frame.copy()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return pl.from_arrow(table) if library == "polars" else table


def columns(result: Any, name: str) -> dict[str, np.ndarray]:
    """The columns of whatever a function returned. A result without names is called `name`."""
    if isinstance(result, pa.Table):
        result = {column: result[column].to_numpy() for column in result.column_names}
    elif isinstance(result, (pd.DataFrame, pl.DataFrame)):
        result = {column: result[column] for column in result.columns}
    elif not isinstance(result, dict):
        result = {name: result}
    return {column: np.asarray(values).astype(float) for column, values in result.items()}


def register(cases: list[Case], kind: str, source: str = "", library: str = "pandas", **settings: tuple) -> Callable:
    """A decorator that makes a case of a function, or one for each combination of the settings."""

    def decorate(function: Callable) -> Callable:
        for values in product(*settings.values()):
            name = re.sub(r"\W+", "_", "_".join([function.__name__, *map(str, values)])).strip("_")
            bound = bind(function, name, dict(zip(settings, values)))
            cases.append(Case(name, kind, source, bound, library))
        return function

    return decorate


def bind(function: Callable, name: str, settings: dict[str, Any]) -> Callable:
    """The function of bars alone, called `name`. So is its Series: one with the name of a column of
    the bars, as `frame.close.diff()` has it, could be taken for that column."""

    def bound(frame):
        result = function(frame, **settings)
        return result.rename(name) if isinstance(result, (pd.Series, pl.Series)) else result

    bound.__name__ = bound.__qualname__ = name
    bound.__doc__ = function.__doc__
    return bound
