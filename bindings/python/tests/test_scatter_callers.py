"""Who calls `megabatch.scatter`: the compilers of PyTorch, PyTorch Geometric, forked processes and callers who err. Needs
PyTorch: cargo xtask python test --torch."""

from __future__ import annotations

import copy
import importlib.util
import multiprocessing
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from contextlib import ExitStack
from typing import Any
from unittest import mock

from fake_torch import IS_REAL as HAS_TORCH

HAS_PYG = HAS_TORCH and importlib.util.find_spec("torch_geometric") is not None
if HAS_TORCH:
    import megabatch as mb
    import torch
    from megabatch import scatter as ms

needs_torch = unittest.skipUnless(HAS_TORCH, "PyTorch is not installed: cargo xtask python test --torch")
needs_pyg = unittest.skipUnless(HAS_PYG, "PyTorch Geometric is not installed: cargo xtask python test --torch")

needs_checkout = unittest.skipUnless(
    "TORCH_SCATTER" in os.environ, "TORCH_SCATTER is a checkout of torch_scatter, whose tests are run"
)


def run_torch_scatters_tests(prepare: str, environment: dict[str, str]) -> None:
    """Runs the tests of torch_scatter with `megabatch.scatter` in its place, after the code `prepare`."""
    plugin = (
        f"{prepare}\n"
        "import importlib.util, sys\n"
        "from megabatch import scatter\n"
        "scatter.install()\n"
        "place = f'{sys.argv.pop()}/torch_scatter/testing.py'\n"
        "spec = importlib.util.spec_from_file_location('torch_scatter.testing', place)\n"
        "sys.modules['torch_scatter.testing'] = testing = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(testing)\n"
        "import pytest\n"
        "sys.exit(pytest.main(sys.argv[1:]))\n"
    )
    checkout = os.environ["TORCH_SCATTER"]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(pathlib.Path(checkout, "test"), pathlib.Path(folder, "test"))
        options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", "test", checkout]
        subprocess.run([sys.executable, "-c", plugin, *options], check=True, cwd=folder, env=environment)


def counting(method: str, counted: dict[str, int]) -> Any:
    """A method of plans that counts its calls."""
    function = getattr(ms.Plan, method)

    def counted_function(*arguments: Any) -> Any:
        counted[method] = counted.get(method, 0) + 1
        return function(*arguments)

    return counted_function


FUNCTIONS = [
    "scatter_sum",
    "scatter_add",
    "scatter_mul",
    "scatter_mean",
    "scatter_min",
    "scatter_max",
    "scatter",
    "segment_sum_csr",
    "segment_add_csr",
    "segment_mean_csr",
    "segment_min_csr",
    "segment_max_csr",
    "segment_csr",
    "gather_csr",
    "segment_sum_coo",
    "segment_add_coo",
    "segment_mean_coo",
    "segment_min_coo",
    "segment_max_coo",
    "segment_coo",
    "gather_coo",
    "scatter_std",
    "scatter_logsumexp",
    "scatter_softmax",
    "scatter_log_softmax",
]


def example(name: str) -> tuple[Any, Any]:
    """Numbers for a function, and what tells their segments."""
    rows = torch.arange(12.0).view(6, 2).sin()
    if name.startswith("gather"):
        rows = rows[:4]
    if name.endswith("csr"):
        return rows, torch.tensor([0, 2, 2, 4, 6])
    return rows, torch.tensor([0, 0, 2, 2, 3, 3])


def call(name: str, function: Any, src: Any, by: Any, out: Any = None) -> Any:
    """A function along the rows, with as many segments as the example has."""
    if name.startswith("gather") or name.endswith("csr"):
        return function(src, by, out)
    if name.endswith("coo"):
        return function(src, by, out, None if out is not None else 4)
    if "softmax" in name:
        return function(src, by, 0, dim_size=4)
    return function(src, by, 0, out, 4)


