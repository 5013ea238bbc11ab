"""PyTorch's memory from megabatch's pool: the Python side, by a stand-in for PyTorch and one for the native pool. Rust's tests have the pool itself."""

from __future__ import annotations

import pickle
import sys
import unittest
import warnings
from typing import Any
from unittest import mock

import fake_torch
import megabatch as mb
from megabatch import _megabatch
from shared import InFolder

fake_torch.install()

CALLBACKS = ("malloc", "free", "record_stream", "reset", "memory_fraction", "base_alloc", "begin_allocate_to_pool")


class NativePool:
    """The interface of `_megabatch.TorchPool`."""

    def __init__(self, *, stitching: bool, budget: str | None, leave: str) -> None:
        self.settings = (stitching, budget, leave)
        self.said: list[Any] = []
        self.owners = {"torch": 100}
        self.leak: dict[str, Any] | None = None

    def callbacks(self) -> list[tuple[str, int]]:
        return [(name, 1000 + k) for k, name in enumerate(CALLBACKS)]

    def memory(self, device: int) -> dict[str, Any]:
        keys = ("allocated_bytes", "requested_bytes", "reserved_bytes", "inactive_split_bytes", "blocks")
        facts: dict[str, Any] = {key: 10 * k for k, key in enumerate(keys)}
        facts.update({f"{key}_peak": 10 * k + 5 for k, key in enumerate(keys)})
        totals = ("allocations_total", "shortages_total", "stitches_total", "driver_calls_total")
        facts.update({key: 1000 + k for k, key in enumerate(totals)})
        owners = {owner: {"allocated_bytes": size} for owner, size in self.owners.items()}
        return {**facts, "capacity_bytes": 1 << 30, "largest_free_block_bytes": 1 << 20, "owners": owners}

    def epoch(self, device: int) -> dict[str, Any] | None:
        return self.leak

    def snapshot(self, device: int) -> bytes:
        return pickle.dumps({"segments": [device]})

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.said.append((name, *arguments))


