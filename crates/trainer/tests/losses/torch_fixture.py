"""Writes torch_losses.json: losses of random outputs and targets, some of which are not known, and their gradients, as PyTorch has them.

    python torch_fixture.py [FOLDER]

Each case is a loss as the trainer writes it, outputs [B, K, M], targets [B, K] (null where not known), the mean over the known ones, and its
gradient in the outputs.
"""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

SAMPLES, TARGETS = 5, 3
HUBER_DELTA = 0.7
LEVELS = [0.1, 0.5, 0.95]
THRESHOLDS = [-0.5, 0.25, 0.5]
CLASSES = 4


def quantiles(y, target):
    error = target[:, None] - y
    levels = torch.tensor(LEVELS, dtype=y.dtype)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def thresholds(y, target):
    return F.cross_entropy(y, torch.bucketize(target, torch.tensor(THRESHOLDS, dtype=y.dtype)))


# The loss, outputs for each target, and the mean over known targets [N] of outputs [N, M].
CASES = [
    ("mse", 1, lambda y, target: F.mse_loss(y[:, 0], target)),
    ({"huber": {"delta": HUBER_DELTA}}, 1, lambda y, target: F.huber_loss(y[:, 0], target, delta=HUBER_DELTA)),
    ({"quantile": {"levels": LEVELS}}, len(LEVELS), quantiles),
    ({"classes": {"thresholds": THRESHOLDS}}, len(THRESHOLDS) + 1, thresholds),
    ({"classes": {"labels": CLASSES}}, CLASSES, lambda y, target: F.cross_entropy(y, target.long())),
]


def run(loss, width, function, seed):
    generator = torch.Generator().manual_seed(seed)
    y = 2 * torch.randn(SAMPLES, TARGETS, width, generator=generator, dtype=torch.float64)
    target = torch.randn(SAMPLES, TARGETS, generator=generator, dtype=torch.float64)
    if loss == {"classes": {"labels": CLASSES}}:
        target = torch.randint(CLASSES, (SAMPLES, TARGETS), generator=generator).double()
    known = torch.rand(SAMPLES, TARGETS, generator=generator) > 0.25
    y.requires_grad_()
    mean = function(y[known], target[known])
    mean.backward()
    return {
        "loss": loss,
        "outputs": y.flatten().tolist(),
        "targets": [x if is_known else None for x, is_known in zip(target.flatten().tolist(), known.flatten().tolist())],
        "mean": mean.item(),
        "gradient": y.grad.flatten().tolist(),
    }


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
cases = [run(*case, seed) for seed, case in enumerate(CASES)]
folder.joinpath("torch_losses.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
