"""Training of megabatch's models, and what becomes of a run."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import os
import pathlib
import reprlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union

import numpy as np
import numpy.typing as npt

from . import _arguments, _frames, _functions, _megabatch, _pushed_bar, _settings, _weights
from ._context import BY_OWN_TIME, Context
from ._display import display, log
from ._evaluation import Evaluation, StandardErrors
from ._html import table
from ._options_help import shows
from ._settings_types import (
    DataSettings,
    DistributedSettings,
    GpuOptimizationSettings,
    ModelSettings,
    OutputSettings,
    ShortSettings,
    TrainingSettings,
)
from ._signals import exit_on_signals
from ._tabular import Tabular
from ._wording import in_python
from .dataset import Dataset, StrPath, _Temporary
from .errors import ConfigError, DataError, MegabatchError

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Evaluation",
    "Follower",
    "Forecast",
    "Plan",
    "Predictions",
    "Report",
    "Run",
    "RunStatus",
    "StandardErrors",
    "Step",
    "import_weights",
    "load_run",
    "plan",
    "train",
]

_WRITE_RUNS = ("train", "import_weights")
_ROWS_SHOWN, _COLUMNS_SHOWN = 10, 12
"""Size of a table of predictions in a notebook."""
_Data = Union[Dataset, StrPath, None]
_Samples = Union[int, range, Sequence[int], Literal["latest"], "npt.NDArray[np.integer[Any]]", "npt.NDArray[np.bool_]"]


def _file_of(data: _Data, purpose: str) -> pathlib.Path | None:
    if isinstance(data, Dataset):
        data._require_whole(purpose)
        return data.path
    _frames.refuse(data, purpose)
    if data is not None and not isinstance(data, (str, os.PathLike)):
        raise ConfigError(f"the data of {purpose} are {data!r}: expected a dataset or the path of one")
    return None if data is None else pathlib.Path(data).expanduser()


def _path_of(data: _Data, purpose: str) -> StrPath | None:
    """The file of a dataset, of a part of one or of a path."""
    _frames.refuse(data, purpose)
    if isinstance(data, Dataset):
        return data.path
    return None if data is None else _arguments.require_path(data, "data", "a dataset or the path of one")


def _sections(distributed: str | DistributedSettings | None, **sections: object) -> dict[str, object]:
    """The sections of settings."""
    return {**sections, "distributed": {"backend": distributed} if isinstance(distributed, str) else distributed}


def _refuse_folder(config: _settings.Config) -> None:
    """Refuses the folder of a run in the place of a YAML file."""
    if not isinstance(config, (str, os.PathLike)):
        return
    path = pathlib.Path(config)
    if path.is_dir() or not (path.exists() or path.suffix in (".yaml", ".yml")):
        raise ConfigError(
            f"config={os.fspath(config)!r}: expected settings or the path of a YAML file; the folder that the run is written "
            f"to is out={os.fspath(config)!r}",
            key="config",
        )


def _require_device(device: Any) -> None:
    """Refuses what cannot be the name of a device."""
    _arguments.require(isinstance(device, str), device, "device", "the name of a device, such as auto, cpu or cuda")


def _job(
    data: _Data, config: _settings.Config, settings: Mapping[str, Any], device: str, max_steps: int | None, purpose: str
) -> dict[str, Any]:
    if max_steps is not None:
        max_steps = _arguments.whole_number(max_steps, "max_steps", 1)
    _require_device(device)
    if purpose in _WRITE_RUNS:
        _refuse_folder(config)
    file, texts = _settings.sources(config, {name: value for name, value in settings.items() if value is not None})
    path = _file_of(data, purpose)
    return {"data": path, "file": file, "set": texts, "device": device, "max_steps": max_steps}


@dataclasses.dataclass(frozen=True)
class Plan:
    """Samples, steps and memory of a run, computed before it starts."""

    text: str
    facts: dict[str, Any]
    """As `plan.json` has them."""

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return int(self.facts["steps"])

    @property
    def memory_bytes(self) -> int:
        """Peak memory of the run."""
        return int(self.facts["memory"]["total_bytes"])

    @property
    def parameters(self) -> int:
        """Numbers in the model's weights."""
        return int(self.facts["parameters"])

    @property
    def warnings(self) -> list[str]:
        """Assumptions that the errors of the run would rest on."""
        return [in_python(warning) for warning in self.facts["warnings"]]

    @property
    def notes(self) -> list[str]:
        """Remarks on the settings and the data, and the exports and ways of streaming that the model allows."""
        return [in_python(note) for note in (*self.facts["notes"], *self.facts["uses"])]

    def _repr_html_(self) -> str:
        """What a run takes, a row a fact."""
        split, memory = self.facts["split"], self.facts["memory"]
        rows = [[f"samples, {part}", f"{split[part]:,}"] for part in ("train", "validation", "test")]
        batch = self.facts["batch_size"] * self.facts["accumulation_steps"]
        rows += [["samples a step", f"{batch:,}"], ["steps", f"{self.steps:,}"], ["weights", f"{self.parameters:,}"]]
        rows += [[f"memory, {phase['name']}", _megabytes(phase["bytes"])] for phase in memory["phases"]]
        rows += [["peak memory", _megabytes(self.memory_bytes)], ["available", _megabytes(memory["available_bytes"])]]
        rows += [["warning", own] for own in self.warnings] + [["note", own] for own in self.notes]
        return table(f"Plan of {self.facts['data']['path']}", ["", ""], rows)

    def __repr__(self) -> str:
        return self.text


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


