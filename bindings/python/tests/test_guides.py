"""Programs in the guides: from a folder of a vendor's files, and for users of PyTorch (cargo xtask python test --torch).
Their numbers are compared with a plain computation by pandas or numpy."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import megabatch as mb
import numpy as np
import pandas
from fake_torch import IS_REAL as HAS_TORCH
from shared import InFolder

FAKES = pathlib.Path(__file__).parent / "fakes"
GUIDES = pathlib.Path(__file__).parents[3] / "docs" / "guide"
HAS_PYG = HAS_TORCH and importlib.util.find_spec("torch_geometric") is not None

PRICES = ["open", "high", "low", "close"]
LENGTHS = {"M1": "1min", "M5": "5min", "H1": "1h", "H4": "4h", "D1": "24h"}
RULES = {"open": "first", "high": "max", "low": "min", "close": "last", "spread_pips": "last", "taker_volume": "sum"}
Move = Callable[[Any, Any], Any]
"""Target of a sample: of the close then and the close now."""


def log_return(then: Any, now: Any) -> Any:
    return np.log(then / now)


def pips(size: float) -> Move:
    return lambda then, now: (then - now) / size


def longer(bars: pandas.DataFrame, length: str, ahead: str = "0h") -> pandas.DataFrame:
    """Closed bars of a longer timeframe, by their closes, on a clock that is ahead of UTC. `bars` are by their opens."""
    rules = {name: rule for name, rule in RULES.items() if name in bars}
    bins = bars.resample(length, offset=-pandas.Timedelta(ahead)).agg(rules).dropna(subset="close")
    bins.index += pandas.Timedelta(length)
    return bins[bins.index <= bars.index[-1] + (bars.index[1] - bars.index[0])]


def features(bars: pandas.DataFrame) -> pandas.DataFrame:
    """The features of the guides, with the columns of `bars`."""
    opens, high, low, close = (bars[name] for name in PRICES)
    change = np.log(close).diff()
    own = {"log_return": change, "body": (close - opens) / close, "range": (high - low) / close}
    own["volatility_20"] = change.rolling(20).std(ddof=0)
    return bars.assign(**own)


class Guide(InFolder):
    def run_guide(self, name: str, then: str = "") -> str:
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", (GUIDES / name).read_text(), re.M | re.S))
        self.assertIn("import", code)
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(FAKES)])
        command, environment = [sys.executable, "-W", "ignore", "-c", code + then], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=300, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def run_on_bars(self, name: str) -> tuple[str, mb.Dataset]:
        """What the program of a guide prints, and its dataset."""
        said = self.run_guide(name, "import shutil\nshutil.copy(ds.path, 'guide.h5')")
        return said, mb.open(self.folder / "guide.h5")

    def require_numbers(self, ds: mb.Dataset, bars: Mapping[str, pandas.DataFrame], move: Move, ahead: str = "0h") -> None:
        """Requires targets, numbers of bars, and features at the end of each window to be those that pandas computes of
        base bars by instrument."""
        batch, owners = ds[: len(ds)], ds.sample_instruments
        owners = np.zeros(len(ds), np.int32) if owners is None else owners
        self.assertEqual(ds.instruments or (ds.facts["symbol"],), tuple(bars))
        counts = dict.fromkeys(ds.timeframes, 0)
        for k, own in enumerate(bars.values()):
            mine = owners == k
            times = pandas.DatetimeIndex(ds.times)[mine]
            close = longer(own, LENGTHS[ds.facts["base"]])["close"]
            moves = pandas.concat([move(close.shift(-n), close) for n in range(1, ds.targets + 1)], axis=1).loc[times]
            np.testing.assert_allclose(batch["targets"][mine], moves, rtol=1e-5, atol=1e-6)
            for name, scaler in ds.scalers.items():
                columns = [column.removeprefix("column:").partition(":")[0] for column in ds.features[name]]
                known = features(longer(own, LENGTHS[name], ahead))[columns].dropna()
                counts[name] += len(known)
                last = known.iloc[known.index.searchsorted(times, side="right") - 1]
                scaled = (last - np.atleast_2d(scaler.center)[k]) / np.atleast_2d(scaler.scale)[k]
                np.testing.assert_allclose(batch[name][mine, -1], scaled, rtol=1e-4, atol=1e-4, err_msg=name)
        self.assertEqual(counts, {name: timeframe.bars for name, timeframe in ds.timeframes.items()})

    def require_no_change(self, said: str, ds: mb.Dataset) -> None:
        """Requires the printed RMSE of no change to be that of the last targets, to the digits that are printed."""
        found = re.search(r"([\d,]+) samples \(test\).*\n", said)
        assert found is not None and ds.times is not None
        order = np.argsort(ds.times, kind="stable")[-int(found[1].replace(",", "")) :]
        expected = np.sqrt(np.mean(np.square(ds[order]["targets"], dtype=np.float64), axis=0))
        lines = said[found.end() :].strip().splitlines()
        column = re.split(r"\s{2,}", lines[0].strip()).index("rmse no change")
        printed = [float(line.split()[column]) for line in lines[1 : 1 + ds.targets]]
        np.testing.assert_allclose(printed, expected, rtol=6e-4)


class Folders(Guide):
    """Guides that begin with a vendor's files. The frames are made-up minutes in the vendor's form."""

    def minutes(self, path: str = "EURUSD.csv") -> pandas.DataFrame:
        return pandas.read_csv(self.folder / path, parse_dates=["time"])

    def test_metatrader(self) -> None:
        said, ds = self.run_on_bars("metatrader.md")
        self.assertIn("from 2018-01-01T00:00:00Z", said, "two hours ahead, as New York + 7 is")
        bars = self.minutes("rates.csv").set_index("time")
        self.assertIn(f"{len(bars)} rows, {len(bars)} kept", said)
        self.require_numbers(ds, {"EURUSD": bars}, pips(1e-4))
        self.require_no_change(repr(mb.train(ds, model={"hidden": 4}, max_steps=1).evaluate()), ds)
        # Longer bars of the terminal are of server time.
        options: dict[str, Any] = {"timeframes": {"M1": 60, "H4": 6, "D1": 3}, "bins": "new-york+7", "horizon": 12, "stride": 60}
        ds = mb.ingest(bars, symbol="EURUSD", features=["log_return", "body", "range"], **options)
        self.require_numbers(ds, {"EURUSD": bars}, pips(1e-4), ahead="2h")

    def test_dukascopy_and_binance(self) -> None:
        self.bars(28)
        bars = self.minutes()
        (self.folder / "archives").mkdir()
        seconds = (bars["time"] - pandas.Timestamp("2018-01-15")) // pandas.Timedelta(seconds=1) + 1_735_689_600
        for month, unit, rows in (("2024-12", 1_000, seconds < 1_735_689_600), ("2025-01", 1_000_000, seconds >= 1_735_689_600)):
            opens, volume = seconds[rows] * unit, bars["volume"][rows]
            prices = [bars[name][rows] for name in PRICES]
            columns = [opens, *prices, volume, opens + 60 * unit - 1, volume * 1.2, volume, volume // 2, volume * 0.6, 0 * volume]
            name = f"BTCUSDT-1m-{month}"
            with zipfile.ZipFile(self.folder / "archives" / f"{name}.zip", "w") as archive:
                archive.writestr(f"{name}.csv", pandas.concat(columns, axis=1).to_csv(header=False, index=False))
        said, ds = self.run_on_bars("dukascopy-binance.md")
        own = bars.assign(taker_volume=bars["volume"] // 2).set_index(pandas.to_datetime(seconds, unit="s"))
        self.require_numbers(ds, {"BTCUSDT": own}, log_return)
        self.require_no_change(said, ds)

    def test_fillers_of_dukascopy(self) -> None:
        self.bars(28)
        bars = self.minutes().set_index("time")
        full = bars.reindex(pandas.date_range(bars.index[0], bars.index[-1], freq="1min"))
        full = full.assign(volume=full["volume"].fillna(0), close=full["close"].ffill()).bfill(axis=1)
        path = self.folder / "EURUSD_Candlestick_1_M_BID_01.01.2018-28.01.2018.csv"
        full.to_csv(path, columns=[*PRICES, "volume"], index_label="Gmt time", date_format="%d.%m.%Y %H:%M:%S.000")
        ds = mb.ingest(path, timeframes={"M1": 120, "H1": 24}, features=["log_return", "body", "range"], horizon=12, stride=5)
        # A run of minutes without volume is taken for a filled weekend after its first hour.
        is_traded = full["volume"] > 0
        kept = full[full.groupby(is_traded.cumsum()).cumcount() <= 60]
        self.assertLess(len(kept), 0.8 * len(full))
        assert ds.report is not None
        facts = ds.report.facts["source"]["instruments"][0]
        self.assertEqual((facts["rows"], facts["kept"]), (len(full), len(kept)))
        self.require_numbers(ds, {"EURUSD": kept}, pips(1e-4))

    def test_yahoo(self) -> None:
        said, ds = self.run_on_bars("yahoo.md")
        self.assertIn("whatever follows it", said)
        # The download of the guide has no new bar to follow.
        self.assertIn("[]\n", said)
        files = sorted((self.folder / "yahoo").iterdir())
        shares = [pandas.read_csv(file, index_col="Date", parse_dates=True).rename(columns=str.lower) for file in files]
        shares[-1] = shares[-1].iloc[60:]
        self.require_numbers(ds, dict(zip(("AAPL", "MSFT", "XOM"), shares)), log_return)
        self.require_no_change(said, ds)

    def test_adjusted_closes_of_yahoo(self) -> None:
        mb.synth.shares(self.folder / "shares", shares=1, days=300)
        (path,) = (self.folder / "shares").iterdir()
        share = pandas.read_csv(path, index_col="Date", parse_dates=True)
        dividend = np.where(np.arange(len(share)) < 150, 0.97, 1.0)
        share.assign(**{"Adj Close": share["Close"] * dividend}).to_csv(path)
        share = share.rename(columns=str.lower)
        adjusted = share.assign(**{price: share[price] * dividend for price in PRICES})
        options: dict[str, Any] = {"timeframes": {"D1": 10}, "target": "log_return", "horizon": 2, "features": ["log_return", "body"]}
        self.require_numbers(mb.ingest(path, symbol="AAA", **options), {"AAA": adjusted}, log_return)
        self.require_numbers(mb.ingest(path, symbol="AAA", prices="quoted", **options), {"AAA": share}, log_return)

    def test_bid_and_ask(self) -> None:
        self.bars(28)
        bid = self.minutes().set_index("time").drop(columns="volume").tz_localize("UTC").rename_axis("timestamp") * 75
        ask = bid.add(0.003 + 0.001 * (np.arange(len(bid)) % 3), axis=0)
        bid.to_csv(self.folder / "usdjpy-m1-bid-2013.csv")
        ask.to_csv(self.folder / "usdjpy-m1-ask-2013.csv")
        said, ds = self.run_on_bars("bid-ask.md")
        mean = ((bid + ask) / 2).assign(spread_pips=(ask["close"] - bid["close"]) / 0.01).tz_localize(None)
        self.require_numbers(ds, {"USDJPY": mean}, pips(0.01))
        self.require_no_change(said, ds)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


class Pieces(Guide):
    def test_predictions_are_those_of_pytorchs_equations(self) -> None:
        then = "import numpy\nnumpy.savez('found.npz', predictions=run.predict(part='test').values, **weights)"
        said = self.run_guide("pytorch-pieces.md", then)
        ds = mb.open(self.folder / "bars.h5")
        self.require_no_change(said, ds)
        found = dict(np.load(self.folder / "found.npz"))
        predictions = found.pop("predictions")
        batch = ds[len(ds) - len(predictions) :]
        state = cell = np.zeros((len(predictions), 16))
        for x in batch["M1"].swapaxes(0, 1):
            gates = x @ found["lstm.M1.weight_ih_l0"].T + state @ found["lstm.M1.weight_hh_l0"].T
            gates += found["lstm.M1.bias_ih_l0"] + found["lstm.M1.bias_hh_l0"]
            entering, forget, candidate, output = np.split(gates, 4, axis=1)
            cell = sigmoid(forget) * cell + sigmoid(entering) * np.tanh(candidate)
            state = sigmoid(output) * np.tanh(cell)
        own = state @ found["head.weight"].T + found["head.bias"]
        np.testing.assert_allclose(predictions, own, rtol=1e-4, atol=1e-5)


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed: cargo xtask python test --torch")
class Guides(Guide):
    def test_scatter(self) -> None:
        self.run_guide("scatter.md")

    def test_your_lstm(self) -> None:
        self.run_guide("your-lstm.md")

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_your_gnn(self) -> None:
        self.run_guide("your-gnn.md")
