"""What a model waits for its graphs: megabatch's file of graphs beside PyTorch Geometric's loaders and rebuilding, all in one sitting.

Graphs of 256 nodes with the 10 nearest by correlation of 60 returns, 128 of them, one batch. PyTorch Geometric's rounds and megabatch's alternate, so
that a noisy machine disturbs both alike; each side reports its fastest time. End to end, a batch of some of the graphs is come by, from PyTorch
Geometric's in-memory loader and by megabatch's offsets, and taken through the same graph attention, forward, and forward and backward. The loop of megabatch is one: a graph an iteration through graph
attention, forward, its edges from a script in Python, from megabatch's own builder, from the file, and from memory.

    cargo build --release -p megabatch
    target/peers/bin/python benches/peers/graph_cache.py --megabatch target/release/megabatch
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")

import torch
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from graph_attention import Attention
from timing import fastest


class InMemory(InMemoryDataset):
    def __init__(self, folder, graphs):
        super().__init__(folder)
        self.data, self.slices = self.collate(graphs)


class TorchSide:
    def __init__(self, args, folder):
        torch.manual_seed(0)
        self.args, self.folder = args, pathlib.Path(folder)
        self.returns = torch.randn(args.graphs, args.nodes, args.window)
        self.receivers = torch.arange(args.nodes).repeat_interleave(args.k)
        features = torch.randn(args.graphs, args.nodes, args.features)
        graphs = []
        for index in range(args.graphs):
            edges, weights = self.rebuild(index)
            graphs.append(Data(x=features[index].clone(), edge_index=edges, edge_attr=weights.unsqueeze(1)))
            torch.save(graphs[-1], self.folder / f"{index}.pt")
        self.in_memory = InMemory(str(self.folder / "pyg"), graphs)
        self.model = Attention("gat", args.features)

    def rebuild(self, index):
        correlations = torch.corrcoef(self.returns[index])
        correlations.fill_diagonal_(-2)
        weights, neighbours = correlations.topk(self.args.k, 1)
        return torch.stack([neighbours.view(-1), self.receivers]), weights.view(-1)

    def load(self, index):
        return torch.load(self.folder / f"{index}.pt", weights_only=False)

    def batch(self):
        return next(iter(DataLoader(self.in_memory, self.args.batch, shuffle=True)))

    def forward(self):
        with torch.inference_mode():
            batch = self.batch()
            self.model(batch.x, batch.edge_index)

    def step(self):
        batch = self.batch()
        self.model.zero_grad(set_to_none=True)
        self.model(batch.x, batch.edge_index).square().mean().backward()

    def end_to_end(self):
        """Fastest seconds from a list of graphs to what the model makes of them."""
        return {"forward": fastest(self.args.repeats, self.forward), "forward and backward": fastest(self.args.repeats, self.step)}

    def round(self):
        """Fastest seconds for a batch of all graphs, by how it is come by."""
        everything = range(self.args.graphs)
        ways = {
            "rebuilt with torch": lambda: [self.rebuild(index) for index in everything],
            "torch.load of a file each": lambda: Batch.from_data_list([self.load(index) for index in everything]),
            "in-memory loader": lambda: next(iter(DataLoader(self.in_memory, self.args.graphs, shuffle=True))),
        }
        return {name: fastest(self.args.repeats, way) for name, way in ways.items()}


def our_round(args):
    script = pathlib.Path(__file__).with_name("rebuild_graph.py")
    sizes = [("nodes", args.nodes), ("k", args.k), ("window", args.window), ("graphs", args.graphs), ("features", args.features)]
    sizes += [("batch", args.batch), ("threads", args.threads)]
    options = [word for name, size in sizes for word in (f"--{name}", str(size))]
    command = [args.megabatch, "graph", "bench", *options, "--repeats", str(args.repeats), "--json"]
    if args.script:
        command += ["--rebuild-with", f"{sys.executable} {script}"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def best(loops):
    return max(loops, key=lambda loop: loop["iterations_per_s"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabatch", required=True, help="a release build of the program")
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--window", type=int, default=60)
    parser.add_argument("--graphs", type=int, default=128)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="graphs of a batch that goes through the model")
    parser.add_argument("--threads", type=int, default=2, help="PyTorch's, and megabatch's but for the model of the loop, which has one")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-script", dest="script", action="store_false", help="without the slow loop of the script")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        theirs, their_steps, torch_side = {}, {}, TorchSide(args, folder)
        ours = []
        for _ in range(args.rounds):
            for name, seconds in torch_side.round().items():
                theirs[name] = min(seconds, theirs.get(name, seconds))
            for name, seconds in torch_side.end_to_end().items():
                their_steps[name] = min(seconds, their_steps.get(name, seconds))
            ours.append(our_round(args))
    batch_us = min(one["batch_topology_us"] for one in ours)
    print(f"a batch of {args.graphs} graphs of {args.nodes} nodes, ms (ratio to megabatch's offsets)")
    for name, seconds in theirs.items():
        print(f"  PyTorch, {name}: {1e3 * seconds:.2f} ({1e6 * seconds / batch_us:,.0f})")
    print(f"  megabatch, offsets of the file: {batch_us / 1e3:.4f}")
    print(f"a batch of {args.batch} graphs through graph attention, ms: PyTorch's in-memory loader, megabatch's offsets, ratio")
    for name, key in (("forward", "batch_forward_s"), ("forward and backward", "batch_step_s")):
        their_s, our_s = their_steps[name], min(one[key] for one in ours)
        print(f"  {name}: {1e3 * their_s:.2f}, {1e3 * our_s:.2f}, {their_s / our_s:.2f}")
    print("validation loop, a graph an iteration: iterations a second, time without a graph")
    names = {"rebuilt_elsewhere": "a Python script", "rebuilt": "built each time", "cached": "the file", "in_memory": "memory"}
    loops = {name: best([one[name] for one in ours]) for name in names if name in ours[0]}
    for name, loop in loops.items():
        rate, waiting = loop["iterations_per_s"], 100 * loop["waiting_share"]
        print(f"  {names[name]}: {rate:.1f}, {waiting:.3f} % ({loops['cached']['iterations_per_s'] / rate:.3f} for the file)")


if __name__ == "__main__":
    main()
