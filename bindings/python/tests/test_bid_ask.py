"""Bid and ask as frames and as files: the series of the program."""

from __future__ import annotations

import megabatch as mb
import numpy as np
import pandas
from shared import BARS, InFolder

PRICES = ["open", "high", "low", "close"]


class BidAndAsk(InFolder):
    def sides(self) -> tuple[pandas.DataFrame, pandas.DataFrame]:
        bid = pandas.read_csv(self.bars(), parse_dates=["time"])[["time", *PRICES, "volume"]]
        ask = bid.assign(**{price: bid[price] + 0.0002 for price in PRICES})
        # A bar of one side is dropped.
        return bid.drop(index=50), ask

    def test_frames_give_the_series_of_the_program(self) -> None:
        bid, ask = self.sides()
        files = {name: self.folder / name / "EURUSD.csv" for name in ("bid", "ask")}
        for (_, file), frame in zip(files.items(), (bid, ask)):
            file.parent.mkdir()
            frame.to_csv(file, index=False)
        out = self.folder / "program.h5"
        options = ["--timeframes", "M1:12,M5:6", "--target", "log_return", "--horizon", "3", "--stride", "20"]
        self.program("ingest", "--bid", files["bid"], "--ask", files["ask"], "--out", out, *options)
        expected = mb.open(out).fingerprint()
        own = mb.ingest(bid=bid, ask=ask, symbol="EURUSD", out=self.folder / "own.h5", **BARS)
        self.assertEqual(own.fingerprint(), expected)
        self.assertEqual(sorted(path.name for path in (self.folder / "own.bars").iterdir()), [".megabatch", "ask", "bid"])
        mb.leak(own, samples=4)
        assert own.report is not None
        pair = own.report.facts["source"]["instruments"][0]["pair"]
        self.assertEqual(pair, {"ask_only": 1, "bid_only": 0, "crossed": 0})
        by_files = mb.ingest(bid=files["bid"], ask=[files["ask"]], **BARS)
        self.assertEqual(by_files.fingerprint(), expected)
        # A folder stands for its files.
        by_folders = mb.ingest(bid=files["bid"].parent, ask=files["ask"].parent, **BARS)
        self.assertEqual((by_folders.fingerprint(), by_folders.instruments), (expected, by_files.instruments))

    def test_both_sides_are_appended(self) -> None:
        bid, ask = self.sides()
        ds = mb.ingest(bid=bid[:9000], ask=ask[:9000], symbol="EURUSD", out=self.folder / "own.h5", **BARS)
        longer = ds.append(bid=bid[8900:], ask=ask[8900:])
        self.assertGreater(len(longer), len(ds))
        mb.leak(longer, samples=4)
        with self.assertRaisesRegex(mb.ConfigError, "it was made of bid and ask"):
            longer.append(ask[8900:])
        self.assertEqual(sorted(path.name for path in (self.folder / "own.bars").iterdir()), [".megabatch", "2", "ask", "bid"])
        self.assertEqual(mb.open(longer.path).fingerprint(), longer.fingerprint())
        # Another series takes its place, and the folders of the sides go.
        mb.ingest(ask, symbol="EURUSD", out=longer.path, **BARS)
        self.assertEqual(sorted(path.name for path in (self.folder / "own.bars").iterdir()), [".megabatch", "3"])

    def test_several_symbols(self) -> None:
        bid, ask = self.sides()
        both = mb.ingest(bid={"EURUSD": bid, "GBPUSD": bid}, ask={"GBPUSD": ask, "EURUSD": ask}, **BARS)
        self.assertEqual(both.instruments, ("EURUSD", "GBPUSD"))
        with self.assertRaisesRegex(mb.ConfigError, "GBPUSD"):
            mb.ingest(bid={"EURUSD": bid, "GBPUSD": bid}, ask={"EURUSD": ask}, **BARS)

    def test_functions_see_the_means(self) -> None:
        bid, ask = self.sides()

        def cost(bars: pandas.DataFrame) -> pandas.DataFrame:
            return pandas.DataFrame({"cost": bars["spread"] / bars["close"]})

        ds = mb.ingest(bid=bid, ask=ask, symbol="EURUSD", features=["log_return", cost], scaling="none", **BARS)
        values = ds[0]["M1"][:, 1]
        np.testing.assert_allclose(values, 0.0002 / 1.1, rtol=0.1)

    def test_what_is_no_pair_is_refused(self) -> None:
        bid, ask = self.sides()
        for given, message in [
            ({"bid": bid}, "expected bars, or both bid and ask; given: bid"),
            ({"bars": bid, "bid": bid, "ask": ask}, "given: bars and bid and ask"),
            ({}, "given: nothing"),
            ({"bars": []}, "an empty list of paths"),
            ({"bid": bid, "ask": self.folder / "EURUSD.csv"}, "both as frames or both as files"),
            ({"bid": bid.assign(rsi=1.0), "ask": ask.assign(rsi=1.0), "features": ["log_return", "rsi"]}, "column:rsi: bid and ask apart"),
        ]:
            with self.assertRaisesRegex(mb.ConfigError, message):
                mb.ingest(symbol="EURUSD", **given, **BARS)
        with self.assertRaisesRegex(mb.DataError, "ask"):
            mb.ingest(bid=ask, ask=bid, symbol="EURUSD", **BARS)
        # The error did not say which of the frames.
        with self.assertRaisesRegex(mb.DataError, "^the frame: ask: it has no rows"):
            mb.ingest(bid=bid, ask=ask[:0], symbol="EURUSD", **BARS)
        with self.assertRaises(mb.DataError) as caught:
            mb.ingest(bid=bid, ask=ask.assign(high=ask["high"].where(ask.index != 7)), symbol="EURUSD", **BARS)
        self.assertEqual(caught.exception.fields["row"], 7)
