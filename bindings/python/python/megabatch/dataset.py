"""Datasets: files of series, windows or graphs, and parts of them."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import inspect
import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Union

import numpy as np
import numpy.typing as npt

from . import _arguments, _features, _frames, _functions, _megabatch, _settings, _table_files
from ._bar_sources import BarSource, BarSources
from ._bars_folder import BarsFolder
from ._context import Context
from ._features import triple_barrier
from ._html import table
from ._ingest_options import IngestOptions
from ._ingest_report import IngestReport, count_missing
from ._loader_arguments import warn_of_missing_ranks, warn_of_unequal_parts
from ._options_help import given
from ._requirements import ARRAYS, required
from ._settings_types import Settings
from ._wording import in_python, with_arguments
from .errors import ConfigError, DataError, MegabatchError
from .loader import CHUNK_BYTES, Batch, GatheredSamples, Loader, LoaderOptions, TensorOptions

if TYPE_CHECKING:
    from ._devices import DeviceName, NumberType
    from ._tensors import SeriesTensors
    from ._torch import TensorBatches

StrPath = Union[str, "os.PathLike[str]"]

__all__ = ["Dataset", "LeakProof", "Scaler", "Timeframe", "ingest", "leak", "open", "triple_barrier"]


@dataclasses.dataclass(frozen=True)
class Timeframe:
    """A timeframe of a dataset."""

    name: str
    """Its name, such as `M5`; empty where the file does not name it."""
    steps: int
    """Length of a window in bars, T."""
    features: tuple[str, ...]
    """Names of the features; `feature_0` and so on where the file does not tell them."""
    bars: int | None
    """Number of bars of a series."""


@dataclasses.dataclass(frozen=True)
class Scaler:
    """Scaler of the features of a timeframe: `scaled = (raw - center) / scale`."""

    kind: str
    """`robust`, `standard` or `none`."""
    center: npt.NDArray[np.float64]
    """`[F]`, or `[I, F]` where each instrument has its own."""
    scale: npt.NDArray[np.float64]
    """As `center`."""
    fit_end: np.datetime64
    """It was fitted on the bars that closed before this time, UTC."""


class _Temporary:
    """A folder that goes with the last dataset that uses it."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="megabatch-"))
        self._remove = weakref.finalize(self, _remove_in_its_process, self.path, os.getpid())


def _remove_in_its_process(path: pathlib.Path, process: int) -> None:
    if process == os.getpid():
        shutil.rmtree(path, ignore_errors=True)


