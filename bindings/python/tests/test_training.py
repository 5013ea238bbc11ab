"""Plans, runs, and what becomes of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import Any

import megabatch as mb
import numpy as np
from shared import BARS, MODEL, PROGRAM, InFolder

SETTINGS = ["--set", "model.hidden=4", "--set", "gpu_optimization.batch_size=32"]


class Training(InFolder):
    def setUp(self) -> None:
        super().setUp()
        self.ds = self.series()

    def run_of(self, name: str = "run", **options: Any) -> mb.Run:
        return mb.train(self.ds, MODEL, out=self.folder / name, max_steps=options.pop("max_steps", 8), **options)

    def test_the_weights_are_those_of_the_program(self) -> None:
        run = self.run_of()
        out = self.folder / "program"
        self.program("train", "--data", self.ds.path, "--out", out, "--max-steps", 8, *SETTINGS)
        ours, theirs = run.weights(), mb.load_run(out).weights()
        self.assertEqual(list(ours), list(theirs))
        for name, values in ours.items():
            self.assertEqual(values.tobytes(), theirs[name].tobytes(), name)
        self.assertEqual((run.steps, run.is_finished), (8, True))
        self.assertTrue((run.path / "report.html").is_file())
        # And so are predictions and errors.
        predictions = run.predict()
        file = self.folder / "predictions.csv"
        self.program("predict", "--run", out, "--out", file)
        table = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(-2, -1), dtype=np.float32)
        np.testing.assert_array_equal(predictions.values, table)
        said = subprocess.run([PROGRAM, "--json", "eval", "--run", str(out)], check=True, capture_output=True)
        facts = json.loads(said.stdout)
        self.assertEqual(run.evaluate().facts["rmse"], facts["rmse"])

    def test_several_processes_need_a_library(self) -> None:
        # `cargo xtask mpi` has one, and two processes.
        absent = {"backend": "mpi", "library": "libmpi-of-nobody.so"}
        with self.assertRaisesRegex(mb.DeviceError, "libmpi-of-nobody.so: .*openmpi-bin"):
            self.run_of(distributed=absent)
        with self.assertRaisesRegex(mb.DeviceError, "libmpi-of-nobody.so: "):
            self.run_of(distributed="mpi", distributed__library="libmpi-of-nobody.so")
        with self.assertRaisesRegex(mb.ConfigError, "distributed.backend"):
            self.run_of(distributed="smoke")
        self.assertFalse((self.folder / "run").exists())
        alone, off = self.run_of("alone").weights(), self.run_of("off", distributed="off").weights()
        for name, values in alone.items():
            self.assertEqual(values.tobytes(), off[name].tobytes(), name)

    def test_settings_come_in_every_form(self) -> None:
        yaml = self.folder / "run.yaml"
        yaml.write_text("model:\n  hidden: 4\ngpu_optimization:\n  batch_size: 32\n")
        forms: list[tuple[Any, dict[str, Any]]] = [
            (MODEL, {}),
            ({"model.hidden": 4, "gpu_optimization.batch_size": np.int64(32)}, {}),
            (yaml, {}),
            (str(yaml), {}),
            (None, MODEL),
            (None, {"model__hidden": 4, "gpu_optimization__batch_size": 32}),
            ({"model": {"hidden": 64}}, {"model__hidden": 4, "gpu_optimization": {"batch_size": 32}}),
        ]
        plans = [mb.plan(self.ds, config, **keywords) for config, keywords in forms]
        for plan in plans:
            self.assertEqual((plan.facts["model"]["hidden"], plan.facts["batch_size"]), (4, 32))
        self.assertEqual(plan.memory_bytes, plan.facts["memory"]["total_bytes"])
        self.assertIn("peak memory", str(plan))
        listed = mb.plan(self.ds, MODEL, data={"split": [0.8, 0.1, 0.1]}, training={"clip_norm": "none"})
        self.assertGreater(listed.facts["split"]["train"], plans[0].facts["split"]["train"])

    def test_wrong_settings_are_named(self) -> None:
        for config, keywords, message in [
            ({"model.hiden": 4}, {}, "nearest known key is `model.hidden`"),
            ({"model": {"hidden": "many"}}, {}, "expected a whole number"),
            ({"model.hidden": None}, {}, "model.hidden is None"),
            ({"model.hidden": object()}, {}, "expected a number, a text"),
            (3, {}, "expected a mapping or the path of a YAML file"),
            ({3: 4}, {}, "is no text"),
            ("no.yaml", {}, "cannot be read"),
            (None, {"hidden": 3}, "unknown key|key=value"),
        ]:
            with self.assertRaisesRegex(mb.ConfigError, message):
                mb.plan(self.ds, config, **keywords)
        with self.assertRaises(mb.ConfigError) as caught:
            mb.plan(self.ds, {"model.hiden": 4})
        self.assertEqual(caught.exception.nearest, "model.hidden")
        with self.assertRaisesRegex(mb.ConfigError, "takes the whole file"):
            mb.train(self.ds.split()[0], MODEL)
        with self.assertRaises(mb.ConfigError):
            mb.train(MODEL)  # type: ignore[arg-type]
        with self.assertRaises(mb.ConfigError):
            mb.load_run(self.folder)
        with self.assertRaises(mb.DeviceError):
            mb.train(self.ds, MODEL, device="cuda:0")

    def test_a_run_that_would_not_fit_says_what_would(self) -> None:
        with self.assertRaisesRegex(mb.CapacityError, "would not fit") as caught:
            mb.plan(self.ds, MODEL, memory_bytes=200_000)
        self.assertIsInstance(caught.exception, MemoryError)
        self.assertEqual(caught.exception.available_bytes, 200_000)
        self.assertGreater(caught.exception.needed_bytes, 200_000)

    def test_a_callback_sees_each_step_and_may_end_the_run(self) -> None:
        seen: list[mb.Step] = []

        def on_step(step: mb.Step) -> None:
            seen.append(step)
            if step.step == 5:
                step.stop()

        stopped = self.run_of(on_step=on_step, training={"validate_every_steps": 2})
        self.assertEqual((stopped.steps, stopped.is_finished, [step.step for step in seen]), (5, False, [1, 2, 3, 4, 5]))
        self.assertIsNone(seen[1].validation_loss)
        self.assertIsNotNone(seen[2].validation_loss)
        self.assertTrue(all(np.isfinite([step.loss, step.lr, step.grad_norm]).all() for step in seen))
        resumed = mb.train(out=stopped.path, resume=True, max_steps=8)
        self.assertEqual((resumed.steps, resumed.is_finished), (8, True))
        whole = self.run_of("whole", training={"validate_every_steps": 2})
        for name, values in whole.weights().items():
            self.assertEqual(values.tobytes(), resumed.weights()[name].tobytes(), name)
        self.assertEqual([line["step"] for line in resumed.metrics() if line["event"] == "step"], list(range(1, 9)))

    def test_an_exception_of_a_callback_comes_through_with_a_checkpoint(self) -> None:
        def on_step(step: mb.Step) -> None:
            if step.step == 3:
                raise LookupError("enough")

        with self.assertRaisesRegex(LookupError, "enough"):
            self.run_of(on_step=on_step)
        resumed = mb.train(out=self.folder / "run", resume=True, max_steps=8)
        self.assertEqual(resumed.steps, 8)
        for name, values in self.run_of("whole").weights().items():
            self.assertEqual(values.tobytes(), resumed.weights()[name].tobytes(), name)

    def test_a_signal_ends_a_run_in_order(self) -> None:
        code = (
            "import sys, megabatch as mb\n"
            "try:\n"
            "    mb.train(sys.argv[1], model__hidden=4, out=sys.argv[2], max_steps=10**6,\n"
            "             on_step=lambda step: print(step.step, flush=True))\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
        )
        out = self.folder / "run"
        command = [sys.executable, "-c", code, str(self.ds.path), str(out)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            self.assertEqual(child.stdout.readline(), "1\n")
            child.send_signal(signal.SIGINT)
            said = child.stdout.read().split()
        self.assertEqual((child.returncode, said[-1]), (0, "interrupted"))
        step = int(("1", *said)[-2])
        resumed = mb.train(out=out, resume=True, max_steps=step + 1)
        self.assertEqual(resumed.steps, step + 1)

    def test_other_threads_go_on_meanwhile(self) -> None:
        counted = 0
        done = threading.Event()

        def count() -> None:
            nonlocal counted
            while not done.wait(0.001):
                counted += 1

        thread = threading.Thread(target=count)
        thread.start()
        self.run_of(max_steps=100)
        done.set()
        thread.join()
        self.assertGreater(counted, 10)

    def test_what_becomes_of_a_run(self) -> None:
        run = self.run_of()
        train, validation, test = self.ds.split()
        evaluation = run.evaluate()
        self.assertEqual(len(evaluation.model["rmse"]), 2)
        self.assertIn("mean", evaluation.baselines)
        frame = evaluation.to_pandas()
        self.assertEqual(len(frame), 2 * (1 + len(evaluation.baselines)))
        self.assertEqual(len(evaluation.to_polars()), len(frame))
        np.testing.assert_array_equal(frame[frame.predictor == "model"].rmse, evaluation.model["rmse"])
        self.assertEqual(run.evaluate(validation).facts["split"], "validation")
        predictions = run.predict(test)
        np.testing.assert_array_equal(predictions.samples, test.indices)
        np.testing.assert_array_equal(predictions.times, test.times)
        some = run.predict(samples=[7, 3, 20])
        everything = run.predict(self.ds)
        np.testing.assert_array_equal(some.values, everything.values[[7, 3, 20]])
        self.assertEqual(list(some.to_pandas().columns), ["sample", "time", "h1", "h2"])
        self.assertEqual(len(some.to_polars()), 3)
        self.assertRegex(repr(some), r"^<megabatch.Predictions: 3 samples of 2 targets, step \d+, 20.+ to 20.+ UTC>$")
        self.assertEqual(repr(evaluation), evaluation.text)
        errors = predictions.values - np.concatenate([batch["targets"] for batch in test.loader()])
        np.testing.assert_allclose(np.sqrt((errors.astype(float) ** 2).mean(axis=0)), evaluation.model["rmse"], rtol=1e-5)
        for wrong in ({"samples": []}, {"samples": [9999]}, {"checkpoint": "first"}):
            with self.assertRaises(mb.ConfigError):
                run.predict(**wrong)
        with self.assertRaises(mb.ConfigError):
            run.evaluate(part="some")
        self.assertIn("<iframe", run.report()._repr_html_())
        for name in ("model.onnx", "model.safetensors"):
            run.export(self.folder / name)
            self.assertGreater((self.folder / name).stat().st_size, 100)
        with self.assertRaises(mb.ConfigError):
            run.export(self.folder / "model.txt")
        again = mb.load_run(run.path)
        self.assertEqual(again.evaluate().facts["rmse"], evaluation.facts["rmse"])

    def test_a_run_without_a_folder_goes_with_itself(self) -> None:
        run = mb.train(self.ds, MODEL, max_steps=2)
        folder = run.path
        self.assertTrue(folder.exists())
        del run
        self.assertFalse(folder.exists())

    def test_progress_is_shown_where_it_is_asked_for(self) -> None:
        code = (
            "import sys, megabatch as mb\n"
            "mb.train(sys.argv[1], model__hidden=4, max_steps=3, progress=sys.argv[2] == 'True')\n"
        )
        for progress in (True, False):
            command = [sys.executable, "-c", code, str(self.ds.path), str(progress)]
            said = subprocess.run(command, capture_output=True, text=True, check=True)
            self.assertEqual("/3 steps" in said.stderr, progress)
            self.assertEqual(said.stdout, "")


class Following(InFolder):
    def test_forecasts_are_the_predictions_of_the_samples(self) -> None:
        import pandas

        csv = self.bars(21)
        frame = pandas.read_csv(csv)
        frame["time"] = pandas.to_datetime(frame.iloc[:, 0], utc=True)
        past, coming = frame[: len(frame) * 3 // 4], frame[len(frame) * 3 // 4 :][:300]
        options = {**BARS, "stride": 1}
        ds = mb.ingest(past, symbol="EURUSD", out=self.folder / "past.h5", **options)
        run = mb.train(ds, MODEL, out=self.folder / "run", max_steps=5)
        by_frame = list(run.follow(coming))
        self.assertGreater(len(by_frame), 100)
        rows = [
            {"time": row.time.to_pydatetime(), "open": row.open, "high": row.high, "low": row.low, "close": row.close,
             "volume": row.volume}
            for row in coming.itertuples()
        ]
        one_by_one = list(run.follow(rows))
        self.assertEqual([one.time for one in one_by_one], [one.time for one in by_frame])
        for one, other in zip(one_by_one, by_frame):
            np.testing.assert_array_equal(one.values, other.values)
        # The same bars in a file: the same numbers, but for the order of sums.
        with mb.load_run(run.path).follow() as follower:
            last = [follower.push(row) for row in rows][-1]
        assert last is not None
        np.testing.assert_array_equal(last.values, by_frame[-1].values)
        self.assertEqual(follower.close()["bars"], 300)
        with self.assertRaises(mb.ConfigError):
            follower.push(rows[0])
        with self.assertRaises(mb.DataError):
            run.follow().push({"time": "2024-01-01T00:00Z", "open": 1.0})
        with self.assertRaises(mb.DataError):
            run.follow().push({**rows[0], "open": "x"})
        with self.assertRaises(mb.ConfigError):
            next(iter(run.follow()))
        backward = run.follow(cold=True)
        backward.push(rows[1])
        with self.assertRaises(mb.DataError):
            backward.push(rows[0])
