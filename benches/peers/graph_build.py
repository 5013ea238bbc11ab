"""megabatch's correlation graphs beside PyTorch's, both in one sitting.

Each graph joins nodes with the k whose series of normal numbers correlate most with their own, on the CPU. PyTorch makes it as users do: one graph at a
time by `corrcoef` and `topk`, and all at once by a batched product and `topk`, which needs graphs of one size. The rounds of the two sides alternate, so
that a noisy machine disturbs both alike; each side reports its fastest time. megabatch's sums are in double precision, PyTorch's in single.

    cargo build --release -p megabatch-graph-cache --example build_speed
    target/peers/bin/python benches/peers/graph_build.py --program target/release/examples/build_speed --threads 1
"""
import argparse
import json
import sys

import torch

from timing import answer_of, fastest, least


class TorchSide:
    def __init__(self, args):
        torch.manual_seed(0)
        self.k = args.k
        self.x = torch.randn(args.graphs, args.nodes, args.window)
        self.receivers = torch.arange(args.nodes).repeat_interleave(args.k)

    def one(self, x):
        c = torch.corrcoef(x).fill_diagonal_(-2)
        values, columns = c.topk(self.k, 1)
        return torch.stack([columns.view(-1), self.receivers]), values.view(-1)

    def loop(self):
        return [self.one(x) for x in self.x]

    def batched(self):
        graphs, nodes, _ = self.x.shape
        z = self.x - self.x.mean(2, keepdim=True)
        z = z / z.norm(dim=2, keepdim=True)
        c = torch.bmm(z, z.transpose(1, 2))
        c.diagonal(dim1=1, dim2=2).fill_(-2)
        values, columns = c.topk(self.k, 2)
        offsets = (torch.arange(graphs) * nodes).view(graphs, 1, 1)
        receivers = self.receivers.view(1, nodes, self.k) + offsets
        return torch.stack([(columns + offsets).view(-1), receivers.reshape(-1)]), values.view(-1)

    def round(self, repeats):
        return {
            "one": fastest(repeats, lambda: self.one(self.x[0])),
            "loop": fastest(repeats, self.loop),
            "batched": fastest(repeats, self.batched),
        }


def our_round(args):
    return answer_of(args.program, [args.nodes, args.window, args.k, args.graphs, args.threads, args.repeats])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the example build_speed, a release build")
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--window", type=int, default=60)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--graphs", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of a round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    torch.set_num_threads(args.threads)
    torch_side, theirs, ours = TorchSide(args), [], []
    for _ in range(args.rounds):
        theirs.append(torch_side.round(args.repeats))
        ours.append(our_round(args))
    theirs, ours = least(theirs), least(ours)
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {args.graphs} graphs of {args.nodes} nodes, window {args.window}, k {args.k}")
    pairs = [("one", "one"), ("loop", "loop"), ("loop", "parallel"), ("batched", "parallel"), ("batched", "days")]
    for their, our in pairs:
        answer = {"pytorch": their, "megabatch": our, "pytorch_ms": round(1e3 * theirs[their], 3), "megabatch_ms": round(1e3 * ours[our], 3)}
        print(json.dumps(answer | {"ratio": round(theirs[their] / ours[our], 2)}), flush=True)


if __name__ == "__main__":
    main()