@shows(ShortSettings)
def plan(
    dataset: _Data = None,
    /,
    config: _settings.Config = None,
    *,
    device: str = "auto",
    max_steps: int | None = None,
    memory_bytes: int | str | None = None,
    model: ModelSettings | None = None,
    training: TrainingSettings | None = None,
    data: DataSettings | None = None,
    gpu_optimization: GpuOptimizationSettings | None = None,
    output: OutputSettings | None = None,
    distributed: str | DistributedSettings | None = None,
    **short: Unpack[ShortSettings],
) -> Plan:
    """Computes what a run would take, or raises `CapacityError` with the nearest settings that would fit.

    `config` is the path of a YAML file, or settings by section as in `mb.Settings`, such as
    `{"model": {"hidden": 64}}`, or by names such as `{"model.hidden": 64}`. Keywords go over it: sections such as
    `model={"hidden": 64}`, and over them settings of `mb.ShortSettings` such as `model__hidden=64`.
    `distributed="off"` is its `backend`. `help(mb.Settings)` lists all settings, and `help(mb.ModelSettings)` says what
    those of a section mean. `memory_bytes` is a number of bytes, or a size such as `"80GB"`.
    """
    sections = _sections(
        distributed, model=model, training=training, data=data, gpu_optimization=gpu_optimization, output=output
    )
    job = _job(dataset, config, {**sections, **short}, device, max_steps, "plan")
    if memory_bytes is not None and not isinstance(memory_bytes, str):
        memory_bytes = str(_arguments.whole_number(memory_bytes, "memory_bytes", 1, "a whole number of bytes"))
    text, facts = _megabatch.plan(job, memory_bytes)
    return Plan(in_python(text), facts)


@dataclasses.dataclass
class Step:
    """An optimizer step, as `on_step` sees it."""

    step: int
    """Steps done, this one included."""
    steps: int
    """Steps at which training will end."""
    epoch: int
    loss: float
    lr: float
    grad_norm: float
    samples_per_s: float
    validation_loss: float | None
    """Loss of the last validation before this step."""
    best_validation_loss: float | None
    facts: dict[str, Any] = dataclasses.field(repr=False)
    """Everything that is known of the step, as `metrics.jsonl` has it."""
    _stopped: bool = dataclasses.field(default=False, repr=False)

    def stop(self) -> None:
        """Ends the run after this step, with a checkpoint from which it can be resumed."""
        self._stopped = True


class _Steps:
    """Calls `on_step` with the steps among the events of training."""

    def __init__(self, on_step: Callable[[Step], object]) -> None:
        self._on_step = on_step
        self._validation: float | None = None
        self._best: float | None = None

    def __call__(self, event: dict[str, Any]) -> bool:
        if event["event"] == "validation":
            self._validation = event["loss"]
            self._best = event["loss"] if event["best"] else self._best
        if event["event"] != "step":
            return False
        step = Step(
            step=event["step"],
            steps=event["steps"],
            epoch=event["epoch"],
            loss=event["loss"],
            lr=event["lr"],
            grad_norm=event["grad_norm"],
            samples_per_s=event["samples_per_s"],
            validation_loss=self._validation,
            best_validation_loss=self._best,
            facts=event,
        )
        self._on_step(step)
        return step._stopped


@shows(ShortSettings)
def train(
    dataset: _Data = None,
    /,
    config: _settings.Config = None,
    *,
    out: StrPath | None = None,
    on_step: Callable[[Step], object] | None = None,
    resume: bool = False,
    init: StrPath | Run | Mapping[str, Any] | None = None,
    max_steps: int | None = None,
    device: str = "auto",
    progress: bool | None = None,
    model: ModelSettings | None = None,
    training: TrainingSettings | None = None,
    data: DataSettings | None = None,
    gpu_optimization: GpuOptimizationSettings | None = None,
    output: OutputSettings | None = None,
    distributed: str | DistributedSettings | None = None,
    **short: Unpack[ShortSettings],
) -> Run:
    """Trains a model on the file of a dataset, as `megabatch train` does, to the same weights.

    Settings are given as to `plan`, and `help(mb.Settings)` lists them. Without `out`, the folder of the run goes with
    the run. `on_step` sees each step and may end the run with `step.stop()`; if it raises, the run saves a checkpoint
    and ends, and the exception comes through. So it does for Ctrl-C, and in the main thread for SIGTERM and SIGHUP, which
    raise `SystemExit` unless the program handles or ignores them. `resume=True` goes on with the run in `out`, with
    `device="auto"` on its device, and needs no data. `init` are weights to begin with: a run or its folder, or
    what `import_weights` takes.

    Under `mpirun python`, all processes train one model, to the weights of one process; `out` is the same folder for
    all. `distributed` is `auto`, `mpi` or `off`, or settings of the section. Without an MPI library, `mpi` raises
    `DeviceError`. A process trains with others once.
    """
    sections = _sections(
        distributed, model=model, training=training, data=data, gpu_optimization=gpu_optimization, output=output
    )
    if on_step is not None and not callable(on_step):
        raise _arguments.wrong(on_step, "on_step", "a function that takes an mb.Step")
    if out is not None:
        out = _arguments.require_path(out, "out", "the path of the run's folder")
    resume = _arguments.flag(resume, "resume")
    keeps = _Temporary() if out is None and not resume else None
    folder = keeps.path / "run" if keeps else out
    begins = None if init is None else _Temporary()
    file = None if begins is None else _weights.file_of(_of_run(init), "init", begins.path)
    call = {
        "job": _job(dataset, config, {**sections, **short}, device, max_steps, "train"),
        "out": folder,
        "init": file,
        "resume": resume,
        "on_event": None if on_step is None else _Steps(on_step),
        "display": display(progress),
    }
    if out is not None and isinstance(dataset, Dataset) and dataset._keeps is not None:
        log.warning(
            "%s",
            f"the run in {out} stays, and its data go with this process: give ingest the file of the dataset, such as "
            f'mb.ingest(…, out="series.h5"), to evaluate or resume the run later',
        )
    try:
        with exit_on_signals(), _weights.told_as("init", init, file):
            answer = _megabatch.train(call)
    except KeyboardInterrupt as interrupt:
        _say_what_stays(interrupt, folder, keeps is None)
        raise
    kept = (keeps, dataset if isinstance(dataset, Dataset) else None)
    return Run(
        answer["run"],
        steps=answer["steps"],
        is_finished=answer["is_finished"],
        best_validation=answer["best_validation"],
        text=in_python(answer["text"]),
        facts=answer["facts"],
        _keeps=kept,
    )