def values(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


@needs_torch
class Compilers(unittest.TestCase):
    def test_every_name_of_torch_scatter(self) -> None:
        self.assertEqual(len(FUNCTIONS), 25)
        self.assertLess(set(FUNCTIONS), set(ms.__all__))

    def test_scripted_functions_are_the_same_with_gradients(self) -> None:
        for name in FUNCTIONS:
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                src, by = example(name)
                function = getattr(ms, name)
                scripted = torch.jit.script(function)
                results = []
                for form in (function, scripted, scripted):
                    leaf = src.clone().requires_grad_()
                    found = values(call(name, form, leaf, by))
                    gradient = torch.autograd.grad(found.cos().sum(), leaf)[0]
                    results.append((found.detach(), gradient))
                for found, gradient in results[1:]:
                    self.assertTrue(torch.equal(found, results[0][0]) and torch.equal(gradient, results[0][1]))

    def test_scripted_functions_write_to_out(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scripted = torch.jit.script(ms.scatter_sum)
        src, by = example("scatter_sum")
        out = torch.ones(4, 2)
        scripted(src, by, 0, out)
        self.assertTrue(torch.equal(out, ms.scatter_sum(src, by, 0, torch.ones(4, 2))))

    def test_compiled_graphs_are_whole_and_the_same(self) -> None:
        for name in (
            "scatter_sum",
            "scatter_mean",
            "scatter_mul",
            "scatter_max",
            "scatter_softmax",
            "scatter_log_softmax",
            "scatter_std",
            "scatter_logsumexp",
            "segment_sum_csr",
            "segment_max_csr",
            "segment_mean_coo",
            "gather_coo",
        ):
            with self.subTest(name):
                torch._dynamo.reset()
                src, by = example(name)
                function = getattr(ms, name)
                compiled = torch.compile(
                    lambda src, by, name=name, function=function: call(name, function, src, by),
                    backend="aot_eager",
                    fullgraph=True,
                )
                results = []
                for form in (lambda src, by: call(name, function, src, by), compiled):
                    leaf = src.clone().requires_grad_()
                    found = values(form(leaf, by))
                    results.append((found.detach(), torch.autograd.grad(found.cos().sum(), leaf)[0]))
                torch.testing.assert_close(results[0], results[1])

    def test_operators_keep_their_promises_to_the_compilers(self) -> None:
        src, _ = example("scatter_sum")
        by = torch.tensor([2, 0, 3, 2, 3, 0])
        leaf = src.clone().requires_grad_()
        plan = torch.ops.megabatch.segment_plan(by, 4)
        ops = torch.ops.megabatch
        checked = [
            (ops.segment_plan, (by, 4)),
            (ops.segment_sum, (leaf, 0, by, plan, None)),
            (ops.segment_mean, (leaf, 0, by, plan, torch.ones(4, 2))),
            (ops.segment_mul, (leaf, 0, by, plan, None)),
            (ops.segment_max, (leaf, 0, plan, None)),
            (ops.segment_min, (leaf, 0, plan, None)),
            (ops.segment_gather, (torch.ones(4, 2, requires_grad=True), 0, by, plan)),
            (ops.segment_softmax, (leaf, 0, by, plan, None)),
        ]
        for operator, inputs in checked:
            with self.subTest(str(operator)):
                torch.library.opcheck(operator.default, inputs)

    def test_autocast_leaves_types_alone(self) -> None:
        src, by = example("scatter_sum")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(ms.scatter_sum(src, by, 0).dtype, torch.float32)
            product = src @ torch.eye(2)
            self.assertEqual(ms.scatter_sum(product, by, 0).dtype, torch.bfloat16)

    def test_vmap_is_refused_by_name(self) -> None:
        src, by = example("scatter_sum")
        with self.assertRaisesRegex(mb.ConfigError, "scatter_sum has no rule for torch.vmap"):
            torch.vmap(lambda x: ms.scatter_sum(x, by, 0, None, 4))(src.expand(3, 6, 2))

    def test_derivatives_without_a_rule_are_refused(self) -> None:
        src, by = example("scatter_sum")

        def loss(x: Any) -> Any:
            return ms.scatter_sum(x, by, 0, None, 4).sum()

        for transform in (torch.func.grad, torch.func.jacrev, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))):
            with self.assertRaisesRegex(mb.ConfigError, "scatter_sum has no (rule for transforms|forward)"):
                transform(loss)(src)
        with torch.autograd.forward_ad.dual_level():
            torch.testing.assert_close(loss(src), src.sum())
            with self.assertRaisesRegex(mb.ConfigError, "no forward derivatives"):
                loss(torch.autograd.forward_ad.make_dual(src, src))

    def test_each_operator_has_kernels_for_gpus(self) -> None:
        from megabatch import _scatter_operators as operators

        for name, operator in vars(operators).items():
            if isinstance(operator, operators.Operator):
                registered = operator.registered.name()
                self.assertTrue(torch._C._dispatch_has_kernel_for_dispatch_key(registered, "CUDA"), name)

    def test_shapes_without_numbers(self) -> None:
        src, by = example("scatter_sum")
        self.assertEqual(ms.scatter_sum(src.to("meta"), by.to("meta"), 0, None, 4).shape, (4, 2))