class Dataset:
    """Samples of a file, or a part of them."""

    def __init__(
        self,
        path: StrPath,
        *,
        resident: bool = False,
        _whole: Dataset | None = None,
        _indices: npt.NDArray[np.int64] | None = None,
        _part: str | None = None,
        _keeps: _Temporary | None = None,
        _report: IngestReport | None = None,
    ) -> None:
        _frames.refuse(path, "open")
        path = _arguments.require_path(path, "path", "the path of a file of samples, such as mb.ingest(…, out=path) writes")
        self._path = pathlib.Path(path).absolute()
        self._resident = _arguments.flag(resident, "resident")
        self._indices = _indices
        self._part = _part
        self._report = _report
        self._native: _megabatch.Dataset
        self._facts: dict[str, Any]
        self._keeps: _Temporary | None
        # By device and type; parts of a file share them.
        self._on_devices: weakref.WeakValueDictionary[Any, SeriesTensors]
        # True for each sample of a windows file whose numbers are known to be finite; parts of a file share them.
        self._are_checked: npt.NDArray[np.bool_] | None
        if _whole is not None:
            self._native, self._facts, self._keeps = _whole._native, _whole._facts, _whole._keeps
            self._on_devices, self._are_checked = _whole._on_devices, _whole._are_checked
            return
        self._native = _megabatch.Dataset(self._path, resident=self._resident)
        self._facts, self._keeps, self._on_devices = self._native.facts(), _keeps, weakref.WeakValueDictionary()
        self._are_checked = np.zeros(self._native.units(), np.bool_) if self.layout == "windows" else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._path, self._resident, self._indices, self._part)

    @property
    def path(self) -> pathlib.Path:
        """The file."""
        return self._path

    @property
    def layout(self) -> str:
        """`series`, `windows` or `graphs`."""
        return str(self._facts["layout"])

    @property
    def part(self) -> str | None:
        """`train`, `validation` or `test`; `None` for the whole file."""
        return self._part

    @property
    def report(self) -> IngestReport | None:
        """Rows that were read, repaired and dropped for a series. There is one on the dataset that `ingest` or `append`
        gives; `None` on that of `open`, as the file does not keep it: `ds.report.facts` can be kept as JSON."""
        return self._report

    @property
    def indices(self) -> npt.NDArray[np.int64]:
        """Numbers of the samples in the file; graphs, for a file of graphs."""
        return np.arange(self._native.units()) if self._indices is None else self._indices

    def __len__(self) -> int:
        return self._native.units() if self._indices is None else len(self._indices)

    @property
    def timeframes(self) -> dict[str, Timeframe]:
        """Timeframes by name, shortest first."""
        made = {}
        for facts in self._facts["timeframes"]:
            names = facts["feature_names"] or [f"feature_{n}" for n in range(facts["features"])]
            made[facts["name"]] = Timeframe(facts["name"], facts["steps"], tuple(names), facts["bars"])
        return made

    @property
    def features(self) -> dict[str, tuple[str, ...]]:
        """Names of the features by timeframe."""
        return {name: timeframe.features for name, timeframe in self.timeframes.items()}

    @property
    def scalers(self) -> dict[str, Scaler]:
        """Scalers of the features by timeframe, where the file has them: the numbers of its bars are scaled."""
        found = {}
        for k, (name, timeframe) in enumerate(self.timeframes.items()):
            numbers = self._native.scaler(k) if self.layout == "series" else None
            if numbers is not None:
                kind, *values, fit_end = numbers
                center, scale = (np.frombuffer(own, np.float64).reshape(-1, len(timeframe.features)) for own in values)
                if len(center) == 1:
                    center, scale = center[0], scale[0]
                found[name] = Scaler(kind, center, scale, np.datetime64(fit_end, "ns"))
        return found

    @property
    def targets(self) -> int:
        """Number of targets of a sample, K."""
        return int(self._facts["targets"])

    @property
    def instruments(self) -> tuple[str, ...]:
        """Names of the instruments; empty where the file names none."""
        names, symbol = self._facts["instruments"], self._facts["symbol"]
        # `sample_instruments` are places among several.
        return tuple(names) if names or symbol in (None, "", _frames.UNNAMED) else (symbol,)

    @property
    def facts(self) -> dict[str, Any]:
        """Everything that is known of the file, as JSON has it."""
        return dict(self._facts)

    @property
    def times(self) -> npt.NDArray[np.datetime64] | None:
        """Time of each sample, UTC, where the file has times."""
        times = self._native.sample_times()
        if times is None:
            return None
        own = np.frombuffer(times, dtype="datetime64[ns]")
        return own if self._indices is None else own[self._indices]

    @property
    def span(self) -> tuple[np.datetime64, np.datetime64] | None:
        """First and last time of the samples."""
        times = self.times
        return None if times is None or not len(times) else (times.min(), times.max())

    @property
    def sample_instruments(self) -> npt.NDArray[np.int32] | None:
        """Index of each sample's instrument in `instruments`, where the file has several."""
        found = self._native.sample_instruments()
        if found is None:
            return None
        own = np.frombuffer(found, dtype=np.int32)
        return own if self._indices is None else own[self._indices]

    @property
    def weights(self) -> npt.NDArray[np.float32] | None:
        """Weight of each sample in the loss of training, where the file has weights."""
        found = self._native.sample_weights()
        if found is None:
            return None
        own = np.frombuffer(found, dtype=np.float32)
        return own if self._indices is None else own[self._indices]

    def fingerprint(self) -> str:
        """A hash of the numbers of the file."""
        return self._native.fingerprint()

    def _chosen(self, indices: npt.NDArray[np.int64], part: str | None = None) -> Dataset:
        """These samples of the file, which is not read again."""
        return Dataset(self._path, resident=self._resident, _whole=self, _indices=indices, _part=part)

    def _part_of(self, name: str, indices: bytes) -> Dataset:
        return self._chosen(np.frombuffer(indices, dtype=np.int64), name)

    def _parts(self, parts: tuple[bytes, bytes, bytes, int]) -> tuple[Dataset, Dataset, Dataset]:
        train, validation, test, _ = parts
        return self._part_of("train", train), self._part_of("validation", validation), self._part_of("test", test)

    def _require_whole(self, purpose: str) -> None:
        if self._indices is not None:
            raise ConfigError(
                f"this dataset is the part {self._part} of {self._path}, and {purpose} takes the whole file, which it "
                f"splits by data.split itself"
            )

    def split(
        self, fractions: Sequence[float] = (0.7, 0.15, 0.15), *, purge: str | datetime.timedelta = "auto"
    ) -> tuple[Dataset, Dataset, Dataset]:
        """The samples for training, validation and test, by time. Samples whose windows overlap a label of another
        part are left out, as training does with these settings.

        `purge="auto"` takes the end of each label from the file: its list `/samples/label_end_time`, or the attribute
        `horizon_bars`. A file with neither is refused, and so are windows whose timeframes are not named by the length of
        their bars, without `/samples/reach_time`; a time such as `purge="8d"`, or a `timedelta`, needs nothing of this.
        Before h5py writes them, delete the dataset, which has the file open.
        """
        with _named_by(_SPLIT_ARGUMENTS):
            self._require_whole("split")
            settings = {"data.split": _fractions(fractions), "data.purge": purge}
            return self._parts(self._native.split(*_settings.sources(settings, {})))

    def walk_forward(
        self,
        folds: int,
        fractions: Sequence[float] = (0.7, 0.15, 0.15),
        *,
        purge: str | datetime.timedelta = "auto",
        window: str = "expanding",
        overlap: float = 0.0,
    ) -> list[tuple[Dataset, Dataset, Dataset]]:
        """The split of each fold of a walk forward through the last part of `fractions`, with the `purge` of
        `split`."""
        with _named_by(_FOLD_ARGUMENTS):
            self._require_whole("walk_forward")
            settings = {
                "data.split": _fractions(fractions),
                "data.purge": purge,
                "data.walk_forward": folds,
                "data.walk_forward_window": window,
                "data.walk_forward_overlap": overlap,
            }
            return [self._parts(fold) for fold in self._native.walk_forward(*_settings.sources(settings, {}))]

    def append(
        self,
        bars: BarSource | None = None,
        *,
        bid: BarSource | None = None,
        ask: BarSource | None = None,
        symbol: str | None = None,
        features: _functions.Features | None = None,
        target: _functions.BarFunction | None = None,
        context: Mapping[str, Any] | None = None,
        symbol_pattern: str | None = None,
        pip_size: float | str | Mapping[str, float] | None = None,
        format: Literal["histdata", "metatrader", "iso", "year-last", "epoch"] | None = None,
        date_order: Literal["day-first", "month-first"] | None = None,
        time: Literal["open", "close"] | None = None,
        zone: str | None = None,
        base: str | None = None,
        bins: str | None = None,
        own_bars: bool | None = None,
        prices: Literal["auto", "quoted", "adjusted"] | None = None,
        on_error: Literal["fail", "skip", "repair"] | None = None,
        repeats: Literal["refuse", "first", "last"] | None = None,
        overlaps: Literal["refuse", "once"] | None = None,
        calendar: Literal["all", "common"] | None = None,
        stride: int | None = None,
        longest_hole: str | None = None,
        weekends: Literal["span", "split"] | None = None,
        scaling: Literal["robust", "standard", "none"] | None = None,
        train_fraction: float | None = None,
        **others: NoReturn,
    ) -> Dataset:
        """Adds bars that came since to a series file, and gives the dataset of the longer file; this one stays as it
        was.

        A series with functions needs these again, as `features=[function]` and `target=function`. They are called with
        all bars, and must give the values that the series has.

        `bars`, or `bid` and `ask`, are those of `ingest`. They may overlap the bars of before, where they are equal. A
        longer `context` needs no bars.
        Scalers and options stay, and none need be stated again. The files that the series was made of are read again; a
        frame adds one to the folder beside the series. Its times without a zone are by the clock of the series; `zone`
        names another one, unless the series was made with one. `help(mb.IngestOptions)` explains the options from
        `symbol_pattern` on.
        """
        options = _named(locals())
        self._require_whole("append")
        if self.layout != "series":
            raise DataError(f"{self._path}: /@layout: expected a series, as `ingest` writes it, found {self.layout}")
        # A file of one instrument has its symbol alone.
        known = self.instruments or tuple(filter(None, [self._facts["symbol"]]))
        unnamed = known[0] if len(known) == 1 else ""
        beside: dict[str, Any] = {"context": _context(context)[0]}
        functions = _functions_again(features, target, context, self._path)
        if context and bars is None and bid is None and ask is None:
            answer = _megabatch.append([], _options({**options, **beside, "symbol": symbol}), self._path, functions)
            return self._again(_told(answer))
        sources = BarSources.open(bars, bid, ask, symbol or unnamed or None)
        named = {**sources.options(), **options, **beside}
        if not sources.are_frames:
            files, sides = sources.paths()
            named["symbol"] = symbol
            return self._again(_told(_megabatch.append(files, _options({**named, **sides}), self._path, functions)))
        columns = _features.columns_of(next(iter(self.features.values())), self._facts["target_kind"])
        columns += _features.columns_of(_megabatch.function_inputs(self._path)[0], None)
        columns += filter(None, [self._facts["weight_column"]])
        end_column = self._facts["label_end_column"]
        frames = sources.by_symbol(symbol, columns, end_column, unnamed, known).named_as(known)
        empty = frames.empty()
        # A row without prices is a missing bar, and so are all of them.
        _frames.refuse_empty(empty, len(frames.symbols()), "skip")
        frames = frames.without(empty)
        strange = [name for name in frames.symbols() if name not in known]
        if strange:
            advice = "; a new symbol needs a scaler of its own: ingest all bars anew"
            if not strange[0]:
                advice = "; name the instrument with symbol"
            elif _frames.did_you_mean(strange[0], known):
                advice = ""
            subject = f"symbol {strange[0]!r}" if strange[0] else "the bars name no symbol"
            column = sources.symbol_column(known)
            told = f"the column {column} names it, and " if column and strange[0] else ""
            raise DataError(
                f"{subject}: {told}{self._path} has {_frames.nearest(strange[0], known)}{advice}", column=column or "symbol"
            )
        clock, _ = _megabatch.clock_and_symbols(self._path)
        # Where a clock was stated, options have it.
        if not frames.are_utc() and (clock is None or not clock[1]):
            frames = frames.by_clock(named.pop("zone", None) or (clock and clock[0]))
        folder = BarsFolder(self._path)
        before = folder.files()
        with frames.written(folder) as (files, sides):
            answer = _megabatch.append(files, _options({**named, **sides}), self._path, functions)
        missing = [f"{name}: {found}, and it has no new bar" for name, found in empty.items()]
        answer[1].setdefault("warnings", []).extend(missing)
        counted = count_missing(answer[1], frames.missing())
        report = _told(answer, [*(f"warning: {sentence}" for sentence in missing), *counted])
        if not report.facts["appended"]["files"]:
            folder.keep_only(before)
        return self._again(report)

    def _again(self, report: IngestReport) -> Dataset:
        return Dataset(self._path, resident=self._resident, _keeps=self._keeps, _report=report)

    def loader(
        self,
        batch_size: int = 256,
        *,
        shuffle: bool = False,
        seed: int = 0,
        run_length: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        chunk_bytes: int = CHUNK_BYTES,
        overlap: bool = False,
        **others: NoReturn,
    ) -> Loader:
        """Batches of the samples, see `Loader`; `help(mb.LoaderOptions)` explains its options."""
        return Loader(self, batch_size, **given(LoaderOptions, locals()))

    def torch(
        self,
        batch_size: int = 256,
        *,
        device: DeviceName | None = None,
        dtype: NumberType | None = None,
        overlap: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        run_length: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        chunk_bytes: int = CHUNK_BYTES,
        **others: NoReturn,
    ) -> TensorBatches:
        """The batches of `loader` as tensors, for `torch.utils.data.DataLoader(…, batch_size=None, num_workers=0)` or
        a loop of its own: the same samples in the same order. With `shuffle=True` a batch of a series is a run of
        neighbouring samples unless `run_length=1`, which gathers more slowly.

        With `device` they are gathered there: the bars of a series lie on it once, and parts of a file share them. Bars
        that do not fit into 0.75 of its free memory, with a warning of the log `megabatch`, and windows of a file are
        gathered on the CPU, and each batch is copied; `plan()` of what is returned says which, before anything is read.
        `dtype` is that of the windows, torch.float16 or torch.bfloat16.
        With `overlap` windows of consecutive samples that are evenly apart are views of the bars: what is written to
        one is seen in others. `help(mb.TensorOptions)` explains the other options."""
        options = given(TensorOptions, locals())
        with required("dataset.torch()", ARRAYS):
            from ._torch import TensorBatches

        overlap = _arguments.flag(overlap, "overlap")
        if device is None and (overlap or dtype is not None):
            raise TypeError("overlap and dtype are of batches on a device: give device, which may be cpu")
        loader = self.loader(batch_size, **options)
        warn_of_missing_ranks(loader._options["world_size"])
        warn_of_unequal_parts(loader._options["batch_size"], loader._options["world_size"])
        return TensorBatches(loader, device, dtype, overlap)

    def tensors(self, device: DeviceName = "cpu", *, dtype: NumberType | None = None) -> SeriesTensors:
        """The samples of a series on a device: its bars, what finds windows in them, and targets. `dtype` is that of the
        bars, torch.float16 or torch.bfloat16."""
        with required("dataset.tensors()", ARRAYS):
            from ._tensors import series_tensors

        whole = series_tensors(self, device, dtype)
        return whole if self._indices is None else whole.part(self._indices)

    def __getitem__(self, samples: int | slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> Batch:
        """The samples of these places, as a batch; a sample of its own has no first dimension."""
        part = self._at(samples)
        if not len(part):
            # A batch has a sample at least: its arrays, without it.
            one = self._chosen(np.zeros(1, np.int64)).loader(1)
            arrays = next(one._batches(one._native.epoch, _megabatch.Epoch.next_arrays))
            return {key: array[:0] for key, array in arrays.items()}
        batch = next(iter(part.loader(len(part))))
        if isinstance(samples, (int, np.integer)):
            return {key: array[0] for key, array in batch.items()}
        return batch

    def _at(self, samples: int | slice | Sequence[int] | npt.NDArray[np.integer[Any]]) -> Dataset:
        """The samples of these places."""
        if isinstance(samples, str):
            index = f"dataset.instruments.index({samples!r})"
            advice = f"those of an instrument are dataset[dataset.sample_instruments == {index}]"
            if samples in self.timeframes:
                advice = f"the windows of a timeframe are dataset[:8][{samples!r}]"
            elif self.times is not None and _megabatch.is_time(samples):
                advice = f"those from a time on are dataset[dataset.times >= numpy.datetime64({samples!r})]"
            elif self.sample_instruments is None:
                advice = "places are numbers, as in dataset[0] or dataset[:8]"
            raise ConfigError(f"samples are chosen by their places, and {samples!r} is none; {advice}", key="samples")
        if isinstance(samples, slice):
            chosen = self.indices[samples]
        else:
            places = np.asarray(samples)
            is_mask = places.dtype.kind == "b" and places.ndim == 1
            if not is_mask and (places.ndim > 1 or (places.size and places.dtype.kind not in "iu")):
                raise _arguments.wrong(samples, "samples", "a whole number, a slice, a list of whole numbers or a mask")
            places = places if is_mask else places.astype(np.int64)
            chosen = np.atleast_1d(self.indices[places]) if is_mask or self._indices is not None else self._numbers(places)
        return self._chosen(chosen.astype(np.int64))

    def __getitems__(self, samples: Sequence[int]) -> Sequence[Batch]:
        """The samples of these places, each as `[place]` gives it. PyTorch's `DataLoader` asks for a batch by it, which
        is gathered at once; its `collate_fn=mb.collate` takes the batch as it was gathered."""
        part = self._at(samples)
        if not len(part):
            return []
        # PyTorch makes tensors of the arrays, which may be written.
        return GatheredSamples(batch=next(part.loader(len(part))._writable_batches()))

    def _numbers(self, places: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Numbers of the samples at these places of the whole file, as `indices` has them, which takes a list of all."""
        count, numbers = len(self), np.atleast_1d(places).astype(np.int64)
        wrong = numbers[(numbers < -count) | (numbers >= count)]
        if wrong.size:
            raise IndexError(f"index {wrong[0]} is out of bounds: {self._path} has {count} samples")
        return np.where(numbers < 0, numbers + count, numbers)

    def _repr_html_(self) -> str:
        """A row for each timeframe."""
        span = "" if self.span is None else ", {} to {} UTC".format(*(np.datetime_as_string(time, unit="m") for time in self.span))
        part = f", part {self._part}" if self._part else ""
        rows = [
            [name or "features", "" if of.bars is None else of.bars, of.steps, ", ".join(of.features)]
            for name, of in self.timeframes.items()
        ]
        caption = f"{self._path}: {len(self)} samples of {self.targets} targets{part}{span}"
        return table(caption, ["timeframe", "bars", "bars in a window", "features"], rows)

    def __repr__(self) -> str:
        part = f", part {self._part}" if self._part else ""
        windows = ", ".join(f"{name or 'features'} [{of.steps}, {len(of.features)}]" for name, of in self.timeframes.items())
        return f"<megabatch.Dataset {self._path}: {len(self)} samples{part}; {windows}; {self.targets} targets>"


def _reopened(
    path: pathlib.Path, resident: bool, indices: npt.NDArray[np.int64] | None, part: str | None
) -> Dataset:
    return Dataset(path, resident=resident, _indices=indices, _part=part)


_SPLIT_ARGUMENTS = {"data.split": "fractions", "data.purge": "purge"}
"""Arguments of `split` by the settings of training that they are."""
_FOLD_ARGUMENTS = {
    **_SPLIT_ARGUMENTS,
    "data.walk_forward": "folds",
    "data.walk_forward_window": "window",
    "data.walk_forward_overlap": "overlap",
}


@contextlib.contextmanager
def _named_by(arguments: Mapping[str, str]) -> Iterator[None]:
    """Has errors speak of the arguments of a call, by the settings that they are."""
    try:
        yield
    except MegabatchError as error:
        error.args = (with_arguments(str(error), arguments),)
        if error.fields.get("key") in arguments:
            error.fields["key"] = arguments[error.fields["key"]]
        raise


def _fractions(fractions: Sequence[float]) -> list[float]:
    is_list = isinstance(fractions, Iterable) and not isinstance(fractions, str)
    shares: list[Any] = list(fractions) if is_list else [fractions]
    for share in shares:
        is_number = isinstance(share, (int, float, np.number)) and not isinstance(share, bool)
        _arguments.require(is_number, fractions, "fractions", "three numbers, for training, validation and test")
    if len(shares) != 3:
        raise ConfigError(f"fractions are {shares}: expected three, for training, validation and test", key="data.split")
    return [float(share) for share in shares]


def open(path: StrPath, *, resident: bool = False) -> Dataset:
    """A dataset of a series file, a windows file or a file of graphs (`.mbg`).

    Series and graphs are read into memory; graphs above 128 MiB are mapped. Windows stay in their file unless `resident` is true.
    """
    return Dataset(path, resident=resident)


def ingest(
    bars: BarSource | None = None,
    *,
    bid: BarSource | None = None,
    ask: BarSource | None = None,
    timeframes: Mapping[str, int] | str | None = None,
    target: _features.Target | _functions.BarFunction | None = None,
    horizon: int | None = None,
    label_end: str | None = None,
    weight: str | None = None,
    out: StrPath | None = None,
    symbol: str | None = None,
    features: _functions.Features | None = None,
    columns: Mapping[str, str] | None = None,
    context: Mapping[str, Any] | None = None,
    symbol_pattern: str | None = None,
    pip_size: float | str | Mapping[str, float] | None = None,
    format: Literal["histdata", "metatrader", "iso", "year-last", "epoch"] | None = None,
    date_order: Literal["day-first", "month-first"] | None = None,
    time: Literal["open", "close"] | None = None,
    zone: str | None = None,
    base: str | None = None,
    bins: str | None = None,
    own_bars: bool | None = None,
    prices: Literal["auto", "quoted", "adjusted"] | None = None,
    on_error: Literal["fail", "skip", "repair"] | None = None,
    repeats: Literal["refuse", "first", "last"] | None = None,
    overlaps: Literal["refuse", "once"] | None = None,
    calendar: Literal["all", "common"] | None = None,
    stride: int | None = None,
    longest_hole: str | None = None,
    weekends: Literal["span", "split"] | None = None,
    scaling: Literal["robust", "standard", "none"] | None = None,
    train_fraction: float | None = None,
    **others: NoReturn,
) -> Dataset:
    """Makes a dataset of aligned series of bars: `ingest(frame, features=["log_return", indicators], target=label)`,
    where `indicators` and `label` take closed bars and give as many rows.

    `bars` are a frame of pandas, polars or pyarrow, a mapping of frames by symbol, a mapping of frames or files by
    timeframe, `{"M1": minutes, "H1": hours}`, whose bars are taken as they are, or paths of files: text, or Parquet and
    Feather, which pandas, polars or pyarrow read as frames, by the symbols that the files are named after. Paths may begin
    with `~`, and be patterns such as `data/*.csv`. A frame has the
    columns `open`, `high`, `low` and `close`, a time as a column or as the index, and may have the other columns of a
    file, such as `volume`, `spread` and `adj close`, and `symbol`. Columns of two levels are those of yfinance. Times
    without a zone are UTC unless `zone` is given. Its bars are written as CSV to a folder beside `out`, so that `leak`
    and `follow` find them. A file that is at `out` is replaced. Without `out`, files go with the dataset.

    `bid` and `ask`, in place of `bars`, are the bars of both sides: prices are their means, and the spread is ask less
    bid at the close.

    `features` are names of built-in features, `"default"`, `"all"`, and columns of numbers of the frame, whose value is
    known when its bar closes (of files: `"column:NAME"`). In longer timeframes a column is its last value, or what
    `columns` says: `columns={"imbalance": "sum"}` (last, first, sum, mean, min, max). Rows before a column's first value
    are dropped; a value that is missing later is a fault of its row. A function among them takes the closed bars of one
    timeframe, a frame of the kind that was given, and gives a frame, a series or arrays with a row for each bar; its
    columns are features. As `target` it gives targets of the shortest bars and, in a column `label_end`, the time of the
    bar that decides each.

    `target` is `"cumulative"`, `"increment"` or `"log_return"` of the next `horizon` bars, `triple_barrier(…)`, or a
    column of numbers, or several: its value at a bar is the target of the sample at that bar's close, NaN where it is
    not known, and the `horizon` bars after it decide it. With `label_end`, a column of times, the bar of that time does:
    splits go by it, and a target without one is not known.

    `weight` is a column of numbers from 0 on: the weight of a sample in the loss of training, 0 where a bar has none.

    `context` are frames or files of other instruments by their names: `context={"DXY": dxy}`. Their features, the
    functions among `features` and the columns that they have stand beside those of each bar, as the last of their bars
    that had closed by its close says, under names such as `function:DXY.log_return`, with `DXY.age`, the time since the
    close of that bar over the length of a bar. Daily bars of theirs close after the day that dates them, whatever `time`
    is. Their bars count from the first of the instrument on. Files do not go together with functions.

    `help(mb.IngestOptions)` explains the options from `symbol_pattern` on. What became of the rows is the dataset's
    `report`; dropped rows, symbols that were left out and doubts are warnings of the log `megabatch`.
    """
    named = _named(locals())
    if out is not None:
        out = _arguments.require_path(out, "out", "the path of the file to write")
    if horizon is not None and not isinstance(horizon, str):
        horizon = _arguments.whole_number(horizon, "horizon", 1, "a whole number of base bars")
    sources = BarSources.open(bars, bid, ask, symbol)
    named = {**sources.options(), **named}
    own_columns = sources.own_columns()
    stated_target, label = _functions.split_target(target)
    aims = _features.targets(stated_target, own_columns)
    stated, called = _functions.split(features)
    files, others_frames = _context(context)
    calls = called or label is not None or others_frames
    if calls and files:
        raise ConfigError(
            f"context {files[0]}: functions and frames do not go together with files: read its bars and give the frame", key="context"
        )
    weights = _features.own_column("weight", weight, own_columns)
    weight_column = _features.column_name(weights)
    seen = _seen(sources, columns, [*_features.columns_of([], aims), weight_column]) if calls else []
    if calls and features is None:
        stated = ["default"]
    names, passed = _features.named(stated, columns, own_columns, seen)
    functions = None
    if calls:
        read_by = dict(_options({name: named[name] for name in _READING if name in named}))
        others_bars = [Context(name, frame, names or [], read_by, bool(called)) for name, frame in others_frames.items()]
        functions = _functions.Functions(called, label, sources.library, others_bars).native()
    if isinstance(target, _features.TripleBarrier):
        if horizon not in (None, target.horizon):
            raise ConfigError(f"horizon={horizon}: triple_barrier has a horizon of {target.horizon}", key="horizon")
        horizon = target.horizon
    ends = _features.own_column("label_end", label_end, own_columns)
    named.update({"timeframes": timeframes, "target": aims, "horizon": horizon, "features": names or None})
    named.update({"label-end": ends, "weight": weights, "context": files})
    named["function-columns"] = passed or None
    keeps = _Temporary() if out is None else None
    file = keeps.path / "series.h5" if keeps else pathlib.Path(out or "").expanduser()
    if not sources.are_frames:
        files, sides = sources.paths()
        named["symbol"] = symbol
        answer = _megabatch.ingest(files, _options({**named, **sides}), file, functions)
        return Dataset(file, _keeps=keeps, _report=_told(answer))
    read = [*_features.columns_of(names or [], aims), *_features.columns_of(passed, None)]
    if weight_column is not None and weight_column not in read:
        read.append(weight_column)
    end_column = _features.column_name(ends)
    frames = sources.by_symbol(symbol, read, end_column)
    empty = frames.empty()
    _frames.refuse_empty(empty, len(frames.symbols()), named.get("on-error"))
    frames = frames.without(empty)
    if isinstance(named.get("pip-size"), Mapping):
        # A size of a symbol without bars is taken for a misspelled one.
        named["pip-size"] = {name: size for name, size in named["pip-size"].items() if str(name) not in empty} or None
    folder = BarsFolder(file)
    before = folder.files()
    symbols = frames.symbols()
    if len(symbols) == 1:
        named["symbol"] = symbols[0]
    else:
        named["symbol-pattern"] = frames.symbol_pattern
    named.setdefault("format", "iso")
    with frames.written(folder) as (files, sides):
        answer = _megabatch.ingest(files, _options({**named, **sides}), file, functions)
    folder.keep_only(name for name in folder.files() if name not in before)
    answer[1]["unused_columns"] = [
        name for name in own_columns or [] if name not in read and name != end_column
    ]
    reasons = {name: f"{name}: {found}" for name, found in empty.items()}
    answer[1]["universe"]["left_out"] += [{"symbol": name, "reason": reason} for name, reason in reasons.items()]
    counted = count_missing(answer[1], frames.missing())
    told = _told(answer, [*(f"left out: {reason}" for reason in reasons.values()), *counted])
    return Dataset(file, _keeps=keeps, _report=told)


def _context(context: Mapping[str, Any] | None) -> tuple[list[str], dict[str, Any]]:
    """Files of other instruments, as `ingest` takes them, and frames."""
    is_mapping = context is None or isinstance(context, Mapping)
    _arguments.require(is_mapping, context, "context", 'frames or files by the names of instruments, such as {"DXY": dxy}')
    own = _table_files.as_frames(dict(context or {}))
    paths = {name: one for name, one in own.items() if isinstance(one, (str, os.PathLike))}
    frames = {name: one for name, one in own.items() if name not in paths}
    return [f"{name}={os.path.abspath(os.path.expanduser(path))}" for name, path in paths.items()], frames


def _seen(sources: BarSources, columns: Mapping[str, str] | None, hidden: Sequence[str | None]) -> list[str]:
    """Columns that functions see: of frames all numbers but the targets and the weight, of files those of `columns`."""
    if not sources.are_frames:
        return list(columns or [])
    return [name for name in sources.number_columns() if name not in hidden]


def _functions_again(
    features: _functions.Features | None,
    target: _functions.BarFunction | None,
    context: Mapping[str, Any] | None,
    path: pathlib.Path,
    *,
    doubts_end: bool = True,
) -> dict[str, Any] | None:
    """Functions of the series at `path`, given again, perhaps beside names of its other features."""
    called = _functions.given_again(features, path)
    _, frames = _context(context)
    if not called and target is None and not frames:
        return None
    _, library, names, read_by, _ = _megabatch.function_inputs(path)
    others = [Context(name, frame, names, dict(read_by), bool(called)) for name, frame in frames.items()]
    return _functions.Functions(called, target, library, others, doubts_end=doubts_end).native()


def _told(answer: tuple[str, dict[str, Any]], lines: Iterable[str] = ()) -> IngestReport:
    """The report, with further `lines` in front, which has been said to the log."""
    text, facts = answer
    report = IngestReport("".join(f"{line}\n" for line in lines) + in_python(text), facts)
    report.log()
    return report


def _named(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `ingest` among the arguments of a call, by their names on the command line."""
    options = given(IngestOptions, arguments)
    if "progress" in options:
        raise ConfigError("progress: ingest and append have no argument progress, and show none; leave it out", key="progress")
    for name in arguments["others"]:
        _require_option(name)
    return {name.replace("_", "-"): value for name, value in options.items() if value is not None}


def _require_option(name: str) -> None:
    """Refuses a name that is no argument of `ingest`; `append` takes those of a recipe."""
    parameters = inspect.signature(ingest).parameters.values()
    known = sorted(one.name for one in parameters if one.kind is one.KEYWORD_ONLY)
    if name in _KEPT:
        raise ConfigError(f"{name}: an argument of ingest alone; a series keeps its {_KEPT[name]}: leave it out", key=name)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, 1, 0.0)[0]
        raise ConfigError(f"{name}: no option of a recipe; the nearest is {nearest}, and all are {', '.join(known)}", key=name)


_KEPT = {"columns": "columns", "out": "file"}
"""What arguments of `ingest` decide that `append` has not."""
_REPEATED = ("ask", "bid", "context")
"""Options that are given once for each value."""
_READING = ("zone", "time", "prices", "on-error", "repeats")
"""Options by which rows are read, those of other instruments too. `READING` of crates/run/src/ingest/recipe/words.rs."""


def _options(named: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    for name, value in named.items():
        if value is None:
            continue
        if name in _REPEATED:
            found += [(name, one) for one in value]
            continue
        if isinstance(value, Mapping):
            joined = ":" if name == "timeframes" else "="
            text = ",".join(f"{key}{joined}{own}" for key, own in value.items())
        elif isinstance(value, (list, tuple)):
            text = ",".join(map(str, value))
        else:
            text = _settings.text(value, name)
        found.append((name, text))
    return found


@dataclasses.dataclass(frozen=True)
class LeakProof:
    """A proof that no sample sees the future."""

    text: str
    facts: dict[str, Any]

    def __repr__(self) -> str:
        return self.text


def leak(
    dataset: Dataset | StrPath,
    *,
    samples: int = 32,
    seed: int = 0,
    source: Sequence[StrPath] = (),
    config: Settings | Mapping[str, Any] | None = None,
    features: _functions.Features | None = None,
    target: _functions.BarFunction | None = None,
    context: Mapping[str, Any] | None = None,
) -> LeakProof:
    """Proves that no sample of a series file sees a bar that had not closed, or raises `DataError` with the first one
    that does.

    The series is made again from its bars and compared. `source` says where the bars are now, if they were moved, and
    `context` where the files of other instruments are.

    A series with functions needs these again, as `features=[function]` and `target=function`. They are replayed on bars
    that end earlier, and on bars that go on with other values: what they say of the bars before must stay the same, and
    a target once its label has ended.
    """
    _frames.refuse(dataset, "leak")
    if isinstance(dataset, Dataset):
        dataset._require_whole("leak")
        path = dataset.path
    else:
        path = pathlib.Path(_arguments.require_path(dataset, "dataset", "a dataset or the path of a series file"))
    is_list = isinstance(source, Iterable) and not isinstance(source, str)
    takes = "a list of paths of bars"
    _arguments.require(is_list, source, "source", takes)
    places = [_arguments.require_path(one, "source", takes) for one in source]
    samples, seed = _arguments.whole_number(samples, "samples", 1), _arguments.whole_number(seed, "seed")
    _, settings = _settings.sources(config, {})
    # What was told when the series was made is not told again.
    functions = _functions_again(features, target, context, path, doubts_end=False)
    text, facts = _megabatch.leak(path, places, _context(context)[0], samples, seed, settings, functions)
    return LeakProof(in_python(text), facts)
