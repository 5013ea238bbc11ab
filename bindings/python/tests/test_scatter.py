"""`megabatch.scatter` beside loops over rows; needs PyTorch: cargo xtask python test --torch."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import unittest
from typing import Any

from fake_torch import IS_REAL as HAS_TORCH

if HAS_TORCH:
    import megabatch as mb
    import torch
    from megabatch import scatter as ms

    FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    INTEGERS = (torch.int32, torch.int64)
    TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5, torch.float64: 1e-12}

needs_torch = unittest.skipUnless(HAS_TORCH, "PyTorch is not installed: cargo xtask python test --torch")


def oracle(reduce: str, src: Any, index: Any, dim: int, size: int, out: Any = None) -> tuple[Any, Any]:
    """Reduction of an index that is as large as `src`, number by number in double precision, and arguments."""
    shape = list(src.shape)
    shape[dim] = size
    start: dict[str, Any] = {"sum": 0, "mean": 0, "mul": 1, "min": math.inf, "max": -math.inf}
    is_float = src.dtype.is_floating_point
    wide = torch.float64 if is_float else torch.int64
    values: Any = torch.full(shape, 0, dtype=wide)
    counts: Any = torch.zeros(shape, dtype=torch.int64)
    arguments: Any = torch.full(shape, src.shape[dim], dtype=torch.int64)
    held: dict[Any, Any] = {}
    for place in itertools.product(*map(range, shape)):
        held[place] = start[reduce] if out is None else out[place].item()
    for place in itertools.product(*map(range, src.shape)):
        to = list(place)
        to[dim] = int(index[place])
        at, x = tuple(to), src[place].item()
        counts[at] += 1
        if reduce in ("sum", "mean"):
            held[at] += x
        elif reduce == "mul":
            held[at] *= x
        elif (x < held[at]) if reduce == "min" else (x > held[at]):
            held[at], arguments[at] = x, place[dim]
    for place, value in held.items():
        if reduce == "mean":
            count = max(int(counts[place]), 1)
            value = value / count if is_float else value // count
        elif reduce in ("min", "max") and math.isinf(value):
            value = 0
        values[place] = value
    return values, arguments


@needs_torch
class Reductions(unittest.TestCase):
    """Every function, type and way of broadcasting."""

    def setUp(self) -> None:
        self.random = torch.Generator().manual_seed(7)

    def numbers(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if dtype in INTEGERS:
            return torch.randint(-4, 5, shape, dtype=dtype, generator=self.random)
        # Numbers that all types have, so that the oracle is told the same.
        return torch.randint(-32, 33, shape, generator=self.random).to(dtype) / 16

    def indices(self, shape: tuple[int, ...], size: int) -> Any:
        return torch.randint(0, max(size, 1), shape, generator=self.random)

    def assert_same(self, found: Any, expected: Any, text: str) -> None:
        self.assertEqual(found.shape, expected.shape, text)
        if found.dtype in INTEGERS:
            self.assertTrue(
                torch.equal(found.long(), expected.to(torch.int32).long() if found.dtype == torch.int32 else expected),
                text,
            )
        else:
            tolerance = TOLERANCE[found.dtype]
            torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance, msg=text)

    def test_an_index_in_any_order(self) -> None:
        shapes = (
            ((12,), (12,), 0),
            ((5, 4), (5,), 0),
            ((2, 6, 3), (6,), 1),
            ((2, 6, 3), (6,), -2),
            ((3, 7), (3, 7), 1),
            ((2, 5, 3), (2, 5), 1),
            ((2, 5, 3), (2, 1, 3), 1),
            ((2, 5, 3), (1, 5, 1), 1),
            ((4, 0), (0,), 1),
            ((0, 3), (0,), 0),
            ((2, 3, 70), (3,), 1),
        )
        for (shape, index_shape, dim), dtype in itertools.product(shapes, (*FLOATS, *INTEGERS)):
            src, index = self.numbers(shape, dtype), self.indices(index_shape, 4)
            at = dim % len(shape)
            full = index.view([-1 if k == at else 1 for k in range(len(shape))]) if index.dim() == 1 else index
            full = full.reshape(list(full.shape) + [1] * (len(shape) - full.dim())).expand(shape)
            out_shape = [4 if k == at else size for k, size in enumerate(shape)]
            for reduce, out in itertools.product(
                ("sum", "mul", "mean", "min", "max"), (None, self.numbers(tuple(out_shape), dtype))
            ):
                text = f"{reduce} {shape} {index_shape} {dim} {dtype} {out is not None}"
                expected, arguments = oracle(reduce, src, full, at, 4, out)
                given = None if out is None else out.clone()
                found = getattr(ms, f"scatter_{reduce}")(src, index, dim, given, 4)
                if reduce in ("min", "max"):
                    self.assertTrue(torch.equal(found[1], arguments), text)
                    found = found[0]
                self.assert_same(found, expected, text)
                if given is not None:
                    self.assertIs(found, given, text)
                self.assertTrue(
                    torch.equal(ms.scatter(src, index, dim, None if out is None else out.clone(), 4, reduce), found),
                    text,
                )

    def test_a_sorted_index_and_offsets(self) -> None:
        for (shape, batch), dtype in itertools.product(
            (((9,), 0), ((9, 3), 0), ((3, 8), 1), ((2, 7, 2), 1)), (*FLOATS, *INTEGERS)
        ):
            src, rows = self.numbers(shape, dtype), shape[batch]
            index = self.indices((*shape[:batch], rows), 5).sort(-1)[0]
            counts = torch.zeros(*shape[:batch], 5, dtype=torch.int64).scatter_add_(-1, index, torch.ones_like(index))
            indptr = torch.cat([counts.new_zeros(*shape[:batch], 1), counts.cumsum(-1)], -1)
            full = index.view([*index.shape] + [1] * (len(shape) - batch - 1)).expand(shape)
            for reduce in ("sum", "mean", "min", "max"):
                expected, arguments = oracle(reduce, src, full, batch, 5)
                if reduce == "mean" and dtype in INTEGERS:
                    sums, ones = (
                        oracle("sum", src, full, batch, 5)[0],
                        oracle("sum", torch.ones_like(src), full, batch, 5)[0],
                    )
                    expected = sums.div(ones.clamp(min=1), rounding_mode="trunc")
                for form, by in (("coo", index), ("csr", indptr)):
                    text = f"{reduce} {form} {shape} {dtype}"
                    extra = (None, 5) if form == "coo" else ()
                    found = getattr(ms, f"segment_{reduce}_{form}")(src, by, *extra)
                    if reduce in ("min", "max"):
                        self.assertTrue(torch.equal(found[1], arguments), text)
                        found = found[0]
                    self.assert_same(found, expected, text)
            values = self.numbers((*shape[:batch], 5, *shape[batch + 1 :]), dtype)
            expected = values.gather(batch, full)
            self.assertTrue(torch.equal(ms.gather_coo(values, index), expected), f"{shape}")
            self.assertTrue(torch.equal(ms.gather_csr(values, indptr), expected), f"{shape}")

    def test_offsets_leave_rows_out(self) -> None:
        src = torch.arange(1.0, 7.0, requires_grad=True)
        out = ms.segment_csr(src, torch.tensor([1, 3, 4]))
        self.assertEqual(out.tolist(), [5, 4])
        out.sum().backward()
        self.assertEqual(src.grad.tolist(), [0, 1, 1, 1, 0, 0])
        two = torch.arange(1.0, 9.0).view(2, 4)
        self.assertEqual(ms.segment_csr(two, torch.tensor([[1, 2, 3], [0, 4, 4]])).tolist(), [[2, 3], [26, 0]])
        self.assertEqual(ms.segment_max_csr(two, torch.tensor([[1, 2, 3], [0, 4, 4]]))[1].tolist(), [[1, 2], [3, 4]])

    def test_sixteen_bits_are_rounded_once(self) -> None:
        for dtype in (torch.float16, torch.bfloat16):
            src, index = torch.full((3000, 2), 1 / 3, dtype=dtype), torch.zeros(3000, dtype=torch.int64)
            exact = src.double().sum(0, keepdim=True)
            self.assertTrue(torch.equal(ms.scatter_sum(src, index, 0), exact.to(dtype)))
            self.assertTrue(torch.equal(ms.scatter_mean(src, index, 0), src[:1]))
            out = torch.full((1, 2), 0.25, dtype=dtype)
            self.assertTrue(torch.equal(ms.scatter_sum(src, index, 0, out), (exact + 0.25).to(dtype)))

    def test_numbers_that_are_none_are_not_hidden(self) -> None:
        nan, inf = math.nan, math.inf
        src, index = torch.tensor([1.0, nan, -inf, -inf]), torch.tensor([0, 0, 1, 1])
        values, arguments = ms.scatter_max(src, index)
        self.assertTrue(values[0].isnan() and values[1] == -inf)
        self.assertEqual(arguments.tolist(), [1, 2])

    def test_softmax_and_its_kin(self) -> None:
        for dtype, columns in itertools.product(FLOATS, (1, 3, 70)):
            src, index = torch.randn(1500, columns, generator=self.random).to(dtype), self.indices((1500,), 40)
            index[:700] = 3
            for segment in range(40):
                rows = src[index == segment].double()
                for name, form in (("scatter_softmax", torch.softmax), ("scatter_log_softmax", torch.log_softmax)):
                    found = getattr(ms, name)(src, index, 0)[index == segment]
                    tolerance = 4 * TOLERANCE[dtype]
                    torch.testing.assert_close(found.double(), form(rows, 0), rtol=tolerance, atol=tolerance)
            sums = ms.scatter_logsumexp(src.double(), index, 0, None, 41)
            expected = torch.stack([src.double()[index == segment].logsumexp(0) for segment in range(40)])
            torch.testing.assert_close(sums[:40], expected)
            self.assertTrue(torch.all(sums[40] == 0))
            stds = ms.scatter_std(src.double(), index, 0)
            expected = torch.stack([src.double()[index == segment].std(0) for segment in range(40)])
            torch.testing.assert_close(stds, expected, rtol=1e-5, atol=1e-5)

    def test_threads_and_order_change_no_bit(self) -> None:
        rows = 60_000
        index, order = self.indices((rows,), 900), torch.randperm(rows, generator=self.random)
        # One segment of several pieces, and of pieces of pieces.
        index[: rows // 2] = 5
        src, x = torch.randn(rows, 7, generator=self.random), torch.randn(
            rows, 7, generator=self.random, dtype=torch.float64
        )
        by_segment = index.sort(stable=True)

        def results(threads: int) -> list[Any]:
            torch.set_num_threads(threads)
            found: list[Any] = []
            for numbers in (src, x):
                leaf = numbers.clone().requires_grad_()
                for reduce in ("sum", "mean", "max", "min", "mul"):
                    out = ms.scatter(leaf, index, 0, reduce=reduce)
                    found += [out.detach(), torch.autograd.grad(out.sin().sum(), leaf)[0]]
                for softmax in (ms.scatter_softmax, ms.scatter_log_softmax):
                    out = softmax(leaf, index, 0)
                    found += [out.detach(), torch.autograd.grad(out.sin().sum(), leaf)[0]]
            return found

        before = torch.get_num_threads()
        self.addCleanup(torch.set_num_threads, before)
        alone = results(1)
        for threads in (2, 5):
            for one, other in zip(alone, results(threads)):
                self.assertTrue(torch.equal(one.nan_to_num(), other.nan_to_num()))
        for reduce in ("sum", "mean", "max"):
            unsorted = ms.scatter(src, index, 0, reduce=reduce)
            self.assertTrue(torch.equal(ms.segment_coo(src[by_segment[1]], by_segment[0], reduce=reduce), unsorted))
        del order


@needs_torch
class Gradients(unittest.TestCase):
    """Against finite differences in double precision."""

    def setUp(self) -> None:
        random = torch.Generator().manual_seed(3)
        self.index = torch.tensor([2, 0, 2, 1, 0, 2, 4])
        # Numbers that are apart, so that no extremum changes hands.
        self.src = (torch.randperm(7 * 3, generator=random).double().view(7, 3) / 5 - 2.1).requires_grad_()
        self.out = (torch.randn(5, 3, generator=random, dtype=torch.float64) + 0.05).requires_grad_()

    def check(self, function: Any, *inputs: Any) -> None:
        self.assertTrue(torch.autograd.gradcheck(function, inputs))
        self.assertTrue(torch.autograd.gradgradcheck(function, inputs))
        # Second derivatives are those of a form that must give the first ones too.
        weighted = function(*inputs).sin().sum()
        first = torch.autograd.grad(weighted, inputs, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(weighted, inputs, create_graph=True), first)

    def test_src_and_out(self) -> None:
        for name in ("sum", "mean", "min", "max", "mul"):

            def with_out(src: Any, out: Any, name: str = name) -> Any:
                found = getattr(ms, f"scatter_{name}")(src, self.index, 0, out.clone())
                return found[0] if isinstance(found, tuple) else found

            with self.subTest(name):
                self.check(lambda src, name=name: ms.scatter(src, self.index, 0, None, 5, name), self.src)
                self.check(with_out, self.src, self.out)

    def test_composites(self) -> None:
        for function in (ms.scatter_softmax, ms.scatter_log_softmax, ms.scatter_logsumexp):
            with self.subTest(function.__name__):
                self.check(lambda src, function=function: function(src, self.index, 0), self.src)
        index = torch.tensor([2, 0, 2, 1, 0, 2, 1])
        self.check(lambda src: ms.scatter_std(src, index, 0), self.src)
        # A segment of one row has a standard deviation of 0, at which a root has no slope.
        gradient = torch.autograd.grad(ms.scatter_std(self.src, torch.tensor([2, 0, 2, 1, 0, 2, 2]), 0).sum(), self.src)[0]
        self.assertTrue(bool(gradient.isfinite().all()))
        self.assertEqual(gradient[3].abs().sum().item(), 0)
        wrong = self.src.detach().clone()
        wrong[3] = torch.nan
        self.assertTrue(bool(ms.scatter_std(wrong, index, 0)[1].isnan().any()))

    def test_sorted_forms(self) -> None:
        index, indptr = torch.tensor([0, 0, 1, 1, 1, 3, 3]), torch.tensor([0, 2, 5, 5, 7])
        for reduce in ("sum", "mean", "min", "max"):
            with self.subTest(reduce):
                self.check(lambda src, reduce=reduce: ms.segment_coo(src, index, reduce=reduce), self.src)
                self.check(lambda src, reduce=reduce: ms.segment_csr(src, indptr, reduce=reduce), self.src)
                batches, offsets = self.src.detach().view(3, 7).requires_grad_(), torch.tensor(
                    [[0, 2, 7], [1, 1, 6], [0, 7, 7]]
                )
                self.check(lambda src, reduce=reduce: ms.segment_csr(src, offsets, reduce=reduce), batches)
        values = self.src.detach()[:4].requires_grad_()
        self.check(lambda src: ms.gather_coo(src, index), values)
        self.check(lambda src: ms.gather_csr(src, indptr), values)

    def test_an_index_of_each_number(self) -> None:
        index = torch.tensor([[2, 0, 1], [0, 0, 1], [2, 2, 0], [1, 0, 1], [0, 1, 0], [2, 0, 2], [1, 1, 1]])
        for name in ("sum", "mean", "min", "max", "mul"):
            self.check(lambda src, name=name: ms.scatter(src, index, 0, None, 3, name), self.src)
        self.check(lambda src: ms.scatter_softmax(src, index, 0), self.src)

    def test_a_factor_of_zero(self) -> None:
        src = torch.tensor([0.0, 3.0, 2.0], requires_grad=True)
        out = ms.scatter_mul(src, torch.tensor([0, 0, 1]))
        self.assertEqual(torch.autograd.grad(out.sum(), src, retain_graph=True)[0].tolist(), [0, 0, 1])
        with self.assertRaisesRegex(RuntimeError, "create_graph"):
            torch.autograd.grad(out.sum(), src, create_graph=True)


if __name__ == "__main__":
    unittest.main()
