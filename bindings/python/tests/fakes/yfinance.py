"""The part of yfinance that the guide uses: made-up shares, the last of which lists late."""

from __future__ import annotations

import pathlib
from typing import Any

import megabatch as mb
import pandas


def download(tickers: list[str], start: str, auto_adjust: bool) -> Any:
    assert auto_adjust
    mb.synth.shares("yahoo", shares=len(tickers), days=700)
    files = sorted(pathlib.Path("yahoo").iterdir())
    frames = [pandas.read_csv(file, index_col="Date", parse_dates=True).drop(columns="Adj Close") for file in files]
    frames[-1] = frames[-1].iloc[60:]
    by_ticker = pandas.concat(frames, axis=1, keys=tickers, names=["Ticker", "Price"])
    return by_ticker.swaplevel(axis=1).sort_index(axis=1)
