"""Frames of bars: the same series as from files, and frames that are none."""

from __future__ import annotations

import datetime
import math
import random
import shutil
from typing import Any

import h5py
import megabatch as mb
import numpy as np
import pandas
import polars
import pyarrow
from megabatch import _bar_sources, _frames
from shared import BARS, InFolder


class Frames(InFolder):
    def frame(self, days: int = 14) -> pandas.DataFrame:
        frame = pandas.read_csv(self.bars(days))
        time = next(name for name in frame.columns if name.lower() in ("time", "datetime", "timestamp", "date"))
        frame["time"] = pandas.to_datetime(frame[time], utc=True)
        return frame[["time", "open", "high", "low", "close", "volume"]]

    def test_every_library_gives_the_series_of_the_program(self) -> None:
        frame = self.frame()
        options = ["--symbol", "EURUSD", "--timeframes", "M1:12,M5:6", "--target", "log_return", "--horizon", "3"]
        out = self.folder / "program.h5"
        self.program("ingest", self.folder / "EURUSD.csv", "--out", out, "--stride", "20", *options)
        expected = mb.open(out).fingerprint()
        utc = frame.assign(time=frame["time"].dt.tz_localize(None))
        frames: dict[str, Any] = {
            "pandas": frame,
            "pandas, another zone": frame.assign(time=frame["time"].dt.tz_convert("America/New_York")),
            "pandas, no zone": utc,
            "pandas, by its index": utc.set_index("time"),
            "pandas, types of pyarrow": frame.assign(
                time=frame["time"].dt.tz_convert("Asia/Tokyo").astype(pandas.ArrowDtype(pyarrow.timestamp("us", tz="Asia/Tokyo")))
            ),
            "pandas, in milliseconds": utc.assign(time=utc["time"].astype("datetime64[ms]")),
            "pandas, capitals": frame.rename(columns=str.capitalize),
            "polars": polars.DataFrame({name: frame[name].to_numpy() for name in utc} | {"time": utc["time"].to_numpy()}),
            "pyarrow": pyarrow.table({name: pyarrow.array(frame[name]) for name in frame}),
            # pyarrow knows no clock of this zone.
            "pyarrow, an unknown zone": pyarrow.table(
                {name: pyarrow.array(frame[name]) for name in frame if name != "time"}
                | {"time": pyarrow.array(frame["time"]).cast(pyarrow.timestamp("ns", "+05:30:10"))}
            ),
            "Arrow C stream": Stream(pyarrow.table({name: pyarrow.array(frame[name]) for name in frame})),
        }
        frames["polars, lazy"] = frames["polars"].lazy()
        for name, own in frames.items():
            ds = mb.ingest(own, symbol="EURUSD", **BARS)
            self.assertEqual(ds.fingerprint(), expected, name)
        self.assertEqual(mb.ingest(self.folder / "EURUSD.csv", **BARS).fingerprint(), expected)
        self.assertEqual(mb.ingest([str(self.folder / "EURUSD.csv")], **BARS).fingerprint(), expected)

    def test_bars_by_timeframe_are_taken_as_they_are(self) -> None:
        frame = self.frame(40)
        how = {"open": "first", "high": "max", "low": "min", "close": "last", "volume": "sum"}
        hours = frame.set_index("time").resample("1h").agg(how).dropna().reset_index()
        options: dict[str, Any] = {**BARS, "symbol": "EURUSD", "timeframes": {"M1": 12, "H1": 3}}
        expected = mb.ingest(frame, **options).fingerprint()
        own = mb.ingest({"H1": hours, "M1": frame}, **options)
        self.assertEqual(own.fingerprint(), expected)
        assert own.report is not None
        self.assertIn("own bars equal the bars made of M1", own.report.text)
        minutes_file, hours_file = self.folder / "minutes.csv", self.folder / "hours.csv"
        frame.to_csv(minutes_file, index=False)
        hours.to_csv(hours_file, index=False)
        self.assertEqual(mb.ingest({"M1": minutes_file, "H1": hours_file}, **options).fingerprint(), expected)
        both = mb.ingest({"M1": {"AAA": frame, "BBB": frame}, "H1": {"AAA": hours, "BBB": hours}}, **{**options, "symbol": None})
        self.assertEqual(both.instruments, ("AAA", "BBB"))
        self.assertEqual(own.instruments, ("EURUSD",))
        # A file of one instrument without a name calls it so. Among several it had no place.
        several = mb.ingest({"AAA": frame, "BARS": frame}, **{**options, "symbol": None, "pip_size": 1e-4})
        self.assertEqual(several.instruments, ("AAA", "BARS"))
        self.assertEqual(mb.ingest(frame.drop(columns="symbol", errors="ignore"), **{**options, "symbol": None, "pip_size": 1e-4}).instruments, ())
        self.assertEqual(mb.ingest({"m1": frame, "h1": hours}, **options).fingerprint(), expected)
        in_units = {**options, "timeframes": {"1min": 12, "1h": 3}, "base": "1m"}
        self.assertEqual(mb.ingest({"1min": frame, "1h": hours}, **{**in_units, "base": None}).fingerprint(), expected)
        self.assertEqual(mb.ingest(frame, **in_units).fingerprint(), expected)
        days = frame.set_index("time").resample("1D").agg(how).dropna().reset_index()
        for named, wrong in (("H1", {"M1": frame, "H1": days}), ("M1", {"M1": hours, "H1": frame})):
            with self.assertRaisesRegex(mb.ConfigError, f"the bars named {named} are .* apart, which is another timeframe"):
                mb.ingest(wrong, **options)
        higher = {name: hours[name].where(hours.index != 40, hours["high"] * 1.001) for name in ("high", "close")}
        changed = hours.assign(**higher)
        other = mb.ingest({"M1": frame, "H1": changed}, **options)
        self.assertNotEqual(other.fingerprint(), expected)
        assert other.report is not None
        self.assertIn("1 differs, the first at 2018-01-02T16:00:00Z", other.report.text)
        plain = mb.ingest(frame, **options)
        for refused in (lambda: plain.append({"M1": frame, "H1": hours}), lambda: mb.ingest({"M1": frame, "H1": hours_file}, **options)):
            with self.assertRaises(mb.ConfigError):
                refused()
        self.assertIn("byte for byte", str(mb.leak(other, samples=2)))

    def test_bars_are_of_the_timeframe_that_names_them(self) -> None:
        self.assertEqual(_bar_sources._by_timeframe({"mn1": 1, "W1": 2, "H4": 3}), {"H4": 3, "W1": 2, "MN1": 1})
        self.assertIsNone(_bar_sources._by_timeframe({"M1": 1, "M7": 2}))
        self.assertIsNone(_bar_sources._by_timeframe({"3M": 1, "KO": 2}))
        # They were taken for symbols.
        with self.assertRaisesRegex(mb.ConfigError, "1M may be of minutes or of months: name them 1min or, for a month, MN1"):
            _bar_sources._by_timeframe({"1M": 1, "1H": 2})
        months = np.arange("2020-01", "2023-01", dtype="datetime64[M]").astype("datetime64[ns]").astype(np.int64)
        _bar_sources._require_timeframe(months, "MN1")
        with self.assertRaisesRegex(mb.ConfigError, "the bars named W1 are .* apart"):
            _bar_sources._require_timeframe(months, "W1")

    def test_bars_by_timeframe_are_appended(self) -> None:
        frame = self.frame(40)
        how = {"open": "first", "high": "max", "low": "min", "close": "max", "volume": "sum"}
        hours = frame.set_index("time").resample("1h").agg(how).dropna().reset_index()
        options: dict[str, Any] = {**BARS, "symbol": "EURUSD", "timeframes": {"M1": 12, "H1": 3}}
        cut = hours["time"].iloc[len(hours) * 2 // 3]
        bars = {"M1": frame, "H1": hours}
        ds = mb.ingest({name: own[own["time"] < cut] for name, own in bars.items()}, **options)
        longer = ds.append({name: own[own["time"] >= cut] for name, own in bars.items()})
        assert longer.report is not None
        self.assertGreater(len(longer), len(ds))
        self.assertEqual(longer.report.facts["source"]["instruments"][0]["own"][0]["made"], 0)
        self.assertIn("byte for byte", str(mb.leak(longer, samples=2)))

    def test_a_proof_finds_the_bars_of_a_frame(self) -> None:
        ds = mb.ingest(self.frame(), symbol="EURUSD", **BARS)
        proof = mb.leak(ds, samples=4)
        self.assertIn("byte for byte", str(proof))
        self.assertEqual(proof.facts["samples"], len(ds))
        kept = mb.ingest(self.frame(), symbol="EURUSD", out=self.folder / "own.h5", **BARS)
        bars = self.folder / "own.bars" / "EURUSD.csv"
        mb.leak(kept, samples=2)
        altered = self.folder / "altered.h5"
        altered.write_bytes(kept.path.read_bytes())
        with h5py.File(altered, "r+") as file:
            file["series/M1/values"][5, 0] += 1
        with self.assertRaisesRegex(mb.DataError, "rows 0 to 63 as they were written"):
            mb.leak(altered, samples=2)
        with h5py.File(altered, "r+") as file:
            del file["checksums"]
        with self.assertRaisesRegex(mb.DataError, "/series/M1/values is not what its bars give"):
            mb.leak(altered, samples=2)
        bars.write_text(bars.read_text().replace("1.1", "1.2", 1))
        with self.assertRaisesRegex(mb.DataError, "not the bytes"):
            mb.leak(kept, samples=2)
        with self.assertRaisesRegex(mb.ConfigError, "takes the whole file"):
            mb.leak(kept.split()[0])

    def test_files_of_a_frame_go_with_its_dataset(self) -> None:
        ds = mb.ingest(self.frame(), symbol="EURUSD", **BARS)
        folder = ds.path.parent
        part = ds.split()[0]
        del ds
        self.assertTrue(folder.exists())
        del part
        self.assertFalse(folder.exists())

    def test_a_frame_is_appended_as_its_file_is_by_the_program(self) -> None:
        frame = self.frame()
        out, by_program = self.folder / "own.h5", self.folder / "by-program.h5"
        ds = mb.ingest(frame[:9000], symbol="EURUSD", out=out, **BARS)
        shutil.copy(out, by_program)
        longer = ds.append(frame[8900:])
        # The time is a column of ours.
        assert longer.report is not None
        self.assertEqual(longer.report.unused_columns, [])
        written = self.folder / "own.bars" / "2" / "EURUSD.csv"
        self.program("ingest", "--append", written, "--out", by_program)
        self.assertEqual(out.read_bytes(), by_program.read_bytes())
        self.assertGreater(len(longer), len(ds))
        mb.leak(longer, samples=2)
        # Bars that are there already add no file, and neither do bars that are refused.
        self.assertEqual(len(longer.append(frame[8900:])), len(longer))
        later = frame[9000:]
        for wrong, message in [
            (later.assign(close=later["close"] * 1.001, high=later["high"] * 1.002), "EURUSD|of the frame"),
            (later.assign(high=later["high"].where(later.index != later.index[5])), "^row 5 of the frame: "),
            (later.assign(symbol="GBPUSD"), "^symbol 'GBPUSD': .*own.h5 has EURUSD; a new symbol needs a scaler"),
            (later.assign(company="Acme"), "^symbol 'Acme': the column company names it, and .*own.h5 has EURUSD; a new symbol"),
            # Rows of others were taken for those of the series, as no time has two.
            (later.assign(company=np.where(np.arange(len(later)) < 9, "EURUSD", "Acme")), "^symbol 'Acme': the column company names"),
            (later.assign(symbol="eur/usd"), r"^symbol 'eur/usd': .*own.h5 has EURUSD; did you mean EURUSD\?$"),
        ]:
            with self.assertRaisesRegex(mb.DataError, message):
                longer.append(wrong)
        self.assertEqual([file.name for file in (self.folder / "own.bars").iterdir() if file.is_dir()], ["2"])
        self.assertEqual(out.read_bytes(), by_program.read_bytes())

    def test_frames_of_several_instruments_are_appended(self) -> None:
        frame = self.frame()
        both = {name: frame[:9000].assign(symbol=name) for name in ("AAA", "BBB")}
        ds = mb.ingest(pandas.concat(both.values()), **BARS)
        longer = ds.append({name: frame[9000:] for name in both}).append(frame[9000:].assign(symbol="AAA"))
        self.assertEqual((longer.instruments, longer.path), (("AAA", "BBB"), ds.path))
        apart = pandas.concat([frame[9000:9100].assign(company="AAA"), frame[9100:9200].assign(company="BBB")])
        self.assertEqual({name: len(bars.rows) for name, bars in _frames.by_symbol(apart, None, known=ds.instruments).items()},
                         {"AAA": 100, "BBB": 100})
        self.assertGreater(len(longer), len(ds))
        self.assertEqual(len(mb.open(longer.path)), len(longer))
        with self.assertRaisesRegex(mb.DataError, "^the bars name no symbol: .* has AAA, BBB; name the instrument with symbol$"):
            longer.append(frame[9000:])
        folder = ds.path.parent
        del ds
        self.assertTrue(folder.exists())
        del longer
        # `ingest` writes them in upper case.
        lower = mb.ingest({"aapl": frame[:9000], "brk.b": frame[:9000]}, **BARS)
        self.assertEqual(lower.instruments, ("AAPL", "BRK.B"))
        longer = lower.append({"aapl": frame[9000:], "brk.b": frame[9000:]})
        self.assertEqual((longer.instruments, len(longer) > len(lower)), (("AAPL", "BRK.B"), True))
        with self.assertRaisesRegex(mb.DataError, r"did you mean BRK\.B\?$"):
            longer.append({"brk-b": frame[9000:]})
        with self.assertRaisesRegex(mb.DataError, "aapl"):
            longer.append({"aapl": frame[9000:], "AAPL": frame[9000:]})
        self.assertFalse(folder.exists())

    def test_a_clock_on_a_wall_is_stated_again(self) -> None:
        frame = self.frame()
        wall = frame.assign(time=frame["time"].dt.tz_convert("America/New_York").dt.tz_localize(None))
        zone = {"zone": "America/New_York"}
        ds = mb.ingest(wall[:9000], symbol="EURUSD", **zone, **BARS).append(wall[9000:], **zone)
        expected = mb.ingest(frame[:9000], symbol="EURUSD", **BARS).append(frame[9000:])
        self.assertEqual(ds.fingerprint(), expected.fingerprint())

    def test_times_are_by_the_clock_that_the_files_before_told(self) -> None:
        # The weeks of a broker's export tell its clock. A frame of later days came as UTC.
        frame = self.frame(28)
        known, later = frame[:26000], frame[26000:]
        broker = (frame["time"].dt.tz_convert("America/New_York") + pandas.Timedelta(hours=7)).dt.tz_localize(None)
        wall = frame.assign(time=broker)
        export = wall[:26000].drop(columns=["time", "volume"]).rename(columns=lambda name: f"<{name.upper()}>")
        export.insert(0, "<DATE>", broker[:26000].dt.strftime("%Y.%m.%d"))
        export.insert(1, "<TIME>", broker[:26000].dt.strftime("%H:%M:%S"))
        export = export.assign(**{"<TICKVOL>": known["volume"], "<VOL>": 0, "<SPREAD>": 2})
        export.to_csv(self.folder / "broker.csv", sep="\t", index=False)
        options = {**BARS, "features": ["log_return", "body", "day_sin"], "symbol": "EURUSD"}

        def made(name: str) -> mb.Dataset:
            return mb.ingest(self.folder / "broker.csv", out=self.folder / name, **options)

        expected = mb.ingest(known, **options).append(later)
        ds = made("ds.h5")
        run = mb.train(ds, {"model": {"hidden": 4, "layers": 1}}, out=self.folder / "run", max_steps=2)
        followed = [[forecast.time for forecast in run.follow(bars)] for bars in (wall[26000:], later)]
        self.assertEqual(followed[0], followed[1])
        self.assertGreater(len(followed[0]), 1000)
        self.assertEqual(ds.append(wall[26000:]).fingerprint(), expected.fingerprint())
        utc = later.assign(time=later["time"].dt.tz_localize(None))
        self.assertEqual(made("utc.h5").append(utc, zone="UTC").fingerprint(), expected.fingerprint())

        # Bars that were ingested by themselves have scalers of their own.
        other = mb.ingest(later, out=self.folder / "other.h5", **options)
        with self.assertLogs("megabatch", "WARNING") as logged:
            run.predict(other)
        self.assertRegex("\n".join(logged.output), r"other.h5: the features of EURUSD were scaled by .* \(M1, M5\)")
        with self.assertNoLogs("megabatch", "WARNING"):
            run.predict(mb.open(self.folder / "ds.h5"), samples=range(4), changed_data=True)
        test = other.split()[2]
        for call, text in (
            (lambda: run.predict(other, samples=np.arange(len(other)) % 2), "a mask is of bool"),
            (lambda: run.predict(test, part="train"), "the data are the part test already"),
            (lambda: run.evaluate(test, part="train"), "the data are the part test already"),
        ):
            with self.assertRaisesRegex(mb.ConfigError, text):
                call()

    def test_several_instruments(self) -> None:
        frame = self.frame()
        one, other = frame.assign(symbol="AAA"), frame.assign(symbol="BBB")
        both = mb.ingest(pandas.concat([one, other]), **BARS)
        self.assertEqual(both.instruments, ("AAA", "BBB"))
        by_name = mb.ingest({"AAA": frame, "BBB": frame}, **BARS)
        self.assertEqual(by_name.fingerprint(), both.fingerprint())
        self.assertEqual(set(both.sample_instruments), {0, 1})
        only = mb.ingest(pandas.concat([one, other[: len(other) // 2]]), symbol="AAA", **BARS)
        self.assertEqual(only.fingerprint(), mb.ingest(frame, symbol="AAA", **BARS).fingerprint())
        with self.assertRaisesRegex(mb.DataError, "no row of the frame has the symbol CCC; there are AAA$"):
            mb.ingest(one, symbol="CCC", **BARS)
        with self.assertRaisesRegex(mb.DataError, "no frame has the symbol BRK-B; there are BRK.B, .* and 3 more; did you mean BRK.B\\?$"):
            mb.ingest(dict.fromkeys(("A", "B", "C", "D", "E", "F", "G", "BRK.B"), frame), symbol="BRK-B", **BARS)
        with self.assertRaisesRegex(mb.DataError, "no frame has the symbol CCC; there are AAA, BBB"):
            mb.ingest({"AAA": frame, "BBB": frame}, symbol="CCC", **BARS)
        # One symbol may have any name, as in a file; each of several has a file.
        for name in ("A/B", "A" * 300, "..", "Ä B"):
            self.assertEqual(mb.ingest({name: frame}, **BARS).facts["symbol"], name)
        for name, fault in (("A/B", "'A/B' has a character"), ("A" * 300, "'A{40}…' is 300 bytes long"), (" ", "' ' is empty")):
            with self.assertRaisesRegex(mb.DataError, f"^symbol {fault}.*: expected a name that a file may have"):
                mb.ingest({name: frame, "C": frame}, **BARS)
        blanks = pandas.concat([frame.assign(symbol=" AAA "), frame.assign(symbol="BBB")])
        self.assertEqual(mb.ingest(blanks, **BARS).fingerprint(), both.fingerprint())

    def test_a_clock_on_a_wall_has_a_zone(self) -> None:
        frame = self.frame()
        wall = frame.assign(time=frame["time"].dt.tz_convert("America/New_York").dt.tz_localize(None))
        ds = mb.ingest(wall, symbol="EURUSD", zone="America/New_York", **BARS)
        expected = mb.ingest(frame, symbol="EURUSD", **BARS)
        self.assertEqual(ds.fingerprint(), expected.fingerprint())

    def test_a_clock_that_the_weeks_do_not_fit_is_doubted_as_in_a_file(self) -> None:
        # A broker's times came as UTC out of a frame, without a word.
        frame = self.frame(28)
        wall = frame.assign(time=(frame["time"].dt.tz_convert("America/New_York") + pandas.Timedelta(hours=7)).dt.tz_localize(None))
        with self.assertLogs("megabatch", "WARNING") as logged:
            mb.ingest(wall, symbol="EURUSD", **BARS)
        self.assertRegex("\n".join(logged.output), "read as UTC, but then only 0 of . weeks close on Friday at 17:00 .* check the time zone")
        with self.assertLogs("megabatch", "WARNING") as logged:
            ds = mb.ingest({"AAA": wall, "BBB": wall}, **BARS)
        said = "\n".join(logged.output)
        for symbol in ds.instruments:
            self.assertRegex(said, f"WARNING:megabatch:{symbol}: .*read as UTC, but then only 0 of . weeks")
        for bars, options in ((frame, {}), (wall, {"zone": "new-york+7"})):
            with self.assertNoLogs("megabatch", "WARNING"):
                mb.ingest(bars, symbol="EURUSD", **options, **BARS)

    def test_whole_numbers_are_times_in_the_unit_that_their_size_tells(self) -> None:
        frame = self.frame(3)
        expected = mb.ingest(frame, symbol="EURUSD", **BARS).fingerprint()
        ns = frame["time"].dt.tz_convert("UTC").dt.tz_localize(None).astype("datetime64[ns]").astype("int64")
        # Vendors change their unit within a file.
        mixed = ns // 1_000_000
        mixed[1000:] *= 1000
        for numbers in (ns // 1_000_000_000, ns // 1_000_000, ns // 1_000, ns, mixed, (ns // 1_000_000_000).astype("uint32")):
            own = frame.assign(time=numbers)
            for table in (own, polars.from_pandas(own), pyarrow.Table.from_pandas(own)):
                self.assertEqual(mb.ingest(table, symbol="EURUSD", **BARS).fingerprint(), expected)
        # Floats were no times, and the advice made those of 1970 of them.
        for floats in ((ns // 1_000_000_000).astype(float), (ns // 1_000_000).astype("Float64"), mixed.astype(float)):
            own = frame.assign(time=floats)
            for table in (own, polars.from_pandas(own), pyarrow.Table.from_pandas(own)):
                self.assertEqual(mb.ingest(table, symbol="EURUSD", **BARS).fingerprint(), expected)
        wall = frame["time"].dt.tz_convert("America/New_York").dt.tz_localize(None).astype("datetime64[s]").astype("int64")
        ds = mb.ingest(frame.assign(time=wall), symbol="EURUSD", zone="America/New_York", **BARS)
        self.assertEqual(ds.fingerprint(), expected)
        with self.assertRaisesRegex(mb.DataError, "row 7 of the frame: time is NaT"):
            missing = (ns // 1_000_000).astype("Int64").where(frame.index != 7)
            mb.ingest(frame.assign(time=missing), symbol="EURUSD", **BARS)

    def test_fractions_of_numbers_of_time_are_kept(self) -> None:
        from megabatch import _frames

        seconds = np.array([1_704_067_200.25, 1.7040672e9, np.nan, 1e300, -1.0])
        found = _frames.epoch_ns(seconds)
        self.assertEqual(found[:2].tolist(), [1_704_067_200_250_000_000, 1_704_067_200_000_000_000])
        self.assertTrue((found[2:] == np.iinfo(np.int64).min).all())

    def test_frames_that_are_no_bars(self) -> None:
        frame = self.frame(3)
        text = frame["time"].astype(str)
        numbers = frame["time"].astype("int64")
        nat = frame["time"].where(frame.index != 7)
        cases: list[tuple[Any, str]] = [
            (frame.drop(columns="close"), "no column close; expected open, high, low and close"),
            (frame.drop(columns="time"), "the frame has no times"),
            (frame.assign(time=text), "time is of dtype (object|str)"),
            (frame.assign(time=0.5), "row 0 of the frame: time is 0.5, which is no time between 1980 and 2099"),
            (frame.assign(time=np.inf), "row 0 of the frame: time is inf, which is no time between 1980 and 2099"),
            (frame.assign(time=numbers.where(frame.index != 4, 20240102)), "row 4 of the frame: time is 20240102, which is no"),
            (frame.assign(time=nat), "row 7 of the frame: time is NaT"),
            (frame.assign(open=frame["open"].astype(str)), "column open is of dtype"),
            (frame.assign(open=[object()] * len(frame)), "column open is of dtype object"),
            (frame[:0], "^the frame: it has no rows"),
            (frame.sample(frac=1.0, random_state=1), "row|line"),
            (frame.assign(high=frame["high"].where(frame.index != 5)), "^row 5 of the frame: "),
            (polars.DataFrame({"time": [1, 2]}), "no column open|expected times"),
            (polars.DataFrame({"time": [None, datetime.datetime(2024, 1, 1)], **dict.fromkeys(
                ("open", "high", "low", "close"), [1.0, 1.0])}), "row 0 of the frame: time is NaT"),
            (pyarrow.table({"time": ["x"]}), "no column open|expected times"),
            (frame["close"], "this is a Series of pandas, one column: expected a frame with open, high, low, close and times"),
            (polars.from_pandas(frame)["close"], "this is a Series of polars, one column: expected a frame"),
            (pyarrow.table({"close": [1.0]})["close"], "this is a ChunkedArray of pyarrow, one column: expected a frame"),
            ({"EURUSD": frame["close"]}, "this is a Series of pandas, one column"),
            (pandas.Index(["a"]), "this is an Index of pandas, one column: expected a frame"),
            ([1, 2], "no path of a file of bars"),
            (np.zeros((3, 5)), "no path of a file of bars"),
        ]
        for wrong, message in cases:
            with self.assertRaisesRegex((mb.DataError, TypeError), message, msg=message):
                mb.ingest(wrong, symbol="EURUSD", **BARS)
        with self.assertRaises(mb.DataError) as caught:
            mb.ingest(frame.assign(high=frame["high"].where(frame.index != 5)), symbol="EURUSD", **BARS)
        self.assertEqual(caught.exception.fields["row"], 5)
        mended = frame.assign(high=frame["high"].where(frame.index != 5))
        self.assertGreater(len(mb.ingest(mended, symbol="EURUSD", on_error="skip", **BARS)), 0)
        for options, message in [
            ({"horizn": 3}, "the nearest is horizon"),
            ({"timeframes": {"M7": 3}}, "M7"),
            ({"features": ["none"]}, "none"),
            ({"symbol": ["EURUSD"]}, r"^symbol=\['EURUSD'\]: expected a text, the name of one instrument$"),
            ({"horizon": 2.5}, r"^horizon=2\.5: expected a whole number of base bars from 1 on$"),
        ]:
            with self.assertRaisesRegex(mb.ConfigError, message):
                mb.ingest(frame, **{"symbol": "EURUSD", **BARS, **options})
        with self.assertRaisesRegex(mb.DataError, "^context MKT: this is a Series of pandas, one column: expected a frame"):
            mb.ingest(frame, symbol="EURUSD", context={"MKT": frame["close"]}, **BARS)

    def test_what_became_of_the_rows_is_told(self) -> None:
        frame = self.frame()
        holed = frame.assign(close=frame["close"].where((frame.index < 100) | (frame.index >= 130)))
        copied = pandas.concat([holed, holed[500:600]]).sort_values("time")
        with self.assertLogs("megabatch", "WARNING") as logs:
            ds = mb.ingest({"AAA": copied, "BBB": frame, "CCC": frame[:20]}, on_error="skip", **BARS)
        report = ds.report
        assert report is not None
        self.assertEqual(report.dropped, {"AAA": {"unreadable row": 30, "copy of an earlier row": 100}})
        self.assertEqual((list(report.left_out), report.repaired, report.warnings), (["CCC"], {}, []))
        self.assertIn("left out, 1:", repr(report))
        said = "\n".join(logs.output)
        self.assertIn("AAA: 30 as unreadable row, 100 as copy of an earlier row dropped", said)
        self.assertIn("left out: CCC: too few bars", said)
        self.assertIsNone(mb.open(ds.path).report)
        file = self.folder / "AAA.csv"
        copied.to_csv(file, index=False)
        with self.assertLogs("megabatch", "WARNING") as logs:
            by_file = mb.ingest(file, on_error="skip", **BARS).report
        assert by_file is not None
        self.assertEqual(by_file.dropped, report.dropped)
        with self.assertNoLogs("megabatch", "WARNING"):
            longer = mb.ingest(frame[:9000], symbol="AAA", **BARS).append(frame[8900:])
        assert longer.report is not None
        self.assertGreater(longer.report.facts["appended"]["samples"], 0)

    def test_an_error_names_the_row_of_the_frame(self) -> None:
        frame = self.frame(3)
        bad = frame["high"].where(frame.index != 5)
        both = pandas.concat([frame.assign(symbol="AAA"), frame.assign(symbol="BBB", high=bad)], ignore_index=True)
        mixed = both.sort_values(["time", "symbol"], ignore_index=True)
        wide = pandas.concat({name: both[both["symbol"] == name].set_index("time").iloc[:, :-1] for name in ("AAA", "BBB")}, axis=1)
        for own, row in [
            (both, len(frame) + 5),
            (mixed, 11),
            (wide, 5),
            (polars.from_pandas(mixed), 11),
            ({"AAA": frame, "BBB": frame.assign(high=bad)}, 5),
        ]:
            with self.assertRaisesRegex(mb.DataError, rf"^row {row} of the frame \(BBB\): ") as caught:
                mb.ingest(own, **BARS)
            self.assertEqual((caught.exception.row, caught.exception.line), (row, 7))
            self.assertNotIn(".csv", str(caught.exception))
        # Each of two files had a prefix before all of the text.
        worse = frame["high"].where(frame.index != 6)
        lines = r"cannot be used:\n *AAA: row 5 of the frame \(AAA\): .*\n *BBB: row 6 of the frame \(BBB\): "
        with self.assertRaisesRegex(mb.DataError, lines):
            mb.ingest({"AAA": frame.assign(high=bad), "BBB": frame.assign(high=worse)}, **BARS)
        ds = mb.ingest(both[: len(frame)], out=self.folder / "own.h5", **BARS)
        later = frame.assign(symbol="AAA", time=frame["time"] + pandas.Timedelta(days=7), high=bad)
        with self.assertRaisesRegex(mb.DataError, "^row 5 of the frame: ") as caught:
            ds.append(later)
        self.assertNotIn(".csv", str(caught.exception))
        bars = next(iter(_frames.by_symbol(frame, "AAA").values()))
        for text, expected in [
            ("own.csv: no rows", "the frame: no rows"),
            ("own.csv: line 1: no header", "the frame: line 1: no header"),
            ("own.csv: line 2: no price", "row 0 of the frame: no price"),
            ("a.csv: line 2: no price", "a.csv: line 2: no price"),
            ("own.csv: line 9: line 2 is another", "row 7 of the frame: row 0 is another"),
            ("own.csv: line 2 of own.csv has none", "the frame: row 0 has none"),
            ("own.csv: line 3: bad\n  a.csv: line 3: bad", "row 1 of the frame: bad\n  a.csv: line 3: bad"),
        ]:
            self.assertEqual(str(bars.with_row(mb.DataError(text), "own.csv")), expected)

    def test_the_symbol_has_the_names_that_files_know(self) -> None:
        frame = self.frame(3)
        for name in (
            "symbol", "Ticker", "tic", "instrument", "pair", "Ticker Symbol", "Trading_Symbol", "symbol name", "stock-symbol",
            "Currency Pair", "asset", "Name", "Stock Code", "stock", "stock name", "security", "Security ID", "secid", "PERMNO",
            "ISIN", "CUSIP", "SEDOL", "FIGI", "RIC", "company", "Company Name", "coin",
        ):
            both = pandas.concat([frame.assign(**{name: "AAA"}), frame.assign(**{name: "BBB"})], ignore_index=True)
            self.assertEqual(mb.ingest(both, **BARS).instruments, ("AAA", "BBB"), name)

    def test_numbers_with_fractions_name_no_symbols(self) -> None:
        # Each number of a feature was a symbol.
        frame = self.frame(3)
        frame["stock"] = np.arange(len(frame)) / 4
        for own in (frame, polars.from_pandas(frame)):
            ds = mb.ingest(own, symbol="EURUSD", features=["body", "stock"], **BARS)
            self.assertEqual((ds.facts["symbol"], ds.features["M1"]), ("EURUSD", ("body", "column:stock")))
        codes = frame.assign(stock=7203.0)
        self.assertEqual(list(_frames.by_symbol(codes, None)), ["7203.0"])

    def test_a_name_that_changes_within_a_share_is_no_symbol(self) -> None:
        # A share whose company was renamed was two instruments.
        frame = self.frame(3)
        renamed = frame.assign(company=np.where(np.arange(len(frame)) < 100, "Facebook", "Meta"))
        shared = pandas.concat([renamed, renamed[:1].assign(company="Meta")], ignore_index=True)
        for own in (renamed, polars.from_pandas(renamed)):
            found = _frames.by_symbol(own, "META")
            self.assertEqual([(name, len(bars.rows)) for name, bars in found.items()], [("META", len(frame))])
        found = _frames.by_symbol(shared, None)
        self.assertEqual([len(bars.rows) for bars in found.values()], [100, len(frame) - 99])

    def test_a_company_may_be_another_name_of_the_symbol(self) -> None:
        # A file with the same rows was read.
        frame = self.frame(3)
        named, expected = frame.assign(company="Facebook"), mb.ingest(frame, symbol="META", **BARS).fingerprint()
        for own in (named, polars.from_pandas(named), {"META": named}):
            ds = mb.ingest(own, symbol="META", **BARS)
            self.assertEqual((ds.facts["symbol"], ds.fingerprint()), ("META", expected))
        self.assertEqual(list(_frames.by_symbol(named, None)), ["Facebook"])
        with self.assertRaisesRegex(mb.DataError, "no row of the frame has the symbol META; there are Facebook"):
            mb.ingest(named.rename(columns={"company": "symbol"}), symbol="META", **BARS)

    def test_a_long_frame_is_read_once_for_all_symbols(self) -> None:
        # Each of 504 symbols took a comparison with all rows.
        compared = 0

        class Name(str):
            def __eq__(self, other: object) -> bool:
                nonlocal compared
                compared += 1
                return str.__eq__(self, other)

            __hash__ = str.__hash__

        names = [Name(f"S{k}") for k in range(20)]
        rows = self.frame(3)[:200].assign(symbol=pandas.Series([names[k * k % 20] for k in range(200)], dtype=object))
        found = _frames.by_symbol(rows, None)
        self.assertLess(compared, 200)
        self.assertEqual(list(found), ["S0", "S1", "S4", "S9", "S16", "S5"])
        for name, bars in found.items():
            np.testing.assert_array_equal(bars.rows, [k for k in range(200) if f"S{k * k % 20}" == name])
            np.testing.assert_array_equal(bars.columns["close"], rows["close"].to_numpy()[bars.rows])

    def test_a_column_of_symbols_without_a_known_name_is_told(self) -> None:
        frame = self.frame(3)
        both = pandas.concat([frame.assign(bolsa="AAA"), frame.assign(bolsa="BBB")], ignore_index=True)
        for own in (both, polars.from_pandas(both)):
            with self.assertRaisesRegex(mb.DataError, "the column bolsa tells them apart, with AAA, BBB: .* call it symbol") as caught:
                mb.ingest(own, **BARS)
            self.assertEqual(caught.exception.fields["column"], "bolsa")
        self.assertEqual(mb.ingest(both.rename(columns={"bolsa": "symbol"}), **BARS).instruments, ("AAA", "BBB"))

    def test_codes_of_shares_may_be_numbers(self) -> None:
        frame = self.frame()
        both = pandas.concat([frame.assign(symbol=7203), frame.assign(symbol=6758)])
        self.assertEqual(mb.ingest(both, **BARS).instruments, ("6758", "7203"))
        for one in (mb.ingest(both, symbol="7203", **BARS), mb.ingest({"7203": frame.assign(symbol=7203)}, **BARS)):
            self.assertEqual(one.facts["symbol"], "7203")

    def test_a_frame_in_the_place_of_a_file_is_answered_plainly(self) -> None:
        frame = self.frame(3)
        ds = mb.ingest(frame, symbol="EURUSD", **BARS)
        run = mb.train(ds, {"model": {"hidden": 4}}, out=self.folder / "run", max_steps=1)
        calls: dict[str, Any] = {
            "train": lambda: mb.train(frame),
            "plan": lambda: mb.plan(frame),
            "open": lambda: mb.open(frame),
            "leak": lambda: mb.leak(frame),
            "predict": lambda: run.predict(frame),
            "evaluate": lambda: run.evaluate(polars.from_pandas(frame)),
            "follow": lambda: run.follow(data=frame),
            "export": lambda: run.export(self.folder / "model.onnx", data=frame),
        }
        for name, call in calls.items():
            with self.assertRaisesRegex(mb.ConfigError, rf"^{name} takes .*, and this is a frame of (pandas|polars): .*mb\.ingest"):
                call()
        for own in ([frame, frame], (frame,), [self.folder / "EURUSD.csv", frame]):
            with self.assertRaisesRegex(mb.DataError, "a list has a frame of pandas in it: .*mapping of frames by symbol"):
                mb.ingest(own, **BARS)
        with self.assertRaisesRegex(mb.ConfigError, "graph.build takes files or frames, and this is a dataset"):
            mb.graph.build(ds, self.folder / "graphs.mbg", kind="correlation")

    def test_table_files_are_frames(self) -> None:
        frame = self.frame()
        expected = mb.ingest(frame, symbol="EURUSD", **BARS).fingerprint()
        folder = self.folder / "tables"
        folder.mkdir()
        frame.to_parquet(folder / "EURUSD.parquet")
        polars.from_pandas(frame).write_ipc(folder / "GBPUSD.arrow", compression="zstd")
        for bars, symbol in ((folder / "EURUSD.parquet", None), (str(folder / "GBPUSD.arrow"), "EURUSD")):
            ds = mb.ingest(bars, symbol=symbol, **BARS)
            self.assertEqual((ds.fingerprint(), ds.facts["symbol"]), (expected, "EURUSD"))
        both = mb.ingest(folder, **BARS)
        self.assertEqual(both.instruments, ("EURUSD", "GBPUSD"))
        self.assertEqual(both.fingerprint(), mb.ingest({"EURUSD": frame, "GBPUSD": frame}, **BARS).fingerprint())
        rows = pandas.concat([frame.assign(symbol=name) for name in ("A", "B")])
        rows.to_parquet(self.folder / "rows.pq")
        self.assertEqual(mb.ingest(self.folder / "rows.pq", **BARS).instruments, ("A", "B"))
        # And so are bars that came since, and other instruments.
        cut = len(frame) * 9 // 10
        earlier = mb.ingest(frame[:cut], symbol="EURUSD", out=self.folder / "own.h5", context={"GBP": folder / "GBPUSD.arrow"}, **BARS)
        self.assertIn("GBP.log_return", str(earlier.features["M1"]))
        frame[cut - 10 :].to_parquet(self.folder / "since.parquet")
        later = mb.ingest(frame[:cut], symbol="EURUSD", out=self.folder / "own.h5", **BARS).append(self.folder / "since.parquet")
        self.assertGreater(len(later), len(earlier))
        for bars, kind, text in (
            (self.folder / "none.parquet", mb.DataError, "none.parquet: there is no such file"),
            ([folder / "EURUSD.parquet", self.folder / "EURUSD.csv"], mb.ConfigError, "EURUSD.csv: bars are table files or text"),
            ([folder / "EURUSD.parquet", self.folder / "rows.pq"], mb.DataError, "rows.pq: it has a column of symbols"),
            ([folder / "EURUSD.parquet"] * 2, mb.DataError, "a file of the symbol EURUSD was named before"),
        ):
            with self.assertRaisesRegex(kind, text):
                mb.ingest(bars, **BARS)
        (folder / "EURUSD.parquet").write_bytes(b"no table")
        with self.assertRaisesRegex(mb.DataError, "EURUSD.parquet: "):
            mb.ingest(folder / "EURUSD.parquet", **BARS)

    def test_an_old_frame_of_the_same_file_is_replaced(self) -> None:
        frame = self.frame()
        out = self.folder / "own.h5"
        first = mb.ingest(frame, symbol="EURUSD", out=out, **BARS).fingerprint()
        later = mb.ingest(frame[: len(frame) * 9 // 10], symbol="EURUSD", out=out, **BARS)
        self.assertNotEqual(later.fingerprint(), first)
        mb.leak(later, samples=2)


    def test_an_ingest_that_fails_leaves_file_and_bars_as_they_were(self) -> None:
        frame = self.frame()
        out, bars = self.folder / "own.h5", self.folder / "own.bars"
        first = mb.ingest(frame[:9000], symbol="EURUSD", out=out, **BARS).append(frame[9000:])

        def contents() -> dict[str, bytes]:
            files = [out, *(file for file in bars.rglob("*") if file.is_file())]
            return {str(file): file.read_bytes() for file in files}

        before = contents()
        self.assertGreater(len(before), 2)
        for wrong in (
            {"horizon": 10**6},
            {"horizn": 3},
            {"features": ["none"]},
        ):
            with self.assertRaises(mb.MegabatchError):
                mb.ingest(frame, symbol="EURUSD", out=out, **{**BARS, **wrong})
            self.assertEqual(contents(), before, wrong)
        with self.assertRaises(mb.DataError):
            mb.ingest(frame.assign(high=0.0), symbol="EURUSD", out=out, **BARS)
        self.assertEqual(contents(), before)
        mb.leak(first, samples=2)
        # A file in the place of an old one takes the bars of the old one with it.
        later = mb.ingest({"EURUSD": frame}, out=out, **BARS)
        mb.leak(later, samples=2)
        self.assertEqual(len(list(bars.rglob("*.csv"))), 1)
        mb.leak(later.append(frame[-100:]), samples=2)

    def test_a_folder_that_ingest_did_not_make_is_not_touched(self) -> None:
        frame = self.frame()
        own = self.folder / "own.bars"
        own.mkdir()
        (own / "EURUSD.csv").write_text("bars of my own")
        with self.assertRaisesRegex(mb.ConfigError, "own.bars: .* not made by megabatch"):
            mb.ingest(frame, symbol="EURUSD", out=self.folder / "own.h5", **BARS)
        self.assertEqual([file.name for file in own.iterdir()], ["EURUSD.csv"])
        self.assertFalse((self.folder / "own.h5").exists())
        # Files of others in our folder stay.
        (own / "EURUSD.csv").unlink()
        own.rmdir()
        mb.ingest(frame, symbol="EURUSD", out=self.folder / "own.h5", **BARS)
        (own / "notes.txt").write_text("notes")
        (own / "GBPUSD.csv").write_text("bars of my own")
        (own / "mine").mkdir()
        mb.ingest(frame[:9000], symbol="EURUSD", out=self.folder / "own.h5", **BARS)
        names = sorted(file.name for file in own.iterdir())
        self.assertEqual([name for name in names if not name.startswith(".")], ["2", "GBPUSD.csv", "mine", "notes.txt"])


class Columns(InFolder):
    """Columns that files know are those that frames know."""

    DAILY: dict[str, Any] = {
        "timeframes": {"D1": 5}, "target": "log_return", "horizon": 2, "pip_size": 0.01,
        "features": ["log_return", "range", "log_volume", "spread_pips"],
    }

    def test_a_file_and_its_frame_have_one_fingerprint(self) -> None:
        seen: dict[str, int] = {}
        for seed in range(16):
            chance = random.Random(seed)
            frame = self.daily_bars(chance)
            file = self.folder / "AAA.csv"
            frame.to_csv(file, index=False)
            by_file = mb.ingest(file, **self.DAILY)
            frames: dict[str, Any] = {"pandas": frame, "by its index": frame.set_index("Date")}
            if frame.columns.is_unique:
                frames["polars"] = polars.DataFrame({name: frame[name].to_numpy() for name in frame})
                frames["pyarrow"] = pyarrow.table({name: pyarrow.array(frame[name]) for name in frame})
            if "Time" in frame:
                del frames["by its index"]
            for name, own in frames.items():
                by_frame = mb.ingest(own, symbol="AAA", **self.DAILY)
                self.assertEqual(by_frame.fingerprint(), by_file.fingerprint(), (seed, name, list(frame)))
            for name in frame:
                seen[name] = seen.get(name, 0) + 1
        self.assertLessEqual({"Adj Close", "adjusted_close", "Tick Volume", "Spread", "Time", "Stock Splits"}, set(seen))

    def daily_bars(self, chance: random.Random) -> pandas.DataFrame:
        """Bars of days with columns of many names in any order."""
        rows = 90
        close = [100.0]
        while len(close) < rows:
            close.append(round(close[-1] * math.exp(chance.gauss(0, 0.02)), 4))
        first = [close[0], *close[:-1]]
        factor = [0.125 if row < rows // 2 else 1.0 for row in range(rows)]

        def volumes() -> list[float]:
            return [float(chance.randrange(1, 10**6)) for _ in range(rows)]

        columns: dict[str, list[Any]] = {
            chance.choice(["Open", "open", "OPEN", "Open price"]): first,
            chance.choice(["High", "high"]): [round(max(pair) * 1.01, 4) for pair in zip(first, close)],
            chance.choice(["Low", "low"]): [round(min(pair) * 0.99, 4) for pair in zip(first, close)],
            chance.choice(["Close", "close"]): close,
        }
        adjusted = [price * share for price, share in zip(close, factor)]
        others: dict[str, list[Any]] = {
            chance.choice(["Adj Close", "adjusted_close", "Close_adj"]): adjusted,
            chance.choice(["Volume", "volume", "Vol.", "VOL"]): volumes(),
            chance.choice(["Tick Volume", "TickVol", "tick_volume"]): volumes(),
            chance.choice(["Spread", "spread"]): [round(chance.random() / 10, 3) for _ in range(rows)],
            chance.choice(["Stock Splits", "split_coefficient"]): [0.0 if row != rows // 2 else 8.0 for row in range(rows)],
            chance.choice(["Dividends", "dividend_amount"]): [0.0] * rows,
            "Own": volumes(),
            "Note": ["text"] * rows,
        }
        columns.update({name: own for name, own in others.items() if chance.random() < 0.6})
        names = list(columns)
        chance.shuffle(names)
        frame = pandas.DataFrame({name: columns[name] for name in names})
        days = pandas.bdate_range("2020-01-01", periods=rows)
        if chance.random() < 0.2:
            frame.insert(0, "Time", [datetime.time(0, 0)] * rows)
        frame.insert(0, "Date", days)
        return frame

    def test_a_split_is_no_fall_of_the_price(self) -> None:
        close = [700.0 + day for day in range(60)] + [100.0 + day for day in range(60)]
        days = pandas.bdate_range("2020-01-01", periods=len(close))
        prices = {"Open": close, "High": close, "Low": close, "Close": close}
        frame = pandas.DataFrame({"Date": days, **prices})
        frame["Adj Close"] = [price / 7 if day < 60 else price for day, price in enumerate(close)]
        ds = mb.ingest(frame, symbol="AAA", **self.DAILY)
        self.assertLess(np.abs(ds[np.arange(len(ds))]["targets"]).max(), 0.1)
        quoted = mb.ingest(frame, symbol="AAA", prices="quoted", **self.DAILY)
        self.assertGreater(np.abs(quoted[np.arange(len(quoted))]["targets"]).max(), 1.5)

    def test_the_columns_of_yfinance(self) -> None:
        days = pandas.bdate_range("2020-01-01", periods=100)
        tables = {}
        for k, name in enumerate(("AAA", "BBB")):
            close = 50 * np.exp(np.cumsum(np.random.default_rng(k).normal(0, 0.02, 100)))
            table = pandas.DataFrame({"Adj Close": close / 2, "Close": close, "High": close * 1.01, "Low": close * 0.99,
                                      "Open": close, "Volume": np.arange(100) + 1000}, index=days)
            table.index.name = "Date"
            tables[name] = table
        tables["BBB"] = tables["BBB"].drop(days[40:43])
        expected = mb.ingest(tables, **self.DAILY)
        by_ticker = pandas.concat(tables, axis=1, names=["Ticker", "Price"])
        by_price = by_ticker.swaplevel(axis=1).sort_index(axis=1)
        self.assertTrue(by_price.isna().any(axis=None))
        for frame in (by_ticker, by_price, by_price.reset_index(), by_price.stack(future_stack=True).dropna()):
            ds = mb.ingest(frame, **self.DAILY)
            self.assertEqual((ds.instruments, ds.fingerprint()), (("AAA", "BBB"), expected.fingerprint()))
        alone = mb.ingest(tables["AAA"], symbol="AAA", **self.DAILY).fingerprint()
        self.assertEqual(mb.ingest(by_price, symbol="AAA", **self.DAILY).fingerprint(), alone)
        one = by_price.loc[:, by_price.columns.get_level_values(1) == "AAA"]
        self.assertEqual(mb.ingest(one, **self.DAILY).fingerprint(), alone)
        # Stacked, a share that was listed late has rows without prices.
        late = by_price.copy()
        late.loc[days[:30], late.columns.get_level_values(1) == "BBB"] = np.nan
        long = late.stack(future_stack=True).reset_index().sort_values(["Ticker", "Date"], ignore_index=True)
        self.assertTrue(long["Close"].isna().any())
        listed = mb.ingest(late, **self.DAILY).fingerprint()
        for own in (long, polars.from_pandas(long), long.set_index(["Date", "Ticker"])):
            self.assertEqual(mb.ingest(own, **self.DAILY).fingerprint(), listed)
        for missing in (np.nan, None, pandas.NA):
            unnamed = long.assign(Ticker=long["Ticker"].astype(object).where(long.index < 120, missing))
            with self.assertRaisesRegex(mb.DataError, "row 120 of the frame: Ticker is (nan|None|<NA>); name the .* 80 rows") as caught:
                mb.ingest(unnamed, **self.DAILY)
            self.assertEqual(caught.exception.row, 120)
        with self.assertRaisesRegex(mb.DataError, "no column of the frame has the symbol CCC; there are AAA, BBB"):
            mb.ingest(by_price, symbol="CCC", **self.DAILY)
        with self.assertRaisesRegex(mb.DataError, "have 2 levels; expected one, or one of open, high"):
            mb.ingest(by_price.drop(columns=["Open", "High"], level=0), **self.DAILY)
        for turned in (by_price, by_price.swaplevel(axis=1)):
            misspelled = turned.rename(columns={"Close": "Closse"})
            with self.assertRaisesRegex(mb.DataError, "have no close beside the other prices; there are .*Closse") as refused:
                mb.ingest(misspelled, **self.DAILY)
            self.assertEqual(refused.exception.column, "close")

    def wide(self) -> pandas.DataFrame:
        """Bars of the tickers AAA and BBB in columns of two levels, prices first."""
        chance = random.Random(3)
        tables = {}
        for name in ("AAA", "BBB"):
            rows = [100 * math.exp(chance.gauss(0, 0.02)) for _ in range(80)]
            tables[name] = pandas.DataFrame({"Open": rows, "High": rows, "Low": rows, "Close": rows},
                                            index=pandas.bdate_range("2020-01-01", periods=80, name="Date"))
        return pandas.concat(tables, axis=1, names=["Ticker", "Price"]).swaplevel(axis=1).sort_index(axis=1)

    def test_a_row_without_prices_is_a_missing_bar(self) -> None:
        wide = self.wide()
        wide.loc[wide.index[40], wide.columns.get_level_values("Ticker") == "AAA"] = np.nan
        one = wide.xs("AAA", axis=1, level="Ticker")
        # It was refused in a frame of one instrument, and left out in silence in one of several.
        with self.assertLogs("megabatch", "WARNING") as logs:
            alone = mb.ingest(one, symbol="AAA", out=self.folder / "own.h5", **self.DAILY)
        self.assertIn("AAA: 1 as row without prices dropped", "\n".join(logs.output))
        self.assertEqual(alone.fingerprint(), mb.ingest(one.dropna(), symbol="AAA", **self.DAILY).fingerprint())
        for ds in (alone, mb.ingest(wide, **self.DAILY)):
            assert ds.report is not None
            self.assertEqual(ds.report.dropped, {"AAA": {"row without prices": 1}})
            self.assertIn("rows without prices, which are missing bars: AAA 1\n", repr(ds.report))
        partly = wide.copy()
        partly.loc[wide.index[50], ("Close", "AAA")] = np.nan
        for frame in (partly, partly.xs("AAA", axis=1, level="Ticker")):
            with self.assertRaisesRegex(mb.DataError, "row 50 of the frame.*: unreadable row: "):
                mb.ingest(frame, **self.DAILY)

    def test_bars_of_months_are_refused_as_such(self) -> None:
        one = self.wide().xs("AAA", axis=1, level="Ticker")
        months = one.set_axis(pandas.date_range("2018-01-01", periods=len(one), freq="MS", name="Date"))
        for base in (None, "MN1", "D1"):
            with self.assertRaisesRegex(mb.DataError, "79 of 79 neighbouring bars are a month apart: .* of a day or shorter"):
                mb.ingest(months, symbol="AAA", base=base, **self.DAILY)

    def test_a_ticker_whose_download_failed_is_named(self) -> None:
        wide = self.wide()
        expected = mb.ingest(wide, symbol="AAA", **self.DAILY)
        failed = wide.copy()
        failed.loc[:, failed.columns.get_level_values("Ticker") == "BBB"] = np.nan
        by_name = {name: failed.xs(name, axis=1, level="Ticker") for name in ("AAA", "BBB")}
        for frame in (failed, by_name):
            with self.assertRaisesRegex(mb.DataError, r'^BBB: all 80 rows are empty \(a failed download\?\): .* on_error="skip"') as caught:
                mb.ingest(frame, **self.DAILY)
            self.assertEqual(caught.exception.symbol, "BBB")
            with self.assertLogs("megabatch", "WARNING") as logs:
                ds = mb.ingest(frame, on_error="skip", **self.DAILY)
                sized = mb.ingest(frame, on_error="skip", **{**self.DAILY, "pip_size": {"AAA": 0.01, "BBB": 0.01}})
            self.assertEqual(sized.fingerprint(), expected.fingerprint())
            self.assertIn("left out: BBB: all 80 rows are empty (a failed download?)", "\n".join(logs.output))
            assert ds.report is not None
            self.assertEqual(list(ds.report.left_out), ["BBB"])
            self.assertTrue(repr(ds.report).startswith("left out: BBB: all 80 rows"))
            self.assertEqual(ds.fingerprint(), expected.fingerprint())
        with self.assertRaisesRegex(mb.DataError, "^AAA, BBB: all 80 rows are empty .*: download the bars again$"):
            mb.ingest(failed * np.nan, on_error="skip", **self.DAILY)

    def test_a_new_day_without_prices_is_a_missing_bar_of_its_ticker(self) -> None:
        wide = self.wide()
        ds = mb.ingest(wide[:70], **self.DAILY)
        new = wide[70:71].copy()
        new.loc[:, new.columns.get_level_values("Ticker") == "BBB"] = np.nan
        longer = ds.append(new)
        assert longer.report is not None
        self.assertEqual(longer.report.facts["appended"]["bars"], {"AAA": 1, "BBB": 0})
        self.assertIn("BBB: its only row is empty (a failed download?), and it has no new bar", longer.report.warnings)
        # The next days have both again.
        again = longer.append(wide[71:])
        assert again.report is not None
        self.assertEqual(again.report.facts["appended"]["bars"], {"AAA": 9, "BBB": 9})
        with self.assertRaisesRegex(mb.DataError, "^AAA, BBB: its only row is empty"):
            again.append(new * np.nan)

    def test_symbols_and_columns_that_are_there_twice_are_named(self) -> None:
        wide = self.wide()
        one = wide.xs("AAA", axis=1, level="Ticker")
        long = wide.stack(future_stack=True).reset_index()
        cases: list[tuple[Any, str]] = [
            (pandas.concat([wide, wide[["Close"]]], axis=1), "the frame has several columns Close of AAA: expected .* once"),
            (pandas.concat([wide, wide.xs("BBB", axis=1, level=1, drop_level=False)], axis=1), "several columns Close of BBB"),
            (pandas.concat([one, one["Close"]], axis=1), "two columns for the close, Close and Close: keep one"),
            (one.assign(close=1.0), "two columns for the close, Close and close: keep one"),
            (one.rename(columns={"Open": "Open price"}).assign(open=1.0), "two columns for the open, open and Open price"),
            (polars.from_pandas(one.assign(close=1.0).reset_index()), "two columns for the close, Close and close"),
            ({"AAPL": one, "aapl": one}, "the symbols AAPL and aapl differ in the case of letters alone"),
            (long.replace({"Ticker": {"BBB": "aaa"}}), "the symbols AAA and aaa differ"),
            ({"x": wide}, "the frame under the name x has symbols of its own, such as AAA, BBB: give .* alone"),
            ({"x": long}, "the frame under the name x has symbols of its own, such as AAA, BBB: give .* alone"),
        ]
        for wrong, message in cases:
            with self.assertRaisesRegex(mb.DataError, message):
                mb.ingest(wrong, **self.DAILY)
        self.assertEqual(mb.ingest({"AAA": wide}, **self.DAILY).facts["symbol"], "AAA")
        # A price that is none of the four is a column of its own.
        mb.ingest(one.assign(price=1.0), symbol="AAA", **self.DAILY)

    def test_tickers_without_a_column_are_named(self) -> None:
        wide = self.wide()
        wide["pe", "AAA"] = 1.0 + np.arange(len(wide)) % 7
        by_name = {name: wide.xs(name, axis=1, level=1).dropna(axis=1) for name in ("AAA", "BBB")}
        for frame in (wide, by_name):
            with self.assertRaisesRegex(mb.DataError, "column pe is not there for BBB: expected it for all 2 symbols") as caught:
                mb.ingest(frame, **{**self.DAILY, "features": ["log_return", "pe"]})
            self.assertEqual((caught.exception.column, caught.exception.found), ("pe", "AAA"))
        wide["pe", "BBB"] = "x"
        with self.assertRaisesRegex(mb.DataError, "^BBB: column pe is of dtype .*: expected numbers"):
            mb.ingest(wide, **{**self.DAILY, "features": ["log_return", "pe"]})

    def test_a_rank_over_the_universe_is_a_column_of_each_ticker(self) -> None:
        prices = self.wide()
        rank = prices["Close"].pct_change(20).rank(axis=1)
        ranked = prices.join(pandas.concat({"rank": rank}, axis=1))
        ds = mb.ingest(ranked, **{**self.DAILY, "features": ["log_return", "rank"]}, scaling="none")
        batch, assets = ds[: len(ds)], ds.sample_instruments
        assert assets is not None and ds.times is not None
        # A sample has the time at which its day has closed.
        days = pandas.DatetimeIndex(ds.times) - pandas.Timedelta(days=1)
        expected = [rank.loc[day, ds.instruments[asset]] for day, asset in zip(days, assets)]
        np.testing.assert_array_equal(batch["D1"][:, -1, 1], expected)

    def test_the_days_whose_targets_lie_ahead_are_predicted(self) -> None:
        prices = self.wide()
        prices = prices.join(pandas.concat({"rank": prices["Close"].rank(axis=1)}, axis=1))
        ds = mb.ingest(prices, **{**self.DAILY, "features": ["log_return", "rank"]})
        run = mb.train(ds, model={"hidden": 4}, max_steps=2, out=self.folder / "run")
        latest = run.predict(ds, "latest")
        assert latest.times is not None and latest.instruments is not None and ds.times is not None
        self.assertEqual(sorted(set(latest.instruments)), ["AAA", "BBB"])
        last = prices.index[-1].tz_localize(None) + pandas.Timedelta(days=1)
        self.assertEqual(pandas.DatetimeIndex(latest.times).max(), last)
        self.assertGreater(latest.times.min(), ds.times.max())
        self.assertTrue(np.isnan(latest.targets).all() and np.isfinite(latest.values).all())
        self.assertRegex(latest.notes[0], "4 samples from .*, whose targets lie ahead")
        with self.assertRaisesRegex(mb.ConfigError, 'samples is .newest.: expected numbers .* or "latest"'):
            run.predict(ds, "newest")  # type: ignore[arg-type]
        with self.assertRaisesRegex(mb.ConfigError, "part and samples choose both; give one of them, or the part as data"):
            run.predict(ds, "latest", part="test")

    def test_times_that_are_none_say_how_they_become_some(self) -> None:
        wide = self.wide()
        days, one = wide.index, wide.xs("AAA", axis=1, level="Ticker")
        digits = pandas.Index(days.strftime("%Y%m%d").astype(int))
        # Until April, by two offsets.
        offsets = days.tz_localize("America/New_York").strftime("%Y-%m-%d %H:%M:%S%z")
        cases: list[tuple[Any, str]] = [
            (days.strftime("%Y-%m-%d"), "text such as '2020-01-01': expected times; convert it, such as with (.*)$"),
            (offsets, r"text such as '2020-01-01 00:00:00-0500': .* such as with (.* = .*, utc=True\))$"),
            (pandas.Index([pandas.Timestamp(time) for time in offsets]), "times with a zone each: .* such as with (.*)$"),
            (digits, "dates such as 20200101: .* such as with (.*)$"),
        ]
        expected = mb.ingest(one, symbol="AAA", **self.DAILY).fingerprint()
        for index, message in cases:
            for frame in (one.set_axis(index), wide.set_axis(index)):
                with self.assertRaisesRegex(mb.DataError, f"^the index is of dtype .*, {message}") as caught:
                    mb.ingest(frame, symbol="AAA", **self.DAILY)
                # What the message says mends it.
                exec(str(caught.exception).split("such as with ")[1], {"frame": frame, "pandas": pandas})
                self.assertEqual(mb.ingest(frame, symbol="AAA", **self.DAILY).fingerprint(), expected)
            frame = one.assign(Date=index)
            with self.assertRaises(mb.DataError) as caught:
                mb.ingest(frame.set_axis(range(80)), symbol="AAA", **self.DAILY)
            frame["Date"] = eval(str(caught.exception).split("such as with ")[1].split(" = ")[-1], {"frame": frame, "pandas": pandas})
            self.assertEqual(mb.ingest(frame, symbol="AAA", **self.DAILY).fingerprint(), expected)
        # These were told how they become times.
        for index in (pandas.Index(days.date), days.to_period("D")):
            for frame in (one.set_axis(index), wide.set_axis(index), one.assign(Date=index).set_axis(range(80))):
                self.assertEqual(mb.ingest(frame, symbol="AAA", **self.DAILY).fingerprint(), expected)
        hours = one.set_axis(pandas.date_range("2020-01-06", periods=80, freq="h"))
        hourly = {**self.DAILY, "timeframes": {"H1": 5}}
        dated = hours.assign(Date=hours.index.date)
        self.assertEqual(mb.ingest(dated, symbol="AAA", **hourly).fingerprint(), mb.ingest(hours, symbol="AAA", **hourly).fingerprint())
        seconds = one.set_axis(days.astype("datetime64[s]").astype("int64"))
        with self.assertRaisesRegex(mb.DataError, r'such as 1577836800: .* frame.rename_axis\("time"\).reset_index\(\)'):
            mb.ingest(seconds, symbol="AAA", **self.DAILY)
        renamed = mb.ingest(seconds.rename_axis("time").reset_index(), symbol="AAA", **self.DAILY)
        self.assertEqual(renamed.fingerprint(), expected)

    def test_a_wide_file_that_was_read_with_one_header_says_how_it_is_read(self) -> None:
        wide, path = self.wide(), self.folder / "prices.csv"
        for frame in (wide, wide.swaplevel(axis=1)):
            frame.to_csv(path)
            for header in (0, [0, 1]):
                with self.assertRaisesRegex(mb.DataError, r"give the path of the file, or read it with (.*)$") as caught:
                    mb.ingest(pandas.read_csv(path, header=header), **self.DAILY)
                again = eval(str(caught.exception).split("read it with ")[1], {"path": path, "pandas": pandas})
                expected = mb.ingest(wide, **self.DAILY).fingerprint()
                self.assertEqual(mb.ingest(again, **self.DAILY).fingerprint(), expected)
        self.assertEqual(mb.ingest(path, **self.DAILY).instruments, ("AAA", "BBB"))

    def test_a_date_and_a_time_of_day_are_one_time(self) -> None:
        file = self.bars(3)
        frame = pandas.read_csv(file, parse_dates=[0])
        time = frame[frame.columns[0]]
        expected = mb.ingest(frame, symbol="EURUSD", **BARS).fingerprint()
        prices = frame.drop(columns=frame.columns[0])
        dates = prices.assign(Date=time.dt.tz_localize(None).dt.normalize())
        clocks: dict[str, Any] = {
            "text": time.dt.strftime("%H:%M"),
            "times": time.dt.time,
            "since midnight": time.dt.tz_localize(None) - dates["Date"],
            "whole": time.dt.tz_localize(None),
        }
        for name, clock in clocks.items():
            self.assertEqual(mb.ingest(dates.assign(Time=clock), symbol="EURUSD", **BARS).fingerprint(), expected, name)
        # Exports of MetaTrader were refused.
        for form in ("%Y.%m.%d", "%Y-%m-%d"):
            written = prices.assign(**{"<DATE>": time.dt.strftime(form), "<TIME>": time.dt.strftime("%H:%M:%S")})
            for table in (written, polars.from_pandas(written), pyarrow.Table.from_pandas(written)):
                self.assertEqual(mb.ingest(table, symbol="EURUSD", **BARS).fingerprint(), expected, form)
        # Their own times count beside them, on their clock.
        server = time + pandas.Timedelta(hours=3)
        by_server = prices.assign(**{"<DATE>": server.dt.strftime("%Y.%m.%d"), "<TIME>": server.dt.strftime("%H:%M"), "time": time})
        self.assertEqual(mb.ingest(by_server, symbol="EURUSD", **BARS).fingerprint(), expected)
        self.assertEqual(mb.ingest(by_server.drop(columns="time").set_index(time), symbol="EURUSD", **BARS).fingerprint(), expected)
        unknown = prices.assign(Date=time.dt.strftime("%d %b"), Time=clocks["whole"])
        self.assertEqual(mb.ingest(unknown, symbol="EURUSD", **BARS).fingerprint(), expected)
        for wrong, message in [
            (written.assign(time=clocks["whole"] + pandas.Timedelta(days=400)), "two columns of times, <DATE> and time"),
            (dates.assign(Time="noon"), "Time is of dtype .*: expected times"),
            (dates.assign(Time=clocks["whole"] + pandas.Timedelta(days=400)), "two columns of times, Date and Time"),
            (dates.assign(Date=clocks["whole"], Time=clocks["text"]), "two columns of times, Date and Time"),
        ]:
            with self.assertRaisesRegex(mb.DataError, message):
                mb.ingest(wrong, symbol="EURUSD", **BARS)


class Stream:
    """A frame of a library that nobody knows."""

    def __init__(self, table: pyarrow.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)
