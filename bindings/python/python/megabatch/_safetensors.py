"""Weights as a file of safetensors (github.com/huggingface/safetensors, "Format")."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._arguments import type_name
from .errors import ConfigError


def write(path: pathlib.Path, weights: Mapping[str, Any], argument: str) -> None:
    """Writes tensors or arrays, such as a `state_dict`, in single precision. They are those of an `argument`."""
    arrays = {name: _array(argument, name, value) for name, value in weights.items()}
    header: dict[str, Any] = {}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(array.tobytes())


def _array(argument: str, name: str, value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach().cpu().float()
    try:
        return np.asarray(value, dtype="<f4")
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{argument}: {name} is {type_name(value)}: expected a tensor or an array of numbers", key=argument
        ) from error
