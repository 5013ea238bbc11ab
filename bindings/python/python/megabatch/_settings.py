"""Settings of a run: a YAML file, a mapping or keywords, as `key=value` texts."""

from __future__ import annotations

import datetime
import json
import os
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from ._settings_types import Settings
from .errors import ConfigError

Config = Union[Settings, Mapping[str, Any], str, "os.PathLike[str]", None]

_ARGUMENTS = ("device", "init", "max_steps", "memory_bytes", "on_step", "out", "progress", "resume")
"""Arguments of `train` and `plan` beside the settings."""


_EXACT_MAX = 2.0**53
"""Bound below which a float has every whole number."""


def sources(config: Config, keywords: Mapping[str, Any]) -> tuple[str | None, list[str]]:
    """The YAML file, if there is one, and the settings over it."""
    file: str | None = None
    settings: dict[str, str] = {}
    if isinstance(config, Mapping):
        _refuse_arguments(config)
        settings.update(_flat(config))
    elif isinstance(config, (str, os.PathLike)):
        file = os.fspath(config)
    elif config is not None:
        raise ConfigError(f"config is {config!r}: expected a mapping or the path of a YAML file")
    settings.update(_flat(keywords))
    return file, [f"{key}={value}" for key, value in settings.items()]


def _refuse_arguments(config: Mapping[str, Any]) -> None:
    """Refuses arguments of a call among the settings."""
    for name in _ARGUMENTS:
        if name in config:
            shown = reprlib.repr(config[name])
            call = "plan" if name == "memory_bytes" else "train"
            raise ConfigError(
                f"{name}={shown} is among the settings: expected an argument beside them, mb.{call}(dataset, config, {name}={shown})",
                key=name,
            )


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if not isinstance(name, str):
            raise ConfigError(f"the setting {name!r} is no text; settings are named such as \"training.lr\"")
        key = name.replace("__", ".", 1)
        if isinstance(value, Mapping) and "." not in key:
            for inner, own in value.items():
                flat[f"{key}.{inner}"] = text(own, f"{key}.{inner}")
        elif key in Settings.__annotations__ and "." not in key:
            raise ConfigError(f"{key}={reprlib.repr(value)}: expected a dictionary of the settings that begin with {key}", key=key)
        else:
            flat[key] = text(value, key)
    return flat


def _duration(value: datetime.timedelta | np.timedelta64, key: str) -> str:
    """A duration in the largest unit of which it is a whole number."""
    seconds = value / np.timedelta64(1, "s") if isinstance(value, np.timedelta64) else value.total_seconds()
    for unit, own in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if seconds % own == 0:
            return f"{int(seconds // own)}{unit}"
    raise ConfigError(f"{key} is {value!r}: expected whole seconds", key=key)


def text(value: Any, key: str) -> str:
    """A value as the program takes it."""
    if isinstance(value, (datetime.timedelta, np.timedelta64)):
        return _duration(value, key)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_MAX:
        # A setting that counts takes 64.0 for 64.
        return repr(int(value))
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        if any(isinstance(item, Mapping) for item in value):
            return json.dumps([dict(item) for item in value])
        return "[" + ", ".join(text(item, key) for item in value) + "]"
    if value is None:
        raise ConfigError(f"{key} is None; leave the setting out, or give the word that it has, such as \"none\"")
    raise ConfigError(f"{key} is {value!r}: expected a number, a text, a flag or a list of them", key=key)
