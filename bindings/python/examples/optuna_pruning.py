"""Optuna chooses the width; a trial that falls behind ends at its next validation."""

from __future__ import annotations

import pathlib
import tempfile

import megabatch as mb
import optuna


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "series.h5"
        mb.synth.samples(file, samples=600, timeframes={"M1": 12}, features=3, targets=2)
        ds = mb.open(file)

        def objective(trial: optuna.Trial) -> float:
            def on_step(step: mb.Step) -> None:
                if step.validation_loss is not None:
                    trial.report(step.validation_loss, step.step)
                    if trial.should_prune():
                        raise optuna.TrialPruned()

            hidden = trial.suggest_int("hidden", 2, 8)
            run = mb.train(
                ds,
                model={"hidden": hidden},
                training={"validate_every_steps": 2},
                gpu_optimization={"batch_size": 64},
                max_steps=8,
                on_step=on_step,
            )
            assert run.best_validation is not None
            return run.best_validation[1]

        study = optuna.create_study(pruner=optuna.pruners.MedianPruner(n_warmup_steps=4))
        study.optimize(objective, n_trials=4)
        print(study.best_params)


if __name__ == "__main__":
    main()
