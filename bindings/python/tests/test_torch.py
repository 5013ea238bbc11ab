"""Tensors of PyTorch: by a stand-in, or by PyTorch itself where it is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types
import unittest
import warnings
from typing import Any
from unittest import mock

import fake_torch
import megabatch as mb
import numpy as np
from shared import InFolder

fake_torch.install()

HAS_TORCHDATA = fake_torch.IS_REAL and importlib.util.find_spec("torchdata") is not None
HAS_LIGHTNING = fake_torch.IS_REAL and importlib.util.find_spec("lightning") is not None


class Tensors(InFolder):
    def test_tensors_are_the_arrays_of_the_loader(self) -> None:
        ds = self.series()
        batches: Any = ds.torch(64, shuffle=True, seed=3)
        self.assertEqual(len(batches), 7)
        for tensors, arrays in zip(batches, ds.loader(64, shuffle=True, seed=3)):
            self.assertEqual(list(tensors), list(arrays))
            for key, tensor in tensors.items():
                np.testing.assert_array_equal(np.asarray(tensor), arrays[key])

    def test_tensors_have_memory_of_their_own(self) -> None:
        with self.assertRaisesRegex(TypeError, "give device"):
            self.series().torch(64, overlap=True)

    def test_processes_without_ranks_and_with_unequal_parts_are_warned_of(self) -> None:
        ds = self.series()
        one: Any = {}
        there = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2)
        away = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False)
        two, three = ({"rank": 0, "world_size": world} for world in (2, 3))
        unequal = "batch_size=64 is no multiple of world_size=3: the processes have unequal parts"
        for distributed, options, text in (
            (there, one, "torch.distributed has 2 processes, and each gets all batches of this loader: give rank="),
            (there, two, None),
            (there, three, unequal),
            (away, three, unequal),
            (away, one, None),
        ):
            with mock.patch.dict(sys.modules, {"torch.distributed": distributed}), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                ds.torch(64, **options)
                ds.loader(64, **options)
            self.assertEqual(len(said), int(text is not None))
            if text is not None:
                self.assertIn(text, str(said[0].message))
                self.assertEqual(said[0].filename, __file__)

    @unittest.skipIf(fake_torch.IS_REAL, "the trainer is made up")
    def test_a_data_module_has_ranks_and_warns_of_unequal_parts_alone(self) -> None:
        there = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2)
        for batch_size, count in ((64, 0), (35, 1)):
            module: Any = mb.lightning.DataModule(self.series(), batch_size)
            module.trainer = types.SimpleNamespace(global_rank=0, world_size=2)
            with mock.patch.dict(sys.modules, {"torch.distributed": there}), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                module.train_dataloader(), module.val_dataloader(), module.test_dataloader()
            self.assertEqual(["is no multiple of world_size=2" in str(one.message) for one in said], [True] * count)

    def test_states_are_those_of_the_loader(self) -> None:
        ds = self.series()
        batches: Any = ds.torch(64, shuffle=True)
        self.assertEqual(batches.epoch, 0)
        whole = [np.asarray(batch["sample"]) for batch in batches]
        self.assertEqual(batches.epoch, 1)
        half = iter(ds.torch(64, shuffle=True))
        other: Any = ds.torch(64, shuffle=True)
        reader: Any = ds.torch(64, shuffle=True)
        own = iter(reader)
        next(own), next(own)
        other.load_state_dict(reader.state_dict())
        rest = [np.asarray(batch["sample"]) for batch in other]
        self.assertEqual([list(batch) for batch in rest], [list(batch) for batch in whole[2:]])
        del half

    @unittest.skipIf(fake_torch.IS_REAL, "the example trains with Lightning itself")
    def test_a_data_module_has_the_parts_and_its_place(self) -> None:
        ds = self.series()
        module: Any = mb.lightning.DataModule(ds, 64, seed=3)
        parts = [module.train_dataloader(), module.val_dataloader(), module.test_dataloader()]
        for loader, part in zip(parts, ds.split()):
            # Lightning warns of batches of training that do not tell their place.
            is_told = loader is parts[0] and hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
            self.assertTrue(is_told or loader.options == (None, 0))
            samples = np.concatenate([np.asarray(batch["sample"]) for batch in loader])
            np.testing.assert_array_equal(np.sort(samples), part.indices)
        other: Any = mb.lightning.DataModule(ds, 64, seed=3)
        batches = iter(module.train_dataloader())
        first = next(batches)["sample"]
        other.load_state_dict(module.state_dict())
        for one, same in zip(batches, other.train_dataloader()):
            np.testing.assert_array_equal(one["sample"], same["sample"])
        self.assertNotEqual(first.tolist(), same["sample"].tolist())

    @unittest.skipIf(fake_torch.IS_REAL, "the example trains with Lightning itself")
    def test_a_wrong_argument_of_a_data_module_is_named(self) -> None:
        ds, made = self.series(), mb.lightning.DataModule
        path: Any = str(ds.path)
        # `'purge' is an invalid keyword argument for split()` was all that it said.
        with self.assertRaisesRegex(mb.ConfigError, r"^dataset='.*expected a dataset: give mb.open\(path\)$"):
            made(path, 64)
        wrong: Any = {"batchsize": 3}
        with self.assertRaisesRegex(TypeError, "^DataModule has no option batchsize; did you mean batch_size?"):
            made(ds, **wrong)
        wrong = {"num_workers": 2}
        with self.assertRaisesRegex(TypeError, "^leave out num_workers, an option of PyTorch's DataLoader"):
            made(ds, **wrong)

    @unittest.skipIf(fake_torch.IS_REAL, "the trainer is made up")
    def test_each_process_of_lightning_has_its_part_of_each_batch(self) -> None:
        ds = self.series()

        def module(rank: int, world: int, batch_size: int = 64) -> Any:
            made: Any = mb.lightning.DataModule(ds, batch_size, seed=3)
            made.trainer = types.SimpleNamespace(global_rank=rank, world_size=world)
            return made

        def samples(loader: Any) -> list[list[int]]:
            return [np.asarray(batch["sample"]).tolist() for batch in loader]

        loaders = ("train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader")
        # The parts have 280, 36 and 36 samples. With 279 and 35 a last batch has fewer than there are processes.
        for world, batch_size in ((2, 64), (3, 64), (3, 279), (2, 35)):
            alone = module(0, 1, batch_size)
            ranks = [module(rank, world, batch_size) for rank in range(world)]
            for name in loaders:
                whole = samples(getattr(alone, name)())
                parts = [samples(getattr(rank, name)()) for rank in ranks]
                self.assertTrue(all(batch for part in parts for batch in part), "no process has an empty batch")
                self.assertEqual(len({len(part) for part in parts}), 1, "all have as many batches")
                joined = [sum(batches, []) for batches in zip(*parts)]
                if name == "train_dataloader":
                    self.assertEqual(joined, whole[: len(joined)])
                    self.assertLess(sum(map(len, whole[len(joined) :])), world)
                else:
                    self.assertEqual(sum(joined, []), sum(whole, []))
        for wrong in (module(0, 4, 3).train_dataloader, module(0, 37).val_dataloader, module(0, 4, 3).test_dataloader):
            with self.assertRaisesRegex(mb.ConfigError, "too few for each to have one"):
                wrong()
        # A place is one of any number of processes.
        one = module(0, 1)
        batches = iter(one.train_dataloader())
        next(batches), next(batches)
        state, rest = one.state_dict(), samples(batches)
        ranks = [module(rank, 2) for rank in range(2)]
        for rank in ranks:
            rank.load_state_dict(state)
        parts = [samples(rank.train_dataloader()) for rank in ranks]
        self.assertEqual([sum(own, []) for own in zip(*parts)], rest)

    @unittest.skipIf(fake_torch.IS_REAL, "a worker is made up with the stand-in only")
    def test_a_worker_is_told_what_to_do(self) -> None:
        fake_torch.Worker.current = object()
        self.addCleanup(setattr, fake_torch.Worker, "current", None)
        with self.assertRaisesRegex(mb.ForkError, "num_workers=0"):
            next(iter(self.series().torch(64)))

    @unittest.skipUnless(fake_torch.IS_REAL, "PyTorch: cargo xtask python test --torch")
    def test_a_tensor_may_be_written_and_touches_nothing_else(self) -> None:
        import torch

        ds = self.series()
        first = next(iter(ds.torch(64)))
        before = ds.loader(64)
        first["M1"].zero_()
        again = next(iter(before))["M1"]
        self.assertTrue(np.any(again != 0))
        loader = torch.utils.data.DataLoader(ds.torch(64), batch_size=None, num_workers=2)
        with self.assertRaisesRegex(Exception, "num_workers=0"):
            next(iter(loader))
        with self.assertRaisesRegex(mb.ConfigError, "give it batch_size=None"):
            next(iter(torch.utils.data.DataLoader(ds.torch(64))))
        plain: Any = ds.loader(64)
        with self.assertRaisesRegex(TypeError, "of a Loader have no numbers: loop over it, without PyTorch's DataLoader"):
            next(iter(torch.utils.data.DataLoader(plain, batch_size=None)))

    @unittest.skipUnless(fake_torch.IS_REAL, "PyTorch: cargo xtask python test --torch")
    def test_a_data_loader_takes_batches_as_they_were_gathered(self) -> None:
        import torch

        ds = self.series()
        own, plain = (list(torch.utils.data.DataLoader(ds, 64, collate_fn=join)) for join in (mb.collate, None))
        self.assertEqual(len(own), len(plain))
        for batch, expected in zip(own, plain):
            self.assertEqual(list(batch), list(expected))
            for key, tensor in batch.items():
                self.assertEqual(tensor.dtype, expected[key].dtype)
                self.assertTrue(torch.equal(tensor, expected[key]), key)
        # Samples by themselves were a sequence without a length.
        apart = list(torch.utils.data.DataLoader(ds, 64, collate_fn=torch.utils.data.default_convert))
        self.assertEqual([len(samples) for samples in apart], [len(batch["sample"]) for batch in own])
        self.assertTrue(torch.equal(apart[0][5]["M1"], own[0]["M1"][5]))
        # Samples of others are joined as before.
        joined = mb.collate([ds[3], ds[5]])
        self.assertTrue(torch.equal(joined["M1"], torch.tensor(ds[[3, 5]]["M1"])))

    @unittest.skipUnless(HAS_TORCHDATA, "torchdata: cargo xtask python test --torch")
    def test_a_stateful_loader_goes_on_where_it_was(self) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        ds = self.series()

        def made() -> Any:
            return StatefulDataLoader(ds.torch(64, shuffle=True, seed=3), batch_size=None, num_workers=0)

        reader = made()
        epochs = [[batch["sample"].tolist() for batch in reader] for _ in range(2)]
        own = made()
        batches = iter(own)
        next(batches), next(batches)
        other = made()
        other.load_state_dict(own.state_dict())
        self.assertEqual([batch["sample"].tolist() for batch in other], epochs[0][2:])
        self.assertEqual([batch["sample"].tolist() for batch in other], epochs[1])

    @unittest.skipUnless(HAS_LIGHTNING, "Lightning: cargo xtask python test --torch")
    def test_a_training_goes_on_in_the_middle_of_an_epoch_without_a_warning(self) -> None:
        self.series(samples=400)
        program = self.folder / "goes_on.py"
        program.write_text(GOES_ON)
        said = subprocess.run([sys.executable, str(program)], cwd=self.folder, timeout=300, capture_output=True, text=True)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertNotIn("resumable", said.stderr)
        seen = json.loads((self.folder / "seen.json").read_text())
        order = mb.open(self.folder / "series-gzip.h5").split()[0].loader(64, shuffle=True, seed=3)
        whole = [batch["sample"].tolist() for _ in range(2) for batch in order]
        self.assertEqual(seen, [whole[:7], whole[7:9]])

    @unittest.skipUnless(HAS_LIGHTNING, "Lightning: cargo xtask python test --torch")
    def test_two_processes_of_lightning_train_on_all_samples_once(self) -> None:
        self.series(samples=400)
        program = self.folder / "two_processes.py"
        program.write_text(TWO_PROCESSES)
        subprocess.run(
            [sys.executable, "-W", "ignore", str(program)], check=True, cwd=self.folder, timeout=300, capture_output=True
        )
        ds = mb.open(self.folder / "series-gzip.h5")
        train, _, _ = ds.split()
        seen = [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in range(2)]
        order = train.loader(64, shuffle=True, seed=3)
        whole = [batch["sample"].tolist() for _ in range(2) for batch in order]
        self.assertEqual([one + other for one, other in zip(*seen)], whole)


MODEL = """
import json
import lightning.pytorch as pl
import megabatch as mb
import torch

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(3, 2), []

    def training_step(self, batch, _):
        self.seen.append(batch["sample"].tolist())
        return (self.layer(batch["M1"][:, -1]) - batch["targets"]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)
"""
GOES_ON = MODEL + """
seen = []
for steps, path in ((7, None), (9, "a.ckpt")):
    model = Model()
    trainer = pl.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=0,
    )
    trainer.fit(model, datamodule=mb.lightning.DataModule(mb.open("series-gzip.h5"), 64, seed=3), ckpt_path=path)
    trainer.save_checkpoint("a.ckpt")
    seen.append(model.seen)
with open("seen.json", "w") as file:
    json.dump(seen, file)
"""
TWO_PROCESSES = MODEL + """
model = Model()
trainer = pl.Trainer(
    max_epochs=2, strategy="ddp", devices=2, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=0,
)
trainer.fit(model, datamodule=mb.lightning.DataModule(mb.open("series-gzip.h5"), 64, seed=3))
with open(f"rank-{trainer.global_rank}.json", "w") as file:
    json.dump(model.seen, file)
"""
