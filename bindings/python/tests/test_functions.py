"""Functions as features and targets, compared with a plain pandas computation."""

from __future__ import annotations

import functools
import logging
import signal
import subprocess
from typing import Any
from unittest import mock

import h5py
import megabatch as mb
import numpy as np
import pandas
import polars
import pyarrow
from megabatch import _functions
from shared import BARS, MODEL, InFolder

OPTIONS: dict[str, Any] = {**BARS, "stride": 1, "scaling": "none", "symbol": "EURUSD"}


def in_longer_bars(frame: pandas.DataFrame, spacing: str) -> pandas.DataFrame:
    """Bars of another instrument, of the length `spacing`, by pandas."""
    longer = frame.set_index(frame["time"]).resample(spacing).agg({"open": "first", "high": "max", "low": "min", "close": "last"})
    return (longer.dropna() * 80).rename_axis("time").reset_index()


def indicators(bars: Any) -> Any:
    """Two columns, of which one warms up for 13 bars, beside those of the frame."""
    change = bars["close"].diff()
    rise, size = change.clip(lower=0).rolling(14).mean(), change.abs().rolling(14).mean()
    return bars.assign(strength=rise / (size + 1e-12), flow3=bars["flow"].rolling(3, min_periods=1).sum())


def label(bars: Any) -> Any:
    """The class of the change over 20 bars, known with the last of them."""
    change = bars["close"].shift(-20) / bars["close"] - 1
    classes = pandas.cut(change, [-1, -1e-4, 1e-4, 1], labels=False).astype("float64")
    return pandas.DataFrame({"up": classes, "label_end": bars["time"].shift(-20)})


def tomorrow(bars: Any) -> Any:
    """Looks ahead by one bar."""
    return bars["close"].shift(-1).ffill() / bars["close"]


