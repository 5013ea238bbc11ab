"""Batches of 128 graphs as PyTorch Geometric has them: from megabatch's file, from PyG's own DataLoader over graphs in memory, and from a folder with a file
of `torch.save` a graph, as users write it in `__getitem__`.

    python3 graph_loading.py GRAPHS.mbg [--batch 128] [--rounds 7] [--epochs 0]

Each side makes five epochs of shuffled batches in turn, and sums a number of each batch. Printed: ms a batch, the median of the rounds, and ratios. With --epochs,
each side makes as many epochs in a process of its own, also with two worker processes: printed is the memory that no other process shares, of the process and its
workers, after the first tenth of the epochs and at their end. PyTorch, PyTorch Geometric and the Python module megabatch are needed.
"""
import argparse
import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from pathlib import Path

import megabatch as mb
import torch
from torch.utils.data import Dataset
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

# Epochs of a side before the next one has its turn.
EPOCHS = 5
# Batches of the slowest side that are timed, in place of these.
FILE_BATCHES = 3


class Files(Dataset):
    """A folder of graphs, read one by one."""

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        return torch.load(self.folder / f"{number}.pt", weights_only=False)


class Mapped(Dataset):
    """The graphs of megabatch's file, one by one."""

    def __init__(self, graphs):
        self.graphs = graphs

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, number):
        return self.graphs.pyg(number)


def own_mib():
    """Memory of this process and its children that they alone have."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    kib = 0
    for process in [str(os.getpid()), *children]:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            kib += int(line.split()[1]) if line.startswith("Private_") else 0
    return kib / 1024


def with_workers(dataset, batch):
    return DataLoader(dataset, batch, shuffle=True, num_workers=2, persistent_workers=True)


# Loaders whose memory is watched, by the graphs of the file, the folder and the size of a batch.
WATCHED = {
    "megabatch": lambda graphs, folder, batch: graphs.loader(batch, shuffle=True, pyg=True),
    "graphs of megabatch's file, 2 workers": lambda graphs, folder, batch: with_workers(Mapped(graphs), batch),
    "graphs in memory, 2 workers": lambda graphs, folder, batch: with_workers([graphs.pyg(k) for k in range(len(graphs))], batch),
    "a file a graph, 2 workers": lambda graphs, folder, batch: with_workers(Files(folder, len(graphs)), batch),
}


def growth(path, folder, name, batch, epochs, answers):
    """Puts the memory of a side early and late in `epochs`."""
    loader, marks = WATCHED[name](mb.graph.open(path), folder, batch), []
    begun = time.perf_counter()
    for epoch in range(1, epochs + 1):
        for each in loader:
            float(each.x[0, 0])
        if epoch in (epochs // 10, epochs):
            marks.append(own_mib())
    answers.put((marks, time.perf_counter() - begun))


def memory(path, folder, batch, epochs):
    print(f"| {epochs} epochs | MiB after {epochs // 10} | MiB at the end | s |\n| --- | ---: | ---: | ---: |")
    context = multiprocessing.get_context("spawn")
    for name in WATCHED:
        answers = context.SimpleQueue()
        process = context.Process(target=growth, args=(path, folder, name, batch, epochs, answers))
        process.start()
        (early, late), seconds = answers.get()
        process.join()
        print(f"| {name} | {early:.1f} | {late:.1f} | {seconds:.0f} |", flush=True)


def ms_a_batch(loader, most):
    begun, batches, total = time.perf_counter(), 0, 0.0
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, EPOCHS)):
        total += float(batch.x[0, 0]) + int(batch.edge_index.shape[1])
        batches += 1
        if batches == most:
            break
    return (time.perf_counter() - begun) * 1e3 / batches


def assert_same(graphs, count):
    """Our first batch is the one that PyG makes of the same graphs."""
    ours = next(iter(graphs.loader(count, pyg=True)))
    theirs = Batch.from_data_list([graphs.pyg(number) for number in range(min(count, len(graphs)))])
    for name in ("x", "edge_index", "edge_attr", "batch", "ptr"):
        assert torch.equal(ours[name], theirs[name]), name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--epochs", type=int, default=0, help="epochs over which memory is watched; 0 for none")
    args = parser.parse_args()
    torch.set_num_threads(2)
    graphs = mb.graph.open(args.graphs)
    assert_same(graphs, args.batch)
    data = [graphs.pyg(number) for number in range(len(graphs))]
    nodes, edges = graphs.sizes.mean(axis=0)
    print(f"{len(graphs)} graphs, in the mean {nodes:.1f} nodes and {edges:.1f} edges; batches of {args.batch}")
    with tempfile.TemporaryDirectory() as folder:
        for number, graph in enumerate(data):
            torch.save(graph, Path(folder) / f"{number}.pt")
        if args.epochs:
            memory(args.graphs, Path(folder), args.batch, args.epochs)
            return
        sides = {
            "megabatch": (graphs.loader(args.batch, shuffle=True, drop_last=True, pyg=True), None),
            "DataLoader over graphs in memory": (DataLoader(data, args.batch, shuffle=True, drop_last=True), None),
            "a file a graph": (DataLoader(Files(Path(folder), len(data)), args.batch, shuffle=True, drop_last=True), FILE_BATCHES),
        }
        rounds = [{name: ms_a_batch(loader, most) for name, (loader, most) in sides.items()} for _ in range(args.rounds)]
    print("| side | ms a batch | times as long, in the rounds |\n| --- | ---: | --- |")
    for name in sides:
        times = [each[name] for each in rounds]
        ratios = sorted(each[name] / each["megabatch"] for each in rounds)
        print(f"| {name} | {statistics.median(times):.3f} | {statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f}) |")


if __name__ == "__main__":
    main()
