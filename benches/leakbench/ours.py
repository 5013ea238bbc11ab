"""`mb.leak` on the cases. Takes a case and the bars, and returns what it alarms of, or None."""

import pandas as pd
from case import Case, of_library

SAMPLES = 4


class NotChecked(Exception):
    """The case could not be ingested, so that nothing is known of its leak."""


def leak_of_functions(case: Case, frame: pd.DataFrame) -> str | None:
    """Alarms where `mb.leak` raises `DataError`. The function sees the bars of both timeframes."""
    import megabatch as mb

    bars = of_library(frame.drop(columns="close_time"), case.library)
    try:
        ds = mb.ingest(bars, symbol="BENCH", timeframes={"M15": 12, "H1": 4}, features=["log_return", case.function],
                       target="log_return", horizon=4)
    except Exception as error:
        raise NotChecked(f"ingest: {error}") from error
    try:
        mb.leak(ds, features=[case.function], samples=SAMPLES)
    except mb.DataError as error:
        return str(error)
    return None
