"""Training on graphs beside PyTorch Geometric: the same model from the same weights, loss by epoch.

Graphs lie in the file sorted by class, as public sets often do: an order that keeps neighbours
together then learns hardly anything. Both sides have the default settings, all graphs to train on,
and the weights that PyTorch Geometric draws; what differs is the order of the graphs and the order
of sums. The losses of the last epoch, in the mean over seeds, may be APART_MAX apart.

The sets are PROTEINS of `$MEGABATCH_DATA/graphs/dgcnn_txt`, where that is, and graphs that a seed
makes.

    cargo xtask peers graph-training     # builds megabatch, installs PyTorch under target/, runs this
"""
import argparse
import gzip
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, global_mean_pool

from parity import Stage, require

APART_MAX = 0.03


class Graph:
    """Labels of nodes, pairs of nodes that are joined, and a class."""

    def __init__(self, labels, pairs, kind):
        self.labels, self.pairs, self.kind = labels, pairs, kind


def proteins(folder):
    """The graphs of PROTEINS.txt.gz: a line a node with its label, its number of neighbours and these."""
    with gzip.open(folder / "PROTEINS.txt.gz", "rt") as text:
        lines = (list(map(int, line.split())) for line in text if line.strip())
        (count,) = next(lines)
        graphs = []
        for _ in range(count):
            size, kind = next(lines)
            nodes = [next(lines) for _ in range(size)]
            pairs = {(k, neighbour) for k, node in enumerate(nodes) for neighbour in node[2:]}
            # Some list an edge at one of its ends alone.
            pairs |= {(to, origin) for origin, to in pairs}
            graphs.append(Graph([node[0] for node in nodes], sorted(pairs), kind))
        return graphs


def made_up(seed, count):
    """Two classes that differ in the odds of a node's label and of an edge, so that they overlap."""
    chance, graphs = random.Random(seed), []
    for number in range(count):
        kind, size = number % 2, chance.randint(10, 30)
        odds = [(5, 3, 2), (4, 3, 3)][kind]
        labels = chance.choices(range(3), odds, k=size)
        edge = [0.14, 0.17][kind]
        joined = [(a, b) for a in range(size) for b in range(a) if chance.random() < edge]
        graphs.append(Graph(labels, sorted(joined + [(b, a) for a, b in joined]), kind))
    return graphs


def write_tu(graphs, folder, name):
    """A TU dataset, sorted by class."""
    edges, owners, node_labels, first = [], [], [], 1
    graphs = sorted(graphs, key=lambda graph: graph.kind)
    for number, graph in enumerate(graphs, 1):
        edges += [f"{first + a}, {first + b}" for a, b in graph.pairs]
        owners += [str(number)] * len(graph.labels)
        node_labels += map(str, graph.labels)
        first += len(graph.labels)
    parts = {"A": edges, "graph_indicator": owners, "node_labels": node_labels}
    parts["graph_labels"] = [str(graph.kind) for graph in graphs]
    folder.mkdir()
    for part, lines in parts.items():
        (folder / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")


def settings(path):
    """The settings of a run's config.yaml, which has two levels of plain values."""
    found, section = {}, ""
    for line in pathlib.Path(path).read_text().splitlines():
        match = re.match(r"( *)([a-z0-9_]+): *(.*)", line)
        if match and not match[1] and not match[3]:
            section = match[2] + "."
        elif match:
            found[(section if match[1] else "") + match[2]] = match[3].strip('"')
    return found


class Attention(torch.nn.Module):
    """What the default settings describe, with the names of our tensors."""

    def __init__(self, features, classes, config):
        super().__init__()
        heads, units = int(config["model.graph_heads"]), int(config["model.graph_hidden"])
        widths = [features] + [heads * units] * int(config["model.graph_layers"])
        self.graph = torch.nn.ModuleList(GATConv(width, units, heads=heads) for width in widths[:-1])
        self.head = torch.nn.Linear(widths[-1], classes)

    def forward(self, batch):
        x = batch.x
        for number, layer in enumerate(self.graph):
            x = layer(torch.nn.functional.elu(x) if number else x, batch.edge_index)
        return self.head(global_mean_pool(x, batch.batch))


def require_defaults(config):
    """What the model above takes for granted."""
    for key, expected in {
        "model.graph_attention": "gat",
        "model.graph_activation": "elu",
        "model.graph_output": "linear",
        "model.graph_residual": "false",
        "model.graph_dropout": "0",
        "training.optimizer": "adamw",
        "training.lr_schedule": "constant",
    }.items():
        require(config[key] == expected, f"the default of {key} is {config[key]}, expected {expected}")


def graphs_of(tensors):
    """The graphs of a file that `graph export --format edge-index` wrote."""
    bounds, graphs = tensors["ptr"].tolist(), []
    origin = tensors["edge_index"][0]
    graph_of = torch.bucketize(origin, tensors["ptr"], right=True) - 1
    for number, (first, end) in enumerate(zip(bounds, bounds[1:])):
        edges = tensors["edge_index"][:, graph_of == number] - first
        kind = tensors["y"].reshape(len(bounds) - 1, -1)[number].argmax()
        graphs.append(Data(x=tensors["x"][first:end], edge_index=edges, y=kind.reshape(1)))
    return graphs


def their_losses(model, graphs, config, seed):
    """Mean loss of each epoch."""
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=float(config["training.lr"]),
        betas=(float(config["training.beta1"]), float(config["training.beta2"])),
        eps=float(config["training.epsilon"]),
        weight_decay=float(config["training.weight_decay"]),
    )
    batch_size = int(config["gpu_optimization.batch_size"])
    loader = DataLoader(graphs, batch_size, shuffle=True, generator=torch.Generator().manual_seed(seed))
    losses = []
    for _ in range(int(config["training.epochs"])):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch), batch.y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), float(config["training.clip_norm"]))
            optimizer.step()
            total += loss.item() * batch.num_graphs
        losses.append(total / len(graphs))
    return losses


