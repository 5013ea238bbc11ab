"""Tables of errors: the measures that mean something for what a model predicts."""

from __future__ import annotations

import json
import pathlib
import sys
import unittest.mock
from typing import Any

import megabatch as mb
import numpy as np
from shared import BARS, MODEL, InFolder

BASELINES = {"mean", "no_change", "linear"}


class Evaluations(InFolder):
    def evaluated(self, ds: mb.Dataset, **settings: Any) -> mb.Evaluation:
        return mb.train(ds, MODEL, out=self.folder / "run", max_steps=4, **settings).evaluate()

    def columns(self, evaluation: mb.Evaluation, horizons: int, predictors: set[str]) -> list[str]:
        """The columns of the measures; the table is the same in both libraries, and has a row a predictor and horizon."""
        frame = evaluation.to_pandas()
        self.assertEqual(len(frame), horizons * (1 + len(predictors)))
        self.assertEqual(set(frame["predictor"]), {"model", *predictors})
        self.assertEqual(list(frame["horizon"][:horizons]), [*range(1, horizons + 1)])
        self.assertEqual(evaluation.to_polars().columns, list(frame.columns))
        with unittest.mock.patch.dict(sys.modules, {"polars": None}):
            with self.assertRaisesRegex(ModuleNotFoundError, r"^to_polars\(\) needs polars, .*: pip install polars; "):
                evaluation.to_polars()
        columns = [name for name in frame.columns if name not in ("predictor", "horizon")]
        self.assertEqual(list(evaluation.model), columns)
        for name in columns:
            model = frame[frame["predictor"] == "model"][name]
            np.testing.assert_array_equal(model, evaluation.model[name])
            self.assertTrue(np.isfinite(model).all(), name)
        return columns

    def test_what_has_no_mean_over_horizons_has_none_in_a_notebook(self) -> None:
        by_horizon = {"rmse": [1.0, 2.0], "mae": [1.0, 2.0], "direction_accuracy": [0.5, 0.5], "ic": [0.125, 0.25]}
        facts: dict[str, Any] = {"samples": 9, **by_horizon, "ic_t": [3.0, 5.0], "ic_lags": [0, 1], "baselines": {}}
        shown = mb.Evaluation("", facts)._repr_html_()
        self.assertIn(">0.1875</td>", shown)
        self.assertEqual(shown.count('<td style="text-align: right"></td>'), 2)
        alone = {**facts, **{name: values[:1] for name, values in facts.items() if isinstance(values, list)}}
        self.assertIn(">3</td>", mb.Evaluation("", alone)._repr_html_())

    def test_of_classes(self) -> None:
        ds = self.series()
        found = self.evaluated(ds, training={"loss": "cross_entropy", "thresholds": [-0.5, 0.5]})
        columns = self.columns(found, 2, {"most_frequent"})
        self.assertEqual(columns, ["accuracy", "balanced_accuracy", "cross_entropy"])
        np.testing.assert_array_equal(found.model["balanced_accuracy"], found.facts["classes"]["balanced_accuracy"])
        frequent = found.facts["baselines"]["most_frequent"]["classes"]["accuracy"]
        np.testing.assert_array_equal(found.baselines["most_frequent"]["accuracy"], frequent)

    def test_of_confusion(self) -> None:
        ds = self.series()
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=4, training={"loss": "cross_entropy", "thresholds": [0.0]})
        found = run.evaluate()
        confusion = found.confusion
        assert confusion is not None
        predicted = run.predict(part="test")
        self.assertEqual(confusion.shape, (2, 2, 2))
        self.assertEqual(found.samples, len(predicted.values))
        for k in range(2):
            counts = np.bincount(predicted.values[:, k].astype(int), minlength=2)
            np.testing.assert_array_equal(confusion[k].sum(axis=0), counts)
            self.assertAlmostEqual(found.model["accuracy"][k], np.trace(confusion[k]) / found.samples)

    def test_of_estimates(self) -> None:
        """The errors of training are estimates from a part of the test, which only the text said."""
        run = mb.train(self.series(), MODEL, out=self.folder / "run", max_steps=4, training={"test_samples": 20})
        found = run.evaluation
        assert found is not None
        errors = found.standard_errors
        assert errors is not None
        self.assertEqual((found.drawn, found.samples), (20, 20))
        whole = run.evaluate()
        self.assertEqual((whole.drawn, whole.drawn_from, whole.standard_errors), (None, None, None))
        self.assertEqual((found.drawn_from, whole.confusion), (whole.samples, None))
        self.assertGreater(errors.rmse, 0)
        self.assertEqual((set(errors.rmse_ratio), errors.accuracy), (BASELINES, None))
        self.assertIsNone(mb.load_run(run.path).evaluation)
        estimate = run.evaluate(samples=20)
        self.assertEqual((estimate.drawn, estimate.drawn_from, estimate.samples), (20, whole.samples, 20))
        assert estimate.standard_errors is not None
        self.assertGreater(estimate.standard_errors.rmse, 0)
        for wrong in (0, 2.5, [1]):
            with self.assertRaisesRegex(mb.ConfigError, r"^samples=.*: expected a whole number of samples from 1 on$"):
                run.evaluate(samples=wrong)  # type: ignore[arg-type]

    def test_of_warnings(self) -> None:
        ds = self.series(layout="windows")
        planned = mb.plan(ds, MODEL, max_steps=4, training={"huber_delta": 2})
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=4, training={"huber_delta": 2})
        self.assertEqual(run.warnings, planned.warnings)
        self.assertEqual((len(run.warnings), run.notes), (1, planned.notes))
        self.assertTrue(run.notes[0].startswith("training.huber_delta has no effect"), run.notes)
        self.assertEqual(run.notes[-2], "no `run.follow`, which needs a series that `ingest` made")
        self.assertTrue(run.notes[-1].startswith('`run.export("model.onnx")` predicts as trained'), run.notes)

    def test_of_quantiles(self) -> None:
        found = self.evaluated(self.series(), training={"loss": "quantile", "quantile": [0.1, 0.5, 0.9]})
        columns = self.columns(found, 2, BASELINES)
        levels = ("0.1", "0.5", "0.9")
        expected = [f"{name}_{level}" for name in ("pinball_loss", "coverage") for level in levels]
        self.assertEqual(columns, ["rmse", "mae", "direction_accuracy", *expected, "crossing"])
        np.testing.assert_array_equal(found.model["coverage_0.9"], found.facts["quantiles"]["coverage"][2])
        self.assertTrue(np.isnan(found.to_pandas().iloc[-1]["coverage_0.9"]), "baselines have no quantiles")

    def test_the_parts_of_a_random_split_can_be_listed(self) -> None:
        ds = self.rings()
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=4)
        parts = [run.predict(part=part).samples for part in ("train", "validation", "test")]
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(60))
        self.assertEqual([len(part) for part in parts], [42, 9, 9])
        for part, own in zip(parts, ds.split()):
            np.testing.assert_array_equal(part, np.sort(own.indices))
        file = self.folder / "test.csv"
        self.program("predict", "--run", run.path, "--split", "test", "--out", file)
        np.testing.assert_array_equal(np.loadtxt(file, delimiter=",", skiprows=1, usecols=0), parts[2])
        self.assertEqual(run.evaluate().facts["samples"], 9)

    def test_of_molecules(self) -> None:
        found = self.evaluated(self.rings())
        self.assertEqual(self.columns(found, 1, {"most_frequent"}), ["accuracy"])
        np.testing.assert_array_equal(found.model["accuracy"], [found.facts["accuracy"]])

    def rings(self) -> mb.Dataset:
        """Rings of three and of four atoms, in the format of TU datasets."""
        folder = self.folder / "RINGS"
        folder.mkdir()
        edges, graphs, labels, atoms = [], [], [], 0
        for graph in range(60):
            size = 3 + graph % 2
            edges += [f"{atoms + k + 1}, {atoms + (k + 1) % size + 1}" for k in range(size)]
            edges += [f"{atoms + (k + 1) % size + 1}, {atoms + k + 1}" for k in range(size)]
            graphs += [str(graph + 1)] * size
            labels.append(str(graph % 2))
            atoms += size
        nodes = [str(k % 2) for k in range(atoms)]
        files = {"A": edges, "graph_indicator": graphs, "graph_labels": labels, "node_labels": nodes}
        for name, lines in files.items():
            (folder / f"RINGS_{name}.txt").write_text("\n".join(lines) + "\n")
        out = self.folder / "rings.mbg"
        mb.graph.build(folder, out, kind="tu")
        return mb.open(out)

    def test_of_several_tasks(self) -> None:
        tasks = [{"loss": "mse", "targets": "0..1"}, {"loss": "cross_entropy", "targets": "1..2", "thresholds": [0.0]}]
        found = self.evaluated(self.series(), training={"tasks": tasks})
        frame = found.to_pandas()
        model = frame[frame["predictor"] == "model"]
        self.assertEqual(list(model["horizon"]), [1, 2])
        self.assertEqual(np.isnan(model["rmse"]).tolist(), [False, True])
        self.assertEqual(np.isnan(model["accuracy"]).tolist(), [True, False])
        self.assertEqual(set(found.baselines), {*BASELINES, "most_frequent"})
        self.assertTrue(np.isnan(found.baselines["most_frequent"]["accuracy"][0]))

    def test_of_a_walk_forward(self) -> None:
        run = mb.train(self.series(), MODEL, out=self.folder / "run", max_steps=4, data={"walk_forward": 3})
        found = run.evaluate()
        self.assertEqual([len(fold.model["rmse"]) for fold in found.folds], [2, 2, 2])
        mean = np.mean([fold.model["rmse"] for fold in found.folds], axis=0)
        np.testing.assert_allclose(found.model["rmse"], mean)
        frame = found.to_pandas()
        self.assertEqual(len(frame), 3 * 2 * (1 + len(BASELINES)))
        self.assertEqual(sorted(set(frame["fold"])), [1, 2, 3])
        own = frame[(frame["fold"] == 2) & (frame["predictor"] == "mean")]
        np.testing.assert_array_equal(own["mae"], found.folds[1].baselines["mean"]["mae"])
        self.assertEqual(found.to_polars().columns, list(frame.columns))
        self.assertEqual([fold.path.name for fold in run.folds], ["fold-1", "fold-2", "fold-3"])
        metrics = run.metrics()
        steps = [line["fold"] for line in metrics if line["event"] == "step"]
        self.assertEqual(steps, [1] * 4 + [2] * 4 + [3] * 4)
        self.assertEqual([line for line in metrics if line["fold"] == 2][0]["event"], run.folds[1].metrics()[0]["event"])
        alone = self.evaluated_alone()
        self.assertEqual((alone.evaluate().folds, alone.folds), ([], []))

    def evaluated_alone(self) -> mb.Run:
        return mb.train(self.series(), MODEL, out=self.folder / "alone", max_steps=2)

    def test_by_instrument(self) -> None:
        ds = mb.ingest(self.two_symbols(), **BARS)
        found = self.evaluated(ds, training={"loss": "cross_entropy", "thresholds": [0.0]})
        self.assertEqual(list(found.instruments), ["AAA", "BBB"])
        one = found.instruments["BBB"]
        self.assertEqual(self.columns(one, 3, {"most_frequent"}), ["accuracy", "balanced_accuracy", "cross_entropy"])
        self.assertEqual(one.facts["samples"], found.facts["instruments"]["BBB"]["samples"])
        rows = [line.split() for line in found.text.splitlines() if line.startswith(("AAA", "BBB"))]
        accuracy = np.mean(one.model["accuracy"])
        self.assertAlmostEqual(float(rows[1][2]), accuracy, places=3)
        self.assertNotIn("rmse", found.text)

    def two_symbols(self) -> dict[str, Any]:
        import pandas

        frame = pandas.read_csv(self.bars(5), parse_dates=[0])
        return {"AAA": frame, "BBB": frame[: len(frame) * 9 // 10]}

    def test_a_run_without_metrics_says_so(self) -> None:
        run = self.evaluated_alone()
        pathlib.Path(run.path / "metrics.jsonl").unlink()
        with self.assertRaisesRegex(mb.ConfigError, "metrics.jsonl: no step was recorded"):
            run.metrics()
        json.dumps(run.evaluate().facts)
