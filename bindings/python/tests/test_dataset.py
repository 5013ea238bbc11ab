"""Datasets: facts, splits, pickles, bad files."""

from __future__ import annotations

import datetime
import inspect
import os
import pathlib
import pickle
import pydoc
import shutil
import typing
import unittest.mock
from collections.abc import Callable

import h5py
import megabatch as mb
import numpy as np
import pandas
from megabatch import _megabatch
from shared import BARS, InFolder


class Datasets(InFolder):
    def test_what_is_no_path_is_named(self) -> None:
        array: typing.Any = np.zeros(3)
        ds = self.series()
        run = mb.train(ds, max_steps=1, model__hidden=4, out=self.folder / "run")
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: mb.open(array), "path is a ndarray: expected the path of a file of samples"),
            (lambda: mb.ingest(self.bars(), out=array, **BARS), "out is a ndarray: expected the path of the file to write$"),
            (lambda: mb.inspect(array), "data is a ndarray: expected a dataset or the path of a file$"),
            (lambda: mb.convert(ds, array), "out is a ndarray: expected the path of the file to write$"),
            (lambda: mb.compare([run, run], out=array), "out is a ndarray: expected the path of the page to write, .html$"),
            (lambda: mb.ticks_to_bars("ticks.csv", array), "out is a ndarray: expected the path of the file to write$"),
            (lambda: mb.synth.bars(array), "path is a ndarray: expected the path to write to$"),
            (lambda: mb.import_weights({}, ds, out=array), "out is a ndarray: expected the path of the run's folder$"),
            (lambda: mb.train(ds, out=array), "out is a ndarray: expected the path of the run's folder$"),
            (lambda: mb.load_run(array), "folder is a ndarray: expected the folder of a run"),
            (lambda: run.predict(array), "data is a ndarray: expected a dataset or the path of one$"),
            (lambda: run.export(array), "out is a ndarray: expected the path of the file to write, .onnx or .safetensors$"),
        ]
        for call, message in calls:
            with self.assertRaisesRegex(mb.ConfigError, f"^{message}"):
                call()

    def test_paths_may_begin_at_home_and_be_patterns(self) -> None:
        path = self.bars()
        expected = mb.ingest(path, **BARS).fingerprint()
        with unittest.mock.patch.dict(os.environ, {"HOME": str(self.folder)}):
            for own in ("~/EURUSD.csv", pathlib.Path("~/EURUSD.csv"), ["~/EUR*.csv"], self.folder / "E?RUSD.csv"):
                self.assertEqual(mb.ingest(own, **BARS).fingerprint(), expected, own)
            mb.ingest(path, out="~/own.h5", **BARS)
            self.assertEqual(mb.open("~/own.h5").path, self.folder / "own.h5")
        mb.synth.bars(self.folder / "GBPUSD.csv", days=14, seed=1)
        self.assertEqual(mb.ingest(self.folder / "*USD.csv", **BARS).instruments, ("EURUSD", "GBPUSD"))
        with self.assertRaisesRegex(mb.DataError, r"none\*\.csv: no file matches this pattern$"):
            mb.ingest([path, self.folder / "none*.csv"], **BARS)
        # A file that is there is no pattern.
        bracketed = self.folder / "EURUSD[1].csv"
        shutil.copy(path, bracketed)
        self.assertEqual(mb.ingest(bracketed, symbol="EURUSD", **BARS).fingerprint(), expected)
        # Nor is a folder.
        (self.folder / "data[1]").mkdir()
        shutil.copy(path, self.folder / "data[1]")
        self.assertEqual(mb.ingest(self.folder / "data[1]" / "*.csv", **BARS).fingerprint(), expected)

    def test_every_path_may_begin_at_home(self) -> None:
        mb.synth.samples(self.folder / "samples.h5", samples=200, timeframes={"M1": 4}, features=2, targets=1)
        with unittest.mock.patch.dict(os.environ, {"HOME": str(self.folder)}):
            run = mb.train("~/samples.h5", model={"hidden": 4}, max_steps=1, out="~/run")
            self.assertEqual(mb.load_run("~/run").path, run.path)
            self.assertEqual(len(run.predict("~/samples.h5")), 200)
            mb.convert("~/samples.h5", "~/windows.h5", to="windows")
            self.assertEqual(len(mb.compare("~/run", run).facts["runs"]), 2)
            mb.ingest(self.bars(), out="~/series.h5", **BARS)
            mb.leak("~/series.h5", samples=1)
            mb.synth.shares("~/shares", shares=4, days=80)
            mb.graph.build("~/shares/*.csv", "~/shares.mbg", kind="correlation", lookback=20, k=2)
            self.assertEqual(mb.graph.inspect("~/shares.mbg")["graphs"], len(mb.graph.open("~/shares.mbg")))
        self.assertTrue((self.folder / "run" / "config.yaml").is_file() and (self.folder / "windows.h5").is_file())

    def test_facts_are_those_of_the_file(self) -> None:
        ds = mb.ingest(self.bars(), out=self.folder / "series.h5", **BARS)
        with h5py.File(ds.path) as file:
            times = file["samples/time"][:]
            self.assertEqual(list(ds.timeframes), ["M1", "M5"])
            self.assertEqual(ds.timeframes["M5"].bars, len(file["series/M5/values"]))
            self.assertEqual(len(ds.features["M1"]), file["series/M1/values"].shape[1])
            self.assertEqual((len(ds), ds.targets), file["targets"].shape)
        self.assertTrue((ds.times == times.astype("datetime64[ns]")).all())
        self.assertEqual(ds.span, (ds.times[0], ds.times[-1]))
        self.assertEqual((ds.layout, ds.timeframes["M1"].steps, ds.part), ("series", 12, None))
        self.assertIn("M1 [12,", repr(ds))
        self.assertIn("<td>M1</td>", ds._repr_html_())
        self.assertRegex(ds.fingerprint(), "^blocks-[0-9a-f]{32}$")

    def test_scalers_are_those_of_the_file(self) -> None:
        bars = pandas.read_csv(self.bars(), parse_dates=[0])
        options = {**BARS, "out": self.folder / "scaled.h5", "scaling": "robust"}
        one = mb.ingest(self.bars(), **options)
        two = mb.ingest({"AAA": bars, "BBB": bars}, **{**BARS, "scaling": "robust"})
        for ds, shape in ((one, ()), (two, (2,))):
            with h5py.File(ds.path) as file:
                self.assertEqual(list(ds.scalers), ["M1", "M5"])
                for name, scaler in ds.scalers.items():
                    own = file["scaler"][name]
                    self.assertEqual(scaler.center.shape, (*shape, len(ds.features[name])))
                    np.testing.assert_array_equal(scaler.center, own["center"][:])
                    np.testing.assert_array_equal(scaler.scale, own["scale"][:])
                    self.assertEqual((scaler.kind, scaler.fit_end.astype(np.int64)), ("robust", own.attrs["fit_end_time"]))

    def test_arguments_of_other_types_are_named(self) -> None:
        bars, path = self.bars(), self.series().path
        calls: list[tuple[Callable[[typing.Any], object], str]] = [
            (mb.ingest, "bars=5: expected a frame of bars, frames by symbol, or paths of files"),
            (lambda value: mb.ingest(bid=value, ask=bars), "bid=5: expected a frame of bars, frames by symbol, or paths of files"),
            (mb.open(path).append, "bars=5: expected a frame of bars, frames by symbol, or paths of files"),
            (lambda value: mb.ingest(bars, features=value), "features=5: expected a name, a function, or a list of them"),
            (lambda value: mb.ingest(bars, target=value), "target=5: expected a name, a function, or a list of them"),
            (lambda value: mb.ingest(bars, columns=value), "columns=5: expected rules by the names of columns"),
            (lambda value: mb.ingest(bars, context=value), "context=5: expected frames or files by the names of instruments"),
            (lambda value: mb.ingest(bars, weight=value), "weight=5: expected a text, the name of a column"),
            (lambda value: mb.ingest(bars, label_end=value), "label_end=5: expected a text, the name of a column"),
            (mb.leak, "dataset is an int: expected a dataset or the path of a series file"),
            (lambda value: mb.leak(path, source=value), "source=5: expected a list of paths of bars"),
            (lambda value: mb.open(path, resident=value), "resident=5: expected True or False"),
            (lambda value: mb.convert(path, self.folder / "out.h5", to=value), "to=5: expected a text, series or windows"),
            (lambda value: mb.triple_barrier(str(value), 1.0, 3), "up='5': expected a number"),  # type: ignore[arg-type]
        ]
        for call, message in calls:
            with self.assertRaisesRegex(mb.ConfigError, f"^{message}"):
                call(5)
        out = self.folder / "made"
        made: list[tuple[Callable[[], object], str]] = [
            (lambda: mb.synth.bars(out, days="3"), "days='3': expected a whole number from 1 on$"),  # type: ignore[arg-type]
            (lambda: mb.synth.bars(out, days=0), "days=0: expected a whole number from 1 on$"),
            (lambda: mb.synth.shares(out, shares="9"), "shares='9': expected a whole number from 1 on$"),  # type: ignore[arg-type]
            (lambda: mb.synth.samples(out, samples="9"), "samples='9': expected a whole number from 1 on$"),  # type: ignore[arg-type]
            (lambda: mb.synth.samples(out, layout="heap"), "layout='heap': expected series or windows$"),
            (lambda: mb.synth.samples(out, timeframes=5), "timeframes=5: expected lengths of windows"),  # type: ignore[arg-type]
            (lambda: mb.ticks_to_bars(5, out), "files=5: expected the path of a file of ticks, or a list of them$"),  # type: ignore[arg-type]
            (lambda: mb.doctor(5), "python is an int: expected the path of a Python interpreter$"),  # type: ignore[arg-type]
        ]
        for make, message in made:
            with self.assertRaisesRegex(mb.ConfigError, f"^{message}"):
                make()
        self.assertFalse(out.exists())
        with self.assertRaisesRegex(mb.ConfigError, "^bars={}: expected a frame of bars, frames by symbol, or paths of files$"):
            mb.ingest({})
        for unshown in (lambda: mb.ingest(bars, progress="no"), lambda: mb.open(path).append(bars, progress="no")):  # type: ignore[call-arg]
            with self.assertRaisesRegex(mb.ConfigError, "^progress: ingest and append have no argument progress, "):
                unshown()

    def test_options_of_ingest_are_those_of_the_program(self) -> None:
        missing = self.folder / "missing.csv"
        with self.assertRaisesRegex(mb.ConfigError, "strides: no option of a recipe; the nearest is stride") as raised:
            mb.ingest(missing, strides=3)  # type: ignore[call-arg]
        known = set(str(raised.exception).split("all are ")[1].split(", "))
        stated = {"ask", "bid", "columns", "context", "features", "horizon", "label_end", "out", "symbol", "target"}
        stated |= {"timeframes", "weight"}
        # The nearest name was bins, and a word that the module sets itself was taken and lost.
        for wrong, nearest in (("colums", "columns"), ("ouf", "out"), ("function_columns", ".*")):
            options: dict[str, typing.Any] = {wrong: {"x": 1}}
            with self.assertRaisesRegex(mb.ConfigError, f"^{wrong}: no option of a recipe; the nearest is {nearest}, and all") as named:
                mb.ingest(missing, **options)
            self.assertEqual(named.exception.fields["key"], wrong)
        hints = typing.get_type_hints(mb.IngestOptions)
        self.assertEqual(hints.keys(), known - stated)
        with self.assertRaisesRegex(mb.ConfigError, "^on_error=x: expected fail, skip or repair$"):
            mb.ingest(missing, on_error="x")  # type: ignore[arg-type]
        for name, hint in hints.items():
            for value in typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ():
                # It is the file that is at fault.
                with self.assertRaises(mb.MegabatchError) as raised:
                    mb.ingest(missing, **{name: value})  # type: ignore[misc]
                self.assertIn("missing.csv", str(raised.exception), (name, value))

    def test_help_lists_options_with_their_types(self) -> None:
        for kind in (mb.IngestOptions, mb.LoaderOptions, mb.TensorOptions):
            said = pydoc.plain(pydoc.render_doc(kind))
            for name in typing.get_type_hints(kind):
                self.assertRegex(said, rf"\n \|  {name}: .+\n \|      \S")
        self.assertIn('on_error: Literal[\'fail\', \'skip\', \'repair\']\n    Treatment of', str(mb.IngestOptions.__doc__))
        self.assertIn("run_length: int | None\n    Consecutive samples", str(mb.LoaderOptions.__doc__))
        self.assertNotIn("overlap", str(mb.TensorOptions.__doc__))

    def test_signatures_have_the_options_with_their_types(self) -> None:
        calls: list[tuple[typing.Any, typing.Any]] = [
            (mb.ingest, mb.IngestOptions),
            (mb.Dataset.append, mb.IngestOptions),
            (mb.Loader, mb.LoaderOptions),
            (mb.Dataset.loader, mb.LoaderOptions),
            (mb.Dataset.torch, mb.TensorOptions),
        ]
        own = inspect.signature(mb.Loader).parameters
        for call, kind in calls:
            shown, stated = inspect.signature(call).parameters, kind.__annotations__
            names = list(shown)
            self.assertEqual(names[names.index(next(iter(stated))) : -1], list(stated), call)
            for name, hint in stated.items():
                is_loader = kind is not mb.IngestOptions
                annotation = hint.__forward_arg__ + ("" if is_loader else " | None")
                expected = (annotation, own[name].default if is_loader else None)
                self.assertEqual((shown[name].annotation, shown[name].default), expected, (call, name))

    def test_a_split_is_purged_and_in_order_of_time(self) -> None:
        ds = self.series()
        train, validation, test = ds.split([0.6, 0.2, 0.2])
        self.assertLess(train.times.max(), validation.times.min())
        self.assertLess(validation.times.max(), test.times.min())
        self.assertLess(len(train) + len(validation) + len(test), len(ds))
        free = ds.split([0.6, 0.2, 0.2], purge="0s")
        self.assertEqual(sum(map(len, free)), len(ds))
        self.assertEqual([part.part for part in free], ["train", "validation", "test"])
        stated = ds.split(purge="10m")
        for purge in (datetime.timedelta(minutes=10), np.timedelta64(10, "m"), np.timedelta64(600, "s"), pandas.Timedelta("10min")):
            for one, other in zip(ds.split(purge=purge), stated):
                np.testing.assert_array_equal(one.indices, other.indices)
        with self.assertRaisesRegex(mb.ConfigError, "^purge is .*: expected whole seconds"):
            ds.split(purge=datetime.timedelta(milliseconds=1500))
        wrong_arguments: list[tuple[Callable[[], object], str, str | None]] = [
            (lambda: ds.split(purge="soon"), "purge = soon", "purge"),
            (lambda: ds.split(purge="30d"), "no samples are left for validation .*purge", None),
            (lambda: ds.walk_forward(3, overlap=2.0), "overlap", "overlap"),
            (lambda: ds.walk_forward(3, window="round"), "window = round", "window"),
            (lambda: train.split(), "splits by fractions itself", None),
        ]
        for call, message, key in wrong_arguments:
            with self.assertRaisesRegex(mb.ConfigError, message) as caught:
                call()
            self.assertNotRegex(str(caught.exception), r"data\.|--set")
            if key:
                self.assertEqual(caught.exception.key, key)
        with self.assertRaisesRegex(mb.ConfigError, "^horizon=Timedelta.*: expected a whole number of base bars from 1 on$"):
            mb.ingest(self.bars(), horizon=pandas.Timedelta("2D"))  # type: ignore[arg-type]
        folds = ds.walk_forward(3)
        self.assertEqual(len(folds), 3)
        self.assertLess(len(folds[0][0]), len(folds[1][0]))
        for wrong in ([0.5, 0.5], [0.7, 0.7, 0.7], [0.0, 0.5, 0.5]):
            with self.assertRaises(mb.ConfigError):
                ds.split(wrong)
        for other in ("a", ["a", 1, 2], [None] * 3):
            with self.assertRaisesRegex(mb.ConfigError, "^fractions=.*: expected three numbers, for training, validation and test$"):
                ds.split(other)  # type: ignore[arg-type]
        with self.assertRaisesRegex(mb.ConfigError, "takes the whole file"):
            train.split()

    def test_labels_of_own_windows_stay_out_of_later_parts(self) -> None:
        minute, steps, horizon, path = 60_000_000_000, 30, 120, self.folder / "windows.h5"
        rows = []
        # The second instrument has no bar in two of five minutes.
        for number, bars in enumerate((np.arange(4000), np.flatnonzero(np.arange(4000) % 5 < 3))):
            last = np.arange(steps - 1, len(bars) - horizon)
            span = [bars[last] + 1, bars[last - steps + 1], bars[last + horizon] + 1]
            rows.append(np.stack([*(time * minute for time in span), np.full(len(last), number)]))
        times, begins, ends, numbers = np.concatenate(rows, axis=1)[:, np.argsort(np.concatenate(rows, axis=1)[0])]
        with h5py.File(path, "w") as file:
            file["features"] = np.zeros((len(times), steps, 1), "f4")
            file["targets"] = np.zeros((len(times), 1), "f4")
            file["timestamps"] = times
        ds = mb.open(path)
        for split in (ds.split, lambda: ds.walk_forward(2)):
            with self.assertRaisesRegex(mb.ConfigError, r'f\.attrs\["horizon_bars"\] = 120  # an integer') as refused:
                split()
            self.assertIn('such as purge="8d"', str(refused.exception))
            self.assertNotIn("data.purge", str(refused.exception))
        lines = [line.strip() for line in str(refused.exception).splitlines()[1:-1]]
        # A dataset has its file open, which h5py does not write then.
        del ds, split

        def write(line: str) -> None:
            """Follows a line of the message."""
            with h5py.File(path, "r+") as f:
                names = {"f": f, "ends": ends, "begins": begins, "numbers": numbers.astype("i4")}
                exec(line.split("  #")[0], names)

        def require_apart() -> None:
            parts = [part.indices for part in mb.open(path).split()]
            for earlier, later in ((0, 1), (0, 2), (1, 2)):
                self.assertGreaterEqual(begins[parts[later]].min(), ends[parts[earlier]].max())
            self.assertGreater(len(parts[1]), 100)

        label_ends, both, horizon_bars, length, instruments = lines
        write(both)
        require_apart()
        with h5py.File(path, "r+") as file:
            del file["samples"]
        write(instruments)
        write(label_ends)
        with self.assertRaisesRegex(mb.ConfigError, "how far a window of /features reaches back"):
            mb.open(path).split()
        write(length)
        require_apart()
        with h5py.File(path, "r+") as file:
            del file["samples/label_end_time"]
        write(horizon_bars)
        require_apart()

    def test_a_split_that_rests_on_assumptions_warns_of_them(self) -> None:
        path = self.series(layout="windows").path
        with h5py.File(path, "r+") as file:
            del file["timestamps"]
        ds = mb.open(path)
        splits: list[Callable[[], object]] = [ds.split, lambda: ds.walk_forward(2)]
        for split in splits:
            with self.assertLogs("megabatch", "WARNING") as logs:
                split()
            self.assertEqual(len(logs.output), 2, logs.output)
            self.assertIn("as if all were of one instrument", logs.output[0])
            self.assertIn("takes each sample for one bar of M1", logs.output[1])
        with self.assertNoLogs("megabatch", "WARNING"):
            ds.split(purge="0s")

    def test_a_pickle_is_the_path_and_the_choice(self) -> None:
        ds = self.series()
        _, validation, _ = ds.split()
        stored = pickle.dumps(validation)
        self.assertLess(len(stored), 5000)
        again = pickle.loads(stored)
        self.assertEqual((again.path, again.part), (ds.path, "validation"))
        np.testing.assert_array_equal(again.indices, validation.indices)

    def test_samples_are_had_by_their_places(self) -> None:
        ds = self.series()
        batch = ds[[3, 5, 3]]
        self.assertEqual((batch["M1"].shape, batch["sample"].tolist()), ((3, 7, 3), [3, 5, 3]))
        np.testing.assert_array_equal(ds[5]["M5"], batch["M5"][1])
        np.testing.assert_array_equal(ds[-1]["targets"], ds[399:]["targets"][0])
        # PyTorch's DataLoader takes one sample at a time where a dataset has no other way.
        for own in (ds, ds.split()[0]):
            for place, sample in zip([3, -1, 3], own.__getitems__([3, -1, 3])):
                self.assertEqual({key: array.tolist() for key, array in sample.items()}, {
                    key: array.tolist() for key, array in own[place].items()
                })
        for own in (ds, ds.split()[0]):
            with unittest.mock.patch.object(_megabatch, "Loader", wraps=_megabatch.Loader) as gathers:
                samples: typing.Any = own.__getitems__(list(range(64)))
            self.assertEqual((gathers.call_count, len(samples)), (1, 64))
            # Whoever takes the batch as a whole needs no parts of it.
            self.assertIsNone(samples._parted)
            self.assertEqual((samples[5]["sample"], len(samples[60:])), (own.indices[5], 4))
            # PyTorch pins and converts samples one by one, and keeps a list where this is a TypeError.
            with self.assertRaises(TypeError):
                type(samples)(list(samples))
        for wrong in (400, [3, -401]):
            with self.assertRaisesRegex(IndexError, "400|-401"):
                ds[wrong]
        part = ds.split()[0]
        nothing: list[typing.Any] = [[], slice(5, 5), np.array([])]
        for own, places in [(ds, np.zeros(400, bool)), *((own, places) for own in (ds, part) for places in nothing)]:
            empty = own[places]
            self.assertEqual((empty["M1"].shape, empty["sample"].tolist()), ((0, 7, 3), []))
        # There is nothing to compare with the name of the only instrument.
        name: typing.Any = "EURUSD"
        with self.assertRaisesRegex(mb.ConfigError, r"'EURUSD' is none; places are numbers, as in dataset\[0\] or"):
            ds[name]
        # It was taken for the name of an instrument.
        time: typing.Any = "2020-01-01"
        with self.assertRaisesRegex(mb.ConfigError, r"those from a time on are dataset\[dataset\.times >= numpy\.datetime64\('2020-01-01'\)\]$"):
            ds[time]

    def test_files_that_are_no_data_are_named(self) -> None:
        text = self.folder / "text.h5"
        text.write_text("time,open\n")
        with self.assertRaisesRegex(mb.DataError, "expected an HDF5 file") as caught:
            mb.open(text)
        self.assertEqual(caught.exception.file, str(text))
        with self.assertRaisesRegex(mb.DataError, "there is no such file"):
            mb.open(self.folder / "none.h5")
        with h5py.File(self.folder / "other.h5", "w") as file:
            file["numbers"] = np.zeros(3)
        with self.assertRaises(mb.DataError) as caught:
            mb.open(self.folder / "other.h5")
        self.assertIn("object", caught.exception.fields)
        with self.assertRaisesRegex(mb.ConfigError, "^path is an int: expected the path of a file of samples"):
            mb.open(3)  # type: ignore[arg-type]

    def test_errors_have_fields_and_survive_a_pickle(self) -> None:
        error = mb.CapacityError("too much", needed_bytes=7)
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.needed_bytes), (mb.CapacityError, "too much", 7))
        self.assertIsInstance(error, MemoryError)
        with self.assertRaises(AttributeError):
            error.other


