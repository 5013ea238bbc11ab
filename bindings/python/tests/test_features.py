"""Columns of frames as features, compared with a plain pandas computation."""

from __future__ import annotations

from typing import Any

import megabatch as mb
import numpy as np
import pandas
import polars
import pyarrow
from shared import BARS, MODEL, InFolder

OPTIONS: dict[str, Any] = {**BARS, "stride": 1, "scaling": "none"}
FEATURES = ["log_return", "rsi", "imbalance"]
RULES = {"imbalance": "sum"}


def with_columns(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The bars with an indicator that warms up for 13 bars, a quantity of each bar, and texts."""
    change = frame["close"].diff()
    rise, size = change.clip(lower=0).rolling(14).mean(), change.abs().rolling(14).mean()
    imbalance = np.cos(np.arange(len(frame))) * frame["volume"]
    return frame.assign(rsi=(rise / size).fillna(0.5).where(rise.notna()), imbalance=imbalance, note="x")


class Columns(InFolder):
    def frame(self, days: int = 14) -> pandas.DataFrame:
        frame = pandas.read_csv(self.bars(days))
        time = pandas.to_datetime(frame.iloc[:, 0], utc=True)
        return with_columns(frame.assign(time=time)[["time", "open", "high", "low", "close", "volume"]])

    def rows(self, ds: mb.Dataset, timeframe: str) -> pandas.DataFrame:
        """The last row of the window of each sample, by the sample's time."""
        batch = ds[: len(ds)]
        time = pandas.to_datetime(ds.times, utc=True)
        return pandas.DataFrame(batch[timeframe][:, -1], index=time, columns=["log_return", "rsi", "imbalance"])

    def test_columns_are_what_pandas_says_they_are(self) -> None:
        frame = self.frame()
        ds = mb.ingest(frame, symbol="EURUSD", features=FEATURES, columns=RULES, **OPTIONS)
        self.assertEqual(ds.features["M5"], ("log_return", "column:rsi", "column:imbalance:sum"))
        minutes = frame.set_index(frame["time"] + pandas.Timedelta("1min"))
        found = self.rows(ds, "M1")
        for name in ("rsi", "imbalance"):
            np.testing.assert_array_equal(found[name], minutes.loc[found.index, name].astype("float32"))
        # The last bin that had closed at a sample's time.
        bins = frame.set_index("time").resample("5min").agg({"rsi": "last", "imbalance": "sum", "close": "last"}).dropna()
        bins.index += pandas.Timedelta("5min")
        found = self.rows(ds, "M5")
        expected = bins.reindex(found.index, method="ffill")
        np.testing.assert_array_equal(found["rsi"], expected["rsi"].astype("float32"))
        np.testing.assert_allclose(found["imbalance"], expected["imbalance"], rtol=1e-6, atol=1e-5)
        assert ds.report is not None
        self.assertEqual(ds.report.dropped, {"EURUSD": {"warm-up of a column": 14}})
        self.assertEqual(ds.report.unused_columns, ["note"])
        self.assertIn("not proven: the columns imbalance, rsi.", str(mb.leak(ds, samples=4)))

    def test_every_library_and_a_file_give_the_same(self) -> None:
        frame = self.frame()
        expected = mb.ingest(frame, symbol="EURUSD", features=FEATURES, columns=RULES, **OPTIONS).fingerprint()
        table = pyarrow.table({name: pyarrow.array(frame[name]) for name in frame})
        for own in (table, polars.from_arrow(table)):
            ds = mb.ingest(own, symbol="EURUSD", features=",".join(FEATURES), columns=RULES, **OPTIONS)
            self.assertEqual(ds.fingerprint(), expected)
        path = self.folder / "own.csv"
        frame.to_csv(path, index=False)
        ds = mb.ingest(path, symbol="EURUSD", features=["log_return", "column:rsi", "column:imbalance:sum"], **OPTIONS)
        self.assertEqual(ds.fingerprint(), expected)
        files = mb.ingest(path, symbol="EURUSD", features=["log_return", "column:rsi", "column:imbalance"], columns=RULES,
                          **OPTIONS)
        self.assertEqual(files.fingerprint(), expected)

    def test_several_instruments_are_appended_and_followed(self) -> None:
        frame = self.frame(21)
        past, coming = frame[:9000], frame[9000:]
        frames = {name: past for name in ("AAA", "BBB")}
        ds = mb.ingest(frames, features=FEATURES, columns=RULES, out=self.folder / "own.h5", **OPTIONS)
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=3)
        followed = {one.time: one.values for one in run.follow(coming[:400], symbol="AAA")}
        row = coming.iloc[0].to_dict() | {"time": coming["time"].iloc[0].to_pydatetime()}
        first = run.follow([row], symbol="AAA")
        self.assertEqual([one.time for one in first], list(followed)[:1])
        longer = ds.append({name: coming for name in frames})
        predicted = run.predict(longer, changed_data=True)
        assert predicted.times is not None and predicted.instruments is not None
        together = zip(predicted.times, predicted.instruments)
        times = {time: place for place, (time, name) in enumerate(together) if name == "AAA"}
        seen = [time for time in followed if time in times]
        self.assertGreater(len(seen), 300)
        for time in seen:
            np.testing.assert_allclose(followed[time], predicted.values[times[time]], rtol=1e-4, atol=1e-5)
        with self.assertRaisesRegex(mb.DataError, "no column rsi"):
            list(run.follow(coming.drop(columns="rsi"), symbol="AAA"))
        with self.assertRaisesRegex(mb.DataError, "the frame has no column imbalance"):
            ds.append({"AAA": coming.drop(columns="imbalance"), "BBB": coming})

    def test_columns_that_cannot_be_features_are_refused(self) -> None:
        frame = self.frame(2)
        cases: list[tuple[pandas.DataFrame, dict[str, Any], type[Exception], str]] = [
            (frame, {"features": ["rsii"]}, mb.ConfigError, "'rsii' is no built-in feature .* did you mean 'rsi'"),
            (frame.assign(rsi_14=1.0), {"features": ["rsi_14"]}, mb.ConfigError, "'rsi_14' is a built-in feature, and a col"),
            (frame, {"features": ["note"]}, mb.DataError, "column note is of dtype .*: expected numbers"),
            (frame, {"features": ["rsi"], "columns": {"rsi": "median"}}, mb.ConfigError, "expected last, first, sum"),
            (frame, {"features": ["rsi"], "columns": RULES}, mb.ConfigError, "'imbalance' is no column among the features"),
            (frame, {"columns": RULES}, mb.ConfigError, "'imbalance' is no column among the features"),
            (frame.assign(**{"a,b": 1.0}), {"features": "a,b"}, mb.ConfigError, "'a' is no built-in"),
            (frame.assign(**{"a,b": 1.0}), {"features": ["a,b"]}, mb.ConfigError, "the column 'a,b' has a comma"),
            (frame.assign(rsi=np.inf), {"features": ["rsi"]}, mb.DataError, "row 0 of the frame: .* a finite number for rsi"),
        ]
        for own, options, kind, message in cases:
            with self.assertRaisesRegex(kind, message):
                mb.ingest(own, symbol="EURUSD", **{**OPTIONS, **options})
        holed = frame.assign(rsi=frame["rsi"].where(frame.index != 500))
        with self.assertRaisesRegex(mb.DataError, "row 500 of the frame: .*column without a value: expected a number for rsi"):
            mb.ingest(holed, symbol="EURUSD", features=["rsi"], **OPTIONS)
        ds = mb.ingest(holed, symbol="EURUSD", features=["rsi"], on_error="skip", **OPTIONS)
        assert ds.report is not None
        self.assertEqual(ds.report.dropped["EURUSD"]["column without a value"], 1)
        # The frame has both, and its user says which is meant.
        both = frame.assign(rsi_14=frame["close"])
        ds = mb.ingest(both, symbol="EURUSD", features=["column:rsi_14", "body"], **OPTIONS)
        self.assertEqual(ds.features["M1"], ("column:rsi_14", "body"))
