"""megabatch beside PyTorch on one training step of the same model, both in one sitting.

Forward, mean squared error, backward, clipping to norm 1 and Adam, in float32 on the CPU. The rounds of the two sides alternate,
so that a noisy machine disturbs both alike; each side reports its fastest step, and the ratio is taken of those.

    cargo xtask peers                       # builds megabatch, installs PyTorch under target/, runs this
    cargo xtask peers -- --case multi:64:consecutive    # one case
"""
import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from torch import nn

TIMEFRAMES = (480, 288, 192, 96, 48)
TARGETS = 36
CASES = {
    # model:batch:order, with the order of megabatch's samples; to PyTorch, which computes every window whole, it makes no difference
    "multi:64:consecutive": (TIMEFRAMES, 128),
    "multi:128:consecutive": (TIMEFRAMES, 128),
    "multi:64:shuffled": (TIMEFRAMES, 128),
    "single:128:consecutive": ((360,), 167),
    "single:128:shuffled": ((360,), 167),
}


class MultiTimeframe(nn.Module):
    """One LSTM a timeframe; the last hidden states, side by side, go through one linear layer."""

    def __init__(self, count, features, hidden):
        super().__init__()
        self.lstms = nn.ModuleList(nn.LSTM(features, hidden, batch_first=True) for _ in range(count))
        self.head = nn.Linear(count * hidden, TARGETS)

    def forward(self, windows):
        last = [lstm(x)[1][0][-1] for lstm, x in zip(self.lstms, windows)]
        return self.head(torch.cat(last, dim=1))


class TorchSide:
    """A training step in PyTorch on materialised windows."""

    def __init__(self, lengths, features, batch, hidden):
        torch.manual_seed(0)
        self.model = MultiTimeframe(len(lengths), features, hidden)
        self.windows = [torch.randn(batch, length, features) for length in lengths]
        self.targets = torch.randn(batch, TARGETS)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(self.model(self.windows), self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def fastest_step_s(self, count):
        times = []
        for _ in range(count):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return min(times)


def megabatch_round(program, case, args):
    """One run of `megabatch bench train`; its answer as a dictionary."""
    model, batch, order = case.split(":")
    command = [program, "--json", "bench", "train", "--model", model, "--batch", batch, "--features", str(CASES[case][1])]
    command += ["--hidden", str(args.hidden), "--threads", str(args.threads), "--steps", str(args.steps)]
    command += ["--shuffled"] if order == "shuffled" else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def compare(case, args):
    lengths, features = CASES[case]
    batch = int(case.split(":")[1])
    torch_side = TorchSide(lengths, features, batch, args.hidden)
    torch_side.step()
    theirs, ours = [], []
    for _ in range(args.rounds):
        theirs.append(batch / torch_side.fastest_step_s(args.steps))
        ours.append(megabatch_round(args.megabatch, case, args))
    best = max(ours, key=lambda answer: answer["samples_per_s"])
    return {
        "case": case,
        "pytorch_samples_per_s": round(max(theirs), 1),
        "megabatch_samples_per_s": round(best["samples_per_s"], 1),
        "ratio": round(best["samples_per_s"] / max(theirs), 3),
        "pytorch_peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "megabatch_peak_rss_bytes": best["peak_rss_bytes"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, help="the program, a release build")
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="default: all")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep-denormals", action="store_true", help="leave PyTorch's default, by which vanishing gradients become subnormal")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    # Gradients that vanish over hundreds of steps become subnormal numbers, which cost many times as much on some processors. PyTorch
    # does not flush them unless asked. It is asked here, before its threads start, so that the comparison is with PyTorch at its best.
    torch.set_flush_denormal(not args.keep_denormals)
    torch.set_num_threads(args.threads)
    denormals = "subnormal numbers kept" if args.keep_denormals else "subnormal numbers flushed"
    print(f"PyTorch {torch.__version__}, {denormals}, {args.threads} threads, H = {args.hidden}, fastest of {args.rounds * args.steps} steps")
    for case in args.case or CASES:
        print(json.dumps(compare(case, args)), flush=True)


if __name__ == "__main__":
    main()
