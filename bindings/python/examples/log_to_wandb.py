"""The loss of each step in Weights & Biases."""

from __future__ import annotations

import pathlib
import tempfile

import megabatch as mb
import wandb


def to_wandb(step: mb.Step) -> None:
    """For `on_step`."""
    values = {"loss": step.loss, "lr": step.lr}
    if step.validation_loss is not None:
        values["validation"] = step.validation_loss
    wandb.log(values, step=step.step)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "series.h5"
        mb.synth.samples(file, samples=400, timeframes={"M1": 12}, features=3, targets=2)
        wandb.init(project="megabatch", mode="offline")
        mb.train(file, model={"hidden": 4}, max_steps=4, on_step=to_wandb)
        wandb.finish()


if __name__ == "__main__":
    main()
