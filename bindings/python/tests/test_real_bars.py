"""Own features, labels, weights and other instruments on real bars, each value compared with a pandas computation."""

from __future__ import annotations

import os
import pathlib
import unittest
from typing import Any

import h5py
import megabatch as mb
import numpy as np
import pandas
from shared import InFolder

DATA = os.environ.get("MEGABATCH_DATA")
IS_WHOLE = "MEGABATCH_TEST_WHOLE" in os.environ
"""A year, three timeframes and 38 indicators, for which pandas takes minutes."""
TIMEFRAMES = {"M1": (1, 30), "M5": (5, 12)} | ({"H1": (60, 6)} if IS_WHOLE else {})
DAYS = 366 if IS_WHOLE else 12
SPANS = (3, 5, 8, 13, 21, 34) if IS_WHOLE else (8, 21)
RSI_SPANS = (7, 14, 28) if IS_WHOLE else (14,)
COMING = 200 if IS_WHOLE else 600
"""Bars that come one by one; the functions are called with all bars for each."""
AHEAD = 30
"""Bars that a label looks ahead at most."""


def read(symbol: str) -> pandas.DataFrame:
    """Bars of HistData, whose clock is five hours behind UTC all year."""
    path = pathlib.Path(DATA or "") / "forex_m1" / f"DAT_ASCII_{symbol}_M1_2018.csv.gz"
    frame = pandas.read_csv(path, sep=";", names=["time", "open", "high", "low", "close", "volume"])
    time = pandas.to_datetime(frame["time"], format="%Y%m%d %H%M%S") + pandas.Timedelta("5h")
    frame["time"] = time.dt.tz_localize("UTC")
    begin = frame["time"].iloc[0]
    return frame[(frame["time"] < begin + pandas.Timedelta(days=DAYS))].reset_index(drop=True)


def indicators(bars: pandas.DataFrame) -> pandas.DataFrame:
    """Indicators, none of which looks ahead."""
    close, high, low, tiny = bars["close"], bars["high"], bars["low"], 1e-9
    change = close.pct_change()
    found: dict[str, pandas.Series] = {}
    for span in SPANS:
        found[f"sma{span}"] = close / close.rolling(span).mean() - 1
        found[f"ema{span}"] = close / close.ewm(span=span, adjust=False).mean() - 1
        found[f"volatility{span}"] = change.rolling(span).std(ddof=0)
        found[f"momentum{span}"] = close / close.shift(span) - 1
        least, most = low.rolling(span).min(), high.rolling(span).max()
        found[f"place{span}"] = (close - least) / (most - least + tiny)
    for span in RSI_SPANS:
        rise, size = change.clip(lower=0).rolling(span).mean(), change.abs().rolling(span).mean()
        found[f"rsi{span}"] = (rise + tiny) / (size + 2 * tiny)
        found[f"range{span}"] = ((high - low) / close).rolling(span).mean()
    fast, slow = (close.ewm(span=span, adjust=False).mean() for span in (12, 26))
    found["macd"] = (fast - slow) / close
    found["shape"] = (close - bars["open"]) / close
    return pandas.DataFrame(found)


def label(bars: pandas.DataFrame) -> pandas.DataFrame:
    """1 or 2 if the close rises or falls by 5 parts in 10,000 within the next bars, else 0; it ends with the bar that
    decides it."""
    returns = pandas.concat([bars["close"].shift(-k) / bars["close"] - 1 for k in range(1, AHEAD + 1)], axis=1).to_numpy()
    is_far = np.abs(returns) > 5e-4
    decided = np.where(is_far.any(axis=1), is_far.argmax(axis=1), AHEAD - 1)
    rows = np.arange(len(bars))
    known = is_far.any(axis=1) | (rows + AHEAD < len(bars))
    move = returns[rows, decided]
    classes = np.where(is_far.any(axis=1), np.where(move > 0, 1.0, 2.0), 0.0)
    end = bars["time"].iloc[np.minimum(rows + decided + 1, len(bars) - 1)].reset_index(drop=True)
    end.index = bars.index
    return pandas.DataFrame({"move": np.where(known, classes, np.nan), "label_end": end.where(known)})


def binned(bars: pandas.DataFrame, minutes: int) -> pandas.DataFrame:
    """Bars of a longer timeframe, with their closes as the index."""
    rules = {"open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"}
    found = bars.set_index("time").resample(f"{minutes}min").agg(rules).dropna(subset="close")
    return found.reset_index().set_index(found.index + pandas.Timedelta(minutes=minutes))