@needs_torch
class Peers(unittest.TestCase):
    @needs_checkout
    def test_the_tests_of_torch_scatter_pass(self) -> None:
        run_torch_scatters_tests("", dict(os.environ))


@needs_torch
class Plans(unittest.TestCase):
    def test_a_plan_gives_the_same_bits(self) -> None:
        index = torch.tensor([3, 0, 3, 1, 0, 3])
        src, plan = torch.arange(24.0).view(2, 6, 2).sin(), ms.Plan(index, 5)
        for name in ("sum", "mean", "mul", "min", "max"):
            found, expected = getattr(plan, name)(src, 1), getattr(ms, f"scatter_{name}")(src, index, 1, None, 5)
            self.assertTrue(
                all(map(torch.equal, *((x if isinstance(x, tuple) else (x,)) for x in (found, expected)))), name
            )
        self.assertTrue(torch.equal(plan.softmax(src, 1), ms.scatter_softmax(src, index, 1)))
        self.assertTrue(torch.equal(plan.log_softmax(src, -2), ms.scatter_log_softmax(src, index, 1)))
        values = torch.randn(5, 3, requires_grad=True)
        gathered = plan.gather(values, 0)
        self.assertTrue(torch.equal(gathered, values[index]))
        gathered.sum().backward()
        self.assertEqual(values.grad[:, 0].tolist(), [2, 1, 0, 3, 0])
        self.assertEqual(repr(plan), "Plan(6 rows, 5 segments)")
        self.assertEqual(ms.Plan(index).dim_size, 4)
        for same in (copy.deepcopy(plan), pickle.loads(pickle.dumps(plan))):
            self.assertTrue(torch.equal(same.sum(src, 1), plan.sum(src, 1)))
        out = torch.ones(5, 2)
        self.assertTrue(torch.equal(plan.sum(src[0], 0, out), 1 + plan.sum(src[0], 0)))

    def test_inference_mode(self) -> None:
        with torch.inference_mode():
            index = torch.tensor([1, 0, 1])
            self.assertEqual(ms.Plan(index).sum(torch.ones(3)).tolist(), [1, 2])
            self.assertEqual(ms.scatter_max(torch.ones(3), index)[1].tolist(), [1, 0])

    def test_other_tensors_are_refused(self) -> None:
        index = torch.tensor([1, 0, 1])
        plan = ms.Plan(index, 2)
        with self.assertRaisesRegex(mb.ConfigError, r"Plan.sum: src is \[4\], and Plan\(3 rows, 2 segments\) wants 3"):
            plan.sum(torch.ones(4))
        with self.assertRaisesRegex(mb.ConfigError, "wants 2 in dimension 0"):
            plan.gather(torch.ones(3))
        index[0] = 0
        with self.assertRaisesRegex(mb.ConfigError, "changed since the plan was made"):
            plan.sum(torch.ones(3))
        with self.assertRaisesRegex(mb.ConfigError, "2 dimensions"):
            ms.Plan(index.view(1, 3))