def _say_what_stays(interrupt: KeyboardInterrupt, folder: StrPath | None, is_kept: bool) -> None:
    """Adds to the text of an interrupt where its run goes on."""
    checkpoints = [] if folder is None else list(pathlib.Path(folder).glob("**/checkpoints/step-*"))
    if not checkpoints:
        return
    if is_kept:
        last = max(checkpoints, key=lambda path: path.stat().st_mtime_ns)
        said = f"{last} is the last checkpoint, and mb.train(out={os.fspath(folder or '')!r}, resume=True) goes on"
    else:
        said = "the run had no folder of its own and is gone; out=… keeps one that resume=True goes on with"
    interrupt.args = ("; ".join([*map(str, interrupt.args), said]),)


def _of_run(init: Any) -> Any:
    """The weights of a run or of its folder; else `init` itself."""
    if isinstance(init, (str, os.PathLike)) and os.path.isdir(init):
        init = load_run(init)
    return init.weights() if isinstance(init, Run) else init


@shows(ShortSettings)
def import_weights(
    weights: StrPath | Mapping[str, Any],
    dataset: _Data = None,
    /,
    config: _settings.Config = None,
    *,
    out: StrPath | None = None,
    model: ModelSettings | None = None,
    training: TrainingSettings | None = None,
    data: DataSettings | None = None,
    gpu_optimization: GpuOptimizationSettings | None = None,
    output: OutputSettings | None = None,
    **short: Unpack[ShortSettings],
) -> Run:
    """Makes a run of weights from elsewhere, which can be evaluated, used and trained on.

    `weights` are a file of safetensors, or tensors or arrays by name, such as the `state_dict` of the module in
    docs/reference/weights.md: PyTorch's names, shapes and gate order; prefixes of DistributedDataParallel and
    torch.compile are left out. `dataset` has the shape of the model, and its
    targets are predicted as they are. Settings are given as to `train`; those of the model fit the weights, which tell
    cell, hidden units, layers, bias and layer norm where they are not given.
    """
    sections = _sections(
        None, model=model, training=training, data=data, gpu_optimization=gpu_optimization, output=output
    )
    if out is not None:
        out = _arguments.require_path(out, "out", "the path of the run's folder")
    keeps = _Temporary()
    file = _weights.file_of(weights, "weights", keeps.path)
    job = _job(dataset, config, {**sections, **short}, "cpu", None, "import_weights")
    with _weights.told_as("weights", weights, file):
        text, facts = _megabatch.import_weights(file, job, keeps.path / "run" if out is None else out)
    kept = (keeps, dataset if isinstance(dataset, Dataset) else None)
    return Run(facts["run"], steps=0, text=in_python(text), facts=facts, _keeps=kept)


def load_run(folder: StrPath) -> Run:
    """A run of `train` or of `megabatch train`."""
    folder = _arguments.require_path(folder, "folder", "the folder of a run, as mb.train(…, out=folder) writes it")
    path = pathlib.Path(folder)
    if not (path / "config.yaml").is_file():
        raise ConfigError(f"{path}: no run is here; expected the folder that train wrote, with config.yaml in it")
    return Run(path)


