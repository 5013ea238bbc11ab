"""Programs in the guides: from a folder of a vendor's files, and for users of PyTorch (cargo xtask python test --torch)."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest
import zipfile

import pandas
from fake_torch import IS_REAL as HAS_TORCH
from shared import InFolder

FAKES = pathlib.Path(__file__).parent / "fakes"
GUIDES = pathlib.Path(__file__).parents[3] / "docs" / "guide"
HAS_PYG = HAS_TORCH and importlib.util.find_spec("torch_geometric") is not None


class Guide(InFolder):
    def run_guide(self, name: str) -> str:
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", (GUIDES / name).read_text(), re.M | re.S))
        self.assertIn("import", code)
        path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(FAKES)])
        command, environment = [sys.executable, "-W", "ignore", "-c", code], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=300, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


class Folders(Guide):
    """Guides that begin with a vendor's files. The frames are made-up minutes in the vendor's form."""

    def minutes(self) -> pandas.DataFrame:
        return pandas.read_csv(self.bars(28), parse_dates=["time"])

    def test_metatrader(self) -> None:
        self.assertIn("from 2018-01-01T00:00:00Z", self.run_guide("metatrader.md"), "two hours ahead, as New York + 7 is")

    def test_dukascopy_and_binance(self) -> None:
        bars = self.minutes()
        (self.folder / "archives").mkdir()
        seconds = (bars["time"] - pandas.Timestamp("2018-01-15")) // pandas.Timedelta(seconds=1) + 1_735_689_600
        for month, unit, rows in (("2024-12", 1_000, seconds < 1_735_689_600), ("2025-01", 1_000_000, seconds >= 1_735_689_600)):
            opens, volume = seconds[rows] * unit, bars["volume"][rows]
            prices = [bars[name][rows] for name in ("open", "high", "low", "close")]
            columns = [opens, *prices, volume, opens + 60 * unit - 1, volume * 1.2, volume, volume // 2, volume * 0.6, 0 * volume]
            name = f"BTCUSDT-1m-{month}"
            with zipfile.ZipFile(self.folder / "archives" / f"{name}.zip", "w") as archive:
                archive.writestr(f"{name}.csv", pandas.concat(columns, axis=1).to_csv(header=False, index=False))
        self.assertIn("no change", self.run_guide("dukascopy-binance.md"))

    def test_yahoo(self) -> None:
        said = self.run_guide("yahoo.md")
        self.assertIn("AAPL", said)
        self.assertIn("whatever follows it", said)

    def test_bid_and_ask(self) -> None:
        bid = self.minutes().set_index("time").drop(columns="volume").tz_localize("UTC").rename_axis("timestamp") * 75
        bid.to_csv(self.folder / "usdjpy-m1-bid-2013.csv")
        (bid + 0.003).to_csv(self.folder / "usdjpy-m1-ask-2013.csv")
        self.assertIn("no change", self.run_guide("bid-ask.md"))


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed: cargo xtask python test --torch")
class Guides(Guide):
    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_pieces(self) -> None:
        self.assertIn("no change", self.run_guide("pytorch-pieces.md"))

    def test_scatter(self) -> None:
        self.run_guide("scatter.md")

    def test_your_lstm(self) -> None:
        self.run_guide("your-lstm.md")

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_your_gnn(self) -> None:
        self.run_guide("your-gnn.md")
