"""Plans, runs, and what becomes of them."""

from __future__ import annotations

import datetime
import inspect
import io
import json
import os
import pathlib
import pydoc
import random
import select
import shutil
import signal
import subprocess
import sys
import threading
import typing
import unittest.mock
from collections.abc import Callable
from typing import Any

import megabatch as mb
import numpy as np
from shared import BARS, CHILD_SECONDS_MAX, MODEL, PROGRAM, InFolder

STEPS_MAX = 2_000
"""Steps of a run that an interrupt ends before, unless it is lost."""

SETTINGS = ["--set", "model.hidden=4", "--set", "gpu_optimization.batch_size=32"]


class FakeModule:
    """A module of PyTorch."""

    def state_dict(self) -> dict[str, Any]:
        return {}


class FakeTensor:
    """A tensor of PyTorch, as far as its numbers are read."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def detach(self) -> FakeTensor:
        return self

    cpu = float = detach

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._values, dtype)


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
        table = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(2, 3), dtype=np.float32)
        np.testing.assert_array_equal(predictions.values, table)
        command = [PROGRAM, "--json", "eval", "--run", str(out)]
        said = subprocess.run(command, check=True, capture_output=True, timeout=CHILD_SECONDS_MAX)
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
            (MODEL, {"model": {"hidden": 64}, "model__hidden": 4, "training": None, "distributed": "off"}),
            (MODEL, {"model__hidden": None, "gpu_optimization__batch_size": None}),
            (MODEL, {"training": {"thresholds": range(2), "loss": "cross_entropy"}}),
        ]
        plans = [mb.plan(self.ds, config, **keywords) for config, keywords in forms]
        for plan in plans:
            self.assertEqual((plan.facts["model"]["hidden"], plan.facts["batch_size"]), (4, 32))
        self.assertEqual(plan.memory_bytes, plan.facts["memory"]["total_bytes"])
        self.assertIn("peak memory", str(plan))
        shown = plans[0]._repr_html_()
        for said in (f"<td>{plans[0].steps}</td>", f"{plans[0].memory_bytes / 1e6:,.1f} MB", "samples, validation"):
            self.assertIn(said, shown)
        listed = mb.plan(self.ds, MODEL, data={"split": [0.8, 0.1, 0.1]}, training={"clip_norm": "none"})
        self.assertGreater(listed.facts["split"]["train"], plans[0].facts["split"]["train"])

    def test_help_and_types_show_every_setting(self) -> None:
        listed = json.loads(self.program("--json", "config"))["settings"]
        names = [setting["name"] for setting in listed]
        self.assertEqual([name.replace("__", ".", 1) for name in mb.ShortSettings.__annotations__], names)
        sections = typing.get_type_hints(mb.Settings)
        by_section = [f"{section}.{name}" for section, kind in sections.items() for name in kind.__annotations__]
        self.assertEqual(by_section, names)
        for section, kind in sections.items():
            self.assertIs(kind, getattr(mb, kind.__name__))
            for name in typing.get_type_hints(kind):
                self.assertRegex(kind.__doc__, rf"\n    {name}: .+\n        \S")
        self.assertIn('\n    model\n        cell: Literal["lstm", "gru"] = "lstm"\n', str(mb.Settings.__doc__))
        self.assertNotIn("`--", "".join(str(kind.__doc__) for kind in sections.values()))
        for function in (mb.train, mb.plan):
            signature = inspect.signature(function)
            self.assertLess(sections.keys(), signature.parameters.keys())
            self.assertEqual(signature.parameters["model"].annotation, "ModelSettings | None")
        hints = {name: f"{hint.__forward_arg__} | None" for name, hint in mb.ShortSettings.__annotations__.items()}
        for call in (mb.train, mb.plan, mb.import_weights):
            parameters = inspect.signature(call).parameters
            self.assertEqual({name: one.annotation for name, one in parameters.items() if "__" in name}, hints)
            self.assertNotIn("short", parameters)
            self.assertRegex(pydoc.plain(pydoc.render_doc(call)), r"training__lr: '?float \| None'? = None")

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
            (None, {"distributed": 3}, "^distributed=3: expected a dictionary of the settings"),
            ({"training": {"thresholds": b"x"}}, {}, "training.thresholds is b'x': expected a number"),
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

    def test_messages_speak_python(self) -> None:
        run = self.run_of()
        carried = self.run_of("carried", training={"carry_state": True})
        windows = self.series(layout="windows")
        contradiction = {"training.lr": 0.1, "training.learning_rate": 0.2}
        sizes: list[Any] = [8.5, -1, 1 << 64]
        cases: list[tuple[Callable[[], object], str]] = [
            (lambda: mb.plan(self.ds, {"model.hiden": 4}), r"^unknown key `model\.hiden`; .*\(`help\(mb\.Settings\)` lists"),
            (lambda: mb.plan(self.ds, {"training.lr": -1}), r"^training\.lr = -1: expected a number greater than 0$"),
            (lambda: mb.plan(self.ds, contradiction), r"^training\.learning_rate = 0\.2 contradicts training\.lr = 0\.1: they"),
            (lambda: mb.plan(windows, training={"carry_state": True}), r"; `mb\.convert` turns them into series$"),
            (lambda: mb.train(), r"^no data: give a dataset, or data\.path"),
            (lambda: mb.train(resume=True), r"^resume=True needs the folder of the run: out$"),
            (lambda: self.run_of(), r"holds a run already; resume=True goes on with it"),
            (lambda: self.run_of("init", init=run.path, data={"walk_forward": 2}), r"^init: .* with data\.walk_forward_number=N"),
            (lambda: run.export(self.folder / "a.safetensors", batch=3), r"^batch is for ONNX; weights"),
            (lambda: run.export(self.folder / "a.onnx", fold_scaler=True), r"no /scaler/M1 for fold_scaler=True"),
            (lambda: carried.export(self.folder / "a.onnx"), r"as `run\.predict` does; .*\. stateless=True writes it so$"),
            (lambda: mb.Run(self.folder).evaluate(), r"`mb\.train\(out=…\)` makes one$"),
            (lambda: mb.compare([run]), r"^compare needs two runs or more"),
            (lambda: mb.compare(run), r"^compare needs two runs or more"),
            (lambda: mb.compare(3), r"^runs=3: expected a run of mb.train, its folder, or a list of them$"),  # type: ignore[arg-type]
            *(
                (lambda value=value: self.run_of("steps", max_steps=value), rf"^max_steps={value!r}: expected a whole number from 1 on$")
                for value in (10.5, "ten", 0, -1, True)
            ),
            (lambda: mb.plan(self.ds, max_steps=0), r"^max_steps=0: expected a whole number from 1 on$"),
            (lambda: self.run_of(on_step=5), r"^on_step=5: expected a function that takes an mb.Step$"),
            (lambda: mb.train(self.ds, "runs/x"), r"^config='runs/x': expected settings or .* written to is out='runs/x'$"),
            (lambda: mb.train(self.ds.path, run.path), r"^config='.*': expected settings or .* written to is out="),
            *(
                (lambda value=value: mb.plan(self.ds, memory_bytes=value), rf"^memory_bytes={value!r}: expected a whole number of bytes")
                for value in sizes
            ),
            (lambda: mb.plan(self.ds, memory_bytes="8 sacks"), r"^memory_bytes: `8 sacks` is no amount of memory; expected bytes, "),
            (lambda: mb.plan(self.ds, device=5), r"^device=5: expected the name of a device"),  # type: ignore[arg-type]
            (lambda: self.run_of(resume="yes"), r"^resume='yes': expected True or False$"),
            (lambda: run.evaluate(int8=1), r"^int8=1: expected True or False$"),  # type: ignore[arg-type]
            # Each text was taken for True.
            (lambda: self.run_of("steps", progress="no"), r"^progress='no': expected True or False$"),
            (lambda: run.predict(progress="no"), r"^progress='no': expected True or False$"),  # type: ignore[arg-type]
            (lambda: run.follow(cold="no"), r"^cold='no': expected True or False$"),  # type: ignore[arg-type]
            (lambda: run.export("a.onnx", fold_scaler="no"), r"^fold_scaler='no': expected True or False$"),  # type: ignore[arg-type]
            (lambda: run.export("a.onnx", stateless="no"), r"^stateless='no': expected True or False$"),  # type: ignore[arg-type]
            *(
                (lambda name=name: mb.plan(self.ds, {name: "cuda"}), rf"^{name}='cuda' is among the settings: .*, {name}='cuda'\)$")
                for name in ("device", "memory_bytes", "out", "resume")
            ),
            (lambda: mb.leak(self.ds, samples="4"), r"^samples='4': expected a whole number from 1 on$"),  # type: ignore[arg-type]
            (lambda: mb.leak(self.ds, samples=0), r"^samples=0: expected a whole number from 1 on$"),
            (lambda: run.follow(zone=5), r"^zone=5: expected a text, a clock such as UTC or new-york\+7$"),  # type: ignore[arg-type]
            (lambda: run.follow("AAPL.csv"), r"^bars='AAPL.csv' is the path of a file: expected a frame, .* option `follow` of its"),
            (lambda: run.follow(5), r"^bars=5: expected a frame, or bars one by one$"),
            (lambda: run.follow(history=5), r"^history=5: expected the path of a file of bars, or a list of them$"),  # type: ignore[arg-type]
            (lambda: run.follow(history=[5]), r"^history is an int: expected the path of a file of bars"),  # type: ignore[list-item]
            (lambda: run.predict("latest"), r'^data="latest" is no file: samples="latest" are'),
            (lambda: run.predict(self.ds, "test"), r'^samples="test" is a part: part="test" predicts its samples$'),  # type: ignore[arg-type]
            (lambda: mb.inspect(self.ds, all="no"), r"^all='no': expected True or False$"),  # type: ignore[arg-type]
            (lambda: mb.inspect(run.path), r"is a run, and inspect takes files of samples and bars: mb\.load_run opens it$"),
            (lambda: run.follow(symbol=["A"]), r"^symbol=\['A'\]: expected a text, the name of one instrument$"),  # type: ignore[arg-type]
        ]
        for call, message in cases:
            with self.assertRaisesRegex(mb.MegabatchError, message) as caught:
                call()
            self.assertNotRegex(str(caught.exception), r"--[a-z]|`megabatch (?!monitor)")
        self.assertFalse((self.folder / "steps").exists())
        texts = [str(mb.plan(self.ds, MODEL)), run.text, carried.text, str(mb.inspect(self.ds)), str(run.evaluate())]
        self.assertNotRegex("\n".join(texts), r"--[a-z]|`megabatch ")
        self.assertIn("`run.follow` computes 11 steps a bar", texts[0])
        self.assertIn('`run.export("model.onnx")` needs stateless=True', carried.text)

    def test_an_unknown_argument_is_refused_with_the_one_that_is_meant(self) -> None:
        run = self.run_of("named", max_steps=2)
        for call in (run.predict, run.evaluate):
            with self.assertRaisesRegex(TypeError, r"\(\) has no argument force; did you mean changed_data\?$"):
                call(force=True)  # type: ignore[call-arg]
            with self.assertRaisesRegex(TypeError, r"\(\) has no argument chekpoint; did you mean checkpoint\?$"):
                call(chekpoint="last")  # type: ignore[call-arg]

    def test_whole_floats_and_sizes_with_a_unit_are_what_they_mean(self) -> None:
        one = mb.plan(self.ds, MODEL, memory_bytes="1GB", max_steps=3)
        other = mb.plan(self.ds, MODEL, memory_bytes=1e9, max_steps=3.0)  # type: ignore[arg-type]
        self.assertEqual(one.facts["memory"], other.facts["memory"])
        self.assertEqual((one.steps, other.steps), (3, 3))
        self.assertEqual(mb.plan(self.ds, {"model.hidden": 8.0}).memory_bytes, mb.plan(self.ds, {"model.hidden": 8}).memory_bytes)
        with self.assertRaisesRegex(mb.ConfigError, "expected a whole number"):
            mb.plan(self.ds, {"model.hidden": 8.5})

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
            "    mb.train(sys.argv[1], model__hidden=4, out=sys.argv[2], max_steps=int(sys.argv[3]),\n"
            "             on_step=lambda step: print(step.step, flush=True))\n"
            "except KeyboardInterrupt:\n"
            "    print('interrupted')\n"
        )
        out = self.folder / "run"
        with self.child(code, self.ds.path, out, STEPS_MAX) as child:
            assert child.stdout is not None
            self.assertEqual(child.stdout.readline(), "1\n")
            child.send_signal(signal.SIGINT)
            said = child.stdout.read().split()
        self.assertEqual(said[-1], "interrupted")
        step = int(("1", *said)[-2])
        resumed = mb.train(out=out, resume=True, max_steps=step + 1)
        self.assertEqual(resumed.steps, step + 1)

    def test_a_signal_that_would_kill_ends_a_run_with_a_checkpoint(self) -> None:
        # SIGTERM, which a scheduler sends to a job, killed the process without a checkpoint.
        code = (
            "import sys, megabatch as mb\n"
            "number = int(sys.argv[4])\n"
            "signal.signal(number, signal.SIG_DFL)\n"
            "try:\n"
            "    mb.train(sys.argv[1], model__hidden=4, out=sys.argv[2], max_steps=int(sys.argv[3]),\n"
            "             on_step=lambda step: print(step.step, flush=True))\n"
            "finally:\n"
            "    print(signal.getsignal(number) is signal.SIG_DFL)\n"
        )
        for number in (signal.SIGTERM, signal.SIGHUP):
            out = self.folder / number.name
            with self.child(code, self.ds.path, out, STEPS_MAX, int(number), returns=128 + number) as child:
                assert child.stdout is not None
                self.assertEqual(child.stdout.readline(), "1\n")
                child.send_signal(number)
                said = child.stdout.read().split()
            self.assertEqual(said[-1], "True", "the handler is the default one again")
            last = int(("1", *said)[-2])
            saved = max(int(path.name.removeprefix("step-")) for path in out.glob("checkpoints/step-*"))
            # The signal may come before the callback has printed its step.
            self.assertIn(saved, (last, last + 1))
            steps = last + 2
            resumed = mb.train(out=out, resume=True, max_steps=steps)
            self.assertEqual(resumed.steps, steps)
            whole = mb.train(self.ds.path, model__hidden=4, max_steps=steps)
            for name, values in whole.weights().items():
                self.assertEqual(values.tobytes(), resumed.weights()[name].tobytes(), name)

    def test_a_second_signal_ends_the_process_at_once(self) -> None:
        code = (
            "import sys, megabatch as mb\n"
            "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
            "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
            "def on_step(step):\n"
            "    for number in (int(sys.argv[3]), signal.SIGTERM):\n"
            "        try:\n"
            "            signal.raise_signal(number)\n"
            "        except SystemExit as end:\n"
            "            print(end.code, flush=True)\n"
            "mb.train(sys.argv[1], model__hidden=4, out=sys.argv[2], max_steps=8, on_step=on_step)\n"
        )
        for number in (signal.SIGTERM, signal.SIGHUP):
            out = self.folder / number.name
            with self.child(code, self.ds.path, out, int(number), returns=-signal.SIGTERM) as child:
                assert child.stdout is not None
                self.assertEqual(child.stdout.read(), f"{128 + number}\n")

    def test_a_signal_that_the_program_handles_or_ignores_is_left_to_it(self) -> None:
        code = (
            "import signal, sys, megabatch as mb\n"
            "heard = []\n"
            "def hear(number, frame):\n"
            "    heard.append(signal.Signals(number).name)\n"
            "signal.signal(signal.SIGTERM, hear)\n"
            "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
            "def on_step(step):\n"
            "    if step.step == 3:\n"
            "        signal.raise_signal(signal.SIGTERM)\n"
            "        signal.raise_signal(signal.SIGHUP)\n"
            "run = mb.train(sys.argv[1], model__hidden=4, max_steps=8, on_step=on_step)\n"
            "kept = signal.getsignal(signal.SIGTERM) is hear, signal.getsignal(signal.SIGHUP) is signal.SIG_IGN\n"
            "print(run.steps, *heard, *kept)\n"
        )
        self.assertEqual(self.python(code, self.ds.path), "8 SIGTERM True True\n")

    def test_another_thread_than_the_main_one_trains(self) -> None:
        runs: list[mb.Run] = []
        thread = threading.Thread(target=lambda: runs.append(self.run_of()), daemon=True)
        thread.start()
        thread.join(CHILD_SECONDS_MAX)
        self.assertEqual([run.steps for run in runs], [8])

    def test_other_threads_go_on_meanwhile(self) -> None:
        counted = 0
        done = threading.Event()

        def count() -> None:
            nonlocal counted
            while not done.wait(0.001):
                counted += 1

        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        self.run_of(max_steps=100)
        done.set()
        thread.join(CHILD_SECONDS_MAX)
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
        for part, own in (("train", train), ("validation", validation), ("test", test)):
            by_part = run.predict(part=part)
            np.testing.assert_array_equal(by_part.samples, own.indices)
            np.testing.assert_array_equal(by_part.values, run.predict(own).values)
        file = self.folder / "test.csv"
        self.program("predict", "--run", run.path, "--split", "test", "--out", file)
        listed = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(0, 2, 3), dtype=np.float32)
        np.testing.assert_array_equal(listed[:, 0], test.indices)
        np.testing.assert_array_equal(listed[:, 1:], predictions.values)
        some = run.predict(samples=[7, 3, 20])
        everything = run.predict(self.ds)
        np.testing.assert_array_equal(some.values, everything.values[[7, 3, 20]])
        self.assertEqual(list(some.to_pandas().columns), ["sample", "time", "h1", "h2", "target1", "target2"])
        self.assertEqual(len(some.to_polars()), 3)
        self.assertEqual(str(some.to_pandas().time.dtype), "datetime64[ns, UTC]")
        self.assertEqual(some.to_polars().schema["time"].time_zone, "UTC")  # type: ignore[attr-defined]
        np.testing.assert_array_equal(predictions.targets, test[:]["targets"])
        np.testing.assert_array_equal(some.targets, everything.targets[[7, 3, 20]])
        self.assertRegex(repr(some), r"^<megabatch.Predictions: 3 samples of 2 targets, step \d+, 20.+ to 20.+ UTC>$")
        self.assertEqual(repr(evaluation), evaluation.text)
        shown = evaluation._repr_html_()
        for said in ("<td>model</td>", "<td>mean</td>", "<th>rmse</th>", f"{evaluation.model['rmse'].mean():.4g}</td>"):
            self.assertIn(said, shown)
        errors = predictions.values - np.concatenate([batch["targets"] for batch in test.loader()])
        np.testing.assert_allclose(np.sqrt((errors.astype(float) ** 2).mean(axis=0)), evaluation.model["rmse"], rtol=1e-5)
        for wrong in ({"samples": []}, {"samples": [9999]}, {"checkpoint": "first"}, {"part": "some"},
                      {"part": "test", "samples": [3]}):
            with self.assertRaises(mb.ConfigError):
                run.predict(**wrong)
        with self.assertRaises(mb.ConfigError):
            run.evaluate(part="some")
        self.assertRegex(repr(run), r": 8 steps, best validation loss [\d.]+ at step \d+>$")
        self.assertRegex(repr(mb.load_run(run.path)), "/run: 8 steps>$")
        shown = predictions._repr_html_()
        for said in (f"10 of {len(test)} samples, step ", "<th>sample</th><th>time</th><th>h1</th>", " UTC</td>", f">{predictions.values[0, 0]:.4g}</td>"):
            self.assertIn(said, shown)
        self.assertEqual(shown.count("<tr>"), 11)
        self.assertIn("<iframe", run.report()._repr_html_())
        for name in ("model.onnx", "model.safetensors"):
            run.export(self.folder / name)
            self.assertGreater((self.folder / name).stat().st_size, 100)
        with self.assertRaises(mb.ConfigError):
            run.export(self.folder / "model.txt")
        again = mb.load_run(run.path)
        self.assertEqual(again.evaluate().facts["rmse"], evaluation.facts["rmse"])

    def test_a_predicted_class_stands_beside_the_true_one(self) -> None:
        run = self.run_of(max_steps=1, training={"loss": "cross_entropy", "thresholds": [-0.5, 0.5]})
        predictions = run.predict(self.ds)
        expected = np.searchsorted([-0.5, 0.5], predictions.targets, side="left").astype(np.float32)
        np.testing.assert_array_equal(predictions.true_classes, expected)
        frame = predictions.to_pandas()
        self.assertEqual(list(frame.columns)[-4:], ["target1", "target2", "target1_value", "target2_value"])
        np.testing.assert_array_equal(frame[["target1", "target2"]], expected)
        np.testing.assert_array_equal(frame[["target1_value", "target2_value"]], predictions.targets)
        accuracy = (frame["h1"] == frame["target1"])[run.predict(part="test").samples].mean()
        self.assertAlmostEqual(accuracy, run.evaluate().model["accuracy"][0], places=6)
        chosen = run.predict(self.ds, samples=[3, 0])
        np.testing.assert_array_equal(chosen.true_classes, expected[[3, 0]])
        self.assertIsNone(self.run_of("numbers", max_steps=1).predict(self.ds).true_classes)

    def test_samples_are_chosen_by_number_or_by_mask(self) -> None:
        run = self.run_of(max_steps=1)
        mask = np.zeros(len(self.ds), bool)
        mask[[3, 7, 20]] = True
        for data in (None, self.ds, self.ds.path):
            for given in (mask, mask.tolist()):
                np.testing.assert_array_equal(run.predict(data, samples=given).samples, [3, 7, 20])
        _, _, test = self.ds.split()
        first = np.arange(len(test)) < 2
        chosen: Any
        for chosen in (first, [0, 1], range(2)):
            np.testing.assert_array_equal(run.predict(test, samples=chosen).samples, test.indices[:2])
        np.testing.assert_array_equal(run.predict(test, samples=len(test) - 1).samples, test.indices[-1:])
        beyond = f"samples has {len(test)}, and the part test has {len(test)} of the 400 samples of .*: places count from 0 in the part"
        with self.assertRaisesRegex(mb.ConfigError, beyond):
            run.predict(test, samples=[0, len(test)])
        with self.assertRaisesRegex(mb.ConfigError, "a mask with a value for each of the .* samples of .*, part test, found"):
            run.predict(test, samples=first[1:])
        for one in (10, np.int32(10)):
            np.testing.assert_array_equal(run.predict(samples=one).samples, [10])
        for wrong, message in (
            (mask[1:], f"a mask with a value for each of the 400 samples of {self.ds.path}, found one of shape 399"),
            ([1.5], r"samples is \[1.5\]: expected numbers of samples from 0 on"),
            ([-1], r"samples is \[-1\]: expected numbers of samples"),
            ([-3, -2, -1], r"samples is \[-3, -2, -1\]: expected numbers of samples"),
            ("x", "samples is 'x': expected numbers of samples"),
            (slice(0, 3), "expected numbers of samples from 0 on, such as range"),
        ):
            with self.assertRaisesRegex(mb.ConfigError, message):
                run.predict(samples=wrong)

    def test_weights_from_elsewhere_become_a_run(self) -> None:
        ds = self.series()
        trained = mb.train(ds, max_steps=3, **MODEL)
        expected = trained.predict(ds)
        weights = trained.weights()
        file = self.folder / "weights.safetensors"
        trained.export(file)
        saved = self.folder / "saved.pt"
        saved.write_bytes(b"PK\x03\x04 and a pickle")
        for given in (weights, {name: FakeTensor(own) for name, own in weights.items()}, file):
            run = mb.import_weights(given, ds, **MODEL)
            np.testing.assert_array_equal(run.predict(ds).values, expected.values)
            np.testing.assert_equal(run.weights(checkpoint="last"), weights)
        self.assertEqual(run.steps, 0)
        out = self.folder / "imported"
        self.assertEqual(mb.import_weights(weights, ds, out=out, **MODEL).path, out)
        self.assertEqual(mb.train(out=out, resume=True, max_steps=2).steps, 2)
        name = next(iter(weights))
        for wrong, message in [
            ({**weights, name: "text"}, f"^weights: {name} is a str"),
            ({**weights, name: weights[name][:-1]}, f"^weights: the tensors(.|\n)*{name}"),
            ({key: own for key, own in weights.items() if key != name}, f"^weights: the tensors(.|\n)*{name}"),
            ({f"model.{key}": own for key, own in weights.items()}, r"\n  without 'model.' before their names: "),
            (
                {key.replace("lstm.M1.", "lstm."): own for key, own in weights.items()},
                r"\n  weights of the recurrence name their timeframe: lstm.M1.\w+ in place of lstm.\w+$",
            ),
            (
                {key.replace("lstm.M1.", "rnn.").replace("head.", "fc."): own for key, own in weights.items()},
                r"\n  by the shapes of their weights, fc is head, rnn is lstm.M1; with names = .* they are {names.get\(",
            ),
            (
                {key.replace("lstm.", "rnn."): own for key, own in weights.items()},
                r"\n  by the shapes of their weights, rnn.M1 is lstm.M1, rnn.M5 is lstm.M5; with names = ",
            ),
            (
                {key.replace("lstm.M", "rnn").replace("head.", "out."): own for key, own in weights.items()},
                r"\n  by the shapes of their weights, out is head, rnn1 is lstm.M1 or lstm.M5, .*; rename them$",
            ),
            (
                {
                    key.replace("lstm.", "rnn."): own[:, :2].copy() if "weight_ih" in key else own
                    for key, own in weights.items()
                },
                r"\n  the weights read bars of 2 features, and those of the dataset have 3$",
            ),
            ({"rnn.weight_hh_l0": np.zeros((4, 4), "f4")}, r"^weights: rnn\.weight_hh_l0, \[4, 4\], is of nn\.RNN"),
            ({f"{key}_reverse": own for key, own in weights.items()}, "^weights: .*_reverse is of a bidirectional recurrence"),
            ({"model": weights, "epoch": 3}, r"weights has model, epoch, .* give weights\['model'\]"),
            ({}, "weights is an empty dictionary"),
            (FakeModule(), r"weights is a module, FakeModule: give module.state_dict\(\)"),
            (trained, r"weights is a run: give run.weights\(\)"),
            (trained.path, "weights is a folder: .*; of a run, give mb.load_run"),
            (saved, "saved.pt: it is a file of torch.save: load it with torch.load"),
            (None, "weights is None: expected a dictionary of tensors by name"),
            (5, "weights is an int: expected a dictionary of tensors by name"),
            ({**weights, "head.bias": object()}, "weights: head.bias is an object: expected a tensor or an array of numbers"),
        ]:
            with self.assertRaisesRegex((mb.ConfigError, mb.DataError), message):
                mb.import_weights(wrong, ds, **MODEL)
        with self.assertRaisesRegex(mb.ConfigError, "weights is a dataset: expected a dictionary") as caught:
            exchanged: Any = (ds, weights)
            mb.import_weights(*exchanged, **MODEL)
        self.assertLess(len(str(caught.exception)), 200)
        for given in (weights, file):
            with self.assertRaisesRegex(mb.DataError, r'the weights fit model=\{"hidden": 4, "layers": 1\}'):
                mb.import_weights(given, ds, **{**MODEL, "model": {"hidden": 8, "layers": 2}})
        batches: Any = {"gpu_optimization": MODEL["gpu_optimization"]}
        np.testing.assert_equal(mb.import_weights(weights, ds, **batches).weights(), weights)
        strange = {key.replace("lstm.", "rnn."): own for key, own in weights.items()}
        with self.assertRaises(mb.DataError) as refused:
            mb.import_weights(strange, ds, **MODEL)
        self.assertNotIn("the weights fit model", str(refused.exception))
        # The head has its name already.
        names, renamed = str(refused.exception).split("with names = ")[1].split(" they are ")
        known = eval(renamed, {"names": eval(names), "weights": strange})
        np.testing.assert_equal(mb.import_weights(known, ds, **MODEL).weights(), weights)
        for prefix, expression in (("module.", "with names = "), ("module.model.", "before their names: ")):
            other = "rnn." if prefix == "module." else "lstm."
            strange = {prefix + key.replace("lstm.", other): own for key, own in weights.items()}
            with self.assertRaises(mb.DataError) as refused:
                mb.import_weights(strange, ds, **MODEL)
            names, _, renamed = str(refused.exception).split(expression)[1].rpartition(" they are ")
            known = eval(renamed, {"names": eval(names or "{}"), "weights": strange})
            np.testing.assert_equal(mb.import_weights(known, ds, **MODEL).weights(), weights)
        wrapped = {f"module._orig_mod.{key}": own for key, own in weights.items()}
        np.testing.assert_equal(mb.import_weights(wrapped, ds, **MODEL).weights(), weights)

    def test_a_training_begins_with_weights_of_any_kind(self) -> None:
        trained = self.run_of(max_steps=3)
        file = self.folder / "weights.safetensors"
        trained.export(file)
        inits: list[Any] = [file, trained, trained.path, trained.weights()]
        began = [self.run_of(f"run-{n}", init=init, max_steps=1).weights(checkpoint="last") for n, init in enumerate(inits)]
        for found in began[1:]:
            np.testing.assert_equal(found, began[0])
        wrong: Any = [1.0]
        reverse = {f"{name}_reverse": own for name, own in trained.weights().items() if "weight_hh" in name}
        for init, text in (
            (wrong, "init is a list: expected"),
            ({"a": np.ones(3)}, "^init: the tensors are not"),
            ({"rnn.weight_hh_l0": np.zeros((4, 4), "f4")}, r"^init: rnn\.weight_hh_l0, \[4, 4\], is of nn\.RNN, which is not supp"),
            (reverse, "^init: .*_reverse is of a bidirectional recurrence, which is not supported"),
        ):
            with self.assertRaisesRegex((mb.ConfigError, mb.DataError), text):
                self.run_of("wrong", init=init, max_steps=1)

    def test_folds_predict_what_their_models_have_not_seen(self) -> None:
        run = self.run_of(data={"walk_forward": 3})
        self.assertRegex(repr(run), ", 3 folds>$")
        whole = run.predict(progress=False)
        own = [fold.predict(part="test") for fold in run.folds]
        np.testing.assert_array_equal(whole.samples, np.concatenate([fold.samples for fold in own]))
        np.testing.assert_array_equal(whole.values, np.concatenate([fold.values for fold in own]))
        np.testing.assert_array_equal(whole.targets, self.ds[whole.samples]["targets"])
        assert whole.folds is not None and whole.times is not None
        self.assertEqual([int((whole.folds == number).sum()) for number in (1, 2, 3)], [len(fold) for fold in own])
        self.assertTrue(np.all(np.diff(whole.times.astype(np.int64)) >= 0))
        self.assertIn("<td>model</td>", run.evaluate()._repr_html_())
        self.assertEqual(list(whole.to_pandas().columns)[:3], ["sample", "fold", "time"])
        np.testing.assert_array_equal(run.predict(self.ds, part="test").values, whole.values)
        for arguments in ({"part": "train"}, {"samples": [3]}):
            with self.assertRaisesRegex(mb.ConfigError, "a model a fold"):
                run.predict(**arguments)
        shutil.rmtree(run.path / "fold-3")
        with self.assertRaisesRegex(mb.ConfigError, "fold 3 of 3 has not been trained"):
            run.predict()

    def test_notes_that_change_a_training_come_before_it(self) -> None:
        with self.assertLogs("megabatch", "WARNING") as logs:
            said: list[int] = []
            self.run_of(training={"quantile": 0.9}, on_step=lambda _: said.append(len(logs.output)))
        self.assertIn("note: training.quantile has no effect", logs.output[0])
        self.assertGreater(said[0], 0)

    def test_a_run_that_stays_without_its_data_is_warned_of(self) -> None:
        bars, options = self.bars(), {"max_steps": 1, "progress": False}
        ds, kept = mb.ingest(bars, **BARS), mb.ingest(bars, out=self.folder / "kept.h5", **BARS)
        with self.assertLogs("megabatch", "WARNING") as logs:
            mb.train(ds, MODEL, out=self.folder / "run", **options)
        self.assertRegex(logs.output[0], r"the run in .*run stays, and its data go with this process: .*mb\.ingest\(…, out=")
        with self.assertNoLogs("megabatch", "WARNING"):
            mb.train(ds, MODEL, **options)
            mb.train(kept, MODEL, out=self.folder / "other", **options)

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
            said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CHILD_SECONDS_MAX)
            self.assertEqual("/3 steps" in said.stderr, progress)
            self.assertEqual(said.stdout, "")

    def test_a_script_has_a_line_a_validation(self) -> None:
        code = "import sys, megabatch as mb\nmb.train(sys.argv[1], model__hidden=4, training__epochs=2)\n"
        command = [sys.executable, "-c", code, str(self.ds.path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CHILD_SECONDS_MAX)
        lines = [line for line in said.stderr.splitlines() if line.startswith("epoch ")]
        self.assertEqual(len(lines), 2)
        self.assertRegex(lines[0], r"^epoch 1, step (\d+): validation [\w ()]+ \S+, the best so far; train \1/\d+  loss ")
        folds = code.replace("training__epochs=2", "training__epochs=1, data__walk_forward=2")
        command = [sys.executable, "-c", folds, str(self.ds.path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=CHILD_SECONDS_MAX)
        for fold in (1, 2):
            self.assertRegex(said.stderr, rf"(?m)^epoch 1, step (\d+): .*; fold {fold} train \1/\d+  loss ")
        self.assertEqual(said.stdout, "")

    def test_a_validation_leaves_the_bar_of_training_as_it_was(self) -> None:
        from megabatch import _display

        now, screen = 100.0, io.StringIO()
        monotonic = unittest.mock.patch("megabatch._display.time.monotonic", lambda: now)
        with monotonic, unittest.mock.patch("sys.stderr", screen), unittest.mock.patch.dict(os.environ, COLUMNS="120"):
            display = _display._Terminal()
            training = display.begin("train", 100, "steps")
            now = 110.0
            validation = display.begin("validate", 1257, "samples")
            validation.at(300, "")
            validation.end()
            now = 120.0
            training.at(20, "loss 2")
        # Its label, length and clock were those of the validation.
        last = screen.getvalue().rpartition("\x1b[K")[2]
        self.assertRegex(last, r"^train \[={6} {24}\] 20/100 steps  1\.0/s  80 s left  loss 2$")

    def test_lines_of_progress_come_every_half_minute(self) -> None:
        from megabatch import _display

        now = 100.0
        with unittest.mock.patch("megabatch._display.time.monotonic", lambda: now), self.assertLogs("megabatch", "INFO") as logs:
            training = _display.display(None).begin("train", 100, "steps")
            for step in range(1, 61):
                now = 100.0 + step * 1.5
                training.at(step, f"loss {step}")
            training.end()
        self.assertEqual([line.rpartition(" ")[2] for line in logs.output], ["20", "40", "60"])
        self.assertRegex(logs.output[0], r"train \[=+ +\] 20/100 steps  0.7/s  120 s left  loss 20$")


class Fails:
    """A display whose `method` raises errors of a class."""

    def __init__(self, error: type[BaseException], method: str) -> None:
        self._error = error
        self._method = method
        self.called: list[str] = []

    def _call(self, method: str) -> None:
        self.called.append(method)
        if method == self._method:
            raise self._error("here")

    def begin(self, label: str, total: int, unit: str) -> Fails:
        self._call("begin")
        return self

    def begin_at(self, first: int) -> None:
        self._call("begin_at")

    def at(self, done: int, message: str) -> None:
        self._call("at")

    def note(self, text: str) -> None:
        self._call("note")

    def end(self) -> None:
        self._call("end")


class Interrupts(InFolder):
    """Interrupts in callbacks of a run, and exceptions of its display."""

    def setUp(self) -> None:
        super().setUp()
        self.ds = self.series()

    def run_with(self, display: Any, **options: Any) -> mb.Run:
        with unittest.mock.patch("megabatch.training.display", lambda progress: display):
            return mb.train(self.ds, MODEL, **{"out": self.folder / "run", "max_steps": STEPS_MAX, **options})

    def test_an_interrupt_in_a_display_comes_through(self) -> None:
        for error in (KeyboardInterrupt, SystemExit, GeneratorExit):
            for method in ("begin", "at", "end"):
                with self.subTest(error=error, method=method), self.assertRaisesRegex(error, "here"):
                    self.run_with(Fails(error, method), out=self.folder / f"{error.__name__}-{method}")

    def test_an_interrupt_in_a_display_ends_the_run_with_a_checkpoint(self) -> None:
        with self.assertRaisesRegex(KeyboardInterrupt, r"^here; (.*) is the last checkpoint, and (mb\.train\(.*\)) goes on$") as caught:
            self.run_with(Fails(KeyboardInterrupt, "at"))
        checkpoint, call = str(caught.exception).removeprefix("here; ").split(" is the last checkpoint, and ")
        self.assertTrue((pathlib.Path(checkpoint) / "model.safetensors").is_file())
        resumed = eval(call.removesuffix(" goes on").replace("resume=True", "resume=True, max_steps=8"), {"mb": mb})
        self.assertEqual((resumed.path, resumed.steps, resumed.is_finished), (self.folder / "run", 8, True))
        with self.assertRaisesRegex(KeyboardInterrupt, "^here; the run had no folder of its own and is gone; out=… keeps"):
            self.run_with(Fails(KeyboardInterrupt, "at"), out=None)

    def test_a_resumed_run_and_predictions_are_interrupted_too(self) -> None:
        run = mb.train(self.ds, MODEL, out=self.folder / "run", max_steps=8)
        # A changed setting is noted.
        for method in ("begin_at", "note"):
            with self.subTest(method=method), self.assertRaisesRegex(KeyboardInterrupt, "here"):
                self.run_with(Fails(KeyboardInterrupt, method), resume=True, training__lr=0.01)
        for method in ("begin", "at", "end"):
            display = Fails(KeyboardInterrupt, method)
            with unittest.mock.patch("megabatch.training.display", lambda progress: display):
                with self.assertRaisesRegex(KeyboardInterrupt, "here"):
                    run.predict(self.ds)

    def test_a_display_is_ended_after_an_interrupt(self) -> None:
        display = Fails(KeyboardInterrupt, "at")
        with self.assertRaises(KeyboardInterrupt):
            self.run_with(display)
        self.assertEqual(display.called.count("begin"), display.called.count("end"))

    def test_an_interrupt_in_on_step_comes_through(self) -> None:
        def on_step(step: mb.Step) -> None:
            raise error("here")

        for error in (KeyboardInterrupt, SystemExit):
            with self.assertRaisesRegex(error, "here"):
                mb.train(self.ds, MODEL, out=self.folder / error.__name__, max_steps=STEPS_MAX, on_step=on_step)

    def test_an_interrupt_comes_before_an_exception(self) -> None:
        def on_step(step: mb.Step) -> None:
            raise LookupError("enough")

        for error, expected in [(KeyboardInterrupt, KeyboardInterrupt), (ValueError, LookupError)]:
            with unittest.mock.patch("sys.unraisablehook"), self.assertRaises(expected):
                self.run_with(Fails(error, "end"), on_step=on_step, out=self.folder / expected.__name__)

    def test_a_display_that_fails_is_none(self) -> None:
        for method in ("begin", "at", "end"):
            display = Fails(ValueError, method)
            with unittest.mock.patch("sys.unraisablehook") as hook:
                run = self.run_with(display, max_steps=8, out=self.folder / method)
            self.assertEqual((run.steps, run.is_finished), (8, True))
            self.assertGreater(hook.call_count, 0)
            self.assertEqual(hook.call_count, display.called.count(method), "each is reported")
            if method == "at":
                self.assertLess(display.called.count("end"), display.called.count("begin"), "it is called no more")

    def test_an_interrupt_while_a_failure_is_reported_comes_through(self) -> None:
        reported: list[str] = []

        def hook(failure: Any) -> None:
            reported.append(f"{failure.exc_type.__name__} of {failure.object!r} in {threading.current_thread().name}")
            signal.raise_signal(signal.SIGINT)
            for _ in range(1000):
                pass

        # A shell has its background jobs ignore interrupts.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        try:
            with unittest.mock.patch("sys.unraisablehook", hook):
                run = self.run_with(Fails(ValueError, "begin"))
        except KeyboardInterrupt:
            return
        self.fail(f"no interrupt came in {run.steps} steps; reported: {reported}")

    def test_no_interrupt_is_lost(self) -> None:
        code = """if True:
            import itertools, sys, megabatch as mb
            from megabatch import _display

            def work(*_):
                return sum(n * n for n in range(20_000)) < 0

            class Busy(_display._Log):
                at = end = note = begin_at = work

                def begin(self, label, total, unit):
                    work()
                    return self

            displays = [_display._Log(), Busy(), _display._Terminal()]
            callbacks = itertools.cycle(itertools.product((None, work), displays))
            for n in range(int(sys.argv[3])):
                on_step, shown = next(callbacks)
                mb.training.display = lambda progress: shown
                try:
                    print("begun", flush=True)
                    mb.train(sys.argv[1], model__hidden=4, out=f"{sys.argv[2]}-{n}", max_steps=int(sys.argv[4]),
                             on_step=on_step)
                except KeyboardInterrupt:
                    print("interrupted", flush=True)
                else:
                    print("lost", flush=True)
        """
        interrupts = int(os.environ.get("MEGABATCH_TEST_INTERRUPTS", "12"))
        seed = random.randrange(1 << 32)
        moments = random.Random(seed)
        with self.child(code, self.ds.path, self.folder / "run", interrupts, STEPS_MAX) as child:
            assert child.stdout is not None
            outcomes = []
            for _ in range(interrupts):
                self.assertEqual(child.stdout.readline(), "begun\n")
                # Nothing is said until the signal, unless the run has failed.
                select.select([child.stdout], [], [], moments.uniform(0.0, 0.4))
                child.send_signal(signal.SIGINT)
                outcomes.append(child.stdout.readline().strip())
        self.assertEqual(outcomes, ["interrupted"] * interrupts, f"seed {seed}")


class Following(InFolder):
    def test_bars_of_another_symbol_are_refused(self) -> None:
        # They were taken for those that the model follows.
        import pandas

        frame = pandas.read_csv(self.bars())
        frame["time"] = pandas.to_datetime(frame.iloc[:, 0], utc=True)
        run = mb.train(mb.ingest(frame[:9000], symbol="BRK.B", **BARS), MODEL, max_steps=2)
        later = frame[9000:9100]
        with self.assertRaisesRegex(mb.DataError, "has the symbol BRK.B; there are AAPL$"):
            list(run.follow(later.assign(symbol="AAPL")))
        both = pandas.concat([later.assign(symbol="BRK.B"), later.assign(symbol="AAPL")])
        expected = [one.time for one in run.follow(later)]
        self.assertEqual([one.time for one in run.follow(both)], expected)
        # It was refused with the advice to follow brk-b, which the data have not.
        with self.assertLogs("megabatch", "WARNING") as logged:
            self.assertEqual([one.time for one in run.follow(both.replace("BRK.B", "brk-b"))], expected)
        self.assertRegex("\n".join(logged.output), "rows of brk-b are taken for those of BRK.B")
        # The case of letters makes no other symbol.
        self.assertEqual([one.time for one in run.follow(later, symbol="brk.b")], expected)
        with self.assertRaisesRegex(mb.ConfigError, r"did you mean BRK\.B"):
            run.follow(later, symbol="brk-b")
        # Bars one by one go by the same rule.
        rows = [{str(name): value for name, value in row.items()} for row in later.to_dict("records")]
        for key in ("symbol", "Ticker", "instrument"):
            with self.assertRaisesRegex(mb.DataError, f"{key} of the bar is AAPL, and the bars of BRK.B are followed"):
                list(run.follow({**row, key: "AAPL"} for row in rows))
            self.assertEqual([one.time for one in run.follow({**row, key: " BRK.B"} for row in rows)], expected)
        with run.follow() as follower:
            with self.assertRaisesRegex(mb.DataError, "are followed"):
                follower.push({**rows[0], "symbol": "AAPL"})
            self.assertEqual([one.time for one in map(follower.push, rows) if one], expected)
        # A column of numbers that is called as symbols are is none, and an empty symbol names none.
        fields: tuple[dict[str, Any], ...] = ({"stock": 0.5}, {"stock": 7}, {"symbol": ""}, {"company": "Berkshire"})
        for field in fields:
            self.assertEqual([one.time for one in run.follow({**row, **field} for row in rows)], expected, field)
        # The name of a company may change; a field that has had the symbol names others, too.
        renamed = ({**row, "company": "Berkshire" if place < 5 else "Hathaway"} for place, row in enumerate(rows))
        self.assertEqual([one.time for one in run.follow(renamed)], expected)
        with self.assertRaisesRegex(mb.DataError, "name of the bar is AAPL, and the bars of BRK.B are followed"):
            list(run.follow({**row, "name": "BRK.B" if place < 5 else "AAPL"} for place, row in enumerate(rows)))
        with self.assertLogs("megabatch", "WARNING") as logged:
            self.assertEqual([one.time for one in run.follow({**row, "symbol": "brk-b"} for row in rows)], expected)
        self.assertEqual(sum("those of brk-b are taken for those of BRK.B" in line for line in logged.output), 1)

    def test_bars_may_be_tuples_of_a_frame_of_yahoo(self) -> None:
        # The names that pandas gives Adj Close and Stock Splits there made no header, and no row was one.
        import pandas

        close = 100 * np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.01, 200)))
        prices = {"Open": close, "High": close * 1.01, "Low": close * 0.99, "Close": close}
        options: dict[str, Any] = {"timeframes": {"D1": 5}, "features": ["log_return", "range"], "target": "log_return"}
        options.update(horizon=2, symbol="KO")
        for factor in (1.0, 0.983):
            frame = pandas.DataFrame(
                {**prices, "Adj Close": close * factor, "Volume": 9.0, "Stock Splits": 0.0},
                index=pandas.bdate_range("2020-01-01", periods=200, name="Date"),
            )
            run = mb.train(mb.ingest(frame[:160], out=self.folder / f"{factor}.h5", **options), MODEL, max_steps=2)
            expected = [one.time for one in run.follow(frame[160:])]
            if factor == 1.0:
                self.assertEqual([one.time for one in run.follow(list(frame[160:].itertuples()))], expected)
                continue
            # Quoted prices went on with adjusted ones, with a warning alone.
            quoted = frame[160:].drop(columns="Adj Close")
            for bars in (list(frame[160:].itertuples()), quoted):
                with self.assertRaisesRegex(mb.DataError, "an adjusted close, such as in Adj Close, .* the last times 0.9830"):
                    list(run.follow(bars))
            with self.assertRaisesRegex(mb.DataError, "^the frame: expected an adjusted close, .* the last times 0.9830"):
                mb.open(self.folder / f"{factor}.h5").append(quoted)
            with run.follow() as follower:
                pushed = [follower.push(bar) for _, bar in frame[160:].iterrows()]
            self.assertEqual([one.time for one in pushed if one is not None], expected)

    def test_a_day_is_that_of_the_zone_of_its_time(self) -> None:
        # The date in UTC counted: American and European closes were the next day, or a repeated one.
        import pandas
        import polars
        import pyarrow

        days = pandas.bdate_range("2020-01-01", periods=340)
        close = 100 * np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.01, len(days))))
        frame = pandas.DataFrame(
            {"open": close, "high": close * 1.01, "low": close * 0.99, "close": close, "volume": 9.0}, index=days.rename("time")
        )
        past, coming = frame[:260], frame[260:]
        options: dict[str, Any] = {"timeframes": {"D1": 5}, "features": ["log_return", "range"], "target": "log_return"}
        options.update(horizon=2, symbol="KO")
        ds = mb.ingest(past, out=self.folder / "dates.h5", **options)
        run = mb.train(ds, MODEL, max_steps=2)
        expected = [one.time for one in run.follow(coming)]
        self.assertGreater(len(expected), 70)
        appended = mb.ingest(past, out=self.folder / "longer.h5", **options).append(coming).fingerprint()
        new_york = mb.ingest(past.tz_localize("America/New_York"), out=self.folder / "new-york.h5", **options)
        new_yorks = (("America/New_York", 16), ("America/New_York", 19), ("America/New_York", 20))
        # London's winter has the offset of UTC, whose whole hours are midnights of other exchanges.
        sessions = (*new_yorks, ("Europe/Berlin", 17), ("Europe/London", 17), ("Europe/London", 23))
        for zone, hour in sessions:
            closes = coming.set_index((coming.index + pandas.Timedelta(hours=hour)).tz_localize(zone).rename("time"))
            rows = [row for _, row in closes.iterrows()]
            for data in (ds, new_york) if zone == "America/New_York" else (ds,):
                self.assertEqual([one.time for one in run.follow(rows, data=data)], expected, f"{zone} {hour} {data.path}")
            plain = closes.reset_index()
            for table in (closes, polars.from_pandas(plain), pyarrow.Table.from_pandas(plain)):
                self.assertEqual([one.time for one in run.follow(table)], expected, f"{zone} {hour} {type(table)}")
            longer = mb.ingest(past, out=self.folder / "longer.h5", **options)
            self.assertEqual(longer.append(closes).fingerprint(), appended, f"{zone} {hour}")
            # Three rows of winter.
            few = mb.ingest(past, out=self.folder / "few.h5", **options).append(coming[:3]).fingerprint()
            longer = mb.ingest(past, out=self.folder / "longer.h5", **options)
            self.assertEqual(longer.append(closes[:3]).fingerprint(), few, f"{zone} {hour}")

    def test_a_day_is_followed_by_the_rule_of_the_data(self) -> None:
        # The nearest midnight in UTC counted: closes were a day late, midnights in the East a day early.
        import pandas

        days = pandas.bdate_range("2020-01-01", periods=340)
        close = 100 * np.exp(np.cumsum(np.random.default_rng(1).normal(0, 0.01, len(days))))
        frame = pandas.DataFrame(
            {"open": close, "high": close * 1.01, "low": close * 0.99, "close": close, "volume": 9.0}, index=days.rename("time")
        )
        past, coming = frame[:260], frame[260:]
        options: dict[str, Any] = {"timeframes": {"D1": 5}, "features": ["log_return", "range"], "target": "log_return"}
        options.update(horizon=2, symbol="KO")
        run = mb.train(mb.ingest(past, out=self.folder / "dates.h5", **options), MODEL, max_steps=2)
        expected = [one.time for one in run.follow(coming)]
        self.assertGreater(len(expected), 70)
        clocks = (("America/New_York", 16, 16), ("Europe/London", 17, 17), ("Asia/Tokyo", 9, 0), ("Australia/Sydney", 16, 0))
        for place, (zone, hour, later_hour) in enumerate(clocks):
            known = past.set_index((past.index + pandas.Timedelta(hours=hour)).tz_localize(zone).rename("time"))
            later = coming.set_index((coming.index + pandas.Timedelta(hours=later_hour)).tz_localize(zone).rename("time"))
            data = mb.ingest(known, out=self.folder / f"clock{place}.h5", **options)
            rows = [row for _, row in later.iterrows()]
            self.assertEqual([one.time for one in run.follow(rows, data=data)], expected, zone)
            self.assertEqual([one.time for one in run.follow(later, data=data)], expected, zone)

    def test_london_in_winter_is_told_from_utc(self) -> None:
        import zoneinfo

        import pandas
        import polars
        import pyarrow
        from megabatch import _frames, _pushed_bar

        class London(datetime.tzinfo):
            """A zone of a program's own, without a name."""

            def utcoffset(self, _time: datetime.datetime | None) -> datetime.timedelta:
                return datetime.timedelta(0)

            def dst(self, _time: datetime.datetime | None) -> datetime.timedelta:
                return datetime.timedelta(0)

            def tzname(self, _time: datetime.datetime | None) -> str | None:
                return None

        class LondonByTime(London):
            """A zone as `tzlocal` of dateutil has it: only a time has a name."""

            def tzname(self, _time: datetime.datetime | None) -> str | None:
                if _time is None:
                    raise AttributeError("'NoneType' object has no attribute 'replace'")
                return "GMT"

        time = datetime.datetime(2024, 1, 31, 23, 0)
        for zone in (zoneinfo.ZoneInfo("Europe/London"), London(), LondonByTime()):
            self.assertEqual(_pushed_bar.time_text(time.replace(tzinfo=zone), None), "2024-01-31T23:00:00+00:00[local]")
        for zone in (datetime.timezone.utc, zoneinfo.ZoneInfo("UTC"), zoneinfo.ZoneInfo("Etc/UTC"), zoneinfo.ZoneInfo("GMT")):
            self.assertEqual(_pushed_bar.time_text(time.replace(tzinfo=zone), None), "2024-01-31T23:00:00Z")
        for name, offsets in (("Europe/London", [0, 0]), ("UTC", None), ("America/New_York", [-18_000, -18_000])):
            index = pandas.DatetimeIndex([time, time + datetime.timedelta(days=1)], name="time").tz_localize(name)
            frame = pandas.DataFrame({"open": 1.0, "high": 1.0, "low": 1.0, "close": 1.0}, index=index)
            plain = frame.reset_index()
            for table in (frame, polars.from_pandas(plain), pyarrow.Table.from_pandas(plain)):
                (bars,) = _frames.by_symbol(table, None).values()
                found = None if bars.east_s is None else bars.east_s.tolist()
                self.assertEqual((found, bars.is_utc), (offsets, True), f"{name} {type(table)}")

    def test_bars_of_a_series_without_a_symbol_may_have_one(self) -> None:
        # `no row of the frame has the symbol BARS` is nothing that a caller knows of.
        import pandas

        frame = pandas.read_csv(self.bars())
        frame["time"] = pandas.to_datetime(frame.iloc[:, 0], utc=True)
        run = mb.train(mb.ingest(frame[:9000], **BARS), MODEL, max_steps=2)
        later = frame[9000:9100]
        expected = [one.time for one in run.follow(later)]
        self.assertEqual([one.time for one in run.follow(later.assign(symbol="AAPL"))], expected)
        rows = [{str(name): value for name, value in row.items()} for row in later.to_dict("records")]
        self.assertEqual([one.time for one in run.follow({**row, "symbol": "AAPL"} for row in rows)], expected)
        with self.assertRaisesRegex(mb.DataError, "symbol of the bar is MSFT, and the bars of AAPL are followed"):
            list(run.follow({**row, "symbol": "AAPL" if place < 5 else "MSFT"} for place, row in enumerate(rows)))

    def test_another_instrument_than_that_of_training_is_a_warning(self) -> None:
        csv = self.bars()
        own, other = (mb.ingest(csv, symbol=name, out=self.folder / f"{name}.h5", **BARS) for name in ("EURUSD", "GBPUSD"))
        run = mb.train(own, MODEL, out=self.folder / "run", max_steps=2)
        for call in (
            lambda: run.predict(other, [0], progress=False),
            lambda: run.evaluate(other),
            lambda: run.follow(data=other, cold=True).close(),
        ):
            with self.assertLogs("megabatch", "WARNING") as logged:
                call()
            expected = "warning: .*GBPUSD.h5: the model was trained on EURUSD and is used on GBPUSD: .* other_instruments=True"
            self.assertRegex("\n".join(logged.output), expected)

    def test_forecasts_are_the_predictions_of_the_samples(self) -> None:
        import pandas
        import polars
        import pyarrow
        from megabatch import _pushed_bar

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
        # Numbers since 1970 are times, and keys have any case.
        for unit in (1, 10**3, 10**9, 1.0):
            seconds = ({**row, "time": int(row["time"].timestamp()) * unit} for row in rows[:60])
            pushed = list(run.follow({name.upper() if unit > 1 else name: own for name, own in row.items()} for row in seconds))
            self.assertEqual([one.time for one in pushed], [one.time for one in by_frame[: len(pushed)]])
            self.assertGreater(len(pushed), 20)
        # Fields are named as the columns of a frame may be, one bar as another.
        def titled(row: dict[str, Any], **times: Any) -> dict[str, Any]:
            return {**times, **{name.title(): own for name, own in row.items() if name != "time"}}

        # A row of a frame was refused for its time in the index, and one of two levels for its names.
        indexed = coming[:60].set_index("time")[["open", "high", "low", "close", "volume"]]
        both = pandas.concat({"EURUSD": indexed, "GBPUSD": indexed * 2}, axis=1)
        by_rows = (
            indexed,
            indexed.tz_localize(None).to_period("min"),
            pandas.concat({"EURUSD": indexed}, axis=1),
            both,
            both.swaplevel(axis=1),
            both.reset_index(),
            indexed.assign(symbol="EURUSD").set_index("symbol", append=True),
        )
        naive = [row["time"].replace(tzinfo=None) for row in rows[:60]]
        for named in (
            *([row for _, row in one.iterrows()] for one in by_rows),
            [{**row, "time": time.strftime("%d-%b-%Y %H:%M")} for row, time in zip(rows, naive)],
            [{**row, "time": time.strftime("%B %d, %Y %H:%M")} for row, time in zip(rows, naive)],
            [{**row, "time": time.strftime("%Y.%m.%d %H:%M:%S")} for row, time in zip(rows, naive)],
            [titled(row, **{"<DATE>": time.strftime("%Y.%m.%d"), "<TIME>": time.strftime("%H:%M:%S")}) for row, time in zip(rows, naive)],
            [titled(row, Datetime=time) for row, time in zip(rows, naive)],
            [titled(row, Date=time.date(), Time=time.time()) for row, time in zip(rows, naive)],
            [row if place % 2 else titled(row, Date=str(naive[place])) for place, row in enumerate(rows[:60])],
            [pandas.Series(row) for row in rows[:60]],
            list(indexed.itertuples()),
            list(indexed.reset_index().itertuples(index=False)),
        ):
            pushed = list(run.follow(named))
            self.assertEqual([one.time for one in pushed], [one.time for one in by_frame[: len(pushed)]])
            self.assertGreater(len(pushed), 20)
        # A frame of one row had no time, or a row in the place of a price.
        plain = indexed.reset_index()
        for table in (indexed, plain, both, polars.from_pandas(plain), pyarrow.Table.from_pandas(plain)):
            follower = run.follow()
            pushed = [own for own in (follower.push(table[place : place + 1]) for place in range(60)) if own is not None]
            self.assertEqual([own.time for own in pushed], [own.time for own in by_frame[: len(pushed)]])
            self.assertGreater(len(pushed), 20)
            several = r"^push takes one bar, and this is a frame of 2 rows: push each row, or follow the frame, as run\.follow\(frame\)$"
            with self.assertRaisesRegex(mb.ConfigError, several):
                follower.push(table[:2])
        self.assertEqual(_pushed_bar.time_text(datetime.date(2024, 1, 31), None), "2024-01-31T00:00:00Z")
        self.assertEqual(_pushed_bar.time_text("2018.06.01 00:23:00", None), "2018-06-01 00:23:00")
        # A bar that the rule of the data drops is refused as any other.
        skipping = mb.ingest(past, symbol="EURUSD", out=self.folder / "skipping.h5", on_error="skip", **options)
        with run.follow(data=skipping) as follower:
            with self.assertRaisesRegex(mb.DataError, "inconsistent prices: expected .*`$"):
                follower.push({**rows[0], "high": rows[0]["low"] / 2})
            self.assertEqual([one.time for one in map(follower.push, rows) if one], [one.time for one in by_frame])
        for wrong in (20180101, 1.5, np.inf, True):
            with self.assertRaisesRegex(mb.DataError, "the time of the bar is .*: expected a datetime, .* or a number of s, ms"):
                run.follow(cold=True).push({**rows[0], "time": wrong})
        # Times by the clock that was stated for the data, as MetaTrader's terminal gives them.
        wall = frame.assign(time=frame["time"].dt.tz_localize(None) + pandas.Timedelta(hours=2))
        zoned = mb.ingest(wall[: len(past)], symbol="EURUSD", out=self.folder / "wall.h5", zone="+02:00", **options)
        self.assertEqual(zoned.fingerprint(), ds.fingerprint())
        by_wall = list(run.follow(wall[len(past) :][:300], data=zoned))
        self.assertEqual([one.time for one in by_wall], [one.time for one in by_frame])
        pushed = list(run.follow([{**row, "time": row["time"].replace(tzinfo=None) + datetime.timedelta(hours=2)} for row in rows[:60]], data=zoned))
        self.assertEqual([one.time for one in pushed], [one.time for one in by_frame[: len(pushed)]])
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
        wrong_rows: list[tuple[Any, str]] = [
            (indexed.reset_index(drop=True), "the bar has no 'time'"),
            (both.drop(columns="open", level=1), r"names such as \('EURUSD', 'high'\): expected one name each, or one of open"),
            (both[["GBPUSD"]], "symbol of the bar is GBPUSD, and the bars of EURUSD are followed"),
            (indexed.assign(code=7203).set_index("code", append=True), "symbol of the bar is 7203, and the bars of EURUSD are followed"),
            (both.rename(columns={"EURUSD": "AUDUSD"}), "has 2 symbols, such as AUDUSD, GBPUSD, and the bars of EURUSD are"),
        ]
        for one, message in wrong_rows:
            with self.assertRaisesRegex(mb.DataError, message):
                run.follow().push(one.iloc[-1])
        with self.assertRaisesRegex(mb.ConfigError, "^bar=5: expected a mapping such as "):
            run.follow().push(5)  # type: ignore[arg-type]
        with self.assertRaises(mb.ConfigError):
            next(iter(run.follow()))
        backward = run.follow(cold=True)
        backward.push(rows[1])
        with self.assertRaises(mb.DataError):
            backward.push(rows[0])
        self.bad_bars_are_refused(run, rows, by_frame)
        # Forecasts before a bad bar of a frame come, then its row.
        bad = coming.assign(high=coming["high"].where(np.arange(len(coming)) != 250))
        seen = []
        with self.assertRaisesRegex(mb.DataError, "^row 250 of the frame: (?!bars)") as caught:
            seen.extend(run.follow(bad))
            self.fail("no end")
        self.assertEqual(caught.exception.row, 250)
        until = bad["time"].iloc[250].tz_localize(None).to_datetime64()
        self.assertEqual([one.time for one in seen], [one.time for one in by_frame if one.time <= until])
        # A volume that was missing was 0, and so was its feature.
        priced = {name: own for name, own in rows[0].items() if name != "volume"}
        for wrong in (priced, {**priced, "volume": np.nan}, {**priced, "volume": None}):
            with run.follow() as follower:
                with self.assertRaisesRegex(mb.DataError, "expected a volume, from which features are computed"):
                    follower.push(wrong)
                follower.push(rows[0])
            self.assertEqual(follower.close()["bars"], 1)
        with self.assertRaisesRegex(mb.DataError, "expected a volume, from which features are computed"):
            list(run.follow(coming.drop(columns="volume")))
        prices_alone = mb.ingest(past, symbol="EURUSD", out=self.folder / "prices.h5", features=["body", "range"], **options)
        of_prices = mb.train(prices_alone, MODEL, out=self.folder / "of-prices", max_steps=2)
        with of_prices.follow(data=prices_alone) as follower:
            follower.push(rows[0])
            follower.push({name: own for name, own in rows[1].items() if name != "volume"})
        self.assertEqual(follower.close()["bars"], 2)
        # Other columns of files go on too.
        split = {**rows[0], "adj_close": rows[0]["close"] / 7}
        with run.follow(cold=True) as follower:
            follower.push(split)
            with self.assertRaisesRegex(mb.DataError, "the bar has no 'adj_close', which the first bar had"):
                follower.push(rows[1])
        # No feature reads these.
        with run.follow(cold=True) as follower:
            follower.push({**rows[0], "<SPREAD>": 3, "remark": 1.0})
            follower.push(rows[1])
            follower.push({**rows[2], "<SPREAD>": None})
        self.assertEqual(follower.close()["bars"], 3)

    def bad_bars_are_refused(self, run: mb.Run, rows: list[dict[str, Any]], expected: list[mb.Forecast]) -> None:
        import pandas

        found: list[mb.Forecast | None] = []
        sent = 0
        with run.follow() as follower:
            with self.assertRaisesRegex(mb.DataError, "the time of the bar is 'noon': expected"):
                follower.push({**rows[0], "time": "noon"})
            # The next bar was refused for the first.
            for wrong in ("2021-99-99", "2021-01-31 25:00", pandas.NaT, np.datetime64("NaT")):
                with self.assertRaisesRegex(mb.DataError, "the time of the bar is .*: expected one such as"):
                    follower.push({**rows[0], "time": wrong})
            for number, row in enumerate(rows):
                for wrong, message in [
                    ({**row, "high": row["low"] / 2}, "inconsistent prices"),
                    ({**row, "close": float("nan")}, "inconsistent prices|unreadable row"),
                ]:
                    if number in (0, 150):
                        with self.assertRaisesRegex(mb.DataError, message) as caught:
                            follower.push(wrong)
                        self.assertEqual(caught.exception.row, number + sent)
                        # `push` takes no options.
                        self.assertNotIn("on_error", str(caught.exception))
                        sent += 1
                found.append(follower.push(row))
        self.assertEqual([one.time for one in found if one], [one.time for one in expected])
        for one, other in zip(filter(None, found), expected):
            np.testing.assert_array_equal(one.values, other.values)
        with run.follow() as follower, self.assertRaises(mb.DataError):
            follower.push({**rows[0], "time": pandas.NaT})
        # What ends a block is told, not that the stream has ended.
        with self.assertRaisesRegex(mb.DataError, "inconsistent prices"), run.follow() as follower:
            follower.push({**rows[0], "high": 0.5})
