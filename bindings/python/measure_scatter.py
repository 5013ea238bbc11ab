"""`megabatch.scatter` beside the fastest forms of the same in PyTorch, beside the native calls alone, and in an epoch of
PyTorch Geometric's GAT. Two threads; sides take turns within a round, and the fastest round counts.

`cargo xtask python measure --scatter [ROUNDS [ROWS]]`
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import megabatch.scatter as ms
import torch
from megabatch import _megabatch
from megabatch import _scatter_kernels as kernels
from torch import Tensor

COLUMNS = 64
GRAPHS, BATCH, NODES, EDGES = 4110, 64, 30, 65
"""Molecules as many and as large as those of NCI1, on average."""

Side = Callable[[], object]


def best(sides: dict[str, Side], rounds: int) -> dict[str, float]:
    """Seconds of each side in its fastest round."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            times[name].append(time.perf_counter() - start)
    return {name: min(seconds) for name, seconds in times.items()}


def trained(function: Callable[[Tensor], Tensor], src: Tensor) -> Side:
    """Forward and backward."""
    leaf = src.detach().requires_grad_()
    grad = torch.ones_like(function(src))

    def side() -> None:
        leaf.grad = None
        function(leaf).backward(grad)

    return side


def reductions(rounds: int, rows: int) -> None:
    """Forward and backward of rows in random order, ten a segment."""
    segments = rows // 10
    src, index = torch.randn(rows, COLUMNS), torch.randint(0, segments, (rows,))
    index[0] = segments - 1
    plan, full, shape = ms.Plan(index, segments), index.view(-1, 1).expand(-1, COLUMNS), (segments, COLUMNS)

    def reduced(x: Tensor, reduce: str) -> Tensor:
        return x.new_zeros(shape).scatter_reduce_(0, full, x, reduce, include_self=False)

    def added(x: Tensor) -> Tensor:
        return x.new_zeros(shape).index_add_(0, index, x)

    def softmax(x: Tensor, add: Callable[[Tensor], Tensor]) -> Tensor:
        exponentials = (x - reduced(x.detach(), "amax").index_select(0, index)).exp()
        return exponentials / (add(exponentials) + 1e-16).index_select(0, index)

    def scatter_added(x: Tensor) -> Tensor:
        return x.new_zeros(shape).scatter_add_(0, full, x)

    counts = torch.bincount(index, minlength=segments).clamp(min=1).view(-1, 1)
    forms: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], dict[str, Any], int]] = {
        "sum": (
            lambda x: ms.scatter_sum(x, index, 0),
            lambda x: plan.sum(x, 0),
            {"index_add_": added, "scatter_add_": scatter_added},
            2,
        ),
        "mean": (
            lambda x: ms.scatter_mean(x, index, 0),
            lambda x: plan.mean(x, 0),
            {"index_add_ / counts": lambda x: added(x) / counts, "scatter_reduce": lambda x: reduced(x, "mean")},
            2,
        ),
        "max": (
            lambda x: ms.scatter_max(x, index, 0)[0],
            lambda x: plan.max(x, 0)[0],
            {"scatter_reduce": lambda x: reduced(x, "amax")},
            5,
        ),
        "softmax": (
            lambda x: ms.scatter_softmax(x, index, 0),
            lambda x: plan.softmax(x, 0),
            {
                "PyG's form, scatter_add_": lambda x: softmax(x, scatter_added),
                "PyG's form, index_add_": lambda x: softmax(x, added),
            },
            3,
        ),
    }
    print(f"| {rows:,} x {COLUMNS} into {segments:,} | ms | with a Plan | fastest of PyTorch | ms | ratio | goal |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: |")
    for name, (ours, planned, theirs, goal) in forms.items():
        sides = {"ours": trained(ours, src), "plan": trained(planned, src)}
        sides.update({peer: trained(form, src) for peer, form in theirs.items()})
        found = best(sides, rounds)
        peer = min(theirs, key=lambda peer: found[peer])
        cells = (f"{found['ours'] * 1e3:.0f}", f"{found['plan'] * 1e3:.0f}", peer, f"{found[peer] * 1e3:.0f}")
        print(f"| {name} | {' | '.join(cells)} | {found[peer] / found['ours']:.1f} | {goal} |", flush=True)


