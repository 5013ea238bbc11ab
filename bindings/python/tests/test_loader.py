"""Loaders: numbers, order, memory, states, processes."""

from __future__ import annotations

import copy
import gc
import json
import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import h5py
import megabatch as mb
import numpy as np
from shared import CHILD_SECONDS_MAX, InFolder, resident_bytes


def same(one: list[mb.Batch], other: list[mb.Batch]) -> bool:
    """True if the batches are the same, bit for bit."""
    if len(one) != len(other):
        return False
    pairs = [(a[key], b[key]) for a, b in zip(one, other) for key in a]
    return all(a.tobytes() == b.tobytes() and a.shape == b.shape for a, b in pairs)


def tables_of(loader: mb.Loader) -> Iterator[Any]:
    """The batches of an epoch as tables that tensors take over."""
    return loader._tables()


class Batches(InFolder):
    def files(self) -> list[mb.Dataset]:
        windows = self.series(layout="windows", compression="contiguous")
        packed = self.series(layout="windows", compression="lzf")
        return [self.series(), windows, packed, mb.open(windows.path, resident=True)]

    def test_windows_are_those_of_the_file(self) -> None:
        series, windows, *_ = self.files()
        with h5py.File(series.path) as file:
            values, ends = file["series/M1/values"][:], file["samples/end/M1"][:] if "samples/end" in file else None
            targets = file["targets"][:]
        for batch in series.loader(50, shuffle=True, run_length=1):
            np.testing.assert_array_equal(batch["targets"], targets[batch["sample"]])
            if ends is not None:
                for window, sample in zip(batch["M1"], batch["sample"]):
                    np.testing.assert_array_equal(window, values[ends[sample] - 6 : ends[sample] + 1])
        with h5py.File(windows.path) as file:
            stored, targets = file["features/M5"][:], file["targets"][:]
        for batch in windows.loader(50, shuffle=True, seed=2):
            np.testing.assert_array_equal(batch["M5"], stored[batch["sample"]])
            np.testing.assert_array_equal(batch["targets"], targets[batch["sample"]])

    def test_all_samples_come_once_an_epoch_in_another_order(self) -> None:
        for ds in self.files():
            loader = ds.split(purge="0s")[0].loader(32, shuffle=True, seed=7)
            epochs = [np.concatenate([batch["sample"] for batch in loader]) for _ in range(2)]
            for samples in epochs:
                np.testing.assert_array_equal(np.sort(samples), loader.dataset.indices)
            self.assertFalse((epochs[0] == epochs[1]).all())
            loader.set_epoch(1)
            np.testing.assert_array_equal(np.concatenate([batch["sample"] for batch in loader]), epochs[1])
            self.assertEqual((loader.epoch, len(loader)), (2, -(-len(loader.dataset) // 32)))
        in_order = np.concatenate([batch["sample"] for batch in ds.loader(32)])
        np.testing.assert_array_equal(in_order, np.arange(len(ds)))
        self.assertEqual([len(batch["sample"]) for batch in ds.loader(150, drop_last=True)], [150, 150])

    def test_arrays_are_views_that_nobody_may_write(self) -> None:
        ds = self.series()
        for overlap in (False, True):
            batch = next(iter(ds.loader(32, overlap=overlap)))
            for key, array in batch.items():
                self.assertFalse(array.flags.owndata, key)
                with self.assertRaises(ValueError):
                    array[0] = 1
        with self.assertRaises(ValueError):
            batch["M1"].flags.writeable = True

    def test_a_data_loader_gets_arrays_that_may_be_written(self) -> None:
        # PyTorch warns of others.
        ds = self.series()
        expected = {key: array.copy() for key, array in ds[[5, 3]].items()}
        for sample in ds.__getitems__([5, 3]):
            for key in ("M1", "M5", "targets"):
                self.assertTrue(sample[key].flags.writeable, key)
                sample[key][...] = 7
        for key, array in ds[[5, 3]].items():
            np.testing.assert_array_equal(array, expected[key])

    def test_dlpack_is_the_same_memory(self) -> None:
        ds = self.series()
        expected = next(iter(ds.loader(32)))
        _, tables = next(tables_of(ds.loader(32)))
        for key, table in zip(("M1", "M5", "targets"), tables):
            shared, again = np.from_dlpack(table), np.from_dlpack(table)
            self.assertEqual(shared.ctypes.data, again.ctypes.data)
            np.testing.assert_array_equal(shared, expected[key])
            self.assertEqual(table.__dlpack_device__(), (1, 0))
        del tables, table, again
        gc.collect()
        self.assertTrue(np.isfinite(shared).all(), "a tensor keeps its memory")
        _, tables = next(tables_of(ds.loader(32, overlap=True)))
        with self.assertRaisesRegex(BufferError, "leave overlap at False"):
            tables[0].__dlpack__()
        with self.assertRaises(BufferError):
            tables[-1].__dlpack__(copy=True)

    def test_overlapping_windows_are_strided(self) -> None:
        ds = self.series()
        for strided, copied in zip(ds.loader(32, overlap=True), ds.loader(32)):
            self.assertEqual(strided["M1"].strides, (12, 12, 4))
            for key in copied:
                np.testing.assert_array_equal(strided[key], copied[key])

    def test_batches_outlive_their_dataset_and_no_memory_is_shared(self) -> None:
        for ds in self.files():
            expected = [{key: array.copy() for key, array in batch.items()} for batch in ds.loader(64, shuffle=True)]
            held = list(ds.loader(64, shuffle=True))
            del ds
            gc.collect()
            self.assertTrue(same(held, expected))
            places = sorted((array.ctypes.data, array.nbytes) for batch in held for array in batch.values())
            self.assertTrue(all(at + size <= after for (at, size), (after, _) in zip(places, places[1:])))

    def test_ranks_share_a_batch(self) -> None:
        ds = self.series()
        whole = [batch["sample"] for batch in ds.loader(50, shuffle=True)]
        parts = [ds.loader(50, shuffle=True, rank=rank, world_size=3) for rank in range(3)]
        for batch, *own in zip(whole, *parts):
            np.testing.assert_array_equal(batch, np.concatenate([part["sample"] for part in own]))

    def test_wrong_options_are_refused(self) -> None:
        ds = self.series()
        wrong: list[dict[str, Any]] = [
            {"batch_size": 0},
            {"batch_size": -3},
            {"rank": 2, "world_size": 2},
            {"world_size": 0},
            {"run_length": 0, "shuffle": True},
            {"seed": -1},
            {"batch_size": 1000, "drop_last": True},
        ]
        for options in wrong:
            with self.assertRaises(mb.ConfigError, msg=str(options)):
                ds.loader(**options)
        for size in (0, -3, 64.5, None, "64", True):
            with self.assertRaisesRegex(mb.ConfigError, "^batch_size=.*: expected a whole number from 1 on$"):
                ds.loader(size)
        floats: dict[str, Any] = {"batch_size": 64.0, "world_size": 1.0}
        self.assertEqual(len(ds.loader(**floats)), len(ds.loader(64)))
        loader, most = ds.loader(), "expected a whole number from [01] to 18446744073709551615$"
        for name in ("batch_size", "seed", "run_length", "chunk_bytes"):
            huge: dict[str, Any] = {name: 10**30}
            with self.assertRaisesRegex(mb.ConfigError, f"^{name}=1000.*: {most}"):
                ds.loader(**huge)
        for name in ("shuffle", "drop_last", "overlap"):
            for flag in ("yes", 1, None):
                stated: dict[str, Any] = {name: flag}
                with self.assertRaisesRegex(mb.ConfigError, f"^{name}={flag!r}: expected True or False$"):
                    ds.loader(**stated)
        shuffled: dict[str, Any] = {"shuffle": np.True_}
        self.assertEqual(len(ds.loader(**shuffled)), len(loader))
        for epoch in ("a", 1.5, -1):
            with self.assertRaisesRegex(mb.ConfigError, f"^epoch={epoch!r}: expected a whole number from 0 on$"):
                loader.set_epoch(epoch)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, "no option shufle; did you mean shuffle. Its options are batch_size, shuffle, "):
            ds.loader(shufle=True)
        for name in ("num_workers", "pin_memory", "generator"):
            with self.assertRaisesRegex(TypeError, f"leave out {name}, an option of PyTorch's DataLoader: "):
                ds.loader(**{name: 1})

    def test_all_ranks_take_as_many_steps(self) -> None:
        for ds in (self.series(samples=65), self.series(samples=65, layout="windows")):
            for shuffle in (False, True):
                loaders = [ds.loader(32, shuffle=shuffle, rank=rank, world_size=2) for rank in range(2)]
                for _ in range(2):
                    lengths = [[len(batch["sample"]) for batch in loader] for loader in loaders]
                    self.assertEqual((lengths, len(loaders[1])), ([[16, 16], [16, 16]], 2))
            self.assertEqual(len(ds.loader(32)), 3)
            for options, text in (
                ({"batch_size": 2, "world_size": 3}, "batch_size=2: expected 3 or more"),
                ({"batch_size": 100, "world_size": 66}, "world_size=66: expected 65 at most"),
                ({"rank": 2, "world_size": 2}, "rank=2: expected 0 to 1"),
                ({"rank": 2.0, "world_size": 2}, "rank=2: expected 0 to 1"),
                ({"rank": "1"}, "^rank='1': expected a whole number from 0 on$"),
                ({"world_size": 0}, "^world_size=0: expected a whole number from 1 on$"),
            ):
                with self.assertRaisesRegex(mb.ConfigError, text):
                    ds.loader(**options)


class NumbersThatAreNotFinite(InFolder):
    def test_they_are_refused_however_samples_are_gathered(self) -> None:
        path = self.series(layout="windows").path
        with h5py.File(path, "r+") as file:
            file["features/M5"][77, 2, 1], file["targets"][5, 0] = np.nan, np.nan
        text = f"^{path}: sample 77: feature .* of M5 is nan in row 2 of its window: expected a finite number"
        for resident in (False, True):
            ds = mb.open(path, resident=resident)
            loader = ds.loader(32)
            ways: list[Any] = [
                lambda: list(loader),
                lambda: list(ds.loader(32, shuffle=True)),
                lambda: list(ds.split(purge="0s")[0].loader(32)),
                lambda: ds[77],
                lambda: ds[[1, 77]],
                lambda: ds.__getitems__([77, 1]),
            ]
            for way in ways:
                with self.assertRaisesRegex(mb.DataError, text) as caught:
                    way()
                self.assertEqual((caught.exception.fields["sample"], caught.exception.fields["timeframe"]), (77, "M5"))
            self.assertEqual(loader.state_dict()["batch"], 2, "the loader stands at the batch")
            self.assertEqual(int(np.isnan(ds[5]["targets"]).sum()), 1, "NaN is an unknown target")

    def test_an_infinite_number_is_no_gap(self) -> None:
        # A stored infinity was to be scaled.
        for stored, shown in ((1e39, "inf"), (-np.inf, "-inf")):
            path = self.folder / "large.h5"
            with h5py.File(path, "w") as file:
                file["features"], file["targets"] = np.full((4, 3, 2), stored), np.zeros((4, 1))
            text = (
                f"is {shown} in row 0 of its window: expected a finite number; leave the sample out or replace the number "
                f"before the file is written; a finite number beyond the range of float32 is read as an infinite one"
            )
            with self.assertRaisesRegex(mb.DataError, text):
                mb.open(path)[0]

    def test_an_infinite_target_is_refused(self) -> None:
        path = self.series(layout="windows").path
        with h5py.File(path, "r+") as file:
            file["targets"][3, 1] = np.inf
        with self.assertRaisesRegex(mb.DataError, "sample 3: target 2 is inf: expected a finite number, or NaN"):
            mb.open(path)[3]

    def test_each_sample_is_checked_once(self) -> None:
        for layout, expected in (("windows", 13), ("series", 0)):
            ds = self.series(layout=layout)
            loader = ds.loader(32)
            with mock.patch("megabatch.loader.require_finite") as checked:
                list(loader), list(loader), ds[5], list(ds.loader(48, shuffle=True))
            self.assertEqual(checked.call_count, expected)


class States(InFolder):
    def test_a_loader_goes_on_at_any_batch_in_another_process(self) -> None:
        ds = self.series(layout="windows")
        loader = ds.loader(48, shuffle=True, seed=5)
        whole = [*loader, *loader]
        states: list[dict[str, Any]] = []
        loader = ds.loader(48, shuffle=True, seed=5)
        states.append(loader.state_dict())
        for _ in range(2):
            for _batch in loader:
                states.append(loader.state_dict())
        self.assertEqual(len(states), len(whole) + 1)
        code = (
            "import json, sys, zlib, megabatch as mb\n"
            "states = json.load(open(sys.argv[2]))\n"
            "for n, state in enumerate(states):\n"
            "    loader = mb.open(sys.argv[1]).loader(48, shuffle=True, seed=5)\n"
            "    loader.load_state_dict(state)\n"
            "    rest = [*loader, *loader][: len(states) - 1 - n]\n"
            "    print(zlib.crc32(b''.join(a.tobytes() for batch in rest for a in batch.values())))\n"
        )
        file = self.folder / "states.json"
        file.write_text(json.dumps(states))
        found = self.python(code, ds.path, file).split()
        import zlib

        for n, checksum in enumerate(found):
            rest = b"".join(array.tobytes() for batch in whole[n:][: 2 * len(loader)] for array in batch.values())
            if n >= len(loader):
                self.assertEqual(int(checksum), zlib.crc32(rest), n)
            else:
                # The loop above takes two epochs from its place on.
                self.assertEqual(int(checksum), zlib.crc32(rest), n)

    def test_a_state_is_one_of_every_world(self) -> None:
        ds = self.series()
        loader = ds.loader(50, shuffle=True)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        expected = [batch["sample"] for batch in batches]
        others = [ds.loader(50, shuffle=True, rank=rank, world_size=4) for rank in range(4)]
        for other in others:
            other.load_state_dict(state)
        for batch, *own in zip(expected, *others):
            np.testing.assert_array_equal(batch, np.concatenate([part["sample"] for part in own]))

    def test_a_state_of_other_batches_is_refused(self) -> None:
        ds = self.series()
        state = ds.loader(50, shuffle=True).state_dict()
        for other in (ds.loader(50), ds.loader(51, shuffle=True), ds.split()[0].loader(50, shuffle=True)):
            with self.assertRaises(mb.ConfigError):
                other.load_state_dict(state)
        for wrong, text in (
            ({}, "the state has nothing: expected what state_dict"),
            (None, "state=None: expected what state_dict"),
            ({"version": 2}, "^the state is of version 2, and this loader reads 1$"),
            ({**state, "version": 2}, "^the state is of version 2, and this loader reads 1$"),
            ({"model": {}, "batches": state}, r"the state has model, batches: give state\['batches'\] of it"),
        ):
            with self.assertRaisesRegex(mb.ConfigError, text):
                ds.loader(50, shuffle=True).load_state_dict(wrong)
        loader = ds.loader(50, shuffle=True)
        for key, value, text in (
            ("epoch", -1, "epoch=-1: expected a whole number from 0 on"),
            ("epoch", None, "epoch=None: expected a whole number from 0 on"),
            ("batch", -1, "batch=-1: expected a whole number from 0 on"),
            ("batch", 9, "batch=9: expected 0 to 8, the batches of an epoch"),
        ):
            with self.assertRaisesRegex(mb.ConfigError, text) as caught:
                loader.load_state_dict({**state, key: value})
            self.assertEqual((caught.exception.fields["key"], loader.state_dict()), (key, state))

    def test_a_state_of_other_data_of_the_same_length_is_refused(self) -> None:
        # Batches were those of the other file.
        state = self.series().loader(50, shuffle=True).state_dict()
        self.series().loader(50, shuffle=True).load_state_dict(state)
        other = self.series(seed=1).loader(50, shuffle=True)
        with self.assertRaisesRegex(mb.ConfigError, "the state is of a loader with other data: their batches differ"):
            other.load_state_dict(state)
        other.load_state_dict({key: value for key, value in state.items() if key != "data"})

    def test_a_state_of_another_windows_file_of_the_same_length_is_refused(self) -> None:
        # It was taken, as windows have no fingerprint at hand.
        state = self.series(layout="windows").loader(50, shuffle=True).state_dict()
        self.series(layout="windows", compression="lzf").loader(50, shuffle=True).load_state_dict(state)
        other = self.series(layout="windows", seed=1).loader(50, shuffle=True)
        with self.assertRaisesRegex(mb.ConfigError, "the state is of a loader with other data: their batches differ"):
            other.load_state_dict(state)
        other.load_state_dict({**state, "data": None})

    def test_a_copy_stands_where_its_loader_does(self) -> None:
        loader = self.series().loader(50, shuffle=True, seed=4)
        list(loader)
        batches = iter(loader)
        next(batches)
        copied: list[mb.Loader] = [copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))]
        for one in copied:
            self.assertEqual((one.state_dict(), one.epoch), (loader.state_dict(), 1))

    def test_a_loop_that_stops_at_the_last_batch_has_ended_its_epoch(self) -> None:
        ds = self.series()
        whole = ds.loader(50, shuffle=True, seed=4)
        epochs = [[batch["sample"].tolist() for batch in whole] for _ in range(3)]
        # As Lightning's loop, which counts batches and never asks for one after the last.
        counted = ds.loader(50, shuffle=True, seed=4)
        for number, epoch in enumerate(epochs):
            found = [batch["sample"].tolist() for _, batch in zip(range(len(counted)), counted)]
            self.assertEqual(found, epoch, number)
            self.assertEqual(counted.epoch, number + 1)
            resumed = ds.loader(50, shuffle=True, seed=4)
            resumed.load_state_dict(counted.state_dict())
            follows = [batch["sample"].tolist() for _, batch in zip(range(len(resumed)), resumed)]
            whole.set_epoch(number + 1)
            self.assertEqual(follows, [batch["sample"].tolist() for batch in whole], number)

    def test_a_broken_off_epoch_begins_anew(self) -> None:
        loader = self.series().loader(50, shuffle=True)
        first = next(iter(loader))["sample"]
        np.testing.assert_array_equal(next(iter(loader))["sample"], first)


