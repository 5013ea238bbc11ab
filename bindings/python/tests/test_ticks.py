"""Ticks become bars."""

from __future__ import annotations

import json
import unittest

import megabatch as mb
from shared import InFolder


class Ticks(InFolder):
    def test_quotes_become_the_bars_that_the_program_makes(self) -> None:
        rows = "".join(
            f"2018-01-01 {place // 120:02}:{place // 2 % 60:02}:{place % 2 * 30:02}.5,1.{place:04},1.{place + 3:04}\n"
            for place in range(600)
        )
        ticks = self.folder / "EURUSD.csv"
        ticks.write_text("time,bid,ask\n" + rows)
        made = mb.ticks_to_bars(ticks, self.folder / "bars.csv", progress=False)
        said = json.loads(self.program("ticks", ticks, "--out", self.folder / "again.csv", "--json"))
        for facts in (made.facts, said):
            del facts["seconds"], facts["ticks_per_second"], facts["file"]
        self.assertEqual(made.facts, said)
        self.assertEqual((made.facts["bars"], made.facts["ticks"]), (300, 600))
        self.assertEqual(made.path.read_text(), (self.folder / "again.csv").read_text())
        first = made.path.read_text().splitlines()[1]
        self.assertEqual(first, "2018-01-01T00:00:00Z,1.00015,1.00025,1.00015,1.00025,2,0.0003")
        self.assertIn("300 bars of M1", repr(made))
        series = mb.ingest(
            made.path, timeframes={"M1": 8}, features=["log_return", "spread_pips"], horizon=2, symbol="EURUSD"
        )
        self.assertGreater(len(series), 200)

    def test_defects_are_errors_or_counted(self) -> None:
        ticks = self.folder / "ticks.csv"
        ticks.write_text("time,price\n2018-01-01 00:00:01,5\n2018-01-01 00:00:00,5\n2018-01-01 00:00:01,6\n")
        out = self.folder / "bars.csv"
        with self.assertRaisesRegex(mb.DataError, "line 3: backward timestamp"):
            mb.ticks_to_bars([ticks], out)
        self.assertFalse(out.exists())
        made = mb.ticks_to_bars([ticks], out, bars="ticks:2", on_error="skip")
        self.assertEqual(made.facts["dropped"][0]["kind"], "backward timestamp")
        self.assertEqual(out.read_text().splitlines()[0], "time,open,high,low,close,volume,close_time")
        with self.assertRaisesRegex(mb.ConfigError, "unknown rule of bars `M7`"):
            mb.ticks_to_bars(ticks, out, bars="M7")


if __name__ == "__main__":
    unittest.main()
