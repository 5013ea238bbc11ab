"""Files and runs that are looked at, converted and compared."""

from __future__ import annotations

import json
import unittest

import megabatch as mb
import numpy as np
from shared import MODEL, InFolder


class Files(InFolder):
    def test_inspect_says_what_the_program_says(self) -> None:
        series, bars = self.series(), self.bars()
        for data, path in ((series, series.path), (bars, bars)):
            report = mb.inspect(data)
            said = json.loads(self.program("inspect", path, "--json"))
            self.assertEqual(report.facts, said)
            self.assertIn(path.name, repr(report))
            whole = mb.inspect(data, all=True)
            self.assertEqual(whole.facts, said)
            self.assertGreaterEqual(len(whole.text), len(report.text))
        self.assertLessEqual(len(mb.inspect(series).text.splitlines()), 40)
        self.assertNotIn("\ndatasets\n", mb.inspect(series).text)
        self.assertIn("\ndatasets\n", mb.inspect(series, all=True).text)
        with self.assertRaises(mb.MegabatchError):
            mb.inspect(self.folder / "missing.h5")

    def test_windows_become_a_series_and_come_back(self) -> None:
        series = self.series()
        windows = mb.convert(series, self.folder / "windows.h5", to="windows", compression="lzf", chunk_rows=16)
        self.assertEqual(windows.layout, "windows")
        again = mb.convert(windows.path, self.folder / "series.h5", storage="contiguous", to="series", progress=False)
        self.assertEqual(again.layout, "series")
        for one in (windows, again):
            for key, array in series[:].items():
                np.testing.assert_array_equal(one[:][key], array)

    def test_a_wrong_conversion_is_named(self) -> None:
        series, out = self.series(), self.folder / "out.h5"
        for options, text in (
            ({"to": "graphs"}, "to is graphs: expected series or windows"),
            ({"storage": "heap"}, "storage is heap: expected contiguous or chunked"),
            ({"chunk_rows": 0}, "chunk_rows is 0: expected auto or a number above 0"),
            ({"compression": "zip"}, "compression is zip: .*expected none, gzip"),
            ({"memory": "much"}, "memory is much: "),
        ):
            with self.assertRaisesRegex(mb.ConfigError, text):
                mb.convert(series, out, **options)  # type: ignore[arg-type]
        with self.assertRaisesRegex(mb.ConfigError, "convert takes the whole file"):
            mb.convert(series.split()[0], out)
        with self.assertRaisesRegex(mb.ConfigError, "convert takes a dataset .* frame of pandas"):
            import pandas

            mb.convert(pandas.DataFrame(), out)
        self.assertFalse(out.exists())

    def test_runs_are_compared(self) -> None:
        series = self.series()
        rates = {"a": 1e-3, "b": 1e-2}
        runs = [mb.train(series, {**MODEL, "training": {"lr": rate}}, out=self.folder / name, max_steps=2) for name, rate in rates.items()]
        compared = mb.compare(runs)
        self.assertEqual(compared.facts, json.loads(self.program("compare", *(run.path for run in runs), "--json")))
        self.assertIn("training.lr", repr(compared))
        for given in ((runs[0], runs[1].path), (iter(runs),)):
            self.assertEqual(mb.compare(*given).facts, compared.facts)
        shown = compared._repr_html_()
        loss = f"{compared.facts['runs'][0]['best_validation']['loss']:.4g}"
        for said in ("<th>a</th>", "<td>training.lr</td><td>0.001</td><td>0.01</td>", "<td>rmse</td>", f">{loss}</td>"):
            self.assertIn(said, shown)
        folds = [mb.train(series, MODEL, data={"walk_forward": n}, out=self.folder / f"f{n}", max_steps=2) for n in (2, 3)]
        self.assertIn("<th>f2</th>", mb.compare(folds)._repr_html_())
        page = self.folder / "compare.html"
        self.assertIn("iframe", mb.compare([runs[0].path, runs[1]], out=page)._repr_html_())
        self.assertTrue(page.read_text().startswith("<!"))

    def test_a_run_is_watched_and_its_memory_shown(self) -> None:
        run = mb.train(self.series(), MODEL, out=self.folder / "run", max_steps=2)
        status, said = run.monitor(), json.loads(self.program("monitor", run.path, "--json"))
        for facts in (status.facts, said):
            self.assertGreaterEqual(facts.pop("silence_seconds"), 0)
        self.assertEqual((status.facts, status.facts["step"], status.facts["fold"]), (said, 2, None))
        self.assertRegex(repr(status), "run: step 2 of 2, loss .*, ended$")
        folds = mb.train(self.series(), MODEL, data={"walk_forward": 2}, out=self.folder / "walk", max_steps=2)
        self.assertEqual((folds.monitor().facts["fold"], folds.monitor().facts["folds"]), (2, 2))
        with self.assertRaisesRegex(mb.ConfigError, "several folds, each with .*: name the folder of one of them: .*fold-1, .*fold-2$"):
            mb.memory.snapshot(folds)
        self.assertEqual(mb.memory.snapshot(folds.folds[1]), mb.memory.snapshot(folds.path / "fold-2"))
        found = mb.memory.snapshot(run, svg=self.folder / "map.svg", pickle=self.folder / "memory.pickle")
        self.assertEqual(found, json.loads(self.program("memory", "snapshot", run.path, "--json")))
        self.assertEqual(mb.memory.snapshot(run.path / "memory.json"), found)
        self.assertTrue((self.folder / "map.svg").read_text().startswith("<svg"))
        self.assertGreater((self.folder / "memory.pickle").stat().st_size, 0)
        with (run.path / "metrics.jsonl").open("a") as log:
            log.write('{"event": "end", "step": 2, "how": "stopped"}\n')
        # It said `--resume`.
        self.assertRegex(repr(run.monitor()), "stopped; resume=True goes on$")
        with self.assertRaisesRegex(mb.ConfigError, "^run is an int: expected a run, its folder or a snapshot in it$"):
            mb.memory.snapshot(3)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