def our_losses(stage, run):
    """Mean loss of each epoch of a run, from its log."""
    sums = {}
    for line in pathlib.Path(stage.path(f"{run}/metrics.jsonl")).read_text().splitlines():
        step = json.loads(line)
        if step["event"] == "step":
            loss, samples = sums.get(step["epoch"], (0.0, 0))
            sums[step["epoch"]] = (loss + step["loss"] * step["samples"], samples + step["samples"])
    return [loss / samples for _, (loss, samples) in sorted(sums.items())]


def compare(stage, name, graphs, args):
    write_tu(graphs, pathlib.Path(stage.path(name)), name.upper())
    stage.run(f"graph build {name} --kind tu --out {name}.mbg")
    stage.run(f"graph export {name}.mbg --format edge-index --out {name}.safetensors")
    tensors = load_file(stage.path(f"{name}.safetensors"))
    theirs_graphs = graphs_of(tensors)
    features, classes = tensors["x"].shape[1], tensors["y"].reshape(len(theirs_graphs), -1).shape[1]
    more = " ".join(f"--set {setting}" for setting in ["data.split=[1,0,0]", f"training.threads={args.threads}", *args.set])
    # Two steps, for the settings alone.
    stage.run(f"train --data {name}.mbg --out {name}-defaults --max-steps 2 {more}")
    config = settings(stage.path(f"{name}-defaults/config.yaml"))
    require_defaults(config)
    ours, theirs, seconds = [], [], [0.0, 0.0]
    for seed in range(args.seeds):
        torch.manual_seed(seed)
        model = Attention(features, classes, config)
        save_file(model.state_dict(), stage.path("init.safetensors"))
        run, started = f"{name}-{seed}", time.perf_counter()
        stage.run(f"train --data {name}.mbg --out {run} --init init.safetensors --set training.seed={seed} {more}")
        ours.append(our_losses(stage, run))
        seconds[0] += time.perf_counter() - started
        started = time.perf_counter()
        theirs.append(their_losses(model, theirs_graphs, config, seed))
        seconds[1] += time.perf_counter() - started
    mean = lambda runs: [sum(losses) / len(runs) for losses in zip(*runs)]
    ours, theirs = mean(ours), mean(theirs)
    for epoch, (our, their) in enumerate(zip(ours, theirs), 1):
        answer = {"data": name, "epoch": epoch, "pyg_loss": round(their, 4), "megabatch_loss": round(our, 4)}
        print(json.dumps(answer), flush=True)
    apart = ours[-1] / theirs[-1] - 1
    answer = {"data": name, "graphs": len(theirs_graphs), "seeds": args.seeds, "apart": round(apart, 4)}
    print(json.dumps(answer | {"megabatch_s": round(seconds[0], 1), "pyg_s": round(seconds[1], 1)}))
    require(abs(apart) <= APART_MAX, f"{name}: the last epoch's loss is {ours[-1]:.4f}, PyTorch Geometric's {theirs[-1]:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, help="the program, a release build")
    parser.add_argument("--data", type=pathlib.Path, help="folder with PROTEINS.txt.gz")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], help="a setting of ours in place of the default")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    torch.set_num_threads(args.threads)
    public = os.environ.get("MEGABATCH_DATA")
    folder = args.data or (pathlib.Path(public) / "graphs/dgcnn_txt" if public else None)
    with tempfile.TemporaryDirectory() as temporary:
        stage = Stage(args.megabatch, temporary)
        if folder and (folder / "PROTEINS.txt.gz").exists():
            compare(stage, "proteins", proteins(folder), args)
        else:
            print("PROTEINS is left out: MEGABATCH_DATA or --data names no folder that has it")
        compare(stage, "made_up", made_up(0, 1200), args)


if __name__ == "__main__":
    main()