class Processes(InFolder):
    def test_a_forked_process_is_told_what_to_do(self) -> None:
        ds = self.series(layout="windows")
        loader = ds.loader(32)
        batches = iter(loader)
        next(batches)

        def attempt(say: Any) -> None:
            answers = []
            for work in (lambda: next(iter(loader)), lambda: next(batches), lambda: mb.open(ds.path), ds.fingerprint):
                try:
                    work()
                    answers.append("went on")
                except mb.ForkError as error:
                    answers.append(str(error))
            say.send(answers)
            say.close()

        context = multiprocessing.get_context("fork")
        hear, say = context.Pipe()
        child = context.Process(target=attempt, args=(say,))
        child.start()
        self.assertTrue(hear.poll(60), "the child hangs")
        answers = hear.recv()
        child.join(60)
        self.assertEqual(child.exitcode, 0)
        for answer in answers:
            self.assertIn("num_workers=0", answer)
        self.assertEqual(len(list(batches)), len(loader) - 1, "the parent goes on")

    def test_a_spawned_process_opens_the_file_again(self) -> None:
        ds = self.series()
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            self.assertEqual(pool.apply_async(len, (ds,)).get(CHILD_SECONDS_MAX), len(ds))

    def test_threads_take_each_batch_once(self) -> None:
        ds = self.series(layout="windows")
        native = ds.loader(8)._native.epoch(0, 0)
        taken: list[bytes] = []

        def take() -> None:
            while (batch := native.next_tables()) is not None:
                taken.append(batch[0])

        threads = [threading.Thread(target=take, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CHILD_SECONDS_MAX)
            self.assertFalse(thread.is_alive(), "a thread waits for a batch for ever")
        samples = np.sort(np.concatenate([np.frombuffer(own, dtype=np.int64) for own in taken]))
        np.testing.assert_array_equal(samples, np.arange(len(ds)))


class Memory(InFolder):
    def flat(self, work: Any, rounds: int) -> None:
        for _ in range(rounds // 10):
            work()
        gc.collect()
        before = resident_bytes()
        for _ in range(rounds):
            work()
        gc.collect()
        grown = resident_bytes() - before
        self.assertLess(grown, 8 << 20, f"{grown} bytes more after {rounds} rounds")

    def test_a_thousand_epochs_take_no_memory(self) -> None:
        loaders = [ds.loader(64, shuffle=True) for ds in (self.series(), self.series(layout="windows"))]
        self.flat(lambda: [batch for loader in loaders for batch in loader], 1000)

    def test_datasets_come_and_go(self) -> None:
        path = self.series(samples=40).path
        self.flat(lambda: len(mb.open(path)), int(os.environ.get("MEGABATCH_TEST_DATASETS", "2000")))
