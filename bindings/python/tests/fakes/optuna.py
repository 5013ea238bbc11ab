"""The part of Optuna that the example uses. The second trial is pruned."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace


class TrialPruned(Exception):
    pass


class Trial:
    def __init__(self, number: int) -> None:
        self.number = number
        self.params: dict[str, int] = {}
        self.reported: list[int] = []

    def suggest_int(self, name: str, low: int, high: int) -> int:
        self.params[name] = min(low + self.number, high)
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        self.reported.append(step)

    def should_prune(self) -> bool:
        return self.number == 1


class Study:
    best_params: dict[str, int] = {}

    def optimize(self, objective: Callable[[Trial], float], n_trials: int) -> None:
        values = {}
        for number in range(n_trials):
            trial = Trial(number)
            try:
                values[objective(trial)] = trial.params
            except TrialPruned:
                print("pruned", number, "at step", trial.reported[-1])
        self.best_params = values[min(values)]


def create_study(pruner: object) -> Study:
    return Study()


pruners = SimpleNamespace(MedianPruner=lambda n_warmup_steps: None)
