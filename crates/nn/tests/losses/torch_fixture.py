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


# Groups of targets: the first and the one after the last, the loss as the trainer writes it, its weight, and the case above that has its mean.
TASKS = [
    ((0, 2), {"huber": {"delta": HUBER_DELTA}}, 0.5, CASES[1]),
    ((2, 3), {"quantile": {"levels": LEVELS}}, 0.2, CASES[2]),
    ((3, 5), {"classes": {"labels": CLASSES}}, 0.3, CASES[4]),
]


def run_tasks(seed):
    """The weighted sum of the groups' means over their known targets; a row of outputs has those of one group after the other."""
    generator = torch.Generator().manual_seed(seed)
    rows, target_columns, means, parts = 6, [], [], []
    for (start, end), _, weight, (_, width, function) in TASKS:
        y = 2 * torch.randn(rows, end - start, width, generator=generator, dtype=torch.float64)
        target = torch.randn(rows, end - start, generator=generator, dtype=torch.float64)
        if width == CLASSES:
            target = torch.randint(CLASSES, (rows, end - start), generator=generator).double()
        known = torch.rand(rows, end - start, generator=generator) > 0.4
        y.requires_grad_()
        means.append(weight * function(y[known], target[known]))
        parts.append(y)
        target_columns.append(torch.where(known, target, torch.nan))
    mean = torch.stack(means).sum()
    mean.backward()
    row = lambda tensors: torch.cat([tensor.reshape(rows, -1) for tensor in tensors], 1).flatten().tolist()
    return {
        "loss": {"tasks": [{"targets": targets, "loss": loss, "weight": weight} for targets, loss, weight, _ in TASKS]},
        "outputs": row([y.detach() for y in parts]),
        "targets": [None if x != x else x for x in row(target_columns)],
        "mean": mean.item(),
        "gradient": row([y.grad for y in parts]),
    }


folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
cases = [run(*case, seed) for seed, case in enumerate(CASES)] + [run_tasks(seed) for seed in (7, 8)]
folder.joinpath("torch_losses.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
