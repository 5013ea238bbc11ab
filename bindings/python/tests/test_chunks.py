"""`ChunkDataLoader`: by a stand-in for PyTorch and a GPU, or by PyTorch itself, on the CPU, where it is installed."""

from __future__ import annotations

import gc
import json
import pathlib
import pickle
import threading
import unittest
import weakref
from typing import Any
from unittest import mock

import fake_tensors
import fake_torch
import h5py
import megabatch as mb
import numpy as np
from shared import InFolder, resident_bytes

fake_tensors.install()

from megabatch import chunks  # noqa: E402

BATCH = 32
SAMPLE_BYTES = 4 * (7 * 3 + 4 * 3 + 2)
"""Bytes of a sample of `Windows.windows`."""
ONE_BATCH = 2 * BATCH * SAMPLE_BYTES / 1e9
"""Two chunks of one batch, in GB."""
FOUR_BATCHES = 4 * ONE_BATCH
ALL_STAYS = 1.0


class Windows(InFolder):
    def windows(self, **options: Any) -> mb.Dataset:
        """400 samples of two timeframes."""
        return self.series(layout="windows", **options)

    def loader(self, chunk_size_gb: float = ONE_BATCH, shuffle: bool = False, **options: Any) -> Any:
        given = {"batch_size": BATCH, "device": "cpu", **options}
        path = self.folder / "windows-gzip.h5"
        if not path.exists():
            self.windows()
        return chunks.ChunkDataLoader(path, chunk_size_gb=chunk_size_gb, shuffle=shuffle, **given)


def samples(loader: Any) -> list[list[int]]:
    """Numbers of the samples of each batch of an epoch, found by their targets."""
    with h5py.File(loader.dataset.path) as file:
        numbers = {row.tobytes(): n for n, row in enumerate(file["targets"][:].reshape(len(file["targets"]), -1))}
    return [[numbers[row.tobytes()] for row in np.asarray(targets)] for _, targets in loader]


def threads() -> list[str]:
    return [own.name for own in threading.enumerate() if own.name.startswith("megabatch")]


