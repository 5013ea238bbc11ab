"""Errors of a model beside those of baselines."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ._html import table
from ._tabular import Tabular
from ._wording import in_python

_Errors = dict[str, npt.NDArray[np.float64]]

_ERRORS = ("rmse", "mae", "direction_accuracy")
_CLASS_ERRORS = ("accuracy", "balanced_accuracy", "cross_entropy")


@dataclasses.dataclass(frozen=True)
class StandardErrors:
    """Standard errors of errors that were estimated from a part of the samples."""

    rmse: float
    """Of the model's RMSE, averaged over the horizons."""
    rmse_ratio: dict[str, float]
    """Of the model's RMSE divided by that of each baseline, by its name."""
    accuracy: float | None
    """Of the share of classes that the model predicted; `None` for a model of numbers."""


@dataclasses.dataclass(frozen=True)
class Evaluation(Tabular):
    """Errors of a model beside those of baselines. As a table it has a row for each predictor and horizon, and of
    several folds for each fold."""

    text: str
    facts: dict[str, Any]
    """As `megabatch eval --json` has them."""

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """A row for each predictor, with the mean of each error over the horizons; t-statistics and their lags have none."""
        model = self.model
        rows = [
            [name, *(_mean(error, errors[error]) if error in errors else np.nan for error in model)]
            for name, errors in {"model": model, **self.baselines}.items()
        ]
        return table(f"{self.samples} samples, means over the horizons", ["predictor", *model], rows)

    @property
    def samples(self) -> int:
        """Number of samples, or of rows of graphs, that were predicted; of several folds together."""
        return sum(fold.samples for fold in self.folds) if self.folds else int(self.facts["samples"])

    @property
    def drawn(self) -> int | None:
        """Number of samples, or graphs, that stand for all of `drawn_from`; `None` if all were predicted, so that the
        errors are no estimates."""
        return _count(self.facts.get("drawn"))

    @property
    def drawn_from(self) -> int | None:
        """Number of samples, or graphs, that those of `drawn` stand for."""
        return _count(self.facts.get("drawn_from"))

    @property
    def standard_errors(self) -> StandardErrors | None:
        """Standard errors of estimates; `None` if all samples were predicted, for several folds and for several tasks,
        each of which has its own in `facts`."""
        own = self.facts.get("standard_errors")
        if own is None:
            return None
        return StandardErrors(own["rmse"], own["rmse_ratio"], own.get("accuracy"))

    @property
    def confusion(self) -> npt.NDArray[np.int64] | None:
        """Number of targets by true and by predicted class, `[K, C, C]`; `None` for a model of numbers or of one class a
        graph, and for several folds or tasks."""
        classes = self.facts.get("classes")
        return np.array(classes["confusion"], dtype=np.int64) if classes and not self.folds else None

    @property
    def notes(self) -> list[str]:
        """What is unusual about how the errors were computed."""
        return [in_python(note) for note in self.facts.get("notes", [])]

    @property
    def model(self) -> _Errors:
        """The model's errors by name, a number a horizon: those that apply to its predictions. Numbers have
        `rmse`, `mae` and `direction_accuracy`, quantiles `pinball_loss_0.1` and `coverage_0.1` besides, classes
        `accuracy`, `balanced_accuracy` and `cross_entropy`, one class a graph `accuracy` alone, nodes of graphs `ic` and
        `rank_ic`. Of several folds they are means."""
        if self.folds:
            return _measures({**self.facts["model"], "ranks_only": self.folds[0].facts.get("ranks_only")})
        tasks = self.facts.get("tasks")
        return _joined([_measures(task) for task in tasks], tasks) if tasks else _measures(self.facts)

    @property
    def baselines(self) -> dict[str, _Errors]:
        """The errors of each baseline, by its name."""
        tasks = self.facts.get("tasks")
        if not tasks:
            return {name: _measures(errors) for name, errors in self.facts["baselines"].items()}
        names = dict.fromkeys(name for task in tasks for name in task["baselines"])
        own = {name: [_measures(task["baselines"].get(name)) for task in tasks] for name in names}
        return {name: _joined(errors, tasks) for name, errors in own.items()}

    @property
    def folds(self) -> list[Evaluation]:
        """The errors of each fold's model on its own test; empty for a run of one model."""
        return [
            Evaluation(f"fold {fold['fold']}: {fold['evaluation']['samples']} samples", fold["evaluation"])
            for fold in self.facts.get("folds", [])
        ]

    @property
    def instruments(self) -> dict[str, Evaluation]:
        """The errors on each instrument's samples by its name, where the data have several. The baselines are fitted on
        all instruments together."""
        own = self.facts.get("instruments", {})
        ranks = {"ranks_only": True} if self.facts.get("ranks_only") else {}
        return {name: Evaluation(f"{name}: {one['samples']} samples", {**one, **ranks}) for name, one in own.items()}

    def _rows(self) -> dict[str, Any]:
        model = self.model
        contenders = {"model": model, **self.baselines}
        horizons = max((len(values) for values in model.values()), default=0)
        names = np.repeat(np.array(list(contenders), dtype=object), horizons).tolist()
        horizon = np.tile(np.arange(1, horizons + 1), len(contenders))
        columns: dict[str, Any] = {"predictor": names, "horizon": horizon}
        unknown = np.full(horizons, np.nan)
        for name in model:
            columns[name] = np.concatenate([errors.get(name, unknown) for errors in contenders.values()])
        return columns

    def _columns(self) -> dict[str, Any]:
        if not self.folds:
            return self._rows()
        rows = [fold._rows() for fold in self.folds]
        names = dict.fromkeys(name for own in rows for name in own)
        numbers = [fold["fold"] for fold in self.facts["folds"]]
        columns: dict[str, Any] = {"fold": np.repeat(numbers, [len(own["horizon"]) for own in rows])}
        for name in names:
            parts = [own.get(name, np.full(len(own["horizon"]), np.nan)) for own in rows]
            columns[name] = sum(parts, []) if name == "predictor" else np.concatenate(parts)
        return columns


