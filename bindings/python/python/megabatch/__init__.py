"""megabatch trains LSTMs on market data in several timeframes, and graph attention networks.

`ingest` or `open` gives a dataset; its `loader` feeds PyTorch or anything else, and `train` trains megabatch's own
models. See docs/guide/python.md.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

_on_interrupt = None
if os.path.basename(sys.argv[0]) == "megabatch":
    # The program that is interrupted during the imports below ends without their traceback.
    _on_interrupt = signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))

from . import graph, memory, synth
from ._ingest_options import IngestOptions
from ._ingest_report import IngestReport
from ._megabatch import __version__
from ._requirements import ARRAYS, required
from ._settings_types import (
    DataSettings,
    DistributedSettings,
    GpuOptimizationSettings,
    ModelSettings,
    OutputSettings,
    Settings,
    ShortSettings,
    TrainingSettings,
)
from .dataset import Dataset, LeakProof, Scaler, Timeframe, ingest, leak, open, triple_barrier
from .errors import (
    CapacityError,
    ConfigError,
    DataError,
    DeviceError,
    ForkError,
    MegabatchError,
    NumericError,
)
from .files import Comparison, FileReport, compare, convert, inspect
from .loader import Batch, Loader, LoaderOptions, TensorOptions
from .system import Examination, doctor
from .ticks import TickBars, ticks_to_bars
from .training import (
    Evaluation,
    Follower,
    Forecast,
    Plan,
    Predictions,
    Report,
    Run,
    RunStatus,
    StandardErrors,
    Step,
    import_weights,
    load_run,
    plan,
    train,
)

if _on_interrupt is not None:
    # A script of a user may have the program's name.
    signal.signal(signal.SIGINT, _on_interrupt)

if TYPE_CHECKING:
    from . import lightning as lightning
    from . import scatter as scatter
    from . import torch as torch
    from ._torch import collate as collate
    from .chunks import ChunkDataLoader as ChunkDataLoader

__all__ = [
    "Batch",
    "CapacityError",
    "Comparison",
    "ConfigError",
    "DataError",
    "DataSettings",
    "Dataset",
    "DeviceError",
    "DistributedSettings",
    "Evaluation",
    "Examination",
    "FileReport",
    "Follower",
    "Forecast",
    "ForkError",
    "GpuOptimizationSettings",
    "IngestOptions",
    "IngestReport",
    "LeakProof",
    "Loader",
    "LoaderOptions",
    "MegabatchError",
    "ModelSettings",
    "NumericError",
    "OutputSettings",
    "Plan",
    "Predictions",
    "Report",
    "Run",
    "RunStatus",
    "Scaler",
    "Settings",
    "ShortSettings",
    "StandardErrors",
    "Step",
    "TensorOptions",
    "TickBars",
    "Timeframe",
    "TrainingSettings",
    "__version__",
    "compare",
    "convert",
    "doctor",
    "graph",
    "import_weights",
    "ingest",
    "inspect",
    "leak",
    "load_run",
    "memory",
    "open",
    "plan",
    "synth",
    "ticks_to_bars",
    "train",
    "triple_barrier",
]


_LAZY = ("ChunkDataLoader", "collate", "lightning", "scatter", "torch")
_LOADERS = ("ChunkDataLoader", "collate")


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY])


def __getattr__(name: str) -> Any:
    # These take seconds to import and need PyTorch, which megabatch does not. `__all__` leaves them out, so that
    # `from megabatch import *` needs neither.
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        with required(f"megabatch.{name}", ARRAYS if name in _LOADERS else None):
            return _imported(name)
    except ModuleNotFoundError as error:
        # `from megabatch import …` has a message of its own in the place of that of an AttributeError.
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise
        # `hasattr`, `inspect.getmembers` and `help` pass over attributes that are not there.
        raise AttributeError(str(error), name=name) from None


def _imported(name: str) -> Any:
    if name == "ChunkDataLoader":
        from .chunks import ChunkDataLoader

        return ChunkDataLoader
    if name == "collate":
        from ._torch import collate

        return collate
    import importlib

    return importlib.import_module(f".{name}", __name__)
