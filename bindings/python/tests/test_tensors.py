"""Series on a device: by a stand-in for tensors, or by PyTorch itself where it is installed."""

from __future__ import annotations

import copy
import gc
import pickle
import unittest
from typing import Any

import fake_tensors
import fake_torch
import megabatch as mb
import numpy as np
from shared import InFolder, resident_bytes

fake_tensors.install()


class OnDevice(InFolder):
    def check_same(self, found: Any, expected: Any) -> None:
        self.assertEqual(list(found), list(expected))
        for key, tensor in found.items():
            np.testing.assert_array_equal(np.asarray(tensor), expected[key], key)

    def test_batches_are_those_of_the_loader(self) -> None:
        ds = self.series()
        train, _, test = ds.split()
        shared: Any = {"shuffle": True, "seed": 3, "rank": 1, "world_size": 2}
        for part in (ds, train, test):
            for options in ({}, {"shuffle": True, "seed": 3}, {"drop_last": True}, shared):
                for overlap in (False, True):
                    batches: Any = part.torch(32, device="cpu", overlap=overlap, **options)
                    loader = part.loader(32, **options)
                    for _ in range(2):
                        found, expected = list(batches), list(loader)
                        self.assertEqual(len(found), len(expected))
                        for one, other in zip(found, expected):
                            self.check_same(one, other)

    def test_a_last_batch_of_fewer_samples_than_ranks_is_left_out(self) -> None:
        ds = self.series(samples=65)
        for shuffle in (False, True):
            for device in (None, "cpu"):
                ranks: Any = [ds.torch(32, shuffle=shuffle, device=device, rank=rank, world_size=2) for rank in range(2)]
                self.assertEqual([[len(batch["sample"]) for batch in rank] for rank in ranks], [[16, 16], [16, 16]])

    def test_a_copy_is_a_loader_of_its_own(self) -> None:
        ds = self.series()
        batches: Any = ds.torch(64, shuffle=True, device="cpu")
        own = iter(batches)
        next(own)
        for copied in (copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))):
            self.assertEqual(copied.state_dict(), batches.state_dict())
        self.assertEqual(repr(batches), "<megabatch.TensorBatches: 7 batches of 64 samples on cpu>")

    def test_a_state_goes_on_where_it_was(self) -> None:
        ds = self.series()
        whole = [np.asarray(batch["sample"]).tolist() for batch in ds.loader(64, shuffle=True)]
        reader: Any = ds.torch(64, shuffle=True, device="cpu")
        own = iter(reader)
        next(own), next(own)
        other: Any = ds.torch(64, shuffle=True)
        other.load_state_dict(reader.state_dict())
        self.assertEqual([np.asarray(batch["sample"]).tolist() for batch in other], whole[2:])

    def test_tensors_have_the_windows_of_samples(self) -> None:
        ds = self.series()
        _, validation, _ = ds.split()
        tensors = validation.tensors()
        self.assertEqual(len(tensors), len(validation))
        np.testing.assert_array_equal(np.asarray(tensors.samples), validation.indices)
        self.assertEqual(len(tensors.batch(slice(3, 3))["sample"]), 0)
        chosen: Any
        for chosen in (slice(2, 9), slice(None, None, 3), [4, 0, 4], np.array([1])):
            self.check_same(tensors.batch(chosen), validation[chosen])
        views = tensors.windows(slice(2, 9), overlap=True)
        for name, window in tensors.windows(slice(2, 9)).items():
            np.testing.assert_array_equal(np.asarray(views[name]), np.asarray(window))
        name = next(iter(tensors.bars))
        self.assertTrue(np.shares_memory(np.asarray(views[name]), np.asarray(tensors.bars[name])))
        self.assertIn("SeriesTensors", repr(tensors))

    def test_numbers_in_the_file_are_found_in_a_part(self) -> None:
        ds = self.series()
        _, validation, _ = ds.split()
        tensors = validation.tensors()
        for batch in validation.torch(16, shuffle=True, device="cpu"):
            self.check_same(tensors.batch(tensors.places(batch["sample"])), {key: np.asarray(own) for key, own in batch.items()})
        backwards = validation._chosen(validation.indices[::-1]).tensors()
        self.assertEqual(np.asarray(backwards.places(validation.indices[[2, 0]])).tolist(), [len(validation) - 3, len(validation) - 1])
        self.assertEqual(len(tensors.places([])), 0)
        with self.assertRaisesRegex(IndexError, "sample 3 of the file is not in this part of 36 samples"):
            tensors.places([3])

    def test_parts_share_the_bars_while_somebody_has_them(self) -> None:
        ds = self.series()
        parts = [part.tensors() for part in ds.split()]
        self.assertIs(parts[0].bars, parts[1].bars)
        self.assertIs(parts[0].bars, ds.tensors().bars)
        self.assertIsNot(parts[0].bars, mb.open(ds.path).tensors().bars)
        self.assertEqual(len(ds._on_devices), 1)
        del parts
        gc.collect()
        self.assertEqual(len(ds._on_devices), 0)

    def test_a_mask_chooses_its_samples(self) -> None:
        tensors = self.series().tensors()
        mask = np.arange(len(tensors)) % 100 == 7
        for form in (mask, list(mask), tensors.samples % 100 == 7):
            np.testing.assert_array_equal(tensors.batch(form)["sample"], [7, 107, 207, 307])

    def test_what_cannot_be_is_named(self) -> None:
        ds = self.series()
        wrong: Any = "float13"
        none: Any = None
        share: Any = 0.8
        for call, kind, text in (
            (lambda: ds.tensors("gpu"), mb.ConfigError, "device='gpu': expected cpu, or a GPU of NVIDIA: cuda"),
            (lambda: ds.tensors(dtype=wrong), mb.ConfigError, r"torch.bfloat16 or None; .* becomes float64 by .double\(\)"),
            (lambda: ds.tensors("xpu"), mb.ConfigError, "expected cpu"),
            (lambda: ds.tensors().windows([0, 400]), IndexError, "from 0 to 400: there are 400 samples"),
            (lambda: ds.tensors().windows([-1]), IndexError, "from -1 to -1"),
            (lambda: ds.tensors().windows([2.9, 0.1]), mb.ConfigError, "^places=.* a list of whole numbers or a mask"),
            (lambda: ds.tensors().windows(slice(2), overlap=wrong), mb.ConfigError, "^overlap='float13': expected True or False$"),
            (lambda: ds.torch(8, device="cpu", overlap=wrong), mb.ConfigError, "^overlap='float13': expected True or False$"),
            (lambda: ds[[[1, 2], [3, 4]]], mb.ConfigError, "^samples=.* a list of whole numbers or a mask"),
            (lambda: ds[none], mb.ConfigError, "^samples=None"),
            (lambda: ds["M5"], mb.ConfigError, r"the windows of a timeframe are dataset\[:8\]\['M5'\]$"),
            (lambda: ds.split(share), mb.ConfigError, r"fractions are \[0.8\]: expected three"),
            (lambda: mb.plan(ds, model=16), mb.ConfigError, "^model=16: expected a dictionary of the settings that begin"),
            (lambda: ds.tensors().windows([True, False]), mb.ConfigError, "^places=.* each of the 400 samples"),
            (lambda: self.series(layout="windows").tensors(), mb.ConfigError, "ChunkDataLoader"),
        ):
            with self.assertRaisesRegex(kind, text):
                call()

    def test_windows_of_a_file_are_copied(self) -> None:
        ds = self.series(layout="windows")
        for found, expected in zip(ds.torch(16, device="cpu"), ds.loader(16)):
            self.check_same(found, expected)

    @unittest.skipIf(fake_torch.IS_REAL, "a GPU is made up with the stand-in only")
    def test_bars_that_do_not_fit_are_left_on_the_cpu(self) -> None:
        ds = self.series()
        with fake_tensors.Gpu.there(1 << 30):
            batches: Any = ds.torch(32, device="cuda")
            plan = batches.plan()
            self.assertTrue(plan["stays"])
            # Nothing was read for it.
            self.assertFalse(ds._on_devices)
            for found, expected in zip(batches, ds.loader(32)):
                self.check_same(found, expected)
                self.assertEqual({str(tensor.device) for tensor in found.values()}, {"cuda:0"})
            there = ds.tensors("cuda")
            held = [*there.bars.values(), *there.first_bars.values(), there.targets, there.samples]
            self.assertEqual(plan["series_bytes"], sum(tensor.nbytes for tensor in held))
            del there, held
            self.assertNotIn("pin_memory", [what for what, _ in fake_tensors.Gpu.said])
        del batches, found
        gc.collect()
        with fake_tensors.Gpu.there(1000):
            with self.assertRaisesRegex(mb.CapacityError, "take .* GB, and cuda:0 has"):
                ds.tensors("cuda")
            with self.assertLogs("megabatch", "WARNING"):
                batches = ds.torch(32, device="cuda")
            self.assertEqual(batches.plan(), {"series_bytes": 0, "stays": False})
            for found, expected in zip(batches, ds.loader(32)):
                self.check_same(found, expected)
                self.assertEqual({str(tensor.device) for tensor in found.values()}, {"cuda:0"})
            self.assertIn("pin_memory", [what for what, _ in fake_tensors.Gpu.said])
        del batches, found
        gc.collect()
        with fake_tensors.Gpu.there(1 << 30):
            batches = ds.torch(32, device="cuda")
            # Another program takes the memory after the plan was made.
            fake_tensors.Gpu.free_bytes = 1000
            with self.assertLogs("megabatch", "WARNING"):
                self.check_same(next(iter(batches)), next(iter(ds.loader(32))))
            self.assertFalse(batches.plan()["stays"])

    def test_epochs_and_files_leave_no_memory_behind(self) -> None:
        path = self.series().path

        def work() -> None:
            for _ in range(50):
                ds = mb.open(path)
                for part in ds.split():
                    for batch in part.torch(64, shuffle=True, device="cpu"):
                        self.assertGreater(len(batch["sample"]), 0)

        work()
        before = resident_bytes()
        work()
        self.assertLess(resident_bytes() - before, 4 << 20)

    def test_types_are_rounded_once(self) -> None:
        import torch

        ds = self.series()
        found = next(iter(ds.torch(8, device="cpu", dtype=torch.float16)))
        expected = next(iter(ds.loader(8)))
        for key in ds.timeframes:
            np.testing.assert_array_equal(np.asarray(found[key]), expected[key].astype(np.float16))
        self.assertEqual(np.asarray(found["targets"]).dtype, np.float32)