@unittest.skipIf(fake_torch.IS_REAL, "PyTorch's own CUDA takes no stand-in")
class Pool(InFolder):
    def setUp(self) -> None:
        super().setUp()
        mb.torch._pool = None
        mb.torch._last_epoch.clear()
        fake_torch.Cuda.is_initialized, fake_torch.Cuda.allocator = False, None
        patch = mock.patch.object(_megabatch, "TorchPool", NativePool)
        patch.start()
        self.addCleanup(patch.stop)

    def use(self, **options: Any) -> NativePool:
        mb.torch.use_pool(**options)
        pool: Any = mb.torch._pool
        return pool

    def test_pytorch_gets_the_functions(self) -> None:
        pool = self.use(budget="4GiB", stitching=False)
        self.assertEqual(pool.settings, (False, "4GiB", str(1 << 30)))
        functions = fake_torch.Cuda.allocator.functions
        self.assertEqual((functions["malloc"], functions["free"]), (1000, 1001))
        self.assertEqual(functions["set_record_stream_fn"], 1002)
        self.assertEqual(functions["set_begin_allocate_to_pool"], 1006)
        fake_torch.Cuda.hooks[-1](None, (), {})
        self.assertEqual(pool.said, [("step",)])

    def test_a_wrong_moment_is_named(self) -> None:
        with self.assertRaisesRegex(mb.ConfigError, "call mb.torch.use_pool"):
            mb.torch.memory_stats()
        fake_torch.Cuda.is_initialized = True
        with self.assertRaisesRegex(mb.ConfigError, "comes too late"):
            mb.torch.use_pool()
        fake_torch.Cuda.is_initialized = False
        import torch

        backends: Any = torch.backends
        with mock.patch.object(backends.cudnn, "benchmark", True), self.assertRaisesRegex(mb.ConfigError, "benchmark"):
            mb.torch.use_pool()
        with mock.patch.object(backends.cuda, "is_built", lambda: False), self.assertRaisesRegex(mb.DeviceError, "without CUDA"):
            mb.torch.use_pool()
        no: Any = "no"
        with self.assertRaisesRegex(mb.ConfigError, "^stitching='no': expected True or False$"):
            mb.torch.use_pool(no)
        unknown: Any = {"bugdet": "4GiB"}
        with self.assertRaisesRegex(TypeError, r"^use_pool\(\) has no option bugdet; did you mean budget\?"):
            mb.torch.use_pool(**unknown)
        self.use()
        with self.assertRaisesRegex(mb.ConfigError, "one pool"):
            mb.torch.use_pool()

    def test_a_machine_without_a_gpu_is_told_so(self) -> None:
        import torch

        error = mb.DeviceError("no driver; install one, or use cpu")
        needs = r"^the pool needs a GPU.* `if torch.cuda.is_available\(\):`$"
        for is_there, text in ((False, needs), (True, "^no driver")):
            with (
                mock.patch.object(_megabatch, "TorchPool", side_effect=error),
                mock.patch.object(torch.cuda, "is_available", lambda: is_there, create=True),
                self.assertRaisesRegex(mb.DeviceError, text),
            ):
                mb.torch.use_pool()
        self.assertIsNone(mb.torch._pool)

    def test_marks_of_a_program_do_nothing_without_a_pool(self) -> None:
        with mock.patch.object(sys.modules["torch"].cuda, "current_device", side_effect=AssertionError("no GPU")):
            with mb.torch.scope("encoder"):
                mb.torch.reset_peak()
            self.assertEqual(mb.torch.epoch(), {})
            trace = mb.torch.trace(self.folder / "t").__enter__
            for told in (mb.torch.memory_summary, mb.torch.memory_snapshot, mb.torch.record, trace):
                with self.assertRaisesRegex(mb.ConfigError, "there is no pool: call mb.torch.use_pool"):
                    told()

    def test_statistics_have_pytorchs_names(self) -> None:
        self.use()
        import torch

        cuda: Any = torch.cuda
        stats = cuda.memory_stats()
        self.assertEqual((stats["allocated_bytes.all.current"], stats["reserved_bytes.all.peak"]), (0, 25))
        self.assertEqual((stats["allocation.all.current"], stats["num_ooms"], stats["stitches"]), (40, 1001, 1002))
        self.assertIn("1.00 GiB", cuda.memory.memory_summary())
        with self.assertRaisesRegex(RuntimeError, r"mb.torch.record\(\)"):
            cuda.memory._record_memory_history()

    def test_devices_are_named_as_pytorch_names_them(self) -> None:
        self.use()
        found = [mb.torch.memory_snapshot(device=device)["segments"] for device in (None, 3, "cuda:2", "cuda")]
        self.assertEqual(found, [[0], [3], [2], [0]])
        path = self.folder / "snapshot.pickle"
        mb.torch.memory_snapshot(path)
        self.assertEqual(pickle.loads(path.read_bytes()), {"segments": [0]})

    def test_scopes_and_traces_end_with_their_blocks(self) -> None:
        pool = self.use()
        with self.assertRaises(ValueError), mb.torch.scope("encoder"), mb.torch.trace("trace.jsonl"):
            raise ValueError
        called = [said[0] for said in pool.said]
        self.assertEqual(called, ["enter_scope", "record", "finish_trace", "leave_scope"])

    def test_growth_is_told_by_owner(self) -> None:
        pool = self.use()
        self.assertEqual(mb.torch.epoch(), {})
        pool.owners = {"torch": 60, "history": 7}
        self.assertEqual(mb.torch.epoch(), {"history": 7, "torch": -40})
        pool.leak = {"owners": [{"owner": "history", "bytes": 300 << 20, "epochs": 3}]}
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.assertEqual(mb.torch.epoch(), {})
        self.assertIn("history by 300.0 MiB in 3 epochs", str(said[0].message))


class NativeErrors(unittest.TestCase):
    def test_a_size_that_is_none_is_refused(self) -> None:
        with self.assertRaisesRegex(mb.ConfigError, "budget: `much` is no amount of memory"):
            _megabatch.TorchPool(stitching=True, budget="much", leave="1GiB")


if __name__ == "__main__":
    unittest.main()
