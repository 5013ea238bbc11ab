# Written by `cargo xtask python stubs`.
"""
Native functions of megabatch.
"""

from _typeshed import SupportsGetItem
from collections.abc import Mapping
from numpy.typing import NDArray
from os import PathLike
from typing import Any, Final, SupportsFloat, SupportsIndex, final
from typing_extensions import CapsuleType

__all__ = ["__version__", "Dataset", "Epoch", "EpochSamples", "Follower", "GpuTensorSegments", "Graphs", "Loader", "Table", "TensorSegments", "TorchPool", "append", "bar_columns", "bars_of_ticks", "build_graphs", "clock_and_symbols", "compare", "context_bars", "context_start", "convert", "doctor", "evaluate", "export", "export_graphs", "feature_columns", "feature_names", "function_inputs", "import_weights", "ingest", "inspect", "is_time", "is_utc", "leak", "likely_symbol", "memory_snapshot", "monitor", "plan", "predict", "program", "read_context", "replay_memory", "scatter_check_sorted", "scatter_gpu_fault", "scatter_gpu_plan", "scatter_gpu_plan_bytes", "scatter_gpu_plan_from_offsets", "scatter_index_bound", "scatter_plan", "scatter_plan_from_offsets", "symbol_columns", "synthesize", "timeframe_name", "timeframes", "train", "verify_graphs", "weights", "write_bars"]

__version__: Final[str]
"""
Version of megabatch.
"""

@final
class Dataset:
    """
    An open data file.
    """
    def __new__(cls, /, path: str | PathLike[str], *, resident: bool) -> Dataset: ...
    def facts(self, /) -> dict[str, Any]:
        """
        Description of the file.
        """
    def fingerprint(self, /) -> str:
        """
        A hash of the numbers of the file.
        """
    def marked_fingerprint(self, /) -> str | None:
        """
        The hash of its numbers that a series has in itself.
        """
    def sample_instruments(self, /) -> bytearray | None:
        """
        Index of each sample's instrument, 32-bit integers.
        """
    def sample_times(self, /) -> bytearray | None:
        """
        Time of each sample, 64-bit integers, ns since 1970 UTC.
        """
    def sample_weights(self, /) -> bytearray | None:
        """
        Weight of each sample, in single precision.
        """
    def scaler(self, /, k: SupportsIndex) -> tuple[str, bytearray, bytearray, int] | None:
        """
        Kind of the scaler of the `k`-th timeframe of a series, its centers and scales, 64-bit
        floats, and the end of the span that it was fitted on, ns since 1970 UTC.
        """
    def series_bars(self, /, k: SupportsIndex) -> tuple[bytearray, bytearray] | None:
        """
        The bars of the `k`-th timeframe of a series, in single precision, and the last bar of each
        sample's window, 64-bit integers.
        """
    def series_targets(self, /) -> bytearray | None:
        """
        Targets of a series, in single precision.
        """
    def split(self, /, file: str | PathLike[str] | None, set: SupportsGetItem[int, str]) -> tuple[bytes, bytes, bytes, int]:
        """
        The split of training with the settings `set`.
        """
    def units(self, /) -> int:
        """
        Number of units that a split divides.
        """
    def walk_forward(self, /, file: str | PathLike[str] | None, set: SupportsGetItem[int, str]) -> list[tuple[bytes, bytes, bytes, int]]:
        """
        The split of each fold of a walk forward.
        """

@final
class Epoch:
    """
    The batches of an epoch.
    """
    def next_arrays(self, /) -> dict[str, NDArray[Any]] | None:
        """
        The next batch as arrays by key; `None` after the last.
        """
    def next_tables(self, /) -> tuple[bytes, list[Table]] | None:
        """
        The next batch as tables to be taken over; `None` after the last.
        """
    def next_writable_arrays(self, /) -> dict[str, NDArray[Any]] | None:
        """
        The next batch as arrays by key that may be written, but for windows in the memory of the
        data file; `None` after the last.
        """

@final
class EpochSamples:
    """
    The samples of an epoch's batches.
    """
    def next_samples(self, /) -> bytearray | None:
        """
        The samples of the next batch, 64-bit integers; `None` after the last.
        """