def in_child(queue: Any, src: Any, index: Any) -> None:
    queue.put(
        ms.scatter_sum(src, index, 0).tolist() if index.numel() < 100 else float(ms.scatter_sum(src, index, 0).sum())
    )


@needs_torch
class Callers(unittest.TestCase):
    def test_bad_input_is_named(self) -> None:
        src, index = torch.ones(4, 2), torch.tensor([0, 1, 1, 2])
        mean = lambda *arguments, **named: ms.scatter_mean(*arguments, **named)  # noqa: E731
        cases: list[tuple[type[Exception], str, Any]] = [
            (mb.DataError, r"index\[3\] is 2, but indices go from 0 to below 2", lambda: mean(src, index, 0, None, 2)),
            (mb.DataError, r"index\[0\] is -1, and no index is negative", lambda: mean(src, index - 1, 0)),
            (mb.DataError, "an index is -1", lambda: mean(src, torch.tensor([[0, 1]] * 3 + [[-1, 0]]), 0)),
            (mb.DataError, "an index is 5", lambda: mean(src, torch.tensor([[0, 1]] * 3 + [[5, 0]]), 0, None, 4)),
            (
                mb.DataError,
                r"index\[2\] is 0, less than the 1",
                lambda: ms.segment_coo(src, torch.tensor([0, 1, 0, 2])),
            ),
            (mb.DataError, r"indptr\[2\] is 1, less than the 2", lambda: ms.segment_csr(src, torch.tensor([0, 2, 1]))),
            (mb.DataError, "indptr ends with 9", lambda: ms.segment_csr(src, torch.tensor([0, 2, 9]))),
            (mb.DataError, r"indptr\[0\] is -3", lambda: ms.segment_csr(src, torch.tensor([-3, 2]))),
            (mb.DataError, "never decrease", lambda: ms.segment_csr(src, torch.tensor([[0, 1]] * 3 + [[1, 0]]))),
            (mb.ConfigError, r"an index of \[3\] does not broadcast to \[4, 2\]", lambda: mean(src, index[:3], 0)),
            (mb.ConfigError, r"does not broadcast", lambda: ms.segment_coo(src, index[:3])),
            (mb.ConfigError, r"does not broadcast", lambda: mean(src, torch.zeros(4, 2, 3, dtype=torch.long), 0)),
            (mb.ConfigError, "the index is torch.int32", lambda: mean(src, index.int(), 0)),
            (mb.ConfigError, "tensors of torch.complex64", lambda: mean(src.to(torch.complex64), index, 0)),
            (mb.ConfigError, "no dimension 2 of a tensor with 2", lambda: mean(src, index, 2)),
            (mb.ConfigError, r"out is \[3, 5\] and src \[4, 2\]", lambda: mean(src, index, 0, torch.ones(3, 5))),
            (
                mb.ConfigError,
                "out is torch.float64 and src torch.float32",
                lambda: mean(src, index, 0, torch.ones(3, 2).double()),
            ),
            (mb.ConfigError, "dim_size is -2", lambda: mean(src, index, 0, None, -2)),
            (mb.ConfigError, "floating-point numbers only", lambda: ms.scatter_softmax(src.int(), index, 0)),
            (
                mb.ConfigError,
                "2 segments in dimension 0 and indptr 3",
                lambda: ms.gather_csr(src[:2], torch.tensor([0, 1, 2, 3])),
            ),
            (mb.DeviceError, "src is on meta, the index on cpu", lambda: mean(src.to("meta"), index, 0)),
            (
                mb.ConfigError,
                "3 dimensions and src 2",
                lambda: ms.segment_csr(src, torch.zeros(1, 1, 2, dtype=torch.long)),
            ),
            (mb.ConfigError, "has 0 dimensions", lambda: ms.segment_coo(src, torch.tensor(0))),
            (ValueError, "reduce is median, none of sum", lambda: ms.scatter(src, index, 0, reduce="median")),
            (ValueError, "for PyTorch's .* amax write mul, min and max", lambda: ms.scatter(src, index, 0, reduce="amax")),
            (ValueError, "amax write min and max", lambda: ms.segment_csr(src, torch.tensor([0, 2]), reduce="amax")),
            (mb.ConfigError, "scatter_mean: index is a list: expected a tensor", lambda: mean(src, [0, 1, 0, 1], 0)),
            (mb.ConfigError, "scatter_mean: index is an int: expected a tensor", lambda: mean(src, 0, 0)),
            (mb.ConfigError, "scatter_mean: src is a ndarray: expected a tensor", lambda: mean(src.numpy(), index, 0)),
            (mb.ConfigError, "segment_sum_csr: indptr is a list", lambda: ms.segment_csr(src, [0, 2])),
            (mb.ConfigError, "gather_csr: indptr is a list", lambda: ms.gather_csr(src, [0, 2])),
            (mb.ConfigError, "Plan: index is a list: expected a tensor", lambda: ms.Plan([0, 1])),
            (mb.ConfigError, "scatter_mean: out is a list: expected a tensor", lambda: mean(src, index, 0, [0.0])),
            (mb.ConfigError, "scatter_softmax: src is a list: expected", lambda: ms.scatter_softmax([0.0], index, 0)),
            (
                mb.ConfigError,
                r"scatter_mean: src is a sparse tensor, torch.sparse_coo: expected a dense one; src.to_dense\(\) makes one",
                lambda: mean(src.to_sparse(), index, 0),
            ),
            (mb.ConfigError, "scatter_mean: index is a sparse tensor", lambda: mean(src, index.to_sparse(), 0)),
            (mb.ConfigError, "gather_csr: indptr is a sparse tensor", lambda: ms.gather_csr(src, index.to_sparse())),
            (mb.ConfigError, "Plan: index is a sparse tensor", lambda: ms.Plan(index.to_sparse())),
            (mb.ConfigError, "Plan.sum: src is a sparse tensor", lambda: ms.Plan(index).sum(src.to_sparse(), 0)),
            (mb.ConfigError, "Plan.softmax: src is a sparse tensor", lambda: ms.Plan(index).softmax(src.to_sparse(), 0)),
            (
                RuntimeError,
                "leaf Variable",
                lambda: ms.scatter_sum(src, index, 0, torch.ones(3, 2, requires_grad=True)),
            ),
        ]
        for kind, text, wrong in cases:
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                wrong()

    def test_empty_dimensions(self) -> None:
        none = torch.tensor([], dtype=torch.int64)
        for shape, dim in (((0, 3), 0), ((3, 0), 0), ((2, 0, 3), 1), ((0, 2, 3), 1), ((2, 3, 0), 1), ((0,), 0)):
            src = torch.zeros(shape, requires_grad=True)
            index = torch.zeros(shape[dim], dtype=torch.int64) if shape[dim] else none
            for name in ("sum", "mean", "mul", "min", "max"):
                out = ms.scatter(src, index, dim, None, 4, name)
                self.assertEqual(out.shape, (*shape[:dim], 4, *shape[dim + 1 :]), (shape, name))
                out.sum().backward()
                self.assertEqual(src.grad.shape, shape)
            full = index.view([-1 if k == dim else 1 for k in range(len(shape))]).expand(shape).contiguous()
            self.assertEqual(ms.scatter_sum(src, full, dim, None, 4).shape, (*shape[:dim], 4, *shape[dim + 1 :]))
            self.assertEqual(ms.scatter_softmax(src, index, dim).shape, shape)
        self.assertEqual(ms.scatter_sum(torch.zeros(0, 3), none, 0).shape, (0, 3))
        self.assertEqual(ms.segment_csr(torch.zeros(0, 3), torch.tensor([0])).shape, (0, 3))
        self.assertEqual(ms.segment_csr(torch.zeros(2, 3), torch.zeros(2, 4, dtype=torch.int64)).shape, (2, 3))
        self.assertEqual(ms.gather_csr(torch.zeros(0, 3), torch.tensor([0])).shape, (0, 3))
        self.assertEqual(ms.gather_coo(torch.zeros(4, 3), none).shape, (0, 3))

    def test_tensors_may_lie_in_any_way(self) -> None:
        src = torch.randn(4, 6)
        index = torch.tensor([[2, 9], [0, 9], [2, 9], [1, 9]])[:, 0]
        for x in (src, src.t().contiguous().t(), src.repeat(2, 2)[::2, ::2][:, :6]):
            expected = torch.zeros(3, x.shape[1]).index_add_(0, index, x)
            torch.testing.assert_close(ms.scatter_sum(x, index, 0), expected)
            out = torch.zeros(x.shape[1], 3).t()
            ms.scatter_sum(x, index, 0, out)
            torch.testing.assert_close(out, expected)

    @unittest.skipUnless(sys.platform == "linux", "processes are forked")
    def test_forked_processes_compute(self) -> None:
        rows = 200_000
        src, index = torch.ones(rows, 4), torch.arange(rows) % 1000
        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)
        torch.set_num_threads(2)
        # The pool is there before the fork.
        self.assertEqual(float(ms.scatter_sum(src, index, 0).sum()), 4.0 * rows)
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = context.Process(target=in_child, args=(queue, src, index))
            child.start()
        self.assertEqual(queue.get(timeout=60), 4.0 * rows)
        child.join(60)
        self.assertEqual(child.exitcode, 0)

    def test_other_default_devices_and_kinds_of_tensors(self) -> None:
        src, by = example("scatter_sum")
        expected = ms.scatter_softmax(src, by, 0)
        with torch.device("meta"):
            leaf = src.clone().requires_grad_()
            self.assertTrue(torch.equal(ms.scatter_softmax(leaf, by, 0), expected))
            gradient = torch.autograd.grad(ms.scatter_max(leaf, by.flip(0), 0)[0].sum(), leaf)[0]
            self.assertEqual(gradient.sum().item(), 6)
        parameter = torch.nn.Parameter(src)
        self.assertTrue(torch.equal(ms.scatter_softmax(parameter, by, 0), expected))

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric is not installed: cargo xtask python test --torch")
    def test_an_index_of_geometric(self) -> None:
        from torch_geometric.index import Index

        src, by = example("scatter_sum")
        leaf = src.clone().requires_grad_()
        found = ms.scatter_mean(leaf, Index(by), 0, None, 4)
        self.assertTrue(torch.equal(found, ms.scatter_mean(src, by, 0, None, 4)))
        self.assertEqual(torch.autograd.grad(found.sum(), leaf)[0].sum().item(), 6)

    def test_memory_stays_flat(self) -> None:
        src, index = torch.ones(1000, 8, requires_grad=True), torch.arange(1000) % 100

        def calls() -> int:
            for _ in range(5000):
                torch.autograd.grad(ms.scatter_max(src, index, 0)[0].sum(), src)
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        calls()
        self.assertLess(calls() - calls(), 4 << 20)

    def test_importing_megabatch_leaves_torch_alone(self) -> None:
        program = (
            "import sys, megabatch; assert 'torch' not in sys.modules; from megabatch import scatter; scatter.Plan"
        )
        subprocess.run([sys.executable, "-c", program], check=True)
        program = "import torch, time, megabatch; t = time.perf_counter(); import megabatch.scatter; print(time.perf_counter() - t)"
        seconds = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
        self.assertLess(float(seconds), 0.5)