@unittest.skipIf(DATA is None, "MEGABATCH_DATA names no folder of published data")
class RealBars(InFolder):
    def require_values(self, ds: mb.Dataset, frame: pandas.DataFrame, context: dict[str, pandas.DataFrame]) -> None:
        """Requires the last row of each window to be what pandas computes."""
        assert ds.times is not None
        times, batch = pandas.to_datetime(ds.times, utc=True), ds[: len(ds)]
        for name, (minutes, _) in TIMEFRAMES.items():
            bins = binned(frame, minutes)
            closes = bins.index[bins.index.searchsorted(times, side="right") - 1]
            expected = [indicators(bins).loc[closes].reset_index(drop=True)]
            for symbol, bars in context.items():
                others = binned(bars, minutes)
                # A return reads the bar before the last that had closed at the first bar.
                others = others.iloc[max(int(others.index.searchsorted(bins.index[0], side="right")) - 2, 0) :]
                own = indicators(others).assign(
                    log_return=np.log(others["close"]).diff(),
                    body=(others["close"] - others["open"]) / others["close"],
                    closed=others.index,
                )
                looked_up = own.iloc[others.index.searchsorted(closes, side="right") - 1].reset_index(drop=True)
                age = (pandas.Series(closes) - looked_up.pop("closed")) / pandas.Timedelta(minutes=minutes)
                expected.append(looked_up.assign(age=age).add_prefix(f"{symbol}."))
            values = pandas.concat(expected, axis=1)
            found = batch[name][:, -1]
            for place, feature in enumerate(ds.features[name]):
                column = feature.removeprefix("function:")
                if column in values:
                    np.testing.assert_allclose(
                        found[:, place], values[column], rtol=1e-5, atol=2e-6, err_msg=f"{name} {column}"
                    )
                    values = values.drop(columns=column)
            self.assertEqual(list(values), [])

    def test_from_bars_to_forecasts(self) -> None:
        frame = read("EURUSD")
        frame = frame.assign(weight=np.exp(np.linspace(-2, 0, len(frame))))
        context = {symbol: read(symbol) for symbol in ("GBPUSD", "USDJPY")}
        cut = len(frame) - COMING
        options: dict[str, Any] = {
            "symbol": "EURUSD",
            "timeframes": {name: steps for name, (_, steps) in TIMEFRAMES.items()},
            "features": ["log_return", "body", indicators],
            "context": context,
            "weight": "weight",
            "horizon": AHEAD,
            "stride": 15,
            "scaling": "none",
        }
        again = {"features": indicators, "target": label, "context": context}
        ds = mb.ingest(frame[:cut], target=label, out=self.folder / "series.h5", **options)
        count = len(indicators(frame[:100]).columns)
        self.assertEqual((count, len(ds.features["M1"])), (38 if IS_WHOLE else 14, 2 + count + 2 * (count + 2 + 1)))
        self.require_values(ds, frame[:cut], context)
        with h5py.File(ds.path) as file:
            times, ends = file["samples/time"][:], file["samples/label_end_time"][:]
            targets = file["targets"][:, 0]
        minute = 60 * 10**9
        rows = label(frame[:cut]).assign(weight=frame["weight"])
        rows.index = frame["time"][:cut].astype("datetime64[ns, UTC]").astype("int64") + minute
        rows = rows.loc[times]
        np.testing.assert_array_equal(targets, rows["move"].astype("float32"))
        np.testing.assert_array_equal(ends, rows["label_end"].astype("datetime64[ns, UTC]").astype("int64") + minute)
        assert ds.weights is not None
        np.testing.assert_array_equal(ds.weights, rows["weight"].astype("float32"))
        for train, validation, test in [ds.split(), *ds.walk_forward(2)]:
            with h5py.File(ds.path) as file:
                reach = file["samples/reach_time"][:]
            for earlier, later in ((train, validation), (validation, test)):
                self.assertLessEqual(ends[earlier.indices].max(), reach[later.indices].min())
        self.assertIn("functions stay the same", str(mb.leak(ds, samples=2, **again)))

        settings = {
            "training": {"loss": "cross_entropy", "classes": 3, "max_steps": 30},
            "model": {"hidden": 8},
            "gpu_optimization": {"batch_size": 64},
        }
        plan = mb.plan(ds, settings)
        self.assertTrue(any("weights samples by /samples/weight" in note for note in plan.notes), plan.notes)
        run = mb.train(ds, settings, out=self.folder / "run")
        evaluation = run.evaluate().to_pandas()
        self.assertTrue(np.isfinite(evaluation.select_dtypes("number")).all().all(), evaluation)
        folds = mb.train(ds, {**settings, "data": {"walk_forward": 2}}, out=self.folder / "folds", max_steps=5)
        self.assertEqual(len(folds.folds), 2)
        run.export(self.folder / "model.onnx")
        self.assertGreater((self.folder / "model.onnx").stat().st_size, 1000)

        followed = {one.time: one.values for one in run.follow(frame[cut:], features=indicators, context=context)}
        longer = ds.append(frame[cut:], **again)
        self.require_values(longer, frame, context)
        predicted = run.predict(longer, changed_data=True)
        self.require_same_forecasts(followed, predicted, 0.9 * (len(longer) - len(ds)), rtol=1e-3, atol=1e-5)