class Batches(Windows):
    def test_batches_in_order_are_those_of_the_plain_loader(self) -> None:
        for compression in ("gzip", "contiguous"):
            ds = self.windows(compression=compression)
            for size in (ONE_BATCH, FOUR_BATCHES, ALL_STAYS):
                for drop_last in (False, True):
                    loader: Any = chunks.ChunkDataLoader(ds.path, BATCH, size, "cpu", drop_last=drop_last)
                    expected = list(ds.loader(BATCH, drop_last=drop_last))
                    found = list(loader)
                    self.assertEqual((len(loader), len(found)), (len(expected), len(expected)))
                    for (features, targets), batch in zip(found, expected):
                        self.assertEqual(list(features), ["M1", "M5"])
                        for key, window in features.items():
                            np.testing.assert_array_equal(np.asarray(window), batch[key])
                        np.testing.assert_array_equal(np.asarray(targets), batch["targets"])

    def test_one_timeframe_is_a_tensor(self) -> None:
        path = self.folder / "plain.h5"
        numbers = np.random.default_rng(0).standard_normal((70, 5, 3)).astype("f4")
        with h5py.File(path, "w") as file:
            file["features"], file["targets"] = numbers, numbers[:, 0, :2]
        for size in (2 * BATCH * 68 / 1e9, ALL_STAYS):
            found = list(chunks.ChunkDataLoader(path, BATCH, size, "cpu"))
            np.testing.assert_array_equal(np.concatenate([np.asarray(features) for features, _ in found]), numbers)
            self.assertEqual([tuple(targets.shape) for _, targets in found], [(32, 2), (32, 2), (6, 2)])

    def test_batches_in_order_are_slices_of_a_chunk(self) -> None:
        batches = [features["M1"] for features, _ in self.loader(FOUR_BATCHES)]
        addresses = [np.asarray(batch).ctypes.data for batch in batches]
        apart = np.diff(addresses)
        within = [n for n in range(len(apart)) if (n + 1) % 4]
        self.assertEqual({int(apart[n]) for n in within}, {BATCH * 7 * 3 * 4})

    def test_batches_outlive_their_loader(self) -> None:
        expected = [batch["M5"].copy() for batch in self.windows().loader(BATCH)]
        for shuffle in (False, True):
            loader = self.loader(shuffle=shuffle)
            held = [features["M5"] for features, _ in loader]
            copies = [np.asarray(batch).copy() for batch in held]
            list(loader)
            del loader
            gc.collect()
            for batch, copy in zip(held, copies):
                np.testing.assert_array_equal(np.asarray(batch), copy)
            if not shuffle:
                np.testing.assert_array_equal(np.concatenate(held), np.concatenate(expected))

    def test_shuffled_samples_come_once_an_epoch_in_an_order_of_seed_and_epoch(self) -> None:
        for size in (ONE_BATCH, FOUR_BATCHES, ALL_STAYS):
            loader = self.loader(size, shuffle=True, seed=7)
            epochs = [samples(loader) for _ in range(2)]
            for epoch in epochs:
                self.assertEqual([len(batch) for batch in epoch], [BATCH] * 12 + [16])
                self.assertEqual(sorted(sum(epoch, [])), list(range(400)))
            self.assertNotEqual(epochs[0], epochs[1])
            self.assertEqual(samples(self.loader(size, shuffle=True, seed=7)), epochs[0])
            self.assertNotEqual(samples(self.loader(size, shuffle=True, seed=8)), epochs[0])
            loader.set_epoch(1)
            self.assertEqual(samples(loader), epochs[1])
            self.assertEqual(loader.epoch, 2)

    def test_chunks_come_in_another_order_each_epoch(self) -> None:
        loader = self.loader(FOUR_BATCHES, shuffle=True)
        orders = set()
        for _ in range(8):
            numbers = np.array(sum(samples(loader), [])) // (4 * BATCH)
            order = numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]
            self.assertEqual(sorted(order.tolist()), [0, 1, 2, 3], "a chunk is left before the next one")
            orders.add(tuple(order.tolist()))
        self.assertGreater(len(orders), 2)

    def test_windows_and_targets_are_shuffled_alike(self) -> None:
        ds = self.windows()
        pairs = [pair for batch in ds.loader(64) for pair in zip(batch["targets"], batch["M5"])]
        expected = {targets.tobytes(): window for targets, window in pairs}
        for features, targets in self.loader(FOUR_BATCHES, shuffle=True):
            for window, row in zip(np.asarray(features["M5"]), np.asarray(targets)):
                np.testing.assert_array_equal(window, expected[row.tobytes()])

    def test_a_batch_goes_on_with_the_next_chunk(self) -> None:
        loader = self.loader(shuffle=True)
        self.assertEqual(loader.plan()["samples_per_chunk"], BATCH)
        crossing = 0
        for epoch in range(20):
            batches = samples(loader)
            self.assertEqual(sorted(sum(batches, [])), list(range(400)))
            self.assertEqual([len(batch) for batch in batches], [BATCH] * 12 + [16])
            crossing += sum(len({sample // BATCH for sample in batch}) > 1 for batch in batches)
        # The last chunk has 16 samples, and comes last in one epoch of 13.
        self.assertGreater(crossing, 20)

    def test_ranks_share_each_batch(self) -> None:
        ds = self.windows()
        cases = ((ONE_BATCH, True, False), (FOUR_BATCHES, False, True), (ALL_STAYS, True, False))
        for size, shuffle, drop_last in cases:
            whole = samples(self.loader(size, shuffle, drop_last=drop_last))
            for world in (2, 3):
                # A rank holds a part of each chunk.
                share = size if size == ALL_STAYS else size * -(-BATCH // world) / BATCH
                parts = [
                    samples(self.loader(share, shuffle, drop_last=drop_last, rank=rank, world_size=world))
                    for rank in range(world)
                ]
                self.assertEqual([sum(own, []) for own in zip(*parts)], whole, (size, world))
                lengths = [[len(part) for part in own] for own in zip(*parts)]
                plain = [ds.loader(BATCH, rank=rank, world_size=world) for rank in range(world)]
                expected = [[len(batch["sample"]) for batch in own] for own in zip(*plain)]
                self.assertEqual(lengths, expected[: len(lengths)])

    def test_a_last_batch_of_fewer_samples_than_ranks_is_left_out(self) -> None:
        self.windows(samples=65)
        for size in (ONE_BATCH, ALL_STAYS):
            for shuffle in (False, True):
                loaders = [self.loader(size, shuffle, rank=rank, world_size=2) for rank in range(2)]
                for _ in range(2):
                    parts = [[len(targets) for _, targets in loader] for loader in loaders]
                    self.assertEqual((parts, len(loaders[0])), ([[16, 16], [16, 16]], 2))
            self.assertEqual([len(targets) for _, targets in self.loader(size)], [32, 32, 1])
        with self.assertRaisesRegex(mb.ConfigError, "world_size=66: expected 65 at most, as there are 65 samples"):
            self.loader(batch_size=100, world_size=66)

    def test_a_part_of_a_dataset_is_taken(self) -> None:
        train, validation, _ = self.windows().split(purge="0s")
        for part in (train, validation):
            for size in (ONE_BATCH, ALL_STAYS):
                found: Any = chunks.ChunkDataLoader(part, BATCH, size, "cpu")
                for (features, targets), batch in zip(found, part.loader(BATCH)):
                    np.testing.assert_array_equal(np.asarray(features["M1"]), batch["M1"])
                    np.testing.assert_array_equal(np.asarray(targets), batch["targets"])
                shuffled: Any = chunks.ChunkDataLoader(part, BATCH, size, "cpu", shuffle=True)
                self.assertEqual(sorted(sum(samples(shuffled), [])), part.indices.tolist())
        half = train._chosen(train.indices[::2])
        states = [chunks.ChunkDataLoader(one, BATCH, device="cpu").state_dict() for one in (half, train._chosen(train.indices[1::2]))]
        with self.assertRaisesRegex(mb.ConfigError, "another choice of samples: their batches differ"):
            chunks.ChunkDataLoader(half, BATCH, device="cpu").load_state_dict(states[1])
        with self.assertRaisesRegex(mb.ConfigError, r"validation\.torch\("):
            chunks.ChunkDataLoader(self.series().split()[1], device="cpu")

    def test_numbers_that_are_not_finite_are_named(self) -> None:
        train = self.windows()
        path = train.path
        del train
        for name, place, value, text in (
            ("features/M5", (77, 2, 1), np.nan, "sample 77: feature .* of M5 is nan in row 2 of its window"),
            ("features/M1", (399, 6, 0), -np.inf, "sample 399: feature .* of M1 is -inf"),
            ("targets", (3, 1), np.inf, "sample 3: target 2 is inf: expected a finite number, or NaN"),
        ):
            with h5py.File(path, "r+") as file:
                before = file[name][place]
                file[name][place] = value
            for size in (ONE_BATCH, ALL_STAYS):
                for shuffle in (False, True):
                    with self.assertRaisesRegex(mb.DataError, text) as caught:
                        list(self.loader(size, shuffle))
                    self.assertEqual(caught.exception.fields["sample"], place[0])
            batches: Any = mb.open(path).torch(BATCH, shuffle=True)
            with self.assertRaisesRegex(mb.DataError, text):
                list(batches)
            del batches
            gc.collect()
            with h5py.File(path, "r+") as file:
                file[name][place] = before
        with h5py.File(path, "r+") as file:
            file["targets"][5, 0], file["features/M1"][6] = np.nan, 3e38
        loader = self.loader()
        with mock.patch("megabatch.loader.require_finite") as checked:
            list(loader), list(loader)
        self.assertEqual(checked.call_count, 13, "the first epoch is checked")
        self.assertEqual(sum(int(np.isnan(np.asarray(targets)).sum()) for _, targets in self.loader()), 1)

    def test_features_are_converted(self) -> None:
        import torch

        expected = list(self.loader())
        for size in (ONE_BATCH, ALL_STAYS):
            for (features, targets), (plain, same) in zip(self.loader(size, dtype=torch.float16), expected):
                self.assertEqual(features["M1"].dtype, torch.float16)
                np.testing.assert_array_equal(np.asarray(features["M1"]), np.asarray(plain["M1"]).astype("f2"))
                np.testing.assert_array_equal(np.asarray(targets), np.asarray(same))
        half, whole = self.loader(FOUR_BATCHES, dtype=torch.float16), self.loader(FOUR_BATCHES)
        self.assertGreater(half.plan()["samples_per_chunk"], whole.plan()["samples_per_chunk"])


class Plans(Windows):
    def test_plans_say_what_is_held(self) -> None:
        chunk = 4 * BATCH
        self.assertEqual(
            self.loader(FOUR_BATCHES).plan(),
            {"samples_per_chunk": chunk, "chunks": 4, "chunk_bytes": 2 * chunk * SAMPLE_BYTES, "stays": False},
        )
        self.assertEqual(
            self.loader(ALL_STAYS).plan(),
            {"samples_per_chunk": 400, "chunks": 1, "chunk_bytes": 400 * SAMPLE_BYTES, "stays": True},
        )
        self.assertIn("13 batches of 32 samples, in 4 chunks on cpu", repr(self.loader(FOUR_BATCHES)))

    def test_two_chunks_are_there_at_once(self) -> None:
        begin, read = chunks._Reader.read, chunks._Reader._read
        for shuffle in (False, True):
            alive: list[int] = []
            at_once: list[int] = []

            def counted(*arguments: Any) -> Any:
                at_once.append(len(alive) + 1)
                return begin(*arguments)

            def counted_until_freed(*arguments: Any) -> Any:
                chunk = read(*arguments)
                alive.append(1)
                # A slice keeps it.
                weakref.finalize(chunk.tables[0], alive.pop)
                return chunk

            counts = {"read": counted, "_read": counted_until_freed}
            for size, expected in ((ONE_BATCH, 13), (FOUR_BATCHES, 4)):
                at_once.clear()
                with mock.patch.multiple(chunks._Reader, **counts):
                    loader = self.loader(size, shuffle)
                    for _ in range(2):
                        for batch in loader:
                            pass
                    del batch
                self.assertEqual((len(at_once), max(at_once), alive), (2 * expected, 2, []))
            # Slices of small chunks: the third one is read while the caller holds the last slice of the first.
            with mock.patch.multiple(chunks._Reader, **counts), mock.patch.object(chunks, "_IN_ORDER_BYTES", 1):
                loader, most = self.loader(FOUR_BATCHES, shuffle), 2 if shuffle else 3
                at_once.clear()
                for _ in loader:
                    pass
                self.assertEqual(max(at_once), most)
                chunk = loader.plan()["samples_per_chunk"]
                self.assertEqual(chunk, 4 * BATCH if shuffle else BATCH)
                self.assertEqual(loader.plan()["chunk_bytes"], most * chunk * SAMPLE_BYTES)

    def test_nothing_is_read_that_no_batch_has(self) -> None:
        options: list[tuple[dict[str, Any], int]] = [
            ({}, 400),
            ({"drop_last": True}, 384),
            ({"rank": 1, "world_size": 2}, 200),
            ({"rank": 1, "world_size": 2, "drop_last": True}, 192),
        ]
        for shuffle in (False, True):
            for given, expected in options:
                with mock.patch.object(chunks._Reader, "read", autospec=True, side_effect=chunks._Reader.read) as read:
                    list(self.loader(shuffle=shuffle, **given))
                self.assertEqual(sum(len(call.args[1]) for call in read.call_args_list), expected)

    def test_what_stays_is_read_once(self) -> None:
        for shuffle in (False, True):
            loader = self.loader(ALL_STAYS, shuffle)
            read = chunks._Reader._pieces
            with mock.patch.object(chunks._Reader, "_pieces", autospec=True, side_effect=read) as pieces:
                for _ in range(3):
                    self.assertEqual(len(list(loader)), 13)
            self.assertEqual(pieces.call_count, 1)


class States(Windows):
    def test_a_loader_goes_on_where_another_stood(self) -> None:
        for size, shuffle in ((ONE_BATCH, True), (FOUR_BATCHES, False), (FOUR_BATCHES, True), (ALL_STAYS, True)):
            loader = self.loader(size, shuffle, seed=5)
            whole = samples(loader) + samples(loader)
            for place in (0, 1, 5, 12, 13, 20):
                loader = self.loader(size, shuffle, seed=5)
                for _ in range(place // 13):
                    list(loader)
                epoch = iter(loader)
                for _ in range(place % 13):
                    next(epoch)
                state = json.loads(json.dumps(loader.state_dict()))
                # All that stays can be visited as other chunks are.
                for other in (self.loader(size, shuffle, seed=5), self.loader(ALL_STAYS, shuffle, seed=5)):
                    other.load_state_dict(state)
                    self.assertEqual(other.epoch, place // 13)
                    self.assertEqual(samples(other), whole[place:][: 13 - place % 13])
                    self.assertEqual(other.epoch, place // 13 + 1)
                epoch.close()

    def test_a_state_is_one_of_every_world(self) -> None:
        loader = self.loader(shuffle=True)
        epoch = iter(loader)
        next(epoch), next(epoch)
        state = loader.state_dict()
        epoch.close()
        expected = samples(loader)[2:]
        ranks = [self.loader(shuffle=True, rank=rank, world_size=4) for rank in range(4)]
        for rank in ranks:
            rank.load_state_dict(state)
        parts = [samples(rank) for rank in ranks]
        self.assertEqual([sum(own, []) for own in zip(*parts)], expected)

    def test_unequal_parts_of_a_batch_are_warned_of(self) -> None:
        self.windows()
        with self.assertWarnsRegex(UserWarning, f"batch_size={BATCH} is no multiple of world_size=3"):
            self.loader(rank=0, world_size=3)

    def test_a_state_of_other_batches_is_refused(self) -> None:
        state = self.loader(shuffle=True).state_dict()
        others: dict[str, dict[str, Any]] = {
            "batch_size": {"shuffle": True, "batch_size": 16},
            "shuffle": {},
            "seed": {"shuffle": True, "seed": 1},
            "drop_last": {"shuffle": True, "drop_last": True},
        }
        for key, options in others.items():
            with self.assertRaisesRegex(mb.ConfigError, f"with {key}=") as caught:
                self.loader(**options).load_state_dict(state)
            self.assertEqual(caught.exception.fields["key"], key)
        for wrong in ({}, mb.open(self.folder / "windows-gzip.h5").loader(BATCH).state_dict()):
            with self.assertRaisesRegex(mb.ConfigError, "of a ChunkDataLoader"):
                self.loader().load_state_dict(wrong)
        for key, value in (("epoch", -1), ("batch", 14)):
            with self.assertRaisesRegex(mb.ConfigError, f"windows-gzip.h5: {key}={value}: expected"):
                self.loader(shuffle=True).load_state_dict({**state, key: value})
        larger = self.loader(FOUR_BATCHES, shuffle=True).state_dict()
        with self.assertRaisesRegex(mb.CapacityError, "chunks have 128 samples"):
            self.loader(shuffle=True).load_state_dict(larger)
        self.windows(seed=1)
        with self.assertRaisesRegex(mb.ConfigError, "windows-gzip.h5: the state is of a loader with other data"):
            self.loader(shuffle=True).load_state_dict(state)
        self.windows(samples=300)
        with self.assertRaisesRegex(mb.ConfigError, "a file of other length"):
            self.loader(shuffle=True).load_state_dict(state)

    def test_a_broken_off_epoch_begins_anew_and_a_counted_one_has_ended(self) -> None:
        loader = self.loader(shuffle=True)
        first, again = (next(iter(loader))[1] for _ in range(2))
        np.testing.assert_array_equal(np.asarray(first), np.asarray(again))
        for number in range(2):
            for _ in zip(range(len(loader)), loader):
                pass
            self.assertEqual(loader.epoch, number + 1)


class Threads(Windows):
    def test_an_abandoned_loop_leaves_no_thread(self) -> None:
        for size in (ONE_BATCH, FOUR_BATCHES, ALL_STAYS):
            loader = self.loader(size, shuffle=True)
            for _ in loader:
                break
            epoch = iter(loader)
            next(epoch)
            self.assertLessEqual(len(threads()), 1)
            del epoch
            gc.collect()
            self.assertEqual(threads(), [])
            list(loader)
            self.assertEqual(threads(), [])

    def test_an_interpreter_ends_in_the_middle_of_a_loop(self) -> None:
        path = self.windows().path
        code = (
            "import sys\n"
            "sys.path[:0] = sys.argv[2].split(':')\n"
            "import fake_tensors\n"
            "fake_tensors.install()\n"
            "from megabatch import chunks\n"
            f"epoch = iter(chunks.ChunkDataLoader(sys.argv[1], {BATCH}, {ONE_BATCH}, 'cpu'))\n"
            "next(epoch)\n"
            "print('ends')\n"
        )
        self.assertEqual(self.python(code, path, pathlib.Path(__file__).parent), "ends\n")

    def test_errors_of_reading_come_in_the_loop(self) -> None:
        loader = self.loader()
        epoch = iter(loader)
        next(epoch)
        with mock.patch.object(chunks._Reader, "_pieces", side_effect=mb.DataError("a torn chunk")):
            with self.assertRaisesRegex(mb.DataError, "a torn chunk"):
                list(epoch)
        self.assertEqual(threads(), [])
        self.assertEqual(len(list(loader)), 13)

    def test_epochs_take_no_memory(self) -> None:
        loaders = [self.loader(size, shuffle) for size in (FOUR_BATCHES, ALL_STAYS) for shuffle in (False, True)]

        def epochs(count: int) -> None:
            for _ in range(count):
                for loader in loaders:
                    for _batch in loader:
                        pass

        epochs(20)
        gc.collect()
        before = resident_bytes()
        epochs(200)
        gc.collect()
        grown = resident_bytes() - before
        self.assertLess(grown, 8 << 20, f"{grown} bytes more")


class Refusals(Windows):
    def test_wrong_arguments_are_named(self) -> None:
        wrong: list[dict[str, Any]] = [
            {"batch_size": 0},
            {"batch_size": 64.5},
            {"batch_size": None},
            {"batch_size": 2, "world_size": 3},
            {"batch_size": 401, "drop_last": True},
            {"chunk_size_gb": 0.0},
            {"chunk_size_gb": float("nan")},
            {"chunk_size_gb": ONE_BATCH * 0.9},
            {"device": "xpu"},
            {"device": "nothing"},
            {"seed": -1},
            {"shuffle": "no"},
            {"drop_last": 1},
            {"dtype": "f8"},
            {"rank": 2, "world_size": 2},
            {"world_size": 0},
        ]
        for options in wrong:
            key = next(iter(options))
            with self.assertRaises(mb.ConfigError, msg=str(options)) as caught:
                self.loader(**options)
            self.assertEqual(caught.exception.fields["key"], key)
            self.assertIn("windows-gzip.h5", str(caught.exception))
            self.assertIn(key, str(caught.exception))
        with self.assertRaises(mb.ConfigError):
            self.loader().set_epoch(-1)

    def test_options_of_pytorchs_data_loader_are_named(self) -> None:
        for name, text in (("num_workers", "leave out num_workers, .*: all cores"), ("batchsize", "did you mean batch_size")):
            with self.assertRaisesRegex(TypeError, text):
                self.loader(**{name: 4})

    def test_copies_read_again(self) -> None:
        loader = self.loader(ALL_STAYS, shuffle=True)
        list(loader)
        copied = pickle.loads(pickle.dumps(loader))
        self.assertIsNone(copied._resident)
        self.assertEqual(samples(copied), samples(loader))

    def test_a_series_is_refused_with_what_reads_it(self) -> None:
        with self.assertRaisesRegex(mb.ConfigError, r"series-gzip.h5: hdf5_path is .* lie on the device with mb\.open\(path\)\.torch\("):
            chunks.ChunkDataLoader(self.series().path, device="cpu")
        with self.assertRaisesRegex(mb.DataError, "no such file"):
            chunks.ChunkDataLoader(self.folder / "nothing.h5", device="cpu")

    @unittest.skipIf(fake_torch.IS_REAL, "the stand-in has no GPU")
    def test_an_absent_gpu_is_named(self) -> None:
        with self.assertRaisesRegex(mb.DeviceError, "device is cuda, .* device='cpu'"):
            self.loader(device="cuda")


@unittest.skipIf(fake_torch.IS_REAL, "the GPU is made up")
class OnAGpu(Windows):
    def test_batches_are_those_of_the_cpu(self) -> None:
        for size in (ONE_BATCH, FOUR_BATCHES, ALL_STAYS):
            for shuffle in (False, True):
                expected = list(self.loader(size, shuffle))
                # Pieces of 10 samples, so that a chunk has several.
                with fake_tensors.Gpu.there(1 << 40), mock.patch.object(chunks, "_PIECE_BYTES", 10 * SAMPLE_BYTES):
                    found = list(self.loader(size, shuffle, device="cuda"))
                for (features, targets), (plain, same) in zip(found, expected):
                    for key in plain:
                        np.testing.assert_array_equal(features[key], plain[key])
                    np.testing.assert_array_equal(targets, same)

    def test_a_batch_waits_for_the_copy_and_marks_its_use(self) -> None:
        with fake_tensors.Gpu.there(1 << 40):
            for _ in self.loader(device="cuda"):
                pass
        said = [what for what, _ in fake_tensors.Gpu.said]
        self.assertEqual(said.count("wait_event"), 13)
        self.assertEqual(said.count("record_stream"), 13 * 3)
        # Each chunk is made when the work is over that was given to the GPU before.
        waits = [event for what, event in fake_tensors.Gpu.said if what == "synchronize"]
        self.assertEqual(sum(isinstance(event.stream, fake_tensors.DefaultStream) for event in waits), 13)
        made = [told for what, told in fake_tensors.Gpu.said if what == "empty"]
        self.assertEqual(sum(size for device, _, size in made if device == "cuda"), 400 * SAMPLE_BYTES)
        # Two pieces, each of two timeframes and the targets.
        self.assertEqual(sum(is_page_locked for _, is_page_locked, _ in made), 2 * 3)

    def test_chunks_take_a_share_of_free_memory(self) -> None:
        asked = int(FOUR_BATCHES * 1e9)
        for free, batches in ((2 * asked, 4), (asked, 2), (asked // 2, 1)):
            with fake_tensors.Gpu.there(free):
                plan = self.loader(FOUR_BATCHES, shuffle=True, device="cuda").plan()
            self.assertEqual(plan["samples_per_chunk"], batches * BATCH)
            self.assertLessEqual(plan["chunk_bytes"], free * 0.75)
        with fake_tensors.Gpu.there(asked // 4):
            with self.assertRaisesRegex(mb.CapacityError, "chunk_size_gb is .* cuda:0 has .* smaller batch_size"):
                self.loader(FOUR_BATCHES, device="cuda")
        with fake_tensors.Gpu.there(asked):
            with self.assertRaisesRegex(mb.CapacityError, "smaller chunk_size_gb on all ranks"):
                self.loader(FOUR_BATCHES, shuffle=True, device="cuda", world_size=2)
