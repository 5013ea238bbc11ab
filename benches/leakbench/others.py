"""Two methods that users know, for comparison. Both look at the bars of 15 minutes alone.

Each takes a case and the bars, and returns what it alarms of, or None.
"""

import numpy as np
import pandas as pd
from case import Case

THRESHOLD = 0.2
AHEAD = (1, 5, 20)
BARS_CHECKED = 20
STARTUP = 120


def shift_test(case: Case, frame: pd.DataFrame) -> str | None:
    """Alarms where the value of a column, or its change from the bar before, correlates with the
    return of the next 1, 5 or 20 bars by more than 0.2 or less than -0.2 (Pearson)."""
    close = np.log(frame["close"].to_numpy())
    for name, values in case.compute(frame).items():
        for what, series in (("value", values), ("change", np.diff(values, prepend=np.nan))):
            for bars in AHEAD:
                found = correlation(series[:-bars], close[bars:] - close[:-bars])
                if abs(found) > THRESHOLD:
                    return f"{name}: the {what} has the correlation {found:.2f} with the return of the next {bars} bars"
    return None


def correlation(left: np.ndarray, right: np.ndarray) -> float:
    """Pearson's correlation where both have values, 0 where one is constant."""
    known = np.isfinite(left) & np.isfinite(right)
    if known.sum() < 30 or left[known].std() == 0 or right[known].std() == 0:
        return 0.0
    return float(np.corrcoef(left[known], right[known])[0, 1])


def freqtrade_method(case: Case, frame: pd.DataFrame) -> str | None:
    """What the documentation of freqtrade's lookahead-analysis describes, written anew: a run over
    all bars is the baseline. Then, for each of some signals, a run over the bars that end with the
    signal's; alarms where an indicator of that last bar differs from the baseline.

    freqtrade takes 20 entries and exits by default. Here they are 20 bars that lie evenly. It
    compares by `!=`, and so does this; two missing values are the same. It also compares when
    trades begin and end, which functions of bars do not have.
    """
    baseline = case.compute(frame)
    for row in np.linspace(STARTUP, len(frame) - 2, BARS_CHECKED).astype(int):
        cut = case.compute(frame.iloc[:row + 1])
        for name, values in baseline.items():
            before, after = values[row], cut[name][row]
            if before != after and not (np.isnan(before) and np.isnan(after)):
                return f"{name}: {before} at row {row}, and {after} without the bars after it"
    return None
