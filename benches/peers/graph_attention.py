"""megabatch's graph attention beside PyTorch Geometric's, both in one sitting.

Two layers of GATConv (or GATv2Conv), 4 heads of 64 units with ReLU between them, over a batch of graphs whose nodes receive K edges each; a step is
forward and backward from the loss mean(y^2). The rounds of the two sides alternate, so that a noisy machine disturbs both alike; each side reports
its fastest time. Memory: how far a step raises PyTorch's process above what it holds with the batch and the model, beside the whole of ours.

    cargo build --release -p megabatch-nn-cpu --example graph_attention
    target/peers/bin/python benches/peers/graph_attention.py --program target/release/examples/graph_attention
"""
import argparse
import json
import re
import subprocess
import sys
import warnings

warnings.filterwarnings("ignore")

import torch
from torch_geometric.nn import GATConv, GATv2Conv

from timing import fastest


class Attention(torch.nn.Module):
    def __init__(self, kind, features):
        super().__init__()
        conv = GATv2Conv if kind == "gatv2" else GATConv
        self.first, self.second = conv(features, 64, heads=4), conv(256, 64, heads=4)

    def forward(self, x, edge_index):
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


class TorchSide:
    def __init__(self, args):
        torch.manual_seed(0)
        nodes = args.graphs * args.nodes
        self.x = torch.randn(nodes, args.features)
        rows = torch.arange(nodes).repeat_interleave(args.k)
        # Each node receives from the K that a random number ranks first among the others of its graph.
        chance = torch.rand(args.graphs, args.nodes, args.nodes)
        chance.diagonal(dim1=1, dim2=2).fill_(-1)
        columns = chance.topk(args.k, dim=2).indices.sort(dim=2).values + torch.arange(args.graphs).view(-1, 1, 1) * args.nodes
        self.edge_index = torch.stack([columns.reshape(-1), rows])
        self.model = Attention(args.kind, args.features)

    def forward(self):
        with torch.inference_mode():
            self.model(self.x, self.edge_index)

    def step(self):
        self.model.zero_grad(set_to_none=True)
        self.model(self.x, self.edge_index).square().mean().backward()

    def round(self, repeats):
        return {"forward_s": fastest(repeats, self.forward), "step_s": fastest(repeats, self.step)}


def resident_bytes(which):
    """VmHWM, the peak, or VmRSS, now, of proc_pid_status(5)."""
    with open("/proc/self/status") as status:
        return int(re.search(rf"{which}:\s*(\d+) kB", status.read())[1]) * 1024


def torch_memory(args):
    """How far one step raises this process's memory above where it stands before; printed, for the process that asks."""
    side = TorchSide(args)
    before = resident_bytes("VmRSS")
    side.step()
    print(json.dumps({"step": resident_bytes("VmHWM") - before, "process": resident_bytes("VmHWM")}))


def their_memory():
    done = subprocess.run([sys.executable, *sys.argv, "--memory"], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(done.stderr)


def our_round(args):
    numbers = [args.threads, args.graphs, args.nodes, args.k, args.features, args.repeats]
    command = [args.program, *map(str, numbers), args.kind]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the example graph_attention, a release build")
    parser.add_argument("--kind", choices=("gat", "gatv2"), default="gat")
    parser.add_argument("--graphs", type=int, default=32)
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    torch.set_num_threads(args.threads)
    if args.memory:
        return torch_memory(args)
    torch_side, theirs, ours = TorchSide(args), [], []
    for _ in range(args.rounds):
        theirs.append(torch_side.round(args.repeats))
        ours.append(our_round(args))
    least = lambda rounds, name: min(times[name] for times in rounds)
    shape = f"{args.graphs} graphs of {args.nodes} nodes and {args.k} edges each, {args.features} features"
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {args.kind}, {shape}")
    for what, name in (("forward", "forward_s"), ("forward and backward", "step_s")):
        their_s, our_s = least(theirs, name), least(ours, name)
        answer = {"pass": what, "pyg_ms": round(1e3 * their_s, 2), "megabatch_ms": round(1e3 * our_s, 2)}
        print(json.dumps(answer | {"ratio": round(their_s / our_s, 2)}), flush=True)
    memory, process = their_memory(), least(ours, "peak_rss_bytes")
    answer = {"pyg_process_bytes": memory["process"], "pyg_step_bytes": memory["step"], "megabatch_process_bytes": process}
    answer |= {"megabatch_booked_bytes": least(ours, "booked_bytes"), "process_to_step": round(process / memory["step"], 3)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
