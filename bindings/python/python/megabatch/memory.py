"""Memory of runs, and memory pools on a program's requests."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from . import _arguments, _megabatch
from .training import Run

__all__ = ["replay", "snapshot"]

StrPath = Union[str, "os.PathLike[str]"]


def replay(
    trace: Union[str, os.PathLike[str], Iterable[Mapping[str, Any]]],
    *,
    capacity: int | str,
    policies: Sequence[str] | str = "all",
    max_split_size: int | str | None = None,
) -> dict[str, Any]:
    """Plays a trace of allocations on megabatch's pool or on a model of PyTorch's allocator, as `megabatch memory
    replay` does. `trace` is a file, or events such as `{"op": "alloc", "id": 7, "bytes": 1048576, "stream": 0}`,
    `{"op": "free", "id": 7}` and `{"op": "step"}`. A capacity is bytes or a text such as `16GiB`."""
    names = policies if isinstance(policies, str) else ",".join(policies)
    split = None if max_split_size is None else str(max_split_size)
    if isinstance(trace, (str, os.PathLike)):
        return _megabatch.replay_memory(os.fspath(trace), str(capacity), names, split)[1]
    with tempfile.TemporaryDirectory(prefix="megabatch-") as folder:
        path = pathlib.Path(folder) / "trace.jsonl"
        with path.open("w") as file:
            file.writelines(json.dumps(dict(event)) + "\n" for event in trace)
        return _megabatch.replay_memory(path, str(capacity), names, split)[1]


def snapshot(run: StrPath | Run, *, pickle: StrPath | None = None, svg: StrPath | None = None) -> dict[str, Any]:
    """Holders of memory, free memory and fragmentation, as `megabatch memory snapshot --json` has them, of the latest
    snapshot of a run, or of a file `memory.json` or `oom-N.json`. `pickle` gets it for
    https://pytorch.org/memory_viz, `svg` as a picture."""
    path = run.path if isinstance(run, Run) else _arguments.require_path(run, "run", "a run, its folder or a snapshot in it")
    if pickle is not None:
        pickle = _arguments.require_path(pickle, "pickle", "the path of the file to write")
    if svg is not None:
        svg = _arguments.require_path(svg, "svg", "the path of the picture to write, .svg")
    return _megabatch.memory_snapshot(path, pickle, svg)[1]
