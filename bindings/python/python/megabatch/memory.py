"""Memory pools on a program's requests."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from . import _megabatch

__all__ = ["replay"]


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