@final
class Follower:
    """
    A model that follows bars.
    """
    def __new__(cls, /, call: Mapping[str, Any]) -> Follower:
        """
        Opens the model and replays the history.
        """
    def close(self, /) -> tuple[str, dict[str, Any]]:
        """
        Ends the bars: the totals.
        """
    def push(self, /, lines: SupportsGetItem[int, SupportsIndex]) -> tuple[list[str], list[str], tuple[int, Any] | None]:
        """
        Takes lines of bars, and gives the predictions that they make.
        """

@final
class GpuTensorSegments:
    """
    Segments of the rows of tensors `[batches, rows, columns]` on a GPU, from a plan that
    [`scatter_gpu_plan`] has written. `allocate` gives a tensor of so many bytes.
    """
    def __new__(cls, device: SupportsIndex, handle: SupportsIndex, allocate: Any, plan: SupportsIndex, segments: SupportsIndex, batches: SupportsIndex, rows: SupportsIndex, columns: SupportsIndex, kind: SupportsIndex, /) -> GpuTensorSegments: ...
    def extremum(self, which: SupportsIndex, x: SupportsIndex, base: SupportsIndex, values: SupportsIndex, arguments: SupportsIndex, /) -> None:
        """
        As `TensorSegments.extremum`.
        """
    def extremum_backward(self, arguments: SupportsIndex, d_out: SupportsIndex, d_x: SupportsIndex, /) -> None:
        """
        As `TensorSegments.extremum_backward`; the numbers of `d_x` are 0 before.
        """
    def fold(self, which: SupportsIndex, x: SupportsIndex, base: SupportsIndex, out: SupportsIndex, /) -> None:
        """
        As `TensorSegments.fold`.
        """
    def gather(self, share: SupportsIndex, index: SupportsIndex, values: SupportsIndex, out: SupportsIndex, /) -> None:
        """
        As `TensorSegments.gather`.
        """
    def softmax(self, eps: SupportsFloat | SupportsIndex | None, x: SupportsIndex, y: SupportsIndex, /) -> None:
        """
        As `TensorSegments.softmax`.
        """
    def softmax_backward(self, eps: SupportsFloat | SupportsIndex | None, y: SupportsIndex, d_y: SupportsIndex, d_x: SupportsIndex, /) -> None:
        """
        As `TensorSegments.softmax_backward`.
        """

@final
class Graphs:
    """
    An open file of graphs. Nothing in it waits for a thread, so that forked processes may use it.
    """
    def __len__(self, /) -> int: ...
    def __new__(cls, /, path: str | PathLike[str]) -> Graphs: ...
    def arrays(self, /, graphs: SupportsGetItem[int, SupportsIndex]) -> dict[str, Any]:
        """
        The arrays of the graphs with the numbers `graphs`, 64-bit integers.
        """
    def facts(self, /) -> dict[str, Any]:
        """
        Contents of the file.
        """
    def find(self, /, key: str) -> int:
        """
        Number of the graph with a key.
        """
    def fingerprint(self, /) -> str:
        """
        Fingerprint of the file, of all its bytes.
        """
    def graph(self, /, number: SupportsIndex, writable: bool) -> dict[str, NDArray[Any]]:
        """
        The arrays of the graph with this number, where they lie. Its floats may be written if
        `writable`, and what is written there is seen by all arrays of the graph.
        """
    def known_times(self, /) -> bytearray:
        """
        Time from which each graph may be used, 64-bit integers, ns since 1970 UTC; the smallest
        where it is not known.
        """
    def sizes(self, /) -> bytearray:
        """
        Numbers of nodes and of edges of each graph, 64-bit integers, [graphs, 2].
        """

@final
class Loader:
    """
    The batches of samples of a data file.
    """
    def __new__(cls, /, dataset: Dataset, samples: bytes | None, keys: SupportsGetItem[int, str], options: Mapping[str, Any]) -> Loader:
        """
        The batches of `samples`, 64-bit integers; all if `None`. Their tables have `keys`: those of
        the timeframes, then that of the targets.
        """
    def batches_per_epoch(self, /) -> int:
        """
        Batches in an epoch.
        """
    def drain(self, /, epoch: SupportsIndex) -> int:
        """
        Gathers the batches of `epoch` and counts their samples: the reference for the speed of
        Python.
        """
    def epoch(self, /, epoch: SupportsIndex, first: SupportsIndex) -> Epoch:
        """
        The batches of `epoch` from batch `first` on.
        """
    def epoch_samples(self, /, epoch: SupportsIndex, first: SupportsIndex) -> EpochSamples:
        """
        The samples of the batches of `epoch` from batch `first` on.
        """
    def run_length(self, /) -> int | None:
        """
        Consecutive samples that stay together.
        """