def calls(rounds: int, rows: int) -> None:
    """The function beside the two native calls that it makes, results allocated by both."""
    print("\n| scatter_sum | Python, µs | native, µs | | goal |\n| --- | ---: | ---: | ---: | ---: |")
    for rows, columns, repeats in ((rows, COLUMNS, 1), (1000, 8, 5000)):
        segments = rows // 10
        src, index = torch.randn(rows, columns), torch.randint(0, segments, (rows,))

        def native() -> Tensor:
            plan, out = torch.empty(segments + 2 + rows, dtype=torch.int32), torch.empty(segments, columns)
            threads = torch.get_num_threads()
            _megabatch.scatter_plan(index.data_ptr(), rows, segments, plan.data_ptr(), threads)
            kind = kernels.KINDS[src.dtype]
            call = _megabatch.TensorSegments(plan.data_ptr(), segments, 1, rows, columns, kind, threads)
            call.fold(kernels.SUM, src.data_ptr(), 0, out.data_ptr())
            return out

        def repeated(side: Side) -> Side:
            return lambda: [side() for _ in range(repeats)]

        sides = {"python": repeated(lambda: ms.scatter_sum(src, index, 0, None, segments)), "native": repeated(native)}
        found = {name: seconds / repeats * 1e6 for name, seconds in best(sides, 3 * rounds).items()}
        python, alone = found["python"], found["native"]
        last = f"{alone / python:.2f} | 0.9" if repeats == 1 else f"{python - alone:.1f} µs more | 15 µs"
        print(f"| {rows:,} x {columns} | {python:,.1f} | {alone:,.1f} | {last} |", flush=True)


def attention(rounds: int) -> None:
    """An epoch of a GAT on molecules, and the share of `scatter` and `softmax` in it: those of the epoch once more, alone."""
    import torch_geometric.nn as pyg
    import torch_geometric.utils as utils
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader

    torch.manual_seed(0)
    graphs = []
    for _ in range(GRAPHS):
        nodes = int(torch.randint(NODES - 10, NODES + 11, ()))
        edges = torch.randint(0, nodes, (2, EDGES * nodes // NODES))
        graphs.append(Data(x=torch.randn(nodes, 37), edge_index=edges, y=torch.randint(0, 2, (1,))))
    batches = list(DataLoader(graphs, BATCH))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([pyg.GATConv(37, 16, heads=4), pyg.GATConv(64, 16, heads=4)])
            self.head = torch.nn.Linear(64, 2)

        def forward(self, batch: Any) -> Tensor:
            x = batch.x
            for layer in self.layers:
                x = layer(x, batch.edge_index).relu()
            scores: Tensor = self.head(pyg.global_mean_pool(x, batch.batch, batch.num_graphs))
            return scores

    model = Model()
    optimizer = torch.optim.Adam(model.parameters())

    def epoch() -> None:
        for batch in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()

    recorded: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    depth = 0

    def recording(name: str, function: Any) -> Any:
        def record(*arguments: Any, **named: Any) -> Any:
            # PyG's softmax calls its scatter, which is part of it.
            nonlocal depth
            if depth == 0:
                recorded.append((name, arguments, named))
            depth += 1
            try:
                return function(*arguments, **named)
            finally:
                depth -= 1

        return record

    originals = {"scatter": utils.scatter, "softmax": utils.softmax}
    from megabatch._scatter_peers import _replace

    wrapped = {name: recording(name, function) for name, function in originals.items()}
    for name, function in originals.items():
        _replace(name, function, wrapped[name])
    epoch()
    for name, function in originals.items():
        _replace(name, wrapped[name], function)

    def alone(functions: dict[str, Any]) -> None:
        for name, (src, *rest), named in recorded:
            leaf = src.detach().requires_grad_(src.requires_grad)
            out = functions[name](leaf, *rest, **named)
            if out.requires_grad:
                out.backward(out.detach())

    def patched(side: Side) -> Side:
        def run() -> None:
            with ms.patch_pyg():
                side()

        return run

    sides: dict[str, Side] = {
        "PyG": epoch,
        "patched": patched(epoch),
        "PyG alone": lambda: alone({"scatter": utils.scatter, "softmax": utils.softmax}),
        "patched alone": patched(lambda: alone({"scatter": utils.scatter, "softmax": utils.softmax})),
    }
    found = best(sides, rounds)
    print(f"\n| GAT, {GRAPHS:,} molecules | epoch, s | scatter and softmax, s | share |\n| --- | ---: | ---: | ---: |")
    for name in ("PyG", "patched"):
        whole, part = found[name], found[f"{name} alone"]
        print(f"| {name} | {whole:.2f} | {part:.2f} | {part / whole:.0%} |", flush=True)


def import_and_memory() -> None:
    """Time of the import beyond PyTorch's, and memory over 10,000 calls."""
    program = "import torch, time, megabatch; t = time.perf_counter(); import megabatch.scatter; print(time.perf_counter() - t)"
    seconds = min(
        float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    )
    src, index = torch.randn(1000, 8, requires_grad=True), torch.randint(0, 100, (1000,))

    def many(count: int) -> int:
        for _ in range(count):
            torch.autograd.grad(ms.scatter_softmax(src, index, 0).sum(), src)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = many(2000)
    print(f"\nimport beyond torch's and megabatch's: {seconds:.3f} s (goal 0.1)")
    print(f"10,000 calls, forward and backward: the peak of memory grows by {many(10_000) - before} kB")


def main() -> None:
    rounds, rows = (int(sys.argv[n]) if len(sys.argv) > n else default for n, default in ((1, 7), (2, 1_000_000)))
    torch.set_num_threads(2)
    torch.manual_seed(0)
    reductions(rounds, rows)
    calls(rounds, rows)
    attention(rounds)
    import_and_memory()


if __name__ == "__main__":
    main()