def _mean(error: str, values: npt.NDArray[np.float64]) -> float:
    """The mean over the horizons of what has one."""
    has_none = len(values) > 1 and error.endswith(("_t", "_lags"))
    return np.nan if has_none else float(np.mean(values))


def _count(value: Any) -> int | None:
    return None if value is None else int(value)


def _measures(facts: Mapping[str, Any] | None) -> _Errors:
    """The errors that mean something, a number a horizon."""
    if facts is None:
        return {}
    if facts.get("accuracy") is not None:
        # One class a row, whose horizons are the classes.
        return {"accuracy": _numbers([facts["accuracy"]])}
    if classes := facts.get("classes"):
        return {name: _numbers(classes[name]) for name in _CLASS_ERRORS}
    horizons = len(facts["rmse"])
    found = {name: _numbers(values) for name, values in facts.items() if _is_by_horizon(values, horizons)}
    # Outputs of a model of ranks have no unit.
    no_errors = _ERRORS if facts.get("ranks_only") or str(facts.get("objective", "")).startswith("rank_") else ()
    meaningless = [name for name in _ERRORS if name in no_errors or np.isnan(found[name]).all()]
    found = {name: values for name, values in found.items() if name not in meaningless}
    if quantiles := facts.get("quantiles"):
        levels = _numbers(quantiles["levels"]).tolist()
        for name in ("pinball_loss", "coverage"):
            found.update({f"{name}_{level:g}": _numbers(own) for level, own in zip(levels, quantiles[name])})
        if len(levels) > 1:
            found["crossing"] = _numbers(quantiles["crossing"])
    return found


def _joined(parts: Iterable[_Errors], tasks: list[dict[str, Any]]) -> _Errors:
    """The errors of tasks as those of all targets in order; unknown where a task has none of that name."""
    own = list(parts)
    names = dict.fromkeys(name for errors in own for name in errors)
    lengths = [len(task["rmse"]) for task in tasks]
    unknown = [np.full(length, np.nan) for length in lengths]
    return {name: np.concatenate([one.get(name, none) for one, none in zip(own, unknown)]) for name in names}


def _is_by_horizon(values: Any, horizons: int) -> bool:
    if not isinstance(values, list) or len(values) != horizons:
        return False
    return all(value is None or isinstance(value, (int, float)) or _is_spread(value) for value in values)


def _is_spread(value: Any) -> bool:
    """True for a number over folds."""
    return isinstance(value, Mapping) and "mean" in value


def _numbers(values: Iterable[Any]) -> npt.NDArray[np.float64]:
    """Numbers, or their means over folds; unknown ones are NaN."""
    plain = (value["mean"] if _is_spread(value) else value for value in values)
    return np.array([np.nan if value is None else value for value in plain], dtype=np.float64)