class Functions(InFolder):
    def frame(self, days: int = 14) -> pandas.DataFrame:
        frame = pandas.read_csv(self.bars(days))
        time = pandas.to_datetime(frame.iloc[:, 0], utc=True)
        frame = frame.assign(time=time, flow=np.cos(np.arange(len(frame))))
        # Functions may see columns with holes.
        frame.loc[3000:3100, "flow"] = np.nan
        return frame[["time", "open", "high", "low", "close", "volume", "flow"]].assign(flow=frame["flow"].ffill(), note="x")

    def test_values_are_those_of_pandas(self) -> None:
        frame = self.frame()
        rules = {"flow": "sum"}
        options = {**OPTIONS, "target": label, "horizon": 20}
        ds = mb.ingest(frame, features=["log_return", indicators], columns=rules, out=self.folder / "own.h5", **options)
        names = ("log_return", "function:strength", "function:flow3")
        self.assertEqual((ds.features["M5"], ds.facts["target_kind"]), (names, "function:up"))
        assert ds.report is not None and ds.times is not None
        self.assertEqual(ds.report.facts["functions"]["columns"], {"indicators": ["strength", "flow3"]})
        self.assertEqual(ds.report.unused_columns, ["note"])
        batch, times = ds[: len(ds)], pandas.to_datetime(ds.times, utc=True)
        aggregation = {"time": "last", "close": "last", "flow": "sum"}
        for name in ("M1", "M5"):
            minutes = pandas.Timedelta(name[1:] + "min")
            bins = frame.set_index(frame["time"]).resample(minutes).agg(aggregation).dropna()
            expected = indicators(bins)
            expected.index += minutes
            expected = expected.reindex(times, method="ffill")
            np.testing.assert_array_equal(batch[name][:, -1, 1], expected["strength"].astype("float32"))
            np.testing.assert_allclose(batch[name][:, -1, 2], expected["flow3"], rtol=1e-5, atol=1e-5)
        labels = label(frame).set_index(frame["time"] + pandas.Timedelta("1min")).loc[times, "up"]
        np.testing.assert_array_equal(batch["targets"][:, 0], labels.astype("float32"))
        train, validation, _ = ds.split()
        assert train.times is not None and validation.times is not None
        self.assertGreaterEqual(validation.times.min() - train.times.max(), np.timedelta64(20, "m"))
        proof = mb.leak(ds, samples=4, features=[indicators], target=label)
        self.assertIn("The columns strength, flow3, up of functions stay the same", str(proof))
        self.assertEqual(proof.facts["columns_taken_as_known"], [])
        self.assertGreater(proof.facts["functions"]["cuts"], 500)
        run = mb.train(ds, {**MODEL, "training": {"loss": "cross_entropy", "classes": 3}}, out=self.folder / "run", max_steps=5)
        self.assertRegex(str(run.evaluate()), r"\n  target +accuracy model .*\n      up  ")
        for options, message in (
            ({}, "the features strength, flow3 are columns of functions: give these in Python"),
            ({"features": [indicators], "cold": True}, "a cold start has none"),
            (
                {"features": ["body", indicators]},
                "features: body: a series keeps its features; give its functions alone, or beside them names of its other "
                "features, which are .*log_return",
            ),
            # Letters were listed.
            ({"features": "body"}, "features: body: a series keeps its features; give its functions alone"),
        ):
            with self.assertRaisesRegex(mb.ConfigError, message):
                run.follow(frame[-300:], **options)
        with self.assertRaisesRegex(mb.DataError, "its features are the columns strength, flow3 of functions, and the ones given have tomorrow"):
            run.follow(frame[-300:], features=tomorrow)
        # Names that `append` and `leak` take were refused.
        with run.follow(features=["log_return", indicators]) as follower:
            self.assertIsNone(follower.push(frame.iloc[-1]))

    def test_days_close_by_the_clock_that_is_stated(self) -> None:
        # Until after 11 March, when New York changes its clock.
        frame = self.frame(90)

        def change(bars: pandas.DataFrame) -> pandas.DataFrame:
            hour = bars["close_time"].dt.hour.astype("float64")
            return pandas.DataFrame({"change": bars["close"] / bars["open"] - 1, "hour": hour})

        functions = {"features": ["range", change], "context": {"DXY": frame}}
        options = {**OPTIONS, "timeframes": {"H4": 3, "D1": 3}, "bins": "new-york+7", **functions}
        ds = mb.ingest(frame, **options)
        assert ds.times is not None
        batch, times = ds[: len(ds)], pandas.to_datetime(ds.times, utc=True)
        clock = frame["time"].dt.tz_convert("America/New_York").dt.tz_localize(None) + pandas.Timedelta("7h")
        for name, floor in (("H4", "4h"), ("D1", "D")):
            bins = frame.groupby(clock.dt.floor(floor)).agg({"open": "first", "close": "last", "high": "max", "low": "min"})
            ends = (bins.index + pandas.Timedelta(floor if floor != "D" else "24h") - pandas.Timedelta("7h")).tz_localize("America/New_York")
            bins.index = ends.tz_convert("UTC")
            expected = {
                "range": (bins["high"] - bins["low"]) / bins["close"],
                "function:change": bins["close"] / bins["open"] - 1,
                "function:hour": pandas.Series(bins.index.hour, bins.index),
                "function:DXY.change": bins["close"] / bins["open"] - 1,
                "function:DXY.age": pandas.Series(0.0, bins.index),
            }
            for feature, values in expected.items():
                found = batch[name][:, -1, ds.features[name].index(feature)]
                np.testing.assert_array_equal(found, values.reindex(times, method="ffill").astype("float32"), f"{name} {feature}")
        hours = set(batch["D1"][:, -1, ds.features["D1"].index("function:hour")])
        self.assertEqual(hours, {21.0, 22.0})
        mb.leak(ds, samples=4, features=change, context={"DXY": frame})
        with self.assertRaisesRegex(mb.ConfigError, "bins=exchange: the files tell no clock"):
            mb.ingest(frame, **{**options, "bins": "exchange"})

    def test_every_library_gives_the_same(self) -> None:
        frame = self.frame()
        options = {**OPTIONS, "columns": {"flow": "sum"}}

        def moves(bars: pandas.DataFrame) -> dict[str, Any]:
            return {"move": bars["close"].diff(4).to_numpy(), "heavy": bars["volume"] > 50, "flow2": bars["flow"] * 2}

        expected = mb.ingest(frame, features=moves, **options).fingerprint()

        def of_polars(bars: polars.DataFrame) -> polars.DataFrame:
            move = polars.col("close") - polars.col("close").shift(4)
            return bars.with_columns(move.alias("move"), (polars.col("volume") > 50).alias("heavy"),
                                     (polars.col("flow") * 2).alias("flow2"))

        def of_arrow(bars: pyarrow.Table) -> pyarrow.Table:
            self.assertIsInstance(bars, pyarrow.Table)
            own = moves(bars.to_pandas())
            return pyarrow.table({name: pyarrow.array(np.asarray(values)) for name, values in own.items()})

        table = pyarrow.table({name: pyarrow.array(frame[name]) for name in frame})
        for own, function in ((polars.from_arrow(table), of_polars), (table, of_arrow)):
            ds = mb.ingest(own, features=[function], out=self.folder / "own.h5", **options)
            self.assertEqual(ds.fingerprint(), expected)
            # The function gets frames of its library again.
            mb.leak(self.folder / "own.h5", samples=1, features=[function])
            (self.folder / "own.h5").unlink()
        path = self.folder / "file.csv"
        frame.to_csv(path, index=False)
        # Of files, functions see the columns that are named.
        ds = mb.ingest(path, features=[moves], **options)
        self.assertEqual(ds.fingerprint(), expected)

    def test_they_are_called_once_a_timeframe_and_instrument(self) -> None:
        calls: list[tuple[str, int]] = []

        def seen(bars: pandas.DataFrame) -> pandas.Series:
            minutes = int((bars["close_time"] - bars["time"]).iloc[0] / pandas.Timedelta("1min"))
            calls.append((f"M{minutes}", len(bars)))
            return bars["close"].rename("last")

        frame = self.frame(7)
        options = {key: value for key, value in OPTIONS.items() if key != "symbol"}
        ds = mb.ingest({"AAA": frame, "BBB": frame[:5000]}, features=[seen, "body"], **options)
        self.assertEqual([name for name, _ in calls], ["M1", "M5"] * 2)
        self.assertEqual([calls[0][1], calls[2][1]], [len(frame), 5000])
        self.assertEqual(ds.features["M1"], ("body", "function:last"))

    def test_bars_are_appended_with_columns_as_ingest_took_them(self) -> None:
        def last(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].rename("last")

        frame, features = self.frame(), ["default", "flow", last]
        ds = mb.ingest(frame[:9000], out=self.folder / "own.h5", features=features, columns={"flow": "sum"}, **OPTIONS)
        self.assertEqual(ds.features["M1"][-2:], ("column:flow:sum", "function:last"))
        # The names that `ingest` took were no features of the series.
        longer = ds.append(frame[8900:], features=features)
        self.assertGreater(len(longer), len(ds))
        mb.leak(longer, samples=2, features=["Column:Flow", last])
        with self.assertRaisesRegex(mb.ConfigError, "features: volume: a series keeps its features"):
            mb.leak(longer, samples=2, features=["flow", "volume", last])
        # A series names no rule where it is `last`, and the name that `ingest` took was none of its features.
        usual = ["column:flow:last", last]
        ds = mb.ingest(frame[:9000], out=self.folder / "usual.h5", features=usual, **OPTIONS)
        self.assertEqual(ds.features["M1"], ("column:flow", "function:last"))
        self.assertGreater(len(ds.append(frame[8900:], features=usual)), len(ds))
        with self.assertRaisesRegex(mb.ConfigError, "features: column:flow:sum: a series keeps its features"):
            ds.append(frame[8900:], features=["column:flow:sum", last])

    def test_names_in_one_text_stand_beside_a_target_of_a_function(self) -> None:
        frame, names = self.frame(), "body, range"
        options = {**OPTIONS, "features": names, "horizon": 20, "target": label}
        ds = mb.ingest(frame[:9000], out=self.folder / "own.h5", **options)
        longer = ds.append(frame[8900:], features=names, target=label)
        self.assertGreater(len(longer), len(ds))
        mb.leak(longer, samples=2, features=names, target=label)
        with self.assertRaisesRegex(mb.ConfigError, "features: volume: a series keeps its features"):
            mb.leak(longer, samples=2, features="body,volume", target=label)

    def test_bars_are_appended(self) -> None:
        frame = self.frame()
        options = {**OPTIONS, "features": ["body", indicators], "horizon": 20, "target": label}
        ds = mb.ingest(frame[:9000], out=self.folder / "own.h5", **options)
        whole = mb.ingest(frame, **options)
        with self.assertRaisesRegex(
            mb.ConfigError,
            r"the features strength, flow3 and the targets up are columns of functions: give these in Python, "
            r"as dataset\.append\(bars, features=\[function\], target=function\)$",
        ):
            ds.append(frame[8900:])
        with self.assertRaisesRegex(mb.DataError, "made with the features strength, flow3 and the targets up of functions, and the ones given have the features tomorrow"):
            ds.append(frame[8900:], features=[tomorrow])
        with self.assertRaisesRegex(mb.ConfigError, "features: range: a series keeps its features"):
            ds.append(frame[8900:], features=["body", "range", indicators], target=label)

        def scaled(bars: pandas.DataFrame) -> pandas.DataFrame:
            return indicators(bars).assign(strength=lambda own: own["strength"] * 2)

        with self.assertRaisesRegex(mb.DataError, "would become another one.*or a function that gives other values"):
            ds.append(frame[8900:], features=[scaled], target=label)
        # The list that `ingest` took was refused.
        longer = ds.append(frame[8900:], features=["body", indicators], target=label)
        self.assertEqual(len(longer), len(whole))
        # Scalers stay those of before, and these have none.
        np.testing.assert_array_equal(longer[: len(longer)]["M5"], whole[: len(whole)]["M5"])
        mb.leak(longer, samples=2, features=[indicators], target=label)
        with self.assertRaisesRegex(mb.ConfigError, "are columns of functions"):
            mb.leak(longer)
        labelled = mb.ingest(frame, **{**options, "features": ["body"]})
        message = r"the targets up are columns of functions: give these in Python, as mb\.leak\(dataset, target=function\)$"
        with self.assertRaisesRegex(mb.ConfigError, message):
            mb.leak(labelled)
        message = "made with the targets up of functions, .* have the features tomorrow: .*, in the same order, and that of targets as target=function$"
        with self.assertRaisesRegex(mb.DataError, message):
            mb.leak(labelled, features=[tomorrow])

    def test_a_target_that_is_decided_after_its_horizon_is_doubted(self) -> None:
        frame = self.frame()

        def ahead(bars: pandas.DataFrame) -> pandas.Series:
            return (bars["close"].shift(-12) / bars["close"] - 1).rename("ahead")

        for horizon, doubt in ((4, r"^EURUSD: is the target function:ahead decided later than the horizon says\? "), (12, None)):
            ds = mb.ingest(frame, **{**OPTIONS, "features": ["range"], "target": ahead, "horizon": horizon})
            assert ds.report is not None
            doubts = [warning for warning in ds.report.warnings if "decided later" in warning]
            self.assertEqual(len(doubts), 0 if doubt is None else 1)
            if doubt is not None:
                self.assertRegex(doubts[0], doubt)

    def test_bars_that_come_are_followed(self) -> None:
        frame = self.frame(21)
        lengths: list[int] = []

        def smooth(bars: pandas.DataFrame) -> dict[str, Any]:
            lengths.append(len(bars))
            close = bars["close"]
            return {"fast": close / close.ewm(span=5, adjust=False).mean() - 1, "flow9": bars["flow"].rolling(9).sum()}

        def total(bars: pandas.DataFrame) -> Any:
            return (np.sign(bars["close"].diff().fillna(0)) * bars["volume"]).cumsum().rename("total")

        for functions in ([smooth], [smooth, total]):
            past, coming = frame[:9000], frame[9000:]
            options = {**OPTIONS, "features": ["body", *functions], "columns": {"flow": "sum"}}
            ds = mb.ingest(past, out=self.folder / "own.h5", **options)
            run = mb.train(ds, MODEL, out=self.folder / f"run-{len(functions)}", max_steps=3)
            follower = run.follow(coming[:400], features=functions)
            lengths.clear()
            followed = {one.time: one.values for one in follower}
            self.assertGreater(len(lengths), 400)
            # They see all bars, of the shortest timeframe and of the other.
            self.assertGreaterEqual(max(lengths), 9000 + 390)
            self.assertGreaterEqual(min(lengths), 9000 // 5)
            # The first forecasts come before the last bars are computed.
            lengths.clear()
            with run.follow(coming[:400], features=functions) as begun:
                next(iter(begun))
            self.assertLess(max(lengths), 9000 + 200)
            longer = ds.append(coming, features=functions)
            predicted = run.predict(longer, changed_data=True)
            self.require_same_forecasts(followed, predicted, 300, rtol=1e-4, atol=1e-6)
        again = mb.ingest(past, out=self.folder / "again.h5", **options)
        pushed = run.follow(features=functions, data=again)
        row = coming.iloc[0].to_dict() | {"time": coming["time"].iloc[0].to_pydatetime()}
        del row["note"]
        forecast = pushed.push(row)
        assert forecast is not None
        np.testing.assert_allclose(forecast.values, followed[forecast.time], rtol=1e-5)
        # Functions may read what the first bar had.
        quoted = {**row, "spread": 0.0}
        with run.follow(features=functions, data=again) as follower:
            follower.push(quoted)
            for name in ("spread", "flow"):
                with self.assertRaisesRegex(mb.DataError, f"the bar has no '{name}', which the first bar had"):
                    follower.push({own: value for own, value in quoted.items() if own != name})

    def test_forecasts_of_a_frame_come_before_an_error_that_ends_the_stream(self) -> None:
        def change(bars: pandas.DataFrame) -> Any:
            if len(bars) > 9040:
                raise ValueError("too many")
            return bars["close"].diff().rename("change")

        frame = self.frame()
        ds = mb.ingest(frame[:9000], out=self.folder / "own.h5", **{**OPTIONS, "features": ["body", change]})
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=2)
        coming = frame[9000:9100].drop(columns="note")
        times: list[list[Any]] = []
        for bars in ((row for _, row in coming.iterrows()), coming):
            times.append([])
            # A frame had no forecast of the lines that are pushed with the bar.
            with self.assertRaisesRegex(mb.DataError, "change: EURUSD, M1: ValueError: too many"):
                for one in run.follow(bars, features=change):
                    times[-1].append(one.time)
        self.assertTrue(times[0])
        self.assertEqual(times[1], times[0])

    def test_other_instruments_are_context(self) -> None:
        frame = self.frame()
        # Bars of five minutes that begin late, end early and have a hole.
        five = frame.set_index(frame["time"]).resample("5min").agg({"open": "first", "high": "max", "low": "min", "close": "last"})
        five = (five.dropna() * 80).iloc[40:-300]
        dollar = pandas.concat([five[:800], five[1000:]]).rename_axis("time").reset_index()
        dollar["flow"] = np.arange(len(dollar)) % 7.0

        def change(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].diff(3).rename("change")

        options = {**OPTIONS, "features": ["range", "flow", "day_sin", change], "context": {"DXY": dollar}, "columns": {"flow": "sum"}}
        ds = mb.ingest(frame, out=self.folder / "own.h5", **options)
        names = ["range", "column:flow:sum", "day_sin", "function:change"]
        names += [f"function:DXY.{name}" for name in ("range", "flow", "change", "age")]
        self.assertEqual(ds.features["M1"], tuple(names))
        assert ds.times is not None
        batch, times = ds[: len(ds)], pandas.to_datetime(ds.times, utc=True)
        # The M1 bars look up bars of five minutes, as there are no shorter ones.
        own = dollar.assign(close_time=dollar["time"] + pandas.Timedelta("5min"), change=dollar["close"].diff(3))
        own["close_time"] = own["close_time"].astype("datetime64[ns, UTC]")
        own["range"] = (own["high"] - own["low"]) / own["close"]
        for name, minutes in (("M1", 1), ("M5", 5)):
            ends = pandas.DatetimeIndex(frame["time"].dt.floor(f"{minutes}min").unique()) + pandas.Timedelta(f"{minutes}min")
            closes = pandas.DataFrame({"time": ends[ends.searchsorted(times, side="right") - 1].astype("datetime64[ns, UTC]")})
            expected = pandas.merge_asof(closes, own.drop(columns="time"), left_on="time", right_on="close_time")
            age = (expected["time"] - expected["close_time"]) / pandas.Timedelta(f"{minutes}min")
            found = batch[name][:, -1, 4:]
            for place, values in enumerate((expected["range"], expected["flow"], expected["change"], age)):
                np.testing.assert_allclose(found[:, place], values, rtol=1e-4, atol=1e-6)
            self.assertGreater(found[:, 3].max(), 900 / minutes)
        again = {"features": change, "context": {"DXY": dollar}}
        self.assertIn("DXY.age of functions stay the same", str(mb.leak(ds, samples=2, **again)))
        missing = r"features of DXY, another instrument, .* as mb\.leak\(dataset, context={\"DXY\": frame}\)$"
        with self.assertRaisesRegex(mb.ConfigError, missing):
            mb.leak(ds, samples=2, features=change)
        missing = r"features of DXY, another instrument, .* as dataset\.append\(bars, features=\[function\], context={"
        with self.assertRaisesRegex(mb.ConfigError, missing):
            ds.append(frame[-9:].assign(time=frame["time"][-9:] + pandas.Timedelta("1D")))
        twice = dollar.assign(time=dollar["time"].where(dollar.index != 5, dollar["time"].iloc[4]))
        with self.assertRaisesRegex(mb.DataError, "^context DXY: row 5 of the frame: duplicate timestamp.*, and row 4 is another") as caught:
            mb.ingest(frame, **{**options, "context": {"DXY": twice}})
        # It was the path of a file that is gone.
        self.assertEqual(caught.exception.fields["file"], "context DXY")
        with self.assertRaisesRegex(mb.DataError, ": DXY, M1: column range is a feature of other instruments already"):
            mb.ingest(frame, **{**options, "features": ["range", lambda bars: change(bars).rename("range")]})
        hole = dollar.assign(close=dollar["close"].where(dollar.index != 3))
        with self.assertRaisesRegex(mb.DataError, "^context DXY: row 3 of the frame: "):
            mb.ingest(frame, **{**options, "context": {"DXY": hole}})
        # The rule for rows is that of the bars.
        skipped = mb.ingest(frame, **{**options, "context": {"DXY": hole}, "on_error": "skip"})
        without = mb.ingest(frame, **{**options, "context": {"DXY": dollar.drop(index=3)}, "on_error": "skip"})
        self.assertEqual(skipped.fingerprint(), without.fingerprint())

        def of_context(bars: pandas.DataFrame) -> pandas.Series:
            ahead = -1 if len(bars) and bars["close"].iloc[0] > 50 else 1
            return bars["close"].shift(ahead).ffill().bfill().rename("ahead") if ahead < 0 else bars["close"].rename("ahead")

        ds = mb.ingest(frame, **{**options, "features": [of_context]})
        with self.assertRaisesRegex(mb.DataError, "context DXY: EURUSD, M1: column DXY.ahead looks ahead"):
            mb.leak(ds, samples=1, features=of_context, context={"DXY": dollar})
        # Longer bars of the past stay, and those that came since add to them.
        ds = mb.ingest(frame[:9000], **{**options, "out": self.folder / "longer.h5"})
        self.assertGreater(len(ds.append(frame[8990:], **again)), len(ds))

    def test_context_is_by_the_clock_that_is_stated(self) -> None:
        frame = self.frame()[["time", "open", "high", "low", "close"]]
        dollar = frame.assign(**{name: frame[name] * 80 for name in ("open", "high", "low", "close")})

        def on_the_wall(own: pandas.DataFrame) -> pandas.DataFrame:
            return own.assign(time=own["time"].dt.tz_convert("America/New_York").dt.tz_localize(None))

        options = {**OPTIONS, "features": ["range", "log_return"], "zone": "America/New_York"}
        expected = mb.ingest(frame, context={"DXY": dollar}, **options).fingerprint()
        for own, other in ((frame, on_the_wall(dollar)), (on_the_wall(frame), dollar), (on_the_wall(frame), on_the_wall(dollar))):
            ds = mb.ingest(own[:9000], context={"DXY": other}, out=self.folder / "own.h5", **options)
            mb.leak(ds, samples=1, context={"DXY": other})
            with self.assertLogs("megabatch", "WARNING") as log:
                logging.getLogger("megabatch").warning("the only one")
                ds = mb.ingest(own, context={"DXY": other}, out=self.folder / "own.h5", **options)
            self.assertEqual(ds.fingerprint(), expected)
            # They were read so without a word.
            told = "warning: context DXY: its times have no offset and are read in the zone America/New_York"
            self.assertEqual(sum(told in line for line in log.output), int(other is not dollar), log.output)

    def test_an_instrument_of_a_context_has_a_name(self) -> None:
        frame = self.frame()
        for name in ("", " "):
            # It was a KeyError.
            with self.assertRaisesRegex(mb.ConfigError, "^context: an instrument has no name"):
                mb.ingest(frame, context={name: frame}, **OPTIONS)

    def test_context_frames_have_the_times_that_the_bars_have(self) -> None:
        frame = self.frame()[["time", "open", "high", "low", "close"]]
        dollar = in_longer_bars(frame, "5min")
        options = {**OPTIONS, "features": ["range", "log_return"]}
        expected = mb.ingest(frame, context={"DXY": dollar}, **options).fingerprint()
        own = frame.assign(time=frame["time"] + pandas.Timedelta("1min"))
        other = dollar.assign(time=dollar["time"] + pandas.Timedelta("5min"))
        ds = mb.ingest(own, context={"DXY": other}, time="close", **options)
        # They were a bar late.
        self.assertEqual(ds.fingerprint(), expected)
        mb.leak(ds, samples=2, context={"DXY": other})
        ds = mb.ingest(own[:9000], context={"DXY": other}, time="close", out=self.folder / "own.h5", **options)
        self.assertGreater(len(ds.append(own[8990:], context={"DXY": other})), len(ds))

    def test_daily_bars_of_a_context_close_after_the_day_they_are_dated_by(self) -> None:
        frame = self.frame()[["time", "open", "high", "low", "close"]]
        days = in_longer_bars(frame, "1D")
        options = {**OPTIONS, "features": ["range", "log_return"]}
        expected = mb.ingest(frame, context={"DXY": days}, **options).fingerprint()
        own = frame.assign(time=frame["time"] + pandas.Timedelta("1min"))
        # A day was known at its first minute.
        ds = mb.ingest(own, context={"DXY": days}, time="close", **options)
        self.assertEqual(ds.fingerprint(), expected)
        own.to_csv(self.folder / "own.csv", index=False)
        days.to_csv(self.folder / "days.csv", index=False)
        of_files = mb.ingest(self.folder / "own.csv", context={"DXY": self.folder / "days.csv"}, time="close", **{**options, "symbol": "OWN"})
        self.assertEqual(of_files.fingerprint(), expected)
        with h5py.File(ds.path) as file, h5py.File(of_files.path) as other:
            times, reach = file["samples/time"][:], file["samples/reach_time"][:]
            np.testing.assert_array_equal(reach, other["samples/reach_time"][:])
        # Returns read two days that have closed; these lay in training.
        self.assertGreaterEqual((times - reach).min(), 2 * 24 * 3600 * 10**9)

    def test_samples_reach_back_to_the_open_of_a_bar_of_a_context_that_lies_in_two_days(self) -> None:
        frame = self.frame()[["time", "open", "high", "low", "close"]]
        hours = in_longer_bars(frame, "4h")
        # Bars from 22:00 on end at 02:00, and are of the day that begins between.
        hours = hours.assign(time=hours["time"] + pandas.Timedelta("2h"))
        options = {**OPTIONS, "timeframes": {"D1": 2}, "features": ["range"]}
        ds = mb.ingest(frame, context={"DXY": hours}, **options)
        frame.to_csv(self.folder / "own.csv", index=False)
        hours.to_csv(self.folder / "hours.csv", index=False)
        context = {"DXY": self.folder / "hours.csv"}
        from_files = mb.ingest(self.folder / "own.csv", context=context, **{**options, "symbol": "OWN"})
        with h5py.File(ds.path) as file, h5py.File(from_files.path) as other:
            reach = file["samples/reach_time"][:]
            np.testing.assert_array_equal(reach, other["samples/reach_time"][:])
        # They reached back to the beginning of the day.
        self.assertGreater(np.mean(reach // (3600 * 10**9) % 24 == 22), 0.5)

    def test_an_answer_may_be_an_index(self) -> None:
        def hour(bars: pandas.DataFrame) -> dict[str, Any]:
            return {"hour": pandas.DatetimeIndex(bars["time"]).hour}

        def up(bars: pandas.DataFrame) -> dict[str, Any]:
            change = bars["close"].shift(-5) - bars["close"]
            return {"up": (change > 0).astype("float64").where(change.notna()), "label_end": pandas.DatetimeIndex(bars["time"].shift(-5))}

        ds = mb.ingest(self.frame(), **{**OPTIONS, "features": ["range", hour], "target": up, "horizon": 5})
        assert ds.times is not None
        batch = ds[: len(ds)]
        np.testing.assert_array_equal(batch["M1"][:, -1, 1], (pandas.DatetimeIndex(ds.times) - pandas.Timedelta("1min")).hour)

    def test_an_interrupt_ends_an_ingest_and_leaves_no_file(self) -> None:
        code = """
import os, pathlib, signal, sys, threading
import megabatch as mb, pandas
frame = pandas.read_csv(sys.argv[1]).iloc[:3000]
frame["time"] = pandas.to_datetime(frame.iloc[:, 0], utc=True)
frame = frame[["time", "open", "high", "low", "close"]]
calls, seen = [], threading.Event()
def interrupted(*_):
    seen.set()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupted)
def slow(bars):
    calls.append(len(bars))
    if len(calls) == 1:
        os.kill(os.getpid(), signal.SIGINT)
        # The main thread sees the signal while the functions are called.
        assert seen.wait(30)
    return bars["close"].diff().rename("slow")
frames = {f"S{number}": frame for number in range(9)}
try:
    mb.ingest(frames, features=[slow], target="log_return", timeframes={"M1": 8}, horizon=3, out=sys.argv[2])
except KeyboardInterrupt:
    print(len(calls) < 9, pathlib.Path(sys.argv[2]).exists())
"""
        self.bars(3)
        self.assertEqual(self.python(code, self.folder / "EURUSD.csv", self.folder / "own.h5"), "True False\n")

    def test_following_tells_of_another_function(self) -> None:
        def smooth_of(span: int) -> Any:
            def smooth(bars: pandas.DataFrame) -> pandas.Series:
                return bars["close"].rolling(span).mean().rename("smooth") / bars["close"] - 1

            return smooth

        frame = self.frame()
        ds = mb.ingest(frame[:9000], out=self.folder / "own.h5", **{**OPTIONS, "features": ["body", smooth_of(5)]})
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=2)
        with self.assertNoLogs("megabatch", "WARNING"):
            list(run.follow(frame[9000:9100], features=smooth_of(5)))
        def smooth(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].rolling(5, min_periods=5).mean().rename("smooth") / bars["close"] - 1

        with self.assertLogs("megabatch", "WARNING") as log:
            list(run.follow(frame[9000:9100], features=smooth))
        self.assertIn("the source of the function smooth is another one than when", log.output[0])
        # It was followed with a note alone.
        with self.assertRaisesRegex(mb.DataError, "smooth: column smooth is .* at the M1 bar that closes at .*, where the data have"):
            run.follow(frame[9000:9100], features=smooth_of(50))

    def test_context_is_followed(self) -> None:
        frame = self.frame(21)[:10_500]
        five = frame.set_index(frame["time"]).resample("5min").agg({"open": "first", "high": "max", "low": "min", "close": "last"})
        dollar = (five.dropna() * 80).iloc[:-30].rename_axis("time").reset_index()
        # A hole of 20 bars, and an end before that of the bars.
        dollar = pandas.concat([dollar[:1850], dollar[1870:]])

        def change(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].ewm(span=30, adjust=False).mean().rename("smooth") / bars["close"] - 1

        past, coming = frame[:9000], frame[9000:]
        context = {"DXY": dollar}
        options = {**OPTIONS, "features": ["body", "rsi_14", change], "context": context}
        ds = mb.ingest(past, out=self.folder / "own.h5", **options)
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=3)
        with self.assertLogs("megabatch", "WARNING") as log:
            followed = {one.time: one.values for one in run.follow(coming, features=change, context=context)}
        told = [line for line in log.output if "warning: context DXY: its bars end at" in line]
        self.assertEqual(len(told), 1, log.output)
        for wrong in (dollar.assign(close=dollar["low"]), dollar[:1500]):
            refused = r"column DXY\..* is .*, where the data have .*: give the functions .*; if these are they, ingest and train anew"
            with self.assertRaisesRegex(mb.DataError, refused):
                run.follow(coming, features=change, context={"DXY": wrong})
        # Its bars came later than those of the instrument: where the data had none yet, values are others.
        delayed = {"DXY": dollar[dollar["time"] < past["time"].iloc[-1] - pandas.Timedelta("20min")]}
        delayed_data = mb.ingest(past, out=self.folder / "delayed.h5", **{**options, "context": delayed})
        delayed_run = mb.train(delayed_data, MODEL, out=self.folder / "delayed", max_steps=3)
        self.assertTrue(list(delayed_run.follow(coming, features=change, context=context)))
        with self.assertRaisesRegex(mb.DataError, r"column DXY\..* is .*, where the data have"):
            delayed_run.follow(coming, features=change, context={"DXY": dollar.assign(close=dollar["low"])})
        longer = ds.append(coming, features=change, context=context)
        predicted = run.predict(longer, changed_data=True)
        self.require_same_forecasts(followed, predicted, 0.9 * (len(longer) - len(ds)), rtol=1e-4, atol=1e-6)
        missing = r"features of DXY, another instrument, .* as run\.follow\(…, context={\"DXY\": frame}\)"
        with self.assertRaisesRegex(mb.ConfigError, missing):
            run.follow(coming, features=change)
        with self.assertRaisesRegex(mb.ConfigError, "^context DXY: 'dollar.csv' is the path of a file: expected a frame"):
            run.follow(coming, features=change, context={"DXY": "dollar.csv"})
        with self.assertRaisesRegex(mb.ConfigError, "context.*expected frames by the names of instruments"):
            run.follow(coming, features=change, context="dollar.csv")  # type: ignore[arg-type]

    def test_context_alone_is_looked_up_at_the_bars_that_come(self) -> None:
        frame = self.frame(21)[:10_500]
        past, coming = frame[:9000], frame[9000:]
        context = {"DXY": in_longer_bars(frame, "5min")[:-30]}
        options = {**OPTIONS, "features": ["body", "rsi_14"], "context": context}
        ds = mb.ingest(past, out=self.folder / "own.h5", **options)
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=3)
        self.assertIn("`run.follow(…, context=)` needs context DXY", run.notes)
        lengths: list[int] = []
        features = _functions.Functions.features

        def seen(functions: Any, *call: Any) -> Any:
            lengths.append(len(call[-1]["time"]) // 8)
            return features(functions, *call)

        with mock.patch.object(_functions.Functions, "features", seen), self.assertLogs("megabatch", "WARNING") as log:
            followed = {one.time: one.values for one in run.follow(coming, context=context)}
        self.assertEqual(len([line for line in log.output if "warning: context DXY: its bars end at" in line]), 1, log.output)
        # The history of both timeframes, and each bar that comes alone: it came with all before it.
        self.assertEqual(lengths[0], len(past))
        self.assertGreater(len(lengths), len(coming))
        self.assertEqual(set(lengths[2:]), {1})
        longer = ds.append(coming, context=context)
        predicted = run.predict(longer, changed_data=True)
        self.require_same_forecasts(followed, predicted, 0.9 * (len(longer) - len(ds)), rtol=1e-4, atol=1e-6)

    def test_context_in_files_is_that_of_frames(self) -> None:
        frame = self.frame()
        five = frame.set_index(frame["time"]).resample("5min").agg({"open": "first", "high": "max", "low": "min", "close": "last"})
        dollar = (five.dropna() * 80).iloc[40:-300].rename_axis("time").reset_index()
        dollar["flow"], path = np.arange(len(dollar)) % 7.0, self.folder / "dollar.csv"
        dollar.to_csv(path, index=False)
        options = {**OPTIONS, "features": ["range", "flow", "day_sin"], "columns": {"flow": "sum"}}
        by_frame = mb.ingest(frame[:9000], **{**options, "context": {"DXY": dollar}})
        ds = mb.ingest(frame[:9000], out=self.folder / "own.h5", **{**options, "context": {"DXY": path}})
        self.assertEqual(ds.features, by_frame.features)
        self.assertEqual(ds.features["M1"][-3:], ("function:DXY.range", "function:DXY.flow", "function:DXY.age"))
        self.assertEqual(ds.fingerprint(), by_frame.fingerprint())
        # The file keeps where the bars are.
        self.assertIn("DXY.age of functions stay the same", str(mb.leak(ds, samples=2)))
        # Bars in a file were asked for as frames, and the reverse was told to have no such features.
        for call, refused in (
            ("dataset.append(bars", lambda: ds.append(frame[8990:], context={"DXY": dollar})),
            ("mb.leak(dataset", lambda: mb.leak(ds, samples=1, context={"DXY": dollar})),
        ):
            takes = f"the bars of DXY came from a file, .*dollar.csv: .* give its path, as {call}, context={{\"DXY\": \"FILE\"}})"
            with self.assertRaisesRegex(mb.ConfigError, takes.replace("(", r"\(").replace(")", r"\)").replace("{", r"\{")):
                refused()
        for refused in (
            lambda: by_frame.append(frame[8990:], context={"DXY": path}),
            lambda: mb.leak(by_frame, samples=1, context={"DXY": path}),
        ):
            with self.assertRaisesRegex(mb.ConfigError, r"the bars of DXY came to .* in a frame; .* as context=\{\"DXY\": frame\}$"):
                refused()
        longer = ds.append(frame[8990:])
        self.assertGreater(len(longer), len(ds))
        moved = path.rename(self.folder / "moved.csv")
        with self.assertRaisesRegex(mb.DataError, "context DXY: .*dollar.csv: cannot be opened"):
            mb.leak(longer, samples=1)
        mb.leak(longer, samples=1, context={"DXY": moved})
        with self.assertRaisesRegex(mb.ConfigError, "has no features of EUR; ingest all files anew"):
            mb.leak(longer, samples=1, context={"EUR": moved})
        other = dollar.assign(high=dollar["high"] * 2)
        other.to_csv(moved, index=False)
        revised = r"context DXY \(.*moved.csv\): these are not the bars that .*own.h5 was made of, and .* is not what they give"
        with self.assertRaisesRegex(mb.DataError, revised):
            mb.leak(longer, samples=1, context={"DXY": moved})
        with self.assertRaisesRegex(mb.ConfigError, "functions and frames do not go together with files"):
            mb.ingest(frame, **{**options, "features": [lambda bars: bars["close"]], "context": {"DXY": moved}})

    def shares(self, days: int = 160) -> tuple[pandas.DataFrame, dict[str, Any]]:
        """Daily bars of a share, dated by their day, and how they are ingested."""
        close = 100 * np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.01, days)))
        dates = pandas.bdate_range("2020-01-01", periods=days)
        columns = {"Open": close, "High": close * 1.01, "Low": close * 0.99, "Close": close, "Volume": 9.0}
        return pandas.DataFrame(columns, index=dates.rename("Date")), {
            "timeframes": {"D1": 5}, "target": "log_return", "horizon": 2, "pip_size": 0.01, "symbol": "KO",
            "features": ["log_return", "range"], "scaling": "none",
        }

    def test_days_of_a_context_are_those_of_its_file(self) -> None:
        own, options = self.shares()
        other = own[["Open", "High", "Low", "Close"]] * 2
        expected = mb.ingest(own, context={"SPY": other}, **options).fingerprint()
        # Frames of them came a day late, or a day early with `time`.
        for index in (other.index, other.index.tz_localize("America/New_York"), other.index.tz_localize("Asia/Tokyo")):
            dated, path = other.set_index(index.rename("Date")), self.folder / "SPY.csv"
            dated.to_csv(path)
            for time in ("open", "close"):
                for context in (dated, path):
                    ds = mb.ingest(own, context={"SPY": context}, time=time, **options)
                    self.assertEqual(ds.fingerprint(), expected, f"{index.tz} {time} {type(context)}")

    def test_a_day_that_carries_a_time_of_day_is_that_of_its_date(self) -> None:
        own, options = self.shares()
        alone = mb.ingest(own, **options).fingerprint()
        beside = mb.ingest(own, context={"SPY": own}, **options).fingerprint()
        # All days of a context were a day late, and those of a series began at 04:00 or 05:00 UTC. Evenings in New York that
        # are midnights in UTC were the next day.
        for zone in (None, "America/New_York", "Asia/Tokyo"):
            for place, time in ((len(own) - 1, "15:30:00"), (len(own) - 1, "20:00:00"), (40, "09:30:00"), (40, "19:00:00")):
                dates = own.index.to_series()
                dates.iloc[place] += pandas.Timedelta(time)
                live = own.set_index(pandas.DatetimeIndex(dates, name="Date").tz_localize(zone))
                told = f"is at .*, given or recorded before, are midnights: it is the row of {own.index[place]:%Y-%m-%d}"
                for bars, context, expected, row in (
                    (own, {"SPY": live}, beside, f"warning: context SPY: row {place} of the frame"),
                    (live, {}, alone, f": line {place + 2}"),
                ):
                    with self.assertLogs("megabatch", "WARNING") as log:
                        ds = mb.ingest(bars, context=context, **options)
                    self.assertEqual(ds.fingerprint(), expected, f"{zone} {time} {row}")
                    self.assertRegex("\n".join(log.output), f"{row} {told}")

    def test_weeks_of_a_context_are_those_of_its_file(self) -> None:
        own, options = self.shares()
        options["timeframes"] = {"W1": 5}
        own.index = pandas.date_range("2020-01-06", periods=len(own), freq="W-MON", name="Date")
        other = own[["Open", "High", "Low", "Close"]] * 2
        expected = mb.ingest(own, context={"SPY": other}, **options).fingerprint()
        # Weeks at an exchange's midnight came a week late.
        for zone in ("America/New_York", "Europe/Berlin"):
            dated, path = other.tz_localize(zone), self.folder / "SPY.csv"
            dated.to_csv(path)
            for context in (dated, path):
                ds = mb.ingest(own, context={"SPY": context}, **options)
                self.assertEqual(ds.fingerprint(), expected, f"{zone} {type(context)}")
                mb.leak(ds, samples=4, context={"SPY": context})
            zoned = mb.ingest(own.tz_localize(zone), context={"SPY": other}, **options)
            self.assertEqual(zoned.fingerprint(), expected, zone)

    def test_a_longer_bar_of_a_context_is_seen_once_it_has_ended(self) -> None:
        hours = pandas.date_range("2020-01-06", periods=24 * 7 * 24, freq="h")
        days = pandas.bdate_range("2020-01-06", periods=640)
        path = self.folder / "SPY.csv"
        # Weeks that end at New York's midnights were seen as those days began in UTC, and days at the midnights of UTC.
        for name, index, bars, least, most in (("W1", days, 5, 0.9, 1), ("D1", hours[hours.dayofweek < 5], 24, 0.7, 0.8)):
            own, options = self.shares(len(index))
            options["timeframes"] = {name: 2}
            own.index = index.rename("Date")
            longer = own[::bars].tz_localize("America/New_York")
            longer.to_csv(path)
            for context in (longer, path):
                ds = mb.ingest(own, context={"SPY": context}, **options)
                ages = ds[: len(ds)][name][:, :, ds.features[name].index("function:SPY.age")]
                self.assertTrue(least < ages.min() < most, f"{name} {type(context)} {ages.min()}")
                self.assertTrue(name == "D1" or ages.max() < most, f"{name} {type(context)} {ages.max()}")
                mb.leak(ds, samples=4, context={"SPY": context})

    def test_dates_of_a_context_are_those_of_the_clock_that_files_were_found_to_have(self) -> None:
        # Weeks from Sunday at 17:00 in New York on, as HistData has them.
        begin = pandas.Timestamp("2017-12-31 17:00")
        hours = [begin + pandas.Timedelta(hours=168 * week + hour) for week in range(30) for hour in range(120)]
        own, options = self.shares(len(hours))
        options.update({"timeframes": {"H1": 2}, "symbol": "EURUSD"})
        own = own.round(2).assign(Volume=0).set_axis(pandas.DatetimeIndex(hours))
        path, first, last = (self.folder / name for name in ("EURUSD.csv", "EURUSD_first.csv", "EURUSD_last.csv"))
        for rows, name in ((own, path), (own[:2400], first), (own[2400:], last)):
            rows.to_csv(name, sep=";", header=False, date_format="%Y%m%d %H%M%S")
        days, _ = self.shares(150)
        for spacing, count, short in (("B", 150, 100), ("W-MON", 30, 20)):
            dates = pandas.date_range("2018-01-01", periods=count, freq=spacing, name="Date")
            longer = days[:count].set_axis(dates)
            in_file = self.folder / "GBPUSD.csv"
            longer.to_csv(in_file)
            by_file = mb.ingest(path, context={"GBPUSD": in_file}, **options)
            assert by_file.report is not None
            self.assertEqual(by_file.report.facts["source"]["instruments"][0]["files"][0]["zone"], "America/New_York")
            context = {"GBPUSD": longer}
            # They were taken for days of UTC, and seen four or five hours before they had ended.
            for zone in (None, "America/New_York"):
                ds = mb.ingest(path, context=context, zone=zone, out=self.folder / "own.h5", **options)
                self.assertEqual(ds.fingerprint(), by_file.fingerprint(), f"{short} {zone}")
                mb.leak(ds, samples=2, context=context)
                # What is followed sees the values that the data have, or is refused.
                run = mb.train(ds, MODEL, out=self.folder / f"run-{short}-{zone is None}", max_steps=2)
                run.follow(context=context)
            ds = mb.ingest(first, context={"GBPUSD": longer[:short]}, out=self.folder / "own.h5", **options)
            ds = ds.append(last, context=context)
            self.assertEqual(len(ds), len(by_file))
            np.testing.assert_array_equal(ds[: len(ds)]["H1"], by_file[: len(ds)]["H1"])

    def test_a_day_of_a_currency_is_seen_once_it_has_ended(self) -> None:
        own, options = self.shares()
        days = own[["Open", "High", "Low", "Close"]].tz_localize("America/New_York")
        path = self.folder / "EURUSD.csv"
        days.to_csv(path)
        # Days that end at New York's midnights were seen with those that end before, at midnight UTC.
        for context in (days, path):
            ds = mb.ingest(own, context={"EURUSD": context}, **options)
            ages = ds[: len(ds)]["D1"][:, :, ds.features["D1"].index("function:EURUSD.age")]
            self.assertTrue(0.7 < ages.min() < 0.9, f"{type(context)} {ages.min()}")
            mb.leak(ds, samples=4, context={"EURUSD": context})

    def test_a_split_in_a_context_is_told(self) -> None:
        own, options = self.shares()
        prices = ["Open", "High", "Low", "Close"]
        other = own.assign(**{name: np.where(np.arange(len(own)) < 80, 4 * own[name], own[name]) for name in prices})
        path = self.folder / "SPY.csv"
        other.to_csv(path)
        for context in (other, path):
            with self.assertLogs("megabatch", "WARNING") as log:
                mb.ingest(own, context={"SPY": context}, **options)
            self.assertRegex("\n".join(log.output), "warning: context SPY: the price goes from .*: a split 4:1 that")

    def test_the_only_ticker_of_a_context_may_have_another_name(self) -> None:
        own, options = self.shares()
        expected = mb.ingest(own, context={"MKT": own}, **options).fingerprint()
        wide = own.copy()
        wide.columns = pandas.MultiIndex.from_product([own.columns, ["^GSPC"]], names=["Price", "Ticker"])
        for frame in (wide, own.assign(symbol="^GSPC")):
            self.assertEqual(mb.ingest(own, context={"MKT": frame}, **options).fingerprint(), expected)
        both = own.assign(symbol=np.where(np.arange(len(own)) % 2, "AAA", "BBB"))
        with self.assertRaisesRegex(mb.DataError, "^context MKT: no row of the frame has the symbol MKT; there are BBB, AAA"):
            mb.ingest(own, context={"MKT": both}, **options)

    def test_columns_of_a_context_that_nothing_takes_are_not_read(self) -> None:
        own, options = self.shares()
        expected = mb.ingest(own, context={"SPY": own}, **options).fingerprint()
        # No file has such numbers, and no header such names.
        strange = own.assign(**{"change": np.inf, "20": 1.0})
        self.assertEqual(mb.ingest(own, context={"SPY": strange}, **options).fingerprint(), expected)

    def test_context_frames_are_adjusted_as_files_are(self) -> None:
        days = pandas.bdate_range("2020-01-01", periods=160)
        chance = np.random.default_rng(1)
        close = 100 * np.exp(np.cumsum(chance.normal(0, 0.01, len(days))))
        quoted = np.where(np.arange(len(days)) < 80, 4 * close, close)
        own = pandas.DataFrame({"Date": days, "Open": close, "High": close * 1.01, "Low": close * 0.99, "Close": close, "Volume": 9.0})
        other = pandas.DataFrame({"Date": days, "Open": quoted, "High": quoted * 1.01, "Low": quoted * 0.99, "Close": quoted})
        other["Adj Close"], other["Volume"], other["Dividends"] = close, np.arange(len(days)) + 1.0, 0.0
        path = self.folder / "SPY.csv"
        other.to_csv(path, index=False)
        options: dict[str, Any] = {
            "timeframes": {"D1": 5}, "target": "log_return", "horizon": 2, "pip_size": 0.01, "symbol": "KO",
            "features": ["log_return", "range"], "scaling": "none",
        }
        for prices in ("auto", "quoted"):
            by_file = mb.ingest(own, context={"SPY": path}, prices=prices, **options)
            ds = mb.ingest(own[:120], context={"SPY": other}, prices=prices, **options)
            # The series tells what was stated of its prices.
            mb.leak(ds, samples=2, context={"SPY": other})
            longer = ds.append(own[110:], context={"SPY": other})
            self.assertGreater(len(longer), len(ds))
            whole = mb.ingest(own, context={"SPY": other}, prices=prices, **options)
            self.assertEqual(whole.fingerprint(), by_file.fingerprint(), prices)
            place = whole.features["D1"].index("function:SPY.log_return")
            largest = np.abs(whole[: len(whole)]["D1"][:, :, place]).max()
            self.assertEqual(largest > 1, prices == "quoted")
        seen: list[list[str]] = []

        def change(bars: pandas.DataFrame) -> pandas.Series:
            seen.append(list(bars.columns))
            return bars["close"].diff().rename("change")

        mb.ingest(own, context={"SPY": other}, **{**options, "features": [change]})
        self.assertEqual(len(set(map(frozenset, seen))), 1, seen)
        hole = other.assign(**{"Adj Close": other["Adj Close"].where(other.index != 7)})
        with self.assertRaisesRegex(mb.DataError, "^context SPY: row 7 of the frame: .*the adjusted close"):
            mb.ingest(own, context={"SPY": hole}, **options)
        with self.assertRaisesRegex(mb.DataError, "^context SPY: the frame: .*there is no adjusted close"):
            mb.ingest(other, context={"SPY": own}, prices="adjusted", **options)

    def test_features_go_on_with_a_context_that_had_ended(self) -> None:
        own, options = self.shares()
        other = own[["Open", "High", "Low", "Close"]] * 2
        expected = mb.ingest(own, context={"SPY": other}, out=self.folder / "whole.h5", **options)
        ds = mb.ingest(own[:120], context={"SPY": other[:110]}, out=self.folder / "own.h5", **options)
        changed = other.copy()
        changed.iloc[50] = changed.iloc[49]
        # A row of the time before that has changed is refused.
        with self.assertRaisesRegex(mb.DataError, "^context SPY: these are not the bars that .* would become another one"):
            ds.append(own[110:], context={"SPY": changed})
        # The bars were blamed.
        begins_later = r"^context SPY: with these bars the first \d+ bars of KO have no features, .*: give all bars of the other"
        with self.assertRaisesRegex(mb.DataError, begins_later):
            ds.append(own[110:], context={"SPY": other[110:]})
        # One that has all its bars was blamed too.
        both = mb.ingest(own[:120], context={"QQQ": other[:110], "SPY": other[:110]}, **options)
        with self.assertRaisesRegex(mb.DataError, begins_later):
            both.append(own[110:], context={"QQQ": other, "SPY": other[110:]})
        # A context that had ended before its bars was refused.
        longer = ds.append(own[110:], context={"SPY": other})
        self.assertEqual(len(longer), len(expected))
        np.testing.assert_array_equal(longer[: len(longer)]["D1"], expected[: len(expected)]["D1"])

    def test_rows_of_a_context_without_prices_are_no_bars(self) -> None:
        own, options = self.shares()
        other = own[["Open", "High", "Low", "Close"]] * 2
        missing = other.drop(index=other.index[50])
        expected = mb.ingest(own, context={"SPY": missing}, **options).fingerprint()
        # A row of NaN was refused, and no row was called no format.
        self.assertEqual(mb.ingest(own, context={"SPY": missing.reindex(own.index)}, **options).fingerprint(), expected)
        for empty, message in ((other * np.nan, "all 160 rows are empty"), (other[:0], "it has no rows")):
            with self.assertRaisesRegex(mb.DataError, f"^context SPY: the frame: {message} .a failed download"):
                mb.ingest(own, context={"SPY": empty}, **options)

    def test_a_context_that_ends_early_is_told(self) -> None:
        own, options = self.shares()
        other, path = own[["Open", "High", "Low", "Close"]] * 2, self.folder / "SPY.csv"
        with mock.patch.object(_functions, "log_note") as told:
            mb.ingest(own, context={"SPY": other}, **options)
            early = mb.ingest(own, context={"SPY": other[:-1]}, **options)
            mb.leak(early, samples=1, context={"SPY": other[:-1]})
        # Nothing was said, neither of one day nor of 15.
        told.assert_called_once()
        other[:-15].to_csv(path)
        for context, count in ((other[:-1], "1 D1 bar"), (other[:-15], "15 D1 bars"), (path, "15 D1 bars")):
            with self.assertLogs("megabatch", "WARNING") as log:
                mb.ingest(own, context={"SPY": context}, **options)
            found = [line for line in log.output if "warning: context SPY: its bars end at" in line]
            self.assertEqual(len(found), 1, log.output)
            self.assertRegex(found[0], f" UTC, {count} before those of KO: from there on its last values are seen; give newer")

    def test_the_first_bar_that_sees_an_old_context_is_told(self) -> None:
        own, options = self.shares()
        other = own[["Open", "High", "Low", "Close"]][:140] * 2
        # Without a Monday: its Friday is three days old then.
        for context, silent, told in ((other, (), (140, 159)), (other.drop(index=other.index[53]), (140,), (159,))):
            ds = mb.ingest(own[:140], context={"SPY": context}, out=self.folder / "own.h5", **options)
            run = mb.train(ds, MODEL, out=self.folder / f"run{len(context)}", max_steps=2)
            for place in (*silent, *told):
                with mock.patch.object(_functions, "log_note") as note:
                    follower = run.follow(context={"SPY": context})
                    note.assert_not_called()
                    follower.push(own.iloc[place])
                self.assertEqual(note.call_count, place in told, (place, note.mock_calls))
            # The functions were blamed.
            few = r"SPY has \d+ D1 bars up to there, and \d+ or more are needed; give all of its bars from .* on, where"
            with self.assertRaisesRegex(mb.DataError, few):
                run.follow(context={"SPY": context[-9:]})

    def test_earlier_bars_of_a_context_are_the_warm_up_of_its_features(self) -> None:
        own, options = self.shares(600)
        other = own[["Open", "High", "Low", "Close"]] * 2

        def fall(bars: pandas.DataFrame) -> pandas.Series:
            return (bars["close"] / bars["close"].shift(8) - 1).rename("fall")

        options["features"], main = ["log_return", "log_return_12", fall], own[60:]
        known: dict[str, Any] = {"features": fall}
        # As many bars were dropped as the features read, though 60 stand before.
        ds = mb.ingest(main, context={"SPY": other}, out=self.folder / "own.h5", **options)
        assert ds.report is not None and ds.times is not None
        self.assertEqual(ds.report.facts["functions"]["warm_up_bars"], {"KO": 8})
        days = pandas.to_datetime(ds.times, utc=True).tz_localize(None) - pandas.Timedelta("1D")
        names, rows = list(ds.features["D1"]), ds[: len(ds)]["D1"][:, -1]
        closes = other["Close"]
        returns, falls = np.log(closes).diff(12)[days], (closes / closes.shift(8) - 1)[days]
        for name, expected in (("log_return_12", returns), ("fall", falls)):
            found = rows[:, names.index(f"function:SPY.{name}")]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
        mb.leak(ds, samples=2, context={"SPY": other}, **known)
        # Bars that no feature reads may be missing, and bars go on as if all had come at once.
        first = mb.ingest(main[:490], context={"SPY": other[:550]}, out=self.folder / "first.h5", **options)
        run = mb.train(first, MODEL, out=self.folder / "run", max_steps=2)
        followed = {one.time: one.values for one in run.follow(main[490:], context={"SPY": other[20:]}, **known)}
        longer = first.append(main[490:], context={"SPY": other[20:]}, **known)
        np.testing.assert_array_equal(longer[: len(longer)]["D1"], ds[: len(ds)]["D1"])
        predicted = run.predict(longer, changed_data=True)
        self.require_same_forecasts(followed, predicted, 40, rtol=1e-4, atol=1e-6)
        # Files are used as frames are, and one of another time is refused.
        options["features"], path = ["log_return", "log_return_12"], self.folder / "SPY.csv"
        other.to_csv(path)
        by_frame = mb.ingest(main, context={"SPY": other}, **options)
        by_file = mb.ingest(main, context={"SPY": path}, **options)
        self.assertEqual(by_file.fingerprint(), by_frame.fingerprint())
        assert by_file.report is not None
        self.assertEqual(by_file.report.facts["functions"]["warm_up_bars"], {"KO": 0})
        other[:55].to_csv(path)
        for context in (other[:55], path):
            with self.assertRaisesRegex(mb.DataError, "context SPY: .*the last bar of the other instrument closes at .*, before"):
                mb.ingest(main, context={"SPY": context}, **options)

    def test_features_go_on_with_a_context_alone(self) -> None:
        own, options = self.shares()
        other = own[["Open", "High", "Low", "Close"]] * 2
        expected = mb.ingest(own[:120], context={"SPY": other}, out=self.folder / "whole.h5", **options)
        # Nothing was written, and nothing was said.
        for again in (own[:120], own[110:120], None):
            ds = mb.ingest(own[:120], context={"SPY": other[:110]}, out=self.folder / "own.h5", **options)
            with self.assertRaisesRegex(mb.DataError, "^context SPY: these are not the bars that .*own.h5 was made of"):
                mb.leak(ds, samples=1, context={"SPY": other})
            with self.assertLogs("megabatch", "WARNING") as log:
                renewed = ds.append(again, context={"SPY": other})
            self.assertRegex("\n".join(log.output), "note: no bar of .*own.h5 is new; SPY has other bars than when it was made: its ")
            np.testing.assert_array_equal(renewed[: len(renewed)]["D1"], expected[: len(expected)]["D1"])
            mb.leak(renewed, samples=1, context={"SPY": other})

    def test_an_ingest_that_is_killed_in_a_function_leaves_nothing_half(self) -> None:
        self.bars()
        code = """
import sys, threading, pandas, megabatch as mb
_, path, out, killed_at = sys.argv
frame = pandas.read_csv(path)
frame["time"] = pandas.to_datetime(frame.iloc[:, 0], utc=True)
calls = []
def drift(bars):
    calls.append(len(bars))
    if len(calls) == int(killed_at):
        print("called", flush=True)
        threading.Event().wait()
    return bars["close"].diff(5).rename("drift")
options = {"timeframes": {"M1": 12, "M5": 6}, "target": "log_return", "horizon": 3, "stride": 20}
ds = mb.ingest(frame[["time", "open", "high", "low", "close"]], symbol="EURUSD", features=["body", drift], out=out, **options)
print(ds.fingerprint())
"""
        expected = self.python(code, self.folder / "EURUSD.csv", self.folder / "whole.h5", 0)
        out = self.folder / "own.h5"
        for killed_at in (1, 2):
            with self.child(code, self.folder / "EURUSD.csv", out, killed_at, returns=-signal.SIGKILL) as child:
                assert child.stdout is not None
                self.assertEqual(child.stdout.readline(), "called\n")
                child.kill()
            self.assertFalse(out.exists())
        self.assertEqual(self.python(code, self.folder / "EURUSD.csv", out, 0), expected)
        self.assertFalse([path.name for path in self.folder.iterdir() if path.name.startswith(".")])

    def test_the_program_proves_what_no_function_gave(self) -> None:
        def strength(bars: pandas.DataFrame) -> pandas.Series:
            return (bars["close"].diff(7) > 0).astype("float64").where(bars["close"].shift(7).notna()).rename("strength")

        frame = self.frame()
        one = {**OPTIONS, "features": ["range", strength, "flow"], "columns": {"flow": "sum"}}
        for name, options in (("features", one), ("targets", {**one, "target": label, "horizon": 20})):
            path = mb.ingest(frame, out=self.folder / f"{name}.h5", **options).path
            text = self.program("leak", path, "--samples", 4)
            columns = "strength" if name == "features" else "strength, up"
            self.assertIn(f"Not proven, for want of their functions: the columns {columns}.", text)
            self.assertIn("4 samples, 4 at random", text)
            # What is no function's is compared.
            with h5py.File(path, "r+") as file:
                del file["checksums"]
                file["series/M5/values"][100, 1] += 1
            with self.assertRaises(subprocess.CalledProcessError) as error:
                self.program("leak", path, "--samples", 1)
            self.assertIn("/series/M5/values is not what its bars give", error.exception.stderr)
        dropped = mb.ingest(frame, out=self.folder / "dropped.h5", **one, on_error="skip")
        with self.assertRaises(subprocess.CalledProcessError) as error:
            self.program("leak", dropped.path)
        self.assertIn("prove it in Python, as mb.leak(dataset, features=[function])", error.exception.stderr)

    def test_what_looks_ahead_is_named(self) -> None:
        frame = self.frame()

        def early(bars: pandas.DataFrame) -> pandas.DataFrame:
            return label(bars).assign(label_end=bars["time"].shift(-19))

        def drawn(bars: pandas.DataFrame) -> Any:
            return np.random.default_rng().normal(size=len(bars))

        def later(bars: pandas.DataFrame) -> pandas.Series:
            return (bars["close"].shift(-5) / bars["close"]).rename("fwd5")

        cases: list[tuple[dict[str, Any], str, str]] = [
            ({"target": later}, "later", "later: EURUSD, M1: column fwd5 looks ahead: .*; as a target it needs a horizon of 5 bars or more$"),
            ({"features": [tomorrow]}, "tomorrow", "tomorrow: EURUSD, M1: column tomorrow looks ahead: where the bars end after"),
            ({"features": [drawn]}, "drawn", "gives? another|is .* when it is called again with the same bars"),
            ({"target": early}, "early", "early: EURUSD, M1: column up looks ahead"),
        ]
        for functions, name, message in cases:
            ds = mb.ingest(frame, **{**OPTIONS, **functions})
            with self.assertRaisesRegex(mb.DataError, message) as caught:
                mb.leak(ds, samples=1, **functions)
            self.assertEqual((caught.exception.function, caught.exception.timeframe), (name, "M1"))

        def once(bars: pandas.DataFrame, factor: float) -> pandas.Series:
            return (bars["close"] * factor).rename("scaled")

        # Its values are those of then, and its source is not.
        ds = mb.ingest(frame, features=[functools.partial(once, factor=2.0)], **OPTIONS)
        proof = mb.leak(ds, samples=1, features=[functools.partial(once, factor=4.0 / 2)])
        self.assertEqual(proof.facts["warnings"], [])
        ds = mb.ingest(frame, features=[lambda bars: {"close2": bars["close"] + bars["close"]}], **OPTIONS)
        proof = mb.leak(ds, samples=1, features=[lambda bars: {"close2": 2 * bars["close"]}])
        self.assertIn("the source of the function <lambda> is another one", proof.facts["warnings"][0])

    def test_answers_go_by_the_times_in_their_index(self) -> None:
        # They were refused for another index.
        frame = self.frame(2)

        def plain(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].diff().rename("change")

        def by_time(bars: pandas.DataFrame) -> pandas.Series:
            return plain(bars.set_index("time")).sample(frac=1, random_state=3)

        def by_close_time(bars: pandas.DataFrame) -> dict[str, pandas.Series]:
            return {"change": plain(bars.set_index(bars["close_time"].dt.tz_localize(None)))[::-1]}

        expected = mb.ingest(frame, features=[plain], **OPTIONS)
        for function in (by_time, by_close_time):
            ds = mb.ingest(frame, features=[function], **OPTIONS)
            for name in ("M1", "M5"):
                np.testing.assert_array_equal(ds[: len(ds)][name], expected[: len(expected)][name])

    def test_days_of_an_answer_may_be_midnights_of_their_exchange(self) -> None:
        own, options = self.shares()
        own = own.tz_localize("America/New_York")

        def plain(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].diff().rename("change")

        def by_midnight(bars: pandas.DataFrame) -> pandas.Series:
            return plain(bars.set_index(own.index))[::-1]

        # Its index is that of the frame that was given, and was refused.
        expected, ds = (mb.ingest(own, **{**options, "features": [function]}) for function in (plain, by_midnight))
        np.testing.assert_array_equal(ds[: len(ds)]["D1"], expected[: len(expected)]["D1"])

        def by_six(bars: pandas.DataFrame) -> pandas.Series:
            return plain(bars.set_index(own.index + pandas.Timedelta("6h")))

        # What was advised gave NaN at every bar.
        with self.assertRaisesRegex(mb.DataError, r"no bar opens then: give one row a bar, .*, such as with \.to_numpy\(\)$"):
            mb.ingest(own, **{**options, "features": [by_six]})
        mb.ingest(own, **{**options, "features": [lambda bars: {"change": by_six(bars).to_numpy()}]})

    def test_answers_that_are_no_features_are_refused(self) -> None:
        frame = self.frame(2)

        def holed(bars: pandas.DataFrame) -> pandas.Series:
            return bars["close"].where(bars.index != 400).rename("holed")

        def failing(bars: pandas.DataFrame) -> pandas.Series:
            return bars["rsi"]

        answers: list[tuple[Any, str]] = [
            (failing, "failing: EURUSD, M1: KeyError: 'rsi'; the bars have the columns time, close_time, open, high, low, close, volume, spread"),
            (holed, "holed: EURUSD, M1: column holed is NaN at bar 400, which opens at "),
            (lambda bars: bars["close"][1:], "another order|has .* values for .* bars"),
            (lambda bars: bars.sort_values("close")[["close"]].rename(columns={"close": "x"}), "in another order than those of the bars"),
            (lambda bars: bars.set_index("time")["open"][1:].rename("x"), "it has none for 1 of .* bars, the first of which opens at "),
            (lambda bars: bars.set_index("time")["open"].shift(1, "D").rename("x"), "it has .* UTC, and no bar opens then: give one"),
            (lambda bars: {"x": pandas.concat([bars, bars[:1]]).set_index("time")["open"]}, "it has .* UTC twice: give one"),
            # As `shift(1, "min")` makes them of bars without gaps. Such values were not shifted.
            (lambda bars: {"x": bars.set_index(bars["close_time"].rename("time"))["open"]}, "UTC, and no bar opens then: give one"),
            (lambda bars: {"x": bars.set_index(bars["time"].rename("close_time"))["open"]}, "no bar closes then: give one"),
            (lambda bars: {"x": np.zeros(3)}, "column x has 3 values for .* bars: expected one a bar"),
            (lambda bars: bars.assign(volume=1.0), "column volume is one of the bars, with other values"),
            (lambda bars: {"x": ["a"] * len(bars)}, "column x is of dtype .*: expected numbers"),
            (lambda bars: {"a,b": bars["close"]}, "has no name, or a comma"),
            (lambda bars: 5, "the answer is an int of 0 dimensions: expected a frame, a series, or arrays by name"),
            (lambda bars: np.zeros((len(bars), 2)), "of 2 dimensions: expected a frame, a series, or arrays by name"),
            (lambda bars: bars["close"] * np.nan, "has no value at any bar"),
            (lambda bars: bars[["close"]], "no column that the bars do not have already"),
        ]
        for function, message in answers:
            with self.assertRaisesRegex((mb.DataError, mb.ConfigError), message):
                mb.ingest(frame, features=[function], **OPTIONS)
        with self.assertRaises(mb.DataError) as caught:
            mb.ingest(frame, features=[failing], **OPTIONS)
        self.assertIsInstance(caught.exception.__cause__, KeyError)
        self.assertEqual((caught.exception.function, caught.exception.instrument), ("failing", "EURUSD"))
        with self.assertRaisesRegex(mb.ConfigError, "two functions are called <lambda>"):
            mb.ingest(frame, features=[lambda bars: bars["close"], lambda bars: bars["open"]], **OPTIONS)
        ds = mb.ingest(frame, features=[holed], on_error="skip", **OPTIONS)
        assert ds.report is not None
        # Bar 400 of M1; M5 has fewer bars than that, or one that goes with its minutes.
        self.assertIn(ds.report.facts["functions"]["dropped_bars"]["EURUSD"], (1, 6))
