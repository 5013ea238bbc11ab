"""The part of MetaTrader5 that the guide uses: made-up minutes of a broker whose clock is two hours ahead of UTC."""

from __future__ import annotations

import datetime
from typing import Any

import megabatch as mb
import numpy as np
import pandas

TIMEFRAME_M1 = 1


def initialize() -> bool:
    return True


def copy_rates_range(symbol: str, timeframe: int, date_from: datetime.datetime, date_to: datetime.datetime) -> Any:
    mb.synth.bars("rates.csv", days=(date_to - date_from).days)
    bars = pandas.read_csv("rates.csv", parse_dates=["time"])
    names = ("open", "high", "low", "close")
    fields = [("time", "i8"), *((name, "f8") for name in names), ("tick_volume", "u8"), ("spread", "i4"), ("real_volume", "u8")]
    rates = np.zeros(len(bars), dtype=fields)
    rates["time"] = (bars["time"] - pandas.Timestamp("1970-01-01")) // pandas.Timedelta(seconds=1) + 7200
    for name in names:
        rates[name] = bars[name]
    rates["tick_volume"], rates["spread"] = bars["volume"], 8 + np.arange(len(bars)) % 5
    return rates