@final
class Table:
    """
    A table of a batch, windows `[B, T, F]` or targets `[B, K]`, which others take over by DLPack.
    """
    def __dlpack__(self, /, *, stream: Any | None = None, max_version: Any | None = None, dl_device: tuple[SupportsIndex, SupportsIndex] | None = None, copy: bool | None = None) -> CapsuleType:
        """
        The memory as a capsule of DLPack.
        """
    def __dlpack_device__(self, /) -> tuple[int, int]:
        """
        Type and number of the device.
        """

@final
class TensorSegments:
    """
    Segments of the rows of tensors `[batches, rows, columns]`, from a plan that
    [`scatter_plan`] has written.
    """
    def __new__(cls, plan: SupportsIndex, segments: SupportsIndex, batches: SupportsIndex, rows: SupportsIndex, columns: SupportsIndex, kind: SupportsIndex, threads: SupportsIndex, /) -> TensorSegments: ...
    def extremum(self, which: SupportsIndex, x: SupportsIndex, base: SupportsIndex, values: SupportsIndex, arguments: SupportsIndex, /) -> None:
        """
        Maximum (0) or minimum (1) of the segments of `x` and of `base`, with its row.
        """
    def extremum_backward(self, arguments: SupportsIndex, d_out: SupportsIndex, d_x: SupportsIndex, /) -> None:
        """
        The gradient of `extremum`.
        """
    def fold(self, which: SupportsIndex, x: SupportsIndex, base: SupportsIndex, out: SupportsIndex, /) -> None:
        """
        Sum (0), mean (1) or product (2) of the segments of `x` and of `base`.
        """
    def gather(self, share: SupportsIndex, index: SupportsIndex, values: SupportsIndex, out: SupportsIndex, /) -> None:
        """
        The numbers of each row's segment (0), or these over the number of its rows (1). Without an
        index the rows lie in the order of segments.
        """
    def softmax(self, eps: SupportsFloat | SupportsIndex | None, x: SupportsIndex, y: SupportsIndex, /) -> None:
        """
        Softmax, or with `eps` its logarithm.
        """
    def softmax_backward(self, eps: SupportsFloat | SupportsIndex | None, y: SupportsIndex, d_y: SupportsIndex, d_x: SupportsIndex, /) -> None:
        """
        The gradient of `softmax`.
        """

@final
class TorchPool:
    """
    The pool of this process.
    """
    def __new__(cls, /, *, stitching: bool, budget: str | None, leave: str) -> TorchPool: ...
    def callbacks(self, /) -> list[tuple[str, int]]:
        """
        Addresses of the functions for PyTorch, by what they do.
        """
    def enter_scope(self, /, label: str) -> None:
        """
        Owner of what is allocated from now on.
        """
    def epoch(self, /, device: SupportsIndex) -> dict[str, Any] | None:
        """
        Growth by owner, if it is worth a warning.
        """
    def finish_trace(self, /, device: SupportsIndex, trace: str | PathLike[str]) -> None:
        """
        Ends the file.
        """
    def leave_scope(self, /) -> None:
        """
        Ends the scope that was entered last.
        """
    def memory(self, /, device: SupportsIndex) -> dict[str, Any]:
        """
        Counters and owners of a GPU's memory.
        """
    def record(self, /, device: SupportsIndex, trace: str | PathLike[str] | None) -> None:
        """
        Records allocations from now on, also to a file.
        """
    def reset_peak(self, /, device: SupportsIndex) -> None:
        """
        Resets the peaks.
        """
    def snapshot(self, /, device: SupportsIndex) -> bytes:
        """
        A pickle for PyTorch's memory viewer.
        """
    def step(self, /) -> None:
        """
        Ends a step.
        """

