"""megabatch's operations on segments beside PyTorch's scatter_reduce, both in one sitting.

Rows of float32 numbers are reduced into segments by a random index, on the CPU. The rounds of the two sides alternate, so that a noisy machine
disturbs both alike; each side reports its fastest time, and the ratios are taken of those: with the plan made once, as it is in training
on a graph that stays, and with the plan made anew every time, as PyTorch does.

    cargo build --release -p megabatch-segment --example segment_speed
    target/peers/bin/python benches/peers/segment.py --program target/release/examples/segment_speed
"""
import argparse
import json
import subprocess
import sys

import torch

from timing import fastest

# What ours is made of: the forward pass, and the backward one.
CASES = {
    "sum": ("sum", "gather"),
    "mean": ("mean", "mean_backward"),
    "amax": ("max", "max_backward"),
}


class TorchSide:
    def __init__(self, args):
        torch.manual_seed(0)
        index = torch.randint(args.segments, (args.rows,))
        self.index = (index.sort().values if args.order == "sorted" else index).view(-1, 1).expand(-1, args.columns)
        self.x = torch.rand(args.rows, args.columns) * 2 - 1
        self.zeros = torch.zeros(args.segments, args.columns)
        self.gradient = torch.rand(args.segments, args.columns)

    def forward(self, reduce):
        return self.zeros.scatter_reduce(0, self.index, self.x, reduce, include_self=False)

    def round(self, repeats):
        """Fastest seconds of the forward pass, and of it with the backward pass, for each reduction."""
        times = {}
        for reduce in CASES:
            self.x.requires_grad_(False)
            forward = fastest(repeats, lambda: self.forward(reduce))
            self.x.requires_grad_(True)
            both = fastest(repeats, lambda: torch.autograd.grad(self.forward(reduce), self.x, self.gradient))
            times[reduce] = {"forward": forward, "both": both}
        return times


def our_round(args):
    numbers = [args.rows, args.columns, args.segments, args.threads, args.repeats]
    command = [args.program, *map(str, numbers), args.order]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    times = json.loads(done.stdout)
    pairs = {reduce: {"forward": times[f], "both": times[f] + times[b]} for reduce, (f, b) in CASES.items()}
    return pairs, times["plan"]


def least(rounds):
    return {reduce: {way: min(times[reduce][way] for times in rounds) for way in ("forward", "both")} for reduce in CASES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the example segment_speed, a release build")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--order", choices=("unsorted", "sorted"), default="unsorted")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="timed runs of a round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    torch.set_num_threads(args.threads)
    torch_side, theirs, ours, plans = TorchSide(args), [], [], []
    for _ in range(args.rounds):
        theirs.append(torch_side.round(args.repeats))
        pairs, plan = our_round(args)
        ours.append(pairs)
        plans.append(plan)
    theirs, ours, plan = least(theirs), least(ours), min(plans)
    shape = f"{args.rows} x {args.columns} into {args.segments}, {args.order}"
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {shape}; a plan takes {1e3 * plan:.1f} ms")
    for reduce in CASES:
        for way in ("forward", "both"):
            their_s, our_s = theirs[reduce][way], ours[reduce][way]
            answer = {"reduce": reduce, "pass": way, "pytorch_ms": round(1e3 * their_s, 1), "megabatch_ms": round(1e3 * our_s, 1)}
            answer |= {"ratio": round(their_s / our_s, 2), "ratio_with_plan": round(their_s / (our_s + plan), 2)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
