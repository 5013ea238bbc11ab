"""Bars for LeakBench: made by a seeded generator, so that every run sees the same ones.

The returns have a drift that changes slowly, and a variance that clusters and depends on the hour.
So prices trend more than those of real markets: an honest momentum indicator correlates with the
returns that follow. The volume depends on the hour. Weekends are missing.
"""

import numpy as np
import pandas as pd


def quarter_hours(weeks: int = 5, seed: int = 7) -> pd.DataFrame:
    """Bars of 15 minutes from Monday to Friday, 480 a week."""
    days = pd.bdate_range("2024-01-08", periods=5 * weeks).repeat(96)
    quarters = pd.to_timedelta(np.tile(np.arange(96) * 15, 5 * weeks), unit="min")
    time = (days + quarters).tz_localize("UTC").as_unit("ns")
    rows = len(time)
    noise = np.random.default_rng(seed)

    hour = time.hour.to_numpy() + time.minute.to_numpy() / 60
    activity = 0.6 + np.exp(-((hour - 8.5) ** 2) / 6) + 1.3 * np.exp(-((hour - 14.5) ** 2) / 8)
    drift, cluster = np.zeros(rows), np.zeros(rows)
    for row in range(1, rows):
        drift[row] = 0.985 * drift[row - 1] + noise.normal(scale=8e-6)
        cluster[row] = 0.97 * cluster[row - 1] + noise.normal(scale=0.1)
    spread_of_returns = 3e-4 * np.sqrt(activity) * np.exp(cluster)
    close = 1.1 * np.exp(np.cumsum(drift + spread_of_returns * noise.standard_t(5, size=rows)))
    gap = np.where(np.arange(rows) % 480 == 0, 8e-4, 2e-5)
    opened = np.concatenate([[1.1], close[:-1]]) * np.exp(gap * noise.normal(size=rows))
    reach = spread_of_returns * close
    frame = pd.DataFrame({
        "time": time,
        "close_time": time + pd.Timedelta(minutes=15),
        "open": opened,
        "high": np.maximum(opened, close) + reach * noise.exponential(0.4, size=rows),
        "low": np.minimum(opened, close) - reach * noise.exponential(0.4, size=rows),
        "close": close,
        "volume": np.round(900 * activity * np.exp(cluster + noise.normal(scale=0.35, size=rows))) + 1.0,
        "spread": 8e-5 + 4e-5 * noise.random(size=rows) / activity,
    })
    prices = ["open", "high", "low", "close", "spread"]
    frame[prices] = frame[prices].round(6)
    return frame


def hours(frame: pd.DataFrame) -> pd.DataFrame:
    """Bars of an hour, made of four bars of 15 minutes each. Other hours are left out."""
    hour = frame["time"].dt.floor("h").rename("hour")
    made = frame.groupby(hour).agg(
        time=("time", "first"), close_time=("close_time", "last"), open=("open", "first"), high=("high", "max"),
        low=("low", "min"), close=("close", "last"), volume=("volume", "sum"), spread=("spread", "last"),
        bars=("close", "size"))
    return made[made["bars"] == 4].drop(columns="bars").reset_index(drop=True)