def append(bars: SupportsGetItem[int, str | PathLike[str]], options: SupportsGetItem[int, tuple[str, str]], out: str | PathLike[str], functions: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """
    Adds the bars of files to the series `out`. `options` must be those that it was made with.
    """

def bar_columns(names: SupportsGetItem[int, str]) -> tuple[int | None, int | None, int | None, list[tuple[str, int]], list[int]]:
    """
    Places of stamp, date, clock, numbers and other columns in a table with columns of these names,
    as a file has them; numbers with the names that a header may have.
    """

def bars_of_ticks(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """
    Writes bars of ticks as CSV.
    """

def build_graphs(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """
    Builds graphs into a file.
    """

def clock_and_symbols(path: str | PathLike[str]) -> tuple[tuple[str, bool] | None, list[str]]:
    """
    The clock of the bars of a series file with whether it was stated, and its symbols; no clock for
    files of several clocks, and for times with offsets.
    """

def compare(runs: SupportsGetItem[int, str | PathLike[str]], out: str | PathLike[str] | None) -> tuple[str, dict[str, Any]]:
    """
    Settings and results of runs side by side, also as the page `out`.
    """

def context_bars(call: Mapping[str, Any]) -> tuple[bytes, bytes, int, list[tuple[str, bytes]], list[tuple[str, bytes]]]:
    """
    Open and close times of the closed bars of a timeframe, its length, their columns, and those of
    the features that another instrument has too. Such features are computed ones that are neither
    of the clock nor in pips, and columns that it has.
    """

def context_start(call: Mapping[str, Any]) -> int:
    """
    Place of the first base bar that features read beside a bar: the last one of their timeframe
    that has closed then, and those of the warm-up before it.
    """

def convert(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """
    Turns windows into a series or back, or stores a file in other chunks.
    """

def doctor(python: str | PathLike[str] | None) -> tuple[bool, str, dict[str, Any]]:
    """
    Faults of a GPU set-up, and whether training on a GPU is possible.
    """

def evaluate(asked: Mapping[str, Any], part: str | None, samples_max: SupportsIndex | None) -> tuple[str, dict[str, Any]]:
    """
    Errors of a model beside those of baselines.
    """

def export(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """
    Writes the model of a run for other programs.
    """

def export_graphs(path: str | PathLike[str], out: str | PathLike[str], format: str, keys: SupportsGetItem[int, str]) -> tuple[str, dict[str, Any]]:
    """
    Writes graphs of a file in a format of other programs; all of them without `keys`.
    """

def feature_columns(features: SupportsGetItem[int, str]) -> list[str]:
    """
    Names of the columns among features: `rsi` of `column:rsi:mean`.
    """

def feature_names() -> list[str]:
    """
    Names that stand for features by themselves.
    """

def function_inputs(path: str | PathLike[str]) -> tuple[list[str], str | None, list[str], list[tuple[str, str]], tuple[str, str | None]]:
    """
    Columns of the bars of a series file that only functions see, the library of their frames, the
    features that are of no function, the options by which rows are read, and the timing of other
    instruments: the timeframe beside which they stand, and the clock of their dates.
    """

def import_weights(weights: str | PathLike[str], job: Mapping[str, Any], out: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """
    Makes a run of weights from elsewhere, in a file of safetensors.
    """

def ingest(bars: SupportsGetItem[int, str | PathLike[str]], options: SupportsGetItem[int, tuple[str, str]], out: str | PathLike[str], functions: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """
    Makes a series file from files of bars, with options named as in `megabatch ingest`.
    """

def inspect(path: str | PathLike[str], all: bool) -> tuple[str, dict[str, Any]]:
    """
    Contents and faults of a file of samples or bars: what fits on a screen, or all.
    """

def is_time(text: str) -> bool:
    """
    True for a text that is the time of a bar, as `push` takes it.
    """

def is_utc(zone: str) -> bool:
    """
    True for a name of UTC: clocks of other zones may have its offset for a time.
    """

def leak(path: str | PathLike[str], source: SupportsGetItem[int, str | PathLike[str]], context: SupportsGetItem[int, str], samples: SupportsIndex, seed: SupportsIndex, set: SupportsGetItem[int, str], functions: Mapping[str, Any] | None) -> tuple[str, dict[str, Any]]:
    """
    Proves that no sample of a series file sees the future.
    """

def likely_symbol(name: str, symbols: SupportsGetItem[int, str]) -> str | None:
    """
    The first of `symbols` that `name` may be another name of.
    """

def memory_snapshot(path: str | PathLike[str], pickle: str | PathLike[str] | None, svg: str | PathLike[str] | None) -> tuple[str, dict[str, Any]]:
    """
    Memory in a snapshot, or in the latest one of a run, also as the files `pickle` and `svg`.
    """

def monitor(run: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """
    State of a run: one line, and every reading.
    """

def plan(job: Mapping[str, Any], memory_bytes: str | None) -> tuple[str, dict[str, Any]]:
    """
    The plan of a run: its text, and `plan.json`.
    """

def predict(asked: Mapping[str, Any], samples: tuple[SupportsIndex, SupportsIndex] | None, are_units: bool, part: str | None, latest: bool, display: Any | None) -> dict[str, Any]:
    """
    Predictions of the samples of a range, or the units of one, of a part, or of the latest ones.
    """

def program(words: SupportsGetItem[int, str]) -> int:
    """
    Does what a command line of the program `megabatch` says, and returns the exit code. The first
    word names the program.
    """

def read_context(path: str | PathLike[str], options: SupportsGetItem[int, tuple[str, str]], timing: tuple[str, str | None]) -> tuple[bytes, int, list[tuple[str, bytes]], list[str]]:
    """
    Bars of an instrument in a file, read as those of a context are by options of `ingest`, and by a
    timing: the timeframe beside which they stand, and the clock of their dates.
    """

def replay_memory(trace: str | PathLike[str], capacity: str, policies: str, max_split_size: str | None) -> tuple[str, dict[str, Any]]:
    """
    Plays a trace of allocations on memory pools.
    """

def scatter_check_sorted(index: SupportsIndex, len: SupportsIndex, /) -> None:
    """
    Refuses an index of `len` 64-bit integers that decreases.
    """

def scatter_gpu_fault(device: SupportsIndex, /) -> None:
    """
    Raises what kernels have found wrong that have run on a GPU.
    """

def scatter_gpu_plan(device: SupportsIndex, handle: SupportsIndex, index: SupportsIndex, rows: SupportsIndex, segments: SupportsIndex, expects_sorted: bool, plan: SupportsIndex, workspace: SupportsIndex, /) -> None:
    """
    Writes the plan of an index into a tensor of `segments + 2 + rows` 32-bit integers.
    """

def scatter_gpu_plan_bytes(rows: SupportsIndex, /) -> int:
    """
    Bytes that [`scatter_gpu_plan`] works with.
    """

def scatter_gpu_plan_from_offsets(device: SupportsIndex, handle: SupportsIndex, indptr: SupportsIndex, offsets: SupportsIndex, rows: SupportsIndex, plan: SupportsIndex, /) -> None:
    """
    Writes the plan of `offsets` offsets of `rows` rows into a tensor of `offsets + 1 + rows` 32-bit
    integers.
    """

def scatter_index_bound(index: SupportsIndex, len: SupportsIndex, /) -> int:
    """
    One more than the greatest index of a tensor of 64-bit integers.
    """

def scatter_plan(index: SupportsIndex, rows: SupportsIndex, segments: SupportsIndex, plan: SupportsIndex, threads: SupportsIndex, /) -> None:
    """
    Writes the plan of an index into a tensor of `segments + 2 + rows` 32-bit integers.
    """

def scatter_plan_from_offsets(indptr: SupportsIndex, offsets: SupportsIndex, rows: SupportsIndex, plan: SupportsIndex, /) -> None:
    """
    Writes the plan of `offsets` offsets of `rows` rows into a tensor of `offsets + 1 + rows` 32-bit
    integers.
    """

def symbol_columns(names: SupportsGetItem[int, str]) -> tuple[list[int], list[int]]:
    """
    Places of the columns with names as those of symbols have them, the first choice first: of those
    that have symbols whatever their rows are, and of others.
    """

def synthesize(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """
    Writes synthetic bars, shares or samples.
    """

def timeframe_name(text: str) -> str | None:
    """
    Name of the timeframe that a text such as `m5`, `5min` or `1d` stands for; `None` for others.
    """

def timeframes() -> list[tuple[str, int]]:
    """
    Names of timeframes, shortest first, and the least duration of their bars in nanoseconds.
    """

def train(call: Mapping[str, Any]) -> dict[str, Any]:
    """
    Trains a model. An exception of a callback comes through once the run has saved a checkpoint.
    """

def verify_graphs(path: str | PathLike[str]) -> tuple[str, dict[str, Any]]:
    """
    Checks a file of graphs.
    """

def weights(run: str | PathLike[str], last_checkpoint: bool) -> list[tuple[str, list[int], bytearray]]:
    """
    The weights of a run.
    """

def write_bars(path: str | PathLike[str], columns: Mapping[str, Any]) -> None:
    """
    Writes bars as CSV.
    """