class Appended(InFolder):
    def parts(self, cut: int) -> tuple[pathlib.Path, pathlib.Path]:
        """Files of the bars before `cut` and of the others, which begin a hundred bars earlier."""
        header, *rows = self.bars().read_text().splitlines(keepends=True)
        files = self.folder / "EURUSD-old.csv", self.folder / "EURUSD-new.csv"
        for file, own in zip(files, (rows[:cut], rows[cut - 100 :])):
            file.write_text(header + "".join(own))
        return files

    def test_files_are_appended_as_by_the_program(self) -> None:
        old, new = self.parts(9000)
        ds = mb.ingest(old, out=self.folder / "series.h5", **BARS)
        by_program = self.folder / "by-program.h5"
        shutil.copy(ds.path, by_program)
        longer = ds.append(new, horizon=3)
        self.program("ingest", "--append", new, "--out", by_program, "--horizon", 3)
        self.assertEqual(longer.path.read_bytes(), by_program.read_bytes())
        self.assertEqual(longer.times[: len(ds)].tolist(), ds.times.tolist())
        self.assertGreater(len(longer), len(ds))
        same = longer.append([new])
        self.assertEqual((len(same), same.path.read_bytes()), (len(longer), by_program.read_bytes()))

    def test_what_contradicts_the_series_is_refused(self) -> None:
        old, new = self.parts(9000)
        ds = mb.ingest(old, out=self.folder / "series.h5", **BARS)
        before = ds.path.read_bytes()
        with self.assertRaisesRegex(mb.ConfigError, "ingest all files anew") as caught:
            ds.append(new, horizon=4)
        self.assertEqual(caught.exception.key, "horizon")
        with self.assertRaisesRegex(mb.ConfigError, "the nearest is horizon"):
            ds.append(new, horizn=3)
        with self.assertRaisesRegex(mb.ConfigError, "^columns: an argument of ingest alone; a series keeps its columns: leave it out$"):
            ds.append(new, columns={"x": "sum"})
        with self.assertRaisesRegex(mb.ConfigError, "takes the whole file"):
            ds.split()[0].append(new)
        with self.assertRaises(mb.DataError):
            ds.append(new.rename(self.folder / "GBPUSD.csv"))
        self.assertEqual(ds.path.read_bytes(), before)
        windows = self.series(layout="windows")
        with self.assertRaisesRegex(mb.DataError, "/@layout: expected a series, as `ingest` writes it, found windows"):
            windows.append(old)


