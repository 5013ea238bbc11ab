"""What the example uses of Weights & Biases."""

from __future__ import annotations


def init(project: str, mode: str) -> None:
    print("wandb", project, mode)


def log(values: dict[str, float], step: int) -> None:
    print("wandb", step, sorted(values))


def finish() -> None:
    print("wandb finished")