class Run:
    """A run in its folder."""

    def __init__(
        self,
        path: StrPath,
        *,
        steps: int | None = None,
        is_finished: bool | None = None,
        best_validation: tuple[int, float] | None = None,
        text: str = "",
        facts: dict[str, Any] | None = None,
        _keeps: object = None,
    ) -> None:
        self.path = pathlib.Path(path).absolute()
        """The folder."""
        self.steps = steps
        """Optimizer steps done; `None` for a run that was loaded."""
        self.is_finished = is_finished
        """False for a run that was stopped and can be resumed; `None` for a run that was loaded."""
        self.best_validation = best_validation
        """Step and loss of the best validation."""
        self.text = text
        """The summary of training; empty for a run that was loaded."""
        self.facts = facts or {}
        """As `megabatch train --json` has them; empty for a run that was loaded."""
        self._keeps = _keeps

    def __repr__(self) -> str:
        known = []
        if self.steps is not None:
            known.append(f"{self.steps} steps" if self.is_finished is not False else f"stopped after {self.steps} steps")
        elif checkpoints := [path.name[5:] for path in self.path.glob("checkpoints/step-*") if path.name[5:].isdigit()]:
            known.append(f"{max(map(int, checkpoints))} steps")
        if self.best_validation is not None:
            step, loss = self.best_validation
            known.append(f"best validation loss {loss:.4g} at step {step}")
        if folds := len(self.folds):
            known.append(f"{folds} folds")
        return f"<megabatch.Run {self.path}{': ' if known else ''}{', '.join(known)}>"

    @property
    def evaluation(self) -> Evaluation | None:
        """The errors that training measured at its end, on at most `training.test_samples` samples; `None` for a run
        that was stopped, of several folds, or that was trained before this session. `evaluate` measures them anew."""
        facts = self.facts.get("evaluation")
        return None if facts is None else Evaluation(f"{facts['split']}: {facts['samples']} samples", facts)

    @property
    def warnings(self) -> list[str]:
        """Warnings of training: assumptions that the errors rest on, and what went wrong. Empty for a run that was
        trained before this session."""
        own = self.facts.get("warning")
        return [in_python(one) for one in (*self.facts.get("warnings", []), *([] if own is None else [own]))]

    @property
    def notes(self) -> list[str]:
        """Remarks of training on the settings and the data, and the exports and ways of streaming that the model
        allows. Empty for a run that was trained before this session."""
        return [in_python(note) for note in (*self.facts.get("notes", []), *self.facts.get("uses", []))]

    def _asked(
        self,
        data: StrPath | None,
        checkpoint: str,
        int8: bool,
        changed_data: bool,
        other_instruments: bool,
        device: str,
    ) -> dict[str, Any]:
        _require_device(device)
        flags = {"int8": int8, "changed_data": changed_data, "other_instruments": other_instruments}
        return {
            "run": self.path,
            "data": data,
            "last_checkpoint": _is_last(checkpoint),
            **{name: _arguments.flag(value, name) for name, value in flags.items()},
            "device": device,
        }

    @_arguments.refuses_unknown
    def evaluate(
        self,
        data: _Data = None,
        *,
        part: str | None = None,
        samples: int | None = None,
        checkpoint: str = "best",
        int8: bool = False,
        changed_data: bool = False,
        other_instruments: bool = False,
        device: str = "auto",
    ) -> Evaluation:
        """Errors by horizon beside those of baselines, on the part that the model did not see: `train`, `validation`,
        `test` or `all`. A part of a dataset names itself. Of a run of several folds, the errors of each.

        `samples` is the most samples, or graphs, that are taken, evenly spaced: the errors are then estimates, with
        `standard_errors`. By default all are."""
        if samples is not None:
            samples = _arguments.whole_number(samples, "samples", 1, "a whole number of samples")
        _require_one_part(data, part)
        if isinstance(data, Dataset) and data.part is not None:
            part = data.part
        _check_part(part)
        file = _path_of(data, "evaluate")
        asked = self._asked(file, checkpoint, int8, changed_data, other_instruments, device)
        text, facts = _megabatch.evaluate(asked, part, samples)
        return Evaluation(in_python(text), facts)

    @_arguments.refuses_unknown
    def predict(
        self,
        data: _Data = None,
        samples: _Samples | None = None,
        *,
        part: str | None = None,
        checkpoint: str = "best",
        int8: bool = False,
        changed_data: bool = False,
        other_instruments: bool = False,
        device: str = "auto",
        progress: bool | None = None,
    ) -> Predictions:
        """Predictions of the samples of `data`, a dataset, a part of one or a path; by default of the data that the
        run was trained on. `samples` chooses among the samples of `data` by their places, counted from 0, or by a mask
        with a value for each: `run.predict(test, samples=[0, 1])` predicts the first two of the part. `part` chooses
        those of `train`, `validation` or `test`, as training split them.

        `samples="latest"` are those at the bars of a series after its last samples, whose targets lie ahead, numbered
        from 0.

        A run of several folds gives the predictions of each fold's model for the fold's own test, one after the other:
        no model has seen what it predicts of the run's own data."""
        _check_part(part)
        if isinstance(data, str) and data == "latest" and not os.path.exists(data):
            raise ConfigError('data="latest" is no file: samples="latest" are those after the last samples', key="data")
        if isinstance(samples, str) and samples in _PARTS:
            raise ConfigError(f'samples="{samples}" is a part: part="{samples}" predicts its samples', key="samples")
        is_latest = isinstance(samples, str) and samples == "latest"
        if part is not None and samples is not None:
            raise ConfigError(
                "part and samples choose both; give one of them, or the part as data: run.predict(test, samples=…), where "
                "test is of dataset.split()",
                key="part",
            )
        _require_one_part(data, part)
        chosen = None
        is_mask = np.asarray(samples).dtype.kind == "b"
        are_units = is_mask or (isinstance(data, Dataset) and data._indices is not None)
        if samples is not None and not is_latest:
            chosen = self._chosen(samples, data)
        elif samples is None and part is None and isinstance(data, Dataset):
            chosen = data._indices
        bounds = None
        if chosen is not None:
            if not len(chosen):
                raise ConfigError("no samples were asked for", key="samples")
            bounds = (int(chosen.min()), int(chosen.max()) + 1)
        file = _path_of(data, "predict")
        asked = self._asked(file, checkpoint, int8, changed_data, other_instruments, device)
        return Predictions._of(_megabatch.predict(asked, bounds, are_units, part, is_latest, display(progress)), chosen)

    def _chosen(self, samples: _Samples, data: _Data) -> npt.NDArray[np.int64]:
        """Numbers in the file of samples that are given by their places in `data`, by one place or by a mask."""
        numbers = np.atleast_1d(np.asarray(samples))
        if numbers.dtype.kind == "b" and numbers.ndim == 1:
            whole = data if isinstance(data, Dataset) else Dataset(self._data_path(data, "predict") or "")
            part = f", part {whole.part}" if whole.part else ""
            masked = _arguments.mask_places(numbers, "samples", len(whole), f"samples of {whole.path}{part}")
            chosen: npt.NDArray[np.int64] = whole.indices[masked]
            return chosen
        if numbers.ndim == 1 and len(numbers) > 2 and numbers.dtype.kind in "iu" and 0 <= numbers.min() <= numbers.max() <= 1:
            raise ConfigError(
                f"samples are {len(numbers)} times 0 or 1: samples 0 and 1 again and again; a mask is of bool, such as "
                f"samples == 1",
                key="samples",
            )
        if numbers.size and (numbers.dtype.kind not in "iu" or numbers.ndim > 1 or numbers.min() < 0):
            raise ConfigError(
                f"samples is {reprlib.repr(samples)}: expected numbers of samples from 0 on, such as range(24), a mask with a "
                f'value for each sample, or "latest"',
                key="samples",
            )
        places = numbers.astype(np.int64)
        if not isinstance(data, Dataset) or data._indices is None:
            return places
        if places.size and places.max() >= len(data):
            raise ConfigError(
                f"samples has {places.max()}, and the part {data.part} has {len(data)} of the {data._native.units()} samples of "
                f"{data.path}: places count from 0 in the part",
                key="samples",
            )
        return data._indices[places]

    def weights(self, *, checkpoint: str = "best") -> dict[str, npt.NDArray[np.float32]]:
        """The weights by their names in PyTorch's module, see docs/reference/weights.md."""
        tensors = _megabatch.weights(self.path, _is_last(checkpoint))
        return {name: np.frombuffer(values, dtype=np.float32).reshape(shape) for name, shape, values in tensors}

    def report(self) -> Report:
        """The report, which a notebook shows inline."""
        path = self.path / "report.html"
        if not path.is_file():
            raise ConfigError(f"{path}: the run has no report yet; it is written at its end")
        return Report(path)

    @property
    def folds(self) -> list[Run]:
        """The run of each fold; empty for a run of one model."""
        numbered = {int(path.name[5:]): path for path in self.path.glob("fold-*") if path.name[5:].isdigit()}
        return [Run(numbered[number], _keeps=self._keeps) for number in sorted(numbered)]

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`: steps, validations, checkpoints. Those of a run of several folds have their
        `fold`, from 1."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            if self.folds:
                return [{**line, "fold": n} for n, fold in enumerate(self.folds, 1) for line in fold.metrics()]
            raise ConfigError(f"{file}: no step was recorded here")
        with file.open() as lines:
            return [json.loads(line) for line in lines if line.endswith("\n")]

    def monitor(self) -> RunStatus:
        """How the run stands now, by the files in its folder: `mb.load_run(folder).monitor()` tells it of a run that
        another process trains. Its `facts["end"]` is `finished`, `stopped`, `failed`, `killed`, or `None` while it goes on."""
        text, facts = _megabatch.monitor(self.path)
        return RunStatus(in_python(text), facts)

    def export(
        self,
        out: StrPath,
        *,
        checkpoint: str = "best",
        batch: int | None = None,
        fold_scaler: bool = False,
        data: StrPath | Dataset | None = None,
        instrument: str | None = None,
        stateless: bool = False,
    ) -> dict[str, Any]:
        """Writes the model as ONNX (`.onnx`) or its weights as safetensors (`.safetensors`), in place of a file that is
        there. The options after `checkpoint` are those of ONNX."""
        out = _arguments.require_path(out, "out", "the path of the file to write, .onnx or .safetensors")
        call = {
            "run": self.path,
            "out": out,
            "last_checkpoint": _is_last(checkpoint),
            "batch": batch,
            "fold_scaler": _arguments.flag(fold_scaler, "fold_scaler"),
            "data": _path_of(data, "export"),
            "instrument": instrument,
            "stateless": _arguments.flag(stateless, "stateless"),
        }
        return _megabatch.export(call)[1]

    def _data_path(self, data: _Data, purpose: str) -> str | None:
        """The file of `data`, or that of the run."""
        if data is not None:
            return os.fspath(_path_of(data, purpose) or "")
        plan = self.path / "plan.json"
        return str(json.loads(plan.read_text())["data"]["path"]) if plan.is_file() else None

    def follow(
        self,
        bars: Any = None,
        *,
        data: _Data = None,
        history: Sequence[StrPath] | StrPath = (),
        cold: bool = False,
        symbol: str | None = None,
        zone: str | None = None,
        checkpoint: str = "best",
        other_instruments: bool = False,
        features: _functions.Features | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Follower:
        """A model that predicts bars as they come, after the bars that its data were made of, those of `history`, or
        none (`cold=True`).

        Data with features of functions need these again, as `features=[function]`, perhaps beside names of the data's
        other features. A function is called with all bars of the history, and then for each bar that closes with all
        bars so far; its frames are of the library of `bars`, or of that of `data`.

        `context` are frames of the other instruments among the data's features, from the bars on that these read at the
        first bar of the history. Bars that come after their last see its values.

        Times without a zone are by the clock `zone`, else by that of the data, else, where their files have several,
        UTC.

        Iterating over the answer gives the forecasts for `bars`, a frame or bars one by one; without them, `push`
        takes the next bar.
        """
        _arguments.require_text(symbol, "symbol", "the name of one instrument")
        _arguments.require_text(zone, "zone", "a clock such as UTC or new-york+7")
        _require_bars(bars)
        files = _arguments.require_paths(history, "history", "the path of a file of bars, or a list of them")
        path = self._data_path(data, "follow")
        clock, known = _clock_and_symbols(path)
        zone = zone or clock
        symbol = symbol and _frames.name_among(symbol, known)
        # Bars of a series without a symbol may have any.
        own = known[0] if len(known) == 1 and known[0] != _frames.UNNAMED else None
        call = {
            "run": self.path,
            "data": _path_of(data, "follow"),
            "last_checkpoint": _is_last(checkpoint),
            "other_instruments": _arguments.flag(other_instruments, "other_instruments"),
            "cold": _arguments.flag(cold, "cold"),
            "history": files,
            "symbol": symbol,
            "zone": zone,
            "functions": _functions_of(features, bars, path, context),
        }
        return Follower(_megabatch.Follower(call), bars, symbol or own, zone, _inputs_of(path, features))


def _require_bars(bars: Any) -> None:
    """Refuses what is neither a frame nor bars one by one."""
    if isinstance(bars, (str, os.PathLike)):
        raise ConfigError(
            f"bars={os.fspath(bars)!r} is the path of a file: expected a frame, as pandas.read_csv makes it of the file, or bars "
            f"one by one; the program follows files, with the option `follow` of its command `predict`",
            key="bars",
        )
    is_right = bars is None or _frames.is_frame(bars) or isinstance(bars, Iterable)
    _arguments.require(is_right, bars, "bars", "a frame, or bars one by one")


def _clock_and_symbols(data: str | None) -> tuple[str | None, list[str]]:
    """The clock of the bars of a series file, and its symbols. Opening the follower tells what is wrong with another."""
    if data is not None:
        with contextlib.suppress(MegabatchError):
            clock, symbols = _megabatch.clock_and_symbols(data)
            return clock and clock[0], symbols
    return None, []


def _inputs_of(data: str | None, features: Any) -> _pushed_bar.Inputs:
    """The numbers of bars that the features of a series file are computed from. A function among them may read all."""
    names: list[str] = []
    function_columns: list[str] = []
    if data is not None:
        with contextlib.suppress(MegabatchError):
            function_columns, _, names, _, _ = _megabatch.function_inputs(data)
    return _pushed_bar.Inputs(
        volume=not {"log_volume", "relative_volume"}.isdisjoint(names),
        spread=bool(_functions.split(features)[1]),
        columns=frozenset(_megabatch.feature_columns([*names, *function_columns])),
    )


def _functions_of(
    features: Any, bars: Any, data: str | None, context: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """The functions among the features of bars that come, and other instruments."""
    called = _functions.given_again(features, data)
    _require_frames(context)
    if not called and not context:
        return None
    library = _frames.library(bars) if _frames.is_frame(bars) else None
    names: list[str] = []
    read_by: list[tuple[str, str]] = []
    timing = BY_OWN_TIME
    if data is not None:
        _, of_data, names, read_by, timing = _megabatch.function_inputs(data)
        library = library or of_data
    if library not in _frames.LIBRARIES:
        library = None
    others = [Context(name, frame, names, dict(read_by), bool(called)) for name, frame in (context or {}).items()]
    # The data tell the bars beside which they stand.
    for own in others:
        own.read(timing)
    return _functions.Functions(called, None, library, others, context_is_whole=True).native()


def _require_frames(context: Mapping[str, Any] | None) -> None:
    """Refuses a context that is not of frames."""
    takes = 'frames by the names of instruments, such as {"DXY": dxy}'
    _arguments.require(context is None or isinstance(context, Mapping), context, "context", takes)
    for name, frame in (context or {}).items():
        if isinstance(frame, (str, os.PathLike)):
            raise ConfigError(
                f"context {name}: {os.fspath(frame)!r} is the path of a file: expected a frame, as pandas.read_csv makes it of the "
                f"file, also where the data have its bars from a file",
                key="context",
            )


_PARTS = ("train", "validation", "test")


def _check_part(part: str | None) -> None:
    if part not in (None, *_PARTS, "all"):
        raise ConfigError(f"part={part}: expected train, validation, test or all", key="part")


def _require_one_part(data: _Data, part: str | None) -> None:
    """Refuses a part of another part."""
    if isinstance(data, Dataset) and part is not None and data.part not in (None, part):
        raise ConfigError(
            f"part={part}: the data are the part {data.part} already; give all samples, mb.open({str(data.path)!r})",
            key="part",
        )


def _is_last(checkpoint: str) -> bool:
    if checkpoint not in ("best", "last"):
        raise ConfigError(f"checkpoint={checkpoint}: expected best or last", key="checkpoint")
    return checkpoint == "last"


@dataclasses.dataclass(frozen=True)
class RunStatus:
    """How a run stands at a moment."""

    text: str
    """A line with its step, its loss and the time left."""
    facts: dict[str, Any]
    """Every reading, as `megabatch monitor --json` has them: `None` where it is not known."""

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of a run."""

    path: pathlib.Path

    def _repr_html_(self) -> str:
        page = base64.b64encode(self.path.read_bytes()).decode()
        return f'<iframe src="data:text/html;base64,{page}" width="100%" height="800" style="border: 0"></iframe>'


@dataclasses.dataclass(frozen=True)
class Predictions(Tabular):
    """Predictions of samples. As a table they have a row for each sample, with the columns of `megabatch predict`, and
    what they are held against as `target1`, `target2` and so on: the true classes, where thresholds or probabilities make
    classes of the targets, which are then `target1_value`, `target2_value` and so on; else the targets."""

    _times = ("time",)

    samples: npt.NDArray[np.int64]
    """`[n]` numbers of the samples in their file."""
    values: npt.NDArray[np.float32]
    """`[n, K]`: of several quantiles the one nearest to the median, of classes the most probable one."""
    named: dict[str, npt.NDArray[np.float32]]
    """Quantiles, or probabilities of classes, `[n, K]` each."""
    targets: npt.NDArray[np.float32]
    """`[n, targets]` what is predicted, as the data have it; NaN where it is not known."""
    true_classes: npt.NDArray[np.float32] | None
    """`[n, K]` class of each target beside the predicted one, NaN where it is not known, if thresholds or probabilities
    make classes of the targets; `None` if `values` and `targets` are of one kind. Targets of tasks without thresholds
    are as in `targets`."""
    times: npt.NDArray[np.datetime64] | None
    """`[n]` times of the samples, UTC, where the data have them."""
    instruments: list[str] | None
    """`[n]` names of the instruments, where the data have several."""
    folds: npt.NDArray[np.int64] | None
    """`[n]` fold whose model predicted each sample, from 1; `None` for a run of one model."""
    step: int
    """Step of the checkpoint; of several folds, of the last one's."""
    notes: list[str]

    @staticmethod
    def _of(answer: Mapping[str, Any], chosen: npt.NDArray[np.int64] | None) -> Predictions:
        horizons = answer["horizons"]

        def rows(values: bytes) -> npt.NDArray[np.float32]:
            return np.frombuffer(values, dtype=np.float32).reshape(-1, horizons)

        values = rows(answer["values"])
        samples = np.frombuffer(answer["samples"], dtype=np.int64)
        # Those that were chosen lie among samples that follow each other.
        own = slice(None) if chosen is None or np.array_equal(chosen, samples) else chosen - samples[0]
        times, classes, folds = answer["times"], answer["true_classes"], answer["folds"]
        names, of_sample = answer["instruments"] or (None, b"")
        return Predictions(
            samples=samples[own],
            values=values[own],
            named={name: rows(numbers)[own] for name, numbers in answer["named"]},
            targets=np.frombuffer(answer["targets"], dtype=np.float32).reshape(len(samples), -1)[own],
            true_classes=None if classes is None else rows(classes)[own],
            times=None if times is None else np.frombuffer(times, dtype="datetime64[ns]")[own],
            instruments=None if names is None else [names[n] for n in np.frombuffer(of_sample, dtype=np.int32)[own]],
            folds=None if folds is None else np.frombuffer(folds, dtype=np.int32).astype(np.int64)[own],
            step=answer["step"],
            notes=[in_python(note) for note in answer["notes"]],
        )

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        span = "" if self.times is None or not len(self) else f", {_minute(self.times[0])} to {_minute(self.times[-1])}"
        outputs = self.values.shape[1]
        return f"<megabatch.Predictions: {len(self)} samples of {outputs} targets, step {self.step}{span}>"

    def _repr_html_(self) -> str:
        """The first samples."""
        columns = self._columns()
        names = list(columns)[:_COLUMNS_SHOWN]
        rows = [[_shown(columns[name][row]) for name in names] for row in range(min(len(self), _ROWS_SHOWN))]
        hidden = f", and {len(columns) - len(names)} more columns" if len(columns) > len(names) else ""
        caption = f"{len(rows)} of {len(self)} samples, step {self.step}{hidden}"
        return table(caption, names, rows)

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"sample": self.samples}
        if self.folds is not None:
            columns["fold"] = self.folds
        if self.times is not None:
            columns["time"] = self.times
        if self.instruments is not None:
            columns["instrument"] = self.instruments
        for name, table in {"": self.values, **self.named}.items():
            for horizon in range(table.shape[1]):
                # A name that one task alone has says nothing of the horizons of others.
                if not name.startswith("t") or not len(table) or not np.isnan(table[:, horizon]).all():
                    columns[f"h{horizon + 1}" + (f"_{name}" if name else "")] = table[:, horizon]
        tables = {"": self.targets} if self.true_classes is None else {"": self.true_classes, "_value": self.targets}
        for ending, table in tables.items():
            for target in range(0 if np.isnan(table).all() else table.shape[1]):
                columns[f"target{target + 1}{ending}"] = table[:, target]
        return columns


def _shown(value: Any) -> object:
    """A value of a table in a notebook."""
    if isinstance(value, np.datetime64):
        return _minute(value)
    return value.item() if isinstance(value, np.generic) else value


def _minute(time: np.datetime64) -> str:
    return f"{np.datetime_as_string(time, unit='m')} UTC"


@dataclasses.dataclass(frozen=True)
class Forecast:
    """A prediction at the close of a bar."""

    time: np.datetime64
    """When the bar closed, UTC."""
    values: npt.NDArray[np.float32]
    """`[K]`."""
    named: dict[str, npt.NDArray[np.float32]]
    """Quantiles, or probabilities of classes, `[K]` each."""

    @staticmethod
    def _of(line: str) -> Forecast:
        facts = json.loads(line)
        time = np.datetime64(facts.pop("time_ns"), "ns")
        values = np.array(facts.pop("predictions"), dtype=np.float32)
        named = {name: np.array(own, dtype=np.float32) for name, own in facts.items() if isinstance(own, list)}
        return Forecast(time, values, named)


class Follower:
    """A model that predicts bars as they come."""

    def __init__(
        self,
        native: _megabatch.Follower,
        bars: Any,
        symbol: str | None,
        zone: str | None,
        inputs: _pushed_bar.Inputs,
    ) -> None:
        self._native = native
        self._bars = bars
        self._symbol = symbol
        self._zone = zone
        self._inputs = inputs
        self._columns: list[tuple[str, Any]] = []
        """Numbers of a bar that is pushed: their names in a header, and in the bar."""
        self._names: set[str] = set()
        """Other forms of the symbol, which are taken for it."""
        self._symbol_keys: set[str] = set()
        """Fields that have had the symbol."""
        self._lines = 0
        self._pushed = 0
        self.totals: dict[str, Any] | None = None
        """Bars, predictions, dropped and refused rows and holes, once the stream has ended."""

    def push(self, bar: Mapping[str, Any]) -> Forecast | None:
        """Takes the next closed bar: `time` (when it opened: a datetime, a date, a numpy time, a text, or a number of s,
        ms, µs or ns since 1970), `open`, `high`, `low`, `close` and, if they are known, `volume` and the other columns of
        a file, named as the columns of a frame may be, in any case of letters; or a row of a frame such as
        `frame.iloc[-1]`, with the time among its fields or in the index, also as a named tuple of `frame.itertuples()`,
        or a frame of one row. `None` while windows are
        not full, and for a bar that was known before. A bar that cannot be used, or whose `symbol` is another one, raises
        `DataError` and counts for nothing: the stream goes on with the next."""
        takes = 'a mapping such as {"time": …, "open": …, "high": …, "low": …, "close": …}'
        _arguments.require(_pushed_bar.is_bar(bar), bar, "bar", takes)
        bar = _pushed_bar.as_bar(bar, self._symbol)
        time = _pushed_bar.time_in(bar)
        self._require_own(bar)
        header = ""
        columns = self._columns
        if not columns:
            columns = _pushed_bar.columns_in(bar)
            header = ",".join(["datetime", *(name for name, _ in columns)]) + "\n"
        present = columns
        if not all(own in bar for _, own in columns):
            # Keys may have another case than those of the first bar.
            known = dict(_pushed_bar.columns_in(bar))
            present = [(name, known.get(name, own)) for name, own in columns]
        numbers = [_pushed_bar.number_text(bar, name, own, self._inputs) for name, own in present]
        line = ",".join([_pushed_bar.time_text(time, self._zone), *numbers])
        self._columns = columns
        self._pushed += 1
        forecasts, refused = self._push((header + line + "\n").encode(), drops=False)
        if refused is not None:
            refused.fields["row"] = self._pushed - 1
            raise refused
        return forecasts[-1] if forecasts else None

    def _require_own(self, bar: Mapping[str, Any]) -> None:
        """Refuses a bar of another symbol. Without one to follow, all bars are of the first that names one. A field such as
        `company` names one once it has had the symbol."""
        found = _frames.symbol_in(bar)
        if found is None:
            return
        key, name, is_sure = found
        self._symbol = symbol = self._symbol or (name if is_sure else None)
        if symbol is None:
            return
        if name not in self._names and not _frames.is_in_other_case(name, symbol):
            if _megabatch.likely_symbol(name, [symbol]) is None:
                if not is_sure and key not in self._symbol_keys:
                    return
                raise DataError(
                    f"{key} of the bar is {name}, and the bars of {symbol} are followed: leave out bars of other symbols, or "
                    f"this field if it names none",
                    column=key,
                    found=name,
                )
            log.warning("the bars: those of %s are taken for those of %s", name, symbol)
            self._names.add(name)
        self._symbol_keys.add(key)

    def _push(self, text: bytes, drops: bool = True) -> tuple[list[Forecast], DataError | None]:
        """The forecasts before the first row that cannot be used, or before an error that ends the stream, and the error.
        With `drops` rows that the rule of the data drops are only told."""
        self._lines += text.count(b"\n")
        lines, notes, refused = self._native.push(text)
        for note in notes:
            if note.endswith(_DROPPED) and not drops:
                refused = refused or (0, DataError(note.removesuffix(_DROPPED)))
            else:
                log.warning("%s", in_python(note))
        forecasts = [Forecast._of(line) for line in lines]
        return (forecasts, None) if refused is None else (forecasts[: refused[0]], refused[1])

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
            return
        # The exception that ends the block is the one to tell.
        with contextlib.suppress(MegabatchError):
            self.close()

    def close(self) -> dict[str, Any]:
        """Ends the stream, and gives its totals."""
        if self.totals is None:
            _, self.totals = self._native.close()
        return self.totals

    def __iter__(self) -> Iterator[Forecast]:
        if self._bars is None:
            raise ConfigError("no bars were given to follow; push them one by one, or give them to follow")
        if _frames.is_frame(self._bars):
            yield from self._frame(self._bars)
        else:
            bars: Iterable[Mapping[str, Any]] = self._bars
            for bar in bars:
                forecast = self.push(bar)
                if forecast is not None:
                    yield forecast
        self.close()

    def _frame(self, frame: Any) -> Iterator[Forecast]:
        if not len(frame):
            return
        if self._symbol is None:
            found = _frames.by_symbol(frame, None, columns=None)
        else:
            symbol, found = _frames.by_likely_symbol(frame, self._symbol, None)
            if not _frames.is_in_other_case(symbol, self._symbol):
                log.warning("the frame: rows of %s are taken for those of %s", symbol, self._symbol)
        by_symbol = list(found.values())
        if len(by_symbol) > 1:
            own = next(iter(found))
            raise ConfigError(
                f'the frame has bars of {len(by_symbol)} symbols; symbol="{own}" follows those of {own}', key="symbol"
            )
        if not len(by_symbol[0].rows):
            return
        # As of bars that are pushed one by one: without a zone they are UTC.
        bars = by_symbol[0] if self._zone is not None else dataclasses.replace(by_symbol[0], is_utc=True)
        with tempfile.TemporaryDirectory(prefix="megabatch-") as folder:
            path = pathlib.Path(folder) / "bars.csv"
            _megabatch.write_bars(path, bars.native())
            lines = path.read_bytes().splitlines(keepends=True)
        lines_before = self._lines
        for first in range(0, len(lines), _PUSHED_LINES):
            forecasts, refused = self._push(b"".join(lines[first : first + _PUSHED_LINES]))
            yield from forecasts
            if refused is not None:
                file = refused.fields.get("file")
                # An error of a function has none.
                raise refused if file is None else by_symbol[0].with_row(refused, file, lines_before)


_PUSHED_LINES = 64
"""Lines of a frame that are pushed at once: an interrupt ends the stream between them."""
_DROPPED = "; dropped"
"""The end of a remark on a row that is dropped, of `refuse` in crates/bars/src/read/bar_lines.rs."""
