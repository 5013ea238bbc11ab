"""The PyTorch side of lstm_step.py: one shape of model, trained or predicted with in a process of its own, answered as JSON.

    python lstm_torch.py --case train:multi:64:consecutive [--hidden 128] [--layers 1] [--once] [--steps 3] [--threads 2]
                         [--precision fp32 | autocast | bf16]

Windows are materialised, as frameworks want them. `--once` encodes each distinct window once, by the samples of `minutes` below that share it, and copies
its last state to them: what a careful user could write without leaving PyTorch.
"""
import argparse
import json
import resource
import time

import torch
from torch import nn

from lstm_shapes import SHAPES, TARGETS, case_of


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class MultiTimeframe(nn.Module):
    """One LSTM a timeframe; the last hidden states, side by side, go through one linear layer."""

    def __init__(self, count, features, hidden, layers):
        super().__init__()
        self.lstms = nn.ModuleList(nn.LSTM(features, hidden, layers, batch_first=True) for _ in range(count))
        self.head = nn.Linear(count * hidden, TARGETS)

    def forward(self, windows, of_sample):
        last = [lstm(x)[1][0][-1] for lstm, x in zip(self.lstms, windows)]
        if of_sample is not None:
            last = [states[index] for states, index in zip(last, of_sample)]
        return self.head(torch.cat(last, dim=1))


class TorchSide:
    """A training step, or a prediction, on materialised windows."""

    def __init__(self, args):
        what, model, batch, _ = case_of(args.case)
        timeframes, features = SHAPES[model]
        torch.manual_seed(0)
        self.model = MultiTimeframe(len(timeframes), features, args.hidden, args.layers)
        minutes = [minutes for _, minutes in timeframes]
        self.of_sample = [torch.arange(batch) // each for each in minutes] if args.once else None
        counts = [int(index[-1]) + 1 for index in self.of_sample] if args.once else [batch] * len(minutes)
        self.windows = [torch.randn(count, bars, features) for count, (bars, _) in zip(counts, timeframes)]
        self.targets = torch.randn(batch, TARGETS)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.step = self.train if what == "train" else self.predict
        self.autocast = args.precision == "autocast"
        if args.precision == "bf16":
            self.model.bfloat16()
            self.windows = [each.bfloat16() for each in self.windows]

    def outputs(self):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.autocast):
            return self.model(self.windows, self.of_sample)

    def predict(self):
        with torch.inference_mode():
            self.outputs()

    def train(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(self.outputs().float(), self.targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def fastest_step_s(self, steps):
        self.step()
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", required=True)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--precision", choices=["fp32", "autocast", "bf16"], default="fp32")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--keep-denormals", action="store_true")
    args = parser.parse_args()
    # Gradients that vanish over hundreds of steps become subnormal numbers, which cost many times as much on some processors. PyTorch
    # does not flush them unless asked. It is asked here, before its threads start, so that the comparison is with PyTorch at its best.
    torch.set_flush_denormal(not args.keep_denormals)
    torch.set_num_threads(args.threads)
    # What PyTorch's own libraries take, threads started.
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))
    library = peak_rss_bytes()
    step_s = TorchSide(args).fastest_step_s(args.steps)
    answer = {"step_s": step_s, "peak_rss_bytes": peak_rss_bytes(), "library_rss_bytes": library, "version": torch.__version__}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