@needs_pyg
class Geometric(unittest.TestCase):
    """Layers of PyTorch Geometric with the functions here in place of its own."""

    def losses(self, layer: Any, features: int) -> tuple[float, list[Any]]:
        random = torch.Generator().manual_seed(1)
        x = torch.randn(60, features, generator=random)
        edge_index = torch.randint(0, 60, (2, 400), generator=random)
        loss = layer(x, edge_index).square().mean()
        return loss.item(), list(torch.autograd.grad(loss, list(layer.parameters()), allow_unused=True))

    def test_losses_agree_and_calls_are_counted(self) -> None:
        import torch_geometric.nn as pyg

        degrees = torch.bincount(torch.arange(400) % 7)
        makers = {
            "GAT": lambda: pyg.GATConv(8, 4, heads=3),
            "GIN": lambda: pyg.GINConv(torch.nn.Linear(8, 4)),
            "PNA": lambda: pyg.PNAConv(
                8, 4, ["mean", "min", "max", "std", "sum"], ["identity", "amplification"], degrees
            ),
        }
        for name, make in makers.items():
            with self.subTest(name):
                torch.manual_seed(5)
                layer = make()
                expected, gradients = self.losses(layer, 8)
                counted: dict[str, int] = {}
                with ExitStack() as patches:
                    for method in ("sum", "mean", "min", "max", "softmax"):
                        patches.enter_context(mock.patch.object(ms.Plan, method, counting(method, counted)))
                    with ms.patch_pyg():
                        found, ours = self.losses(layer, 8)
                    self.assertAlmostEqual(found, expected, places=5)
                    for one, other in zip(ours, gradients):
                        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
                    self.assertGreater(sum(counted.values()), 0)
                    if name == "GAT":
                        self.assertEqual(counted.get("softmax"), 1)
                    counted.clear()
                    self.losses(layer, 8)
                    self.assertEqual(counted, {})

    def test_an_index_is_sorted_once_until_it_changes(self) -> None:
        from torch_geometric import utils

        edge_index, src = torch.randint(0, 9, (2, 50)), torch.randn(50, 3)
        counted: dict[str, int] = {}
        with mock.patch.object(ms.Plan, "__init__", counting("__init__", counted)), ms.patch_pyg():
            utils.softmax(src, edge_index[1], num_nodes=9)
            found = utils.scatter(src, edge_index[1], 0, 9)
            self.assertEqual(counted, {"__init__": 1})
            edge_index[1] = 8 - edge_index[1]
            torch.testing.assert_close(utils.scatter(src, edge_index[1], 0, 9), found.flip(0))
            utils.scatter(src, edge_index[0], 0, 9)
            utils.scatter(src, edge_index[0], 0, 10)
        self.assertEqual(counted, {"__init__": 4})

    def test_an_index_in_memory_of_numpy_may_be_written_to(self) -> None:
        import numpy as np
        from torch_geometric import utils

        numbers, src = np.arange(50) % 9, torch.randn(50, 3)
        counted: dict[str, int] = {}
        with mock.patch.object(ms.Plan, "__init__", counting("__init__", counted)), ms.patch_pyg():
            found = utils.scatter(src, torch.from_numpy(numbers), 0, 9)
            utils.scatter(src, torch.from_numpy(numbers), 0, 9)
            self.assertEqual(counted, {"__init__": 1})
            numbers[:] = 8 - numbers
            torch.testing.assert_close(utils.scatter(src, torch.from_numpy(numbers), 0, 9), found.flip(0))
        self.assertEqual(counted, {"__init__": 2})

    def test_the_patch_is_undone_everywhere(self) -> None:
        import torch_geometric.nn.conv.gat_conv as gat
        import torch_geometric.utils as utils

        before = (utils.softmax, gat.softmax, utils.scatter)
        patch = ms.patch_pyg()
        self.assertIsNot(gat.softmax, before[1])
        with self.assertRaisesRegex(mb.ConfigError, "patched already"):
            ms.patch_pyg()
        patch.undo()
        self.assertEqual((utils.softmax, gat.softmax, utils.scatter), before)

    def test_install_comes_before_geometric(self) -> None:
        program = (
            "from megabatch import scatter; scatter.install(); scatter.install(); import torch_scatter, torch_geometric.typing as t; "
            "assert torch_scatter is scatter and t.WITH_TORCH_SCATTER; from torch_scatter.composite import scatter_softmax"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
        program = (
            "import torch_geometric, megabatch as mb; from megabatch import scatter\n"
            "try: scatter.install()\nexcept mb.ConfigError as error: assert 'patch_pyg()' in str(error)\nelse: raise SystemExit(1)"
        )
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


if __name__ == "__main__":
    unittest.main()
