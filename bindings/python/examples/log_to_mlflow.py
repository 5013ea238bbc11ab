"""The loss of each step in MLflow."""

from __future__ import annotations

import pathlib
import tempfile

import megabatch as mb
import mlflow


def to_mlflow(step: mb.Step) -> None:
    """For `on_step`."""
    values = {"loss": step.loss, "lr": step.lr}
    if step.validation_loss is not None:
        values["validation"] = step.validation_loss
    mlflow.log_metrics(values, step=step.step)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "series.h5"
        mb.synth.samples(file, samples=400, timeframes={"M1": 12}, features=3, targets=2)
        with mlflow.start_run():
            run = mb.train(file, model={"hidden": 4}, max_steps=4, on_step=to_mlflow)
            mlflow.log_artifact(str(run.report().path))


if __name__ == "__main__":
    main()