class Graphs(InFolder):
    def test_graphs_are_built_once_and_opened(self) -> None:
        points = self.folder / "points"
        points.mkdir()
        (points / "edges.csv").write_text("source,target\n0,1\n1,0\n1,2\n2,1\n")
        (points / "features.csv").write_text("node,a,b\n0,1,2\n1,3,4\n2,5,6\n")
        (points / "labels.csv").write_text("node,label\n0,0\n1,1\n2,0\n")
        out = self.folder / "graphs.mbg"
        built = mb.graph.build(points, out, kind="edge-list")
        self.assertEqual(built["state"], "built")
        self.assertEqual(mb.graph.build(points, out, kind="edge-list")["state"], "unchanged")
        ds = mb.open(out)
        self.assertEqual((ds.layout, ds.facts["graphs"]), ("graphs", 1))
        with self.assertRaisesRegex(mb.ConfigError, r"graphs.mbg: a file of graphs, which another loader gathers: mb.graph.open\(path\).loader\(\)$"):
            ds.loader()
        with self.assertRaisesRegex(mb.ConfigError, "kind=ring: expected correlation"):
            mb.graph.build(points, out, kind="ring")
        with self.assertRaisesRegex(mb.ConfigError, "lookback is no option of kind"):
            mb.graph.build(points, out, kind="edge-list", lookback=3)

    def test_a_trace_is_replayed(self) -> None:
        events = [{"op": "alloc", "id": 1, "bytes": 1 << 20, "stream": 0}, {"op": "free", "id": 1}, {"op": "step"}]
        found = mb.memory.replay(events, capacity="64MiB", policies="megabatch")
        self.assertEqual((found["oom"], found["peak_live_bytes"], found["steps"]), (False, 1 << 20, 1))
        self.assertEqual(set(mb.memory.replay(events, capacity=1 << 26)) & {"megabatch", "pytorch"}, {"megabatch", "pytorch"})
        with self.assertRaises(mb.DataError):
            mb.memory.replay([{"op": "free", "id": 9}], capacity="1GB")
        with self.assertRaisesRegex(mb.ConfigError, "no amount of memory"):
            mb.memory.replay(events, capacity="much")

    def test_doctor_examines_this_machine(self) -> None:
        found = mb.doctor()
        self.assertIsInstance(found.is_healthy, bool)
        self.assertTrue(str(found) and found.facts)
