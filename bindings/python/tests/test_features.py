"""Columns of frames as features and targets, compared with a plain pandas computation."""

from __future__ import annotations

from typing import Any

import h5py
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
        with self.assertRaisesRegex(mb.DataError, "column imbalance is not there for AAA: expected it for all 2 symbols"):
            ds.append({"AAA": coming.drop(columns="imbalance"), "BBB": coming})

    def test_columns_that_cannot_be_features_are_refused(self) -> None:
        frame = self.frame(2)
        cases: list[tuple[pandas.DataFrame, dict[str, Any], type[Exception], str]] = [
            (frame, {"features": ["rsii"]}, mb.ConfigError, "'rsii' is not built in, and no column of the frame: did you mean 'rsi'"),
            (frame, {"features": ["Close"]}, mb.ConfigError, "'Close' is the close of the bars, .*: did you mean 'log_return' or 'body' or"),
            (frame, {"features": ["volume"]}, mb.ConfigError, "'volume' is the volume of the bars, .* 'log_volume' or 'relative_volume'"),
            (frame.assign(rsi_14=1.0), {"features": ["rsi_14"]}, mb.ConfigError, "'rsi_14' is built in, and a column of the frame"),
            (frame, {"features": ["note"]}, mb.DataError, "column note is of dtype .*: expected numbers"),
            (frame, {"features": ["rsi"], "columns": {"rsi": "median"}}, mb.ConfigError, "expected last, first, sum"),
            (frame, {"features": ["rsi"], "columns": RULES}, mb.ConfigError, "'imbalance' is no column among the features"),
            (frame, {"columns": RULES}, mb.ConfigError, "'imbalance' is no column among the features"),
            (frame.assign(**{"a,b": 1.0}), {"features": "a,b"}, mb.ConfigError, "'a' is not built in"),
            (frame.assign(**{"a,b": 1.0}), {"features": ["a,b"]}, mb.ConfigError, "the column 'a,b' has a comma"),
            (frame, {"target": frame["rsi"]}, mb.ConfigError, "target is a Series with .* in it: expected names of columns"),
            (frame, {"target": "labels"}, mb.ConfigError, "target: 'labels' is not built in, and no column"),
            (frame.assign(log_return=0.0), {}, mb.ConfigError, "target: 'log_return' is built in, and a column"),
            (frame.assign(rsi=np.inf), {"features": ["rsi"]}, mb.DataError, "row 0 of the frame: .* a finite number for rsi"),
        ]
        for own, options, kind, message in cases:
            with self.assertRaisesRegex(kind, message):
                mb.ingest(own, symbol="EURUSD", **{**OPTIONS, **options})
        by_letters = mb.ingest(frame.rename(columns={"rsi": "Rsi"}), symbol="EURUSD", features=["RSI", "Body"], **OPTIONS)
        self.assertEqual(by_letters.features["M1"], ("column:Rsi", "body"))
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

    def test_targets_are_columns(self) -> None:
        frame = self.frame()
        later = frame["close"].shift(-20) / frame["close"] - 1
        label = pandas.cut(later, [-1, -1e-4, 1e-4, 1], labels=False)
        frame = frame.assign(label=label.astype("float64"), later=later)
        options = {**OPTIONS, "features": FEATURES, "columns": RULES, "horizon": 20}
        ds = mb.ingest(frame, symbol="EURUSD", out=self.folder / "own.h5", **{**options, "target": ["label", "later"]})
        self.assertEqual((ds.targets, ds.facts["target_kind"]), (2, "column:label,column:later"))
        assert ds.report is not None
        self.assertEqual(ds.report.unused_columns, ["note"])
        minutes = frame.set_index(frame["time"] + pandas.Timedelta("1min"))
        found = ds[: len(ds)]["targets"]
        expected = minutes.loc[pandas.to_datetime(ds.times, utc=True), ["label", "later"]]
        np.testing.assert_array_equal(found, expected.to_numpy("float32"))
        self.assertGreater(len({*found[:, 0]}), 2)
        # The labels of the last samples end with the horizon, and a split leaves them out.
        train, validation, _ = ds.split()
        assert train.times is not None and validation.times is not None
        self.assertGreaterEqual(validation.times.min() - train.times.max(), np.timedelta64(20, "m"))
        self.assertIn("Taken as decided by the 20 bars after a sample, not proven: the targets label, later.",
                      str(mb.leak(ds, samples=2)))
        # A label that is not known stays so, and is no fault.
        holed = frame.assign(label=frame["label"].where(frame.index % 3 > 0))
        classes = mb.ingest(holed, symbol="EURUSD", **{**options, "target": "label"})
        self.assertAlmostEqual(float(np.isnan(classes[: len(classes)]["targets"]).mean()), 1 / 3, places=2)
        settings = {**MODEL, "training": {"loss": "cross_entropy", "classes": 3}}
        run = mb.train(classes, settings, out=self.folder / "run", max_steps=20)
        self.assertIn("accuracy", str(run.evaluate()))
        written = self.folder / "own.csv"
        holed.to_csv(written, index=False)
        again = mb.ingest(written, symbol="EURUSD", **{**options, "features": ["log_return", "column:rsi", "column:imbalance"],
                                                       "target": "column:label"})
        self.assertEqual(again.fingerprint(), classes.fingerprint())
        # Bars that come have no label.
        self.assertGreater(len(list(run.follow(frame.drop(columns=["label", "later"])[-300:], cold=True))), 250)

    def test_targets_are_appended(self) -> None:
        frame = self.frame()
        frame = frame.assign(later=frame["close"].shift(-20) / frame["close"] - 1)
        # What is the future of the past was not known then.
        past, coming = frame[:9000].assign(later=frame["later"][:8980]), frame[8000:]
        options = {**OPTIONS, "features": FEATURES, "columns": RULES, "horizon": 20, "target": "later"}
        ds = mb.ingest(past, symbol="EURUSD", out=self.folder / "own.h5", **options)
        whole = mb.ingest(frame, symbol="EURUSD", **options)
        longer = ds.append(coming)
        self.assertEqual(len(longer), len(whole))
        np.testing.assert_array_equal(longer[: len(longer)]["targets"], whole[: len(whole)]["targets"])
        np.testing.assert_array_equal(longer[: len(longer)]["M5"], whole[: len(whole)]["M5"])
        mb.leak(longer, samples=2)
        with self.assertRaisesRegex(mb.DataError, "own.h5|another|line"):
            ds.append(coming.assign(later=coming["later"] + 1))

    def test_a_triple_barrier_is_what_a_search_says(self) -> None:
        frame = self.frame(7)
        options = {**OPTIONS, "features": ["log_return", "body"]}
        target = mb.triple_barrier(9.0, 6.0, horizon=40, unit="pips")
        ds = mb.ingest(frame, symbol="EURUSD", **{**options, "target": target, "horizon": None})
        bars = frame.set_index(frame["time"] + pandas.Timedelta("1min"))
        close, high, low = (bars[name].to_numpy() for name in ("close", "high", "low"))
        place = {time: row for row, time in enumerate(bars.index)}
        expected = []
        assert ds.times is not None
        for time in pandas.to_datetime(ds.times, utc=True):
            row = place[time]
            after = slice(row + 1, row + 41)
            up, down = high[after] >= close[row] + 9.0 * 1e-4, low[after] <= close[row] - 6.0 * 1e-4
            first = [int(side.argmax()) if side.any() else 99 for side in (up, down)]
            expected.append(0 if first == [99, 99] else np.nan if first[0] == first[1] else 1 if first[0] < first[1] else -1)
        found = ds[: len(ds)]["targets"][:, 0]
        self.assertEqual({-1.0, 0.0, 1.0} - {*found}, set())
        # No bar of this week opens beyond a barrier.
        np.testing.assert_array_equal(found, np.array(expected, dtype="float32"))
        self.assertIn("No label of training", str(mb.leak(ds, samples=2)))
        by_return = mb.triple_barrier(0.0003, 0.0002, 40)
        self.assertEqual(str(by_return), "triple_barrier:0.0003:0.0002:return")
        settings = {**MODEL, "training": {"loss": "cross_entropy", "thresholds": [-0.5, 0.5]}}
        run = mb.train(ds, settings, out=self.folder / "run", max_steps=20)
        self.assertIn("accuracy", str(run.evaluate()))
        with self.assertRaisesRegex(mb.ConfigError, "expected return, pips, atr"):
            mb.triple_barrier(1, 1, 5, unit="points")
        with self.assertRaisesRegex(mb.ConfigError, "up=0: expected a number above 0"):
            mb.triple_barrier(0, 1, 5)
        with self.assertRaisesRegex(mb.ConfigError, "^horizon='pips': expected a whole number of base bars; .* such as unit='return'$"):
            mb.triple_barrier(10, 10, "pips")  # type: ignore[arg-type]
        with self.assertRaisesRegex(mb.ConfigError, r"^horizon=4\.5: expected a whole number of base bars from 1 on$"):
            mb.triple_barrier(10, 10, 4.5)  # type: ignore[arg-type]
        with self.assertRaisesRegex(mb.ConfigError, "horizon=3: triple_barrier has a horizon of 40"):
            mb.ingest(frame, symbol="EURUSD", **{**options, "target": target})

    def test_a_column_that_looks_ahead_is_doubted(self) -> None:
        frame = self.frame()
        next_return = frame["close"].shift(-1) / frame["close"] - 1
        leaky = frame.assign(peek=next_return.fillna(0), tomorrow=frame["close"].shift(-1).ffill())
        options = {**OPTIONS, "features": ["rsi", "peek", "tomorrow"]}
        with self.assertLogs("megabatch", "WARNING") as log:
            ds = mb.ingest(leaky, symbol="EURUSD", **options)
        doubts = [
            "EURUSD: does column:peek look ahead? it has a correlation of 1.00 with the return of the next bar",
            "EURUSD: does column:tomorrow look ahead? its change has a correlation of 1.00 with the return of the next bar",
        ]
        assert ds.report is not None
        self.assertEqual(ds.report.warnings, doubts)
        self.assertTrue(all(any(doubt in line for line in log.output) for doubt in doubts))
        self.assertTrue(all(f"warning: {doubt}" in str(mb.leak(ds, samples=2)) for doubt in doubts))

    def test_a_column_that_looks_ahead_for_all_symbols_is_doubted_once(self) -> None:
        frame = self.frame()
        leaky = frame.assign(peek=(frame["close"].shift(-1) / frame["close"] - 1).fillna(0))
        ds = mb.ingest({"AAA": leaky, "BBB": leaky, "CCC": leaky}, **{**OPTIONS, "features": ["rsi", "peek"]})
        assert ds.report is not None
        doubts = [warning for warning in ds.report.warnings if "look ahead" in warning]
        self.assertEqual(len(doubts), 1)
        self.assertRegex(doubts[0], "^(AAA|BBB|CCC): does column:peek look ahead?.* next bar; 2 other instruments likewise$")

    def test_a_target_that_is_decided_after_its_horizon_is_doubted(self) -> None:
        frame = self.frame()
        frame = frame.assign(label=frame["close"].shift(-12) / frame["close"] - 1)
        options = {**OPTIONS, "features": ["rsi"], "target": "label"}
        late = mb.ingest(frame, symbol="EURUSD", **{**options, "horizon": 4})
        assert late.report is not None
        (doubt,) = late.report.warnings
        self.assertRegex(
            doubt,
            "^EURUSD: is the target column:label decided later than the horizon says"
            r"\? it has a correlation of 0\.\d+ with the return of the \d+ bars after its horizon of 4$",
        )
        self.assertIn("targets column:label, each taken as decided by the 4 bars after its sample", str(late.report))
        self.assertIn(f"warning: {doubt}", str(mb.leak(late, samples=2)))
        known = mb.ingest(frame, symbol="EURUSD", **{**options, "horizon": 12})
        assert known.report is not None
        self.assertEqual(known.report.warnings, [])

    def test_a_column_is_the_weight_of_samples(self) -> None:
        frame = self.frame()
        weight = pandas.Series(1 + np.sin(np.arange(len(frame)))).where(frame.index % 7 > 0)
        frame = frame.assign(weight=weight)
        seen: list[str] = []

        def drift(bars: pandas.DataFrame) -> pandas.Series:
            seen.extend(bars.columns)
            return bars["close"].diff().fillna(0)

        options = {**OPTIONS, "features": ["log_return", drift], "target": "rsi", "weight": "weight", "horizon": 1}
        ds = mb.ingest(frame[:9000], symbol="EURUSD", out=self.folder / "own.h5", **options)
        self.assertEqual(ds.facts["weight_column"], "weight")
        self.assertTrue("imbalance" in seen and "weight" not in seen and "rsi" not in seen, seen)
        rows = frame.set_index(frame["time"] + pandas.Timedelta("1min")).loc[pandas.to_datetime(ds.times, utc=True)]
        assert ds.weights is not None
        np.testing.assert_array_equal(ds.weights, rows["weight"].fillna(0).astype("float32"))
        train, *_ = ds.split()
        assert train.weights is not None
        np.testing.assert_array_equal(train.weights, ds.weights[train.indices])
        mb.leak(ds, samples=2, features=[drift])
        longer = ds.append(frame[8900:], features=[drift])
        assert longer.weights is not None
        np.testing.assert_array_equal(longer.weights[: len(ds)], ds.weights)
        with self.assertRaisesRegex(mb.DataError, "in the column imbalance; expected a number from 0 on"):
            mb.ingest(frame, symbol="EURUSD", **{**options, "features": ["log_return"], "weight": "imbalance"})
        with self.assertRaisesRegex(mb.ConfigError, "weight: 'wight' is not built in, and no column"):
            mb.ingest(frame, symbol="EURUSD", **{**options, "weight": "wight"})

    def test_labels_end_where_a_column_says(self) -> None:
        frame = self.frame()
        ahead = 1 + np.arange(len(frame)) % 30
        time = frame["time"]
        end = (time + pandas.to_timedelta(ahead, unit="min")).where(frame.index % 5 > 0)
        label = pandas.Series(np.arange(len(frame)) % 3, dtype="float64")
        frame = frame.assign(label=label, known=end)
        options = {**OPTIONS, "features": ["log_return", "rsi"], "target": "label", "label_end": "known", "horizon": 1}
        ds = mb.ingest(frame[:9000], symbol="EURUSD", out=self.folder / "own.h5", **options)
        self.assertIsNone(ds.facts["horizon"])
        with h5py.File(ds.path) as file:
            times, ends = file["samples/time"][:], file["samples/label_end_time"][:]
            targets = file["targets"][:, 0]
        rows = frame.set_index(time.astype("datetime64[ns, UTC]").astype("int64") + 60 * 10**9).loc[times]
        is_known = rows["known"].notna().to_numpy()
        decided = rows["known"].astype("datetime64[ns, UTC]").astype("int64").to_numpy() + 60 * 10**9
        np.testing.assert_array_equal(ends, np.where(is_known, decided, times))
        np.testing.assert_array_equal(targets, np.where(is_known, rows["label"], np.nan).astype("float32"))
        train, validation, _ = ds.split()
        limit = ends[train.indices].max()
        with h5py.File(ds.path) as file:
            self.assertGreaterEqual(file["samples/reach_time"][:][validation.indices].min(), limit)
        self.assertIn("Taken as decided when the column known says, not proven: the targets label.", str(mb.leak(ds, samples=2)))
        longer = ds.append(frame[8900:])
        self.assertGreater(len(longer), len(ds))
        mb.leak(longer, samples=2)
        written = self.folder / "written.csv"
        frame[:9000].to_csv(written, index=False)
        files = {**options, "features": ["log_return", "column:rsi"], "target": "column:label", "label_end": "column:known"}
        again = mb.ingest(written, symbol="EURUSD", **files)
        with h5py.File(again.path) as file:
            np.testing.assert_array_equal(file["samples/label_end_time"][:], ends)
        # Bars with a label were lost for a horizon that no label has.
        soon = frame.assign(known=time + pandas.Timedelta("2min"))[:9000]
        short, long = (mb.ingest(soon, symbol="EURUSD", **{**options, "horizon": horizon}) for horizon in (2, 40))
        self.assertEqual(len(short), len(long))
        mb.leak(long, samples=2)
        backward = frame.assign(known=time - pandas.Timedelta("1min"))
        with self.assertRaisesRegex(mb.DataError, "row .* of the frame: .*label that ends before its bar: expected a label that ends"):
            mb.ingest(backward, symbol="EURUSD", **options)
        with self.assertRaisesRegex(mb.DataError, "the times of the frame have a zone, and known has none"):
            mb.ingest(frame.assign(known=frame["known"].dt.tz_localize(None)), symbol="EURUSD", **options)
        with self.assertRaisesRegex(mb.ConfigError, "label_end: 'knwn' is not built in, and no column"):
            mb.ingest(frame, symbol="EURUSD", **{**options, "label_end": "knwn"})
        with self.assertRaisesRegex(mb.ConfigError, "it goes with `target=\"column:NAME\"`"):
            mb.ingest(frame, symbol="EURUSD", **{**options, "target": "log_return"})
