"""Weights of a model from elsewhere, as a file of safetensors."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import _safetensors
from ._arguments import type_name
from .dataset import Dataset, StrPath
from .errors import ConfigError, DataError, MegabatchError

_WRAPPERS = ("module.", "_orig_mod.")
"""Prefixes that DistributedDataParallel and torch.compile give to all names."""
_TORCH_SAVE = (b"PK\x03\x04", b"\x80\x02\x8a")
"""Beginnings of files of torch.save, today's and those of before PyTorch 1.6."""
_EXPECTED = "expected a dictionary of tensors by name, or the path of a file of safetensors"


def file_of(weights: Any, name: str, folder: pathlib.Path) -> StrPath:
    """A file of `weights`, the argument `name`: their own, or one in `folder`."""
    if isinstance(weights, Mapping):
        file = folder / f"{name}.safetensors"
        _safetensors.write(file, _unwrapped(weights, name), name)
        return file
    if hasattr(weights, "state_dict"):
        raise ConfigError(f"{name} is a module, {type(weights).__name__}: give module.state_dict()", key=name)
    if isinstance(weights, Dataset):
        raise ConfigError(f"{name} is a dataset: {_EXPECTED}, and the dataset in its own place", key=name)
    if hasattr(weights, "weights"):
        raise ConfigError(f"{name} is a run: give run.weights()", key=name)
    if not isinstance(weights, (str, os.PathLike)):
        found = "None" if weights is None else type_name(weights)
        raise ConfigError(f"{name} is {found}: {_EXPECTED}", key=name)
    path = pathlib.Path(weights)
    if path.is_dir():
        raise ConfigError(f"{path}: {name} is a folder: {_EXPECTED}; of a run, give mb.load_run(folder).weights()", key=name)
    if path.is_file():
        with path.open("rb") as file_begins:
            is_torch_save = file_begins.read(4).startswith(_TORCH_SAVE)
        if is_torch_save:
            raise DataError(
                f"{path}: it is a file of torch.save: load it with torch.load(path, weights_only=True) and give the "
                f"dictionary",
                file=str(path),
                key=name,
            )
    return path


def _unwrapped(weights: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Tensors by the names of the model itself."""
    if not weights:
        raise ConfigError(f"{name} is an empty dictionary: {_EXPECTED}", key=name)
    if inner := [key for key, value in weights.items() if isinstance(value, Mapping)]:
        names = ", ".join(map(str, weights))
        raise ConfigError(
            f"{name} has {names}, and {inner[0]} is a dictionary itself: give {name}[{inner[0]!r}]", key=name
        )
    wrapper = _wrapper(list(weights))
    return {key.removeprefix(wrapper): value for key, value in weights.items()} if wrapper else weights


def _wrapper(names: list[str]) -> str:
    """The prefix of all `names` that wrappers of a model gave them."""
    for prefix in _WRAPPERS:
        if all(name.startswith(prefix) for name in names):
            return prefix + _wrapper([name.removeprefix(prefix) for name in names])
    return ""


@contextlib.contextmanager
def told_as(name: str, given: Any, file: Any) -> Iterator[None]:
    """Has errors name the argument `name` in place of a file that was made of it, and settings that fit."""
    try:
        yield
    except MegabatchError as error:
        text, fields = str(error), error.fields
        if file is None or str(file) not in text:
            raise
        if not isinstance(given, (str, os.PathLike)) or os.path.isdir(given):
            text = text.replace(str(file), name)
            fields = {key: value for key, value in fields.items() if str(value) != str(file)}
        wrapper = _wrapper(list(given)) if isinstance(given, Mapping) else ""
        raise type(error)(text + _fitting(text, wrapper), **fields) from None


def _renamed(text: str, wrapper: str) -> str | None:
    """How to rename the weights, where it is their names that differ. The names given begin with `wrapper`."""
    missing = re.findall(r"(\S+): missing", text)
    for found in re.findall(r"(\S+): not known", text):
        for name in missing:
            if found.endswith(f".{name}"):
                prefix = wrapper + found.removesuffix(name)
                return f"without {prefix!r} before their names: {{key.removeprefix({prefix!r}): w for key, w in weights.items()}}"
            first, _, rest = found.partition(".")
            if name.startswith(f"{first}.") and name.endswith(f".{rest}") and name.count(".") == found.count(".") + 1:
                timeframe = name.removeprefix(f"{first}.").removesuffix(f".{rest}")
                return f"weights of the recurrence name their timeframe: {first}.{timeframe}.{rest} in place of {found}"
    return _by_shape(text, wrapper)


def _by_shape(text: str, wrapper: str) -> str | None:
    """The modules of the model that modules of other names look like: those with weights of the same last names and
    shapes. The names given begin with `wrapper`."""
    shape = r"(\[[^\]]*\])"
    unknown = _modules(re.findall(rf"(\S+): not known, found {shape}", text))
    missing = _modules(re.findall(rf"(\S+): missing, expected {shape}", text))
    alike = {}
    for name, weights in unknown.items():
        found = [own for own in missing if missing[own] == weights]
        alike[name] = [own for own in found if own.rpartition(".")[2] == name.rpartition(".")[2]] or found
    if not any(alike.values()):
        return None
    looks = ", ".join(f"{name} is {' or '.join(own)}" for name, own in alike.items() if own)
    names = {name: own[0] for name, own in alike.items() if len(own) == 1}
    if len(set(names.values())) < len(alike):
        return f"by the shapes of their weights, {looks}; rename them"
    own_key = f"key.removeprefix({wrapper!r})" if wrapper else "key"
    return (
        f"by the shapes of their weights, {looks}; with names = {names} they are "
        f"{{names.get(own := {own_key}.rpartition('.')[0], own) + '.' + key.rpartition('.')[2]: w for key, w in weights.items()}}"
    )


def _modules(weights: list[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Shapes of weights by their last names, by module."""
    modules: dict[str, dict[str, str]] = {}
    for name, shape in weights:
        module, _, last = name.rpartition(".")
        modules.setdefault(module, {})[last] = shape
    return modules


def _features(text: str) -> str | None:
    """The numbers of features, where those of the weights are others than those of the dataset."""
    expected = set(re.findall(r"weight_ih_l0: (?:missing, )?expected \[\d+, (\d+)\]", text))
    found = set(re.findall(r"weight_ih_l0: (?:not known|expected \[\d+, \d+\]), found \[\d+, (\d+)\]", text))
    if not expected or not found or expected & found:
        return None
    own, other = (" or ".join(sorted(sizes, key=int)) for sizes in (expected, found))
    return f"the weights read bars of {other} features, and those of the dataset have {own}"


def _fitting(text: str, wrapper: str) -> str:
    """The names or the settings of the model that fit weights which were refused. The names given begin with
    `wrapper`."""
    told = [line for line in (_features(text), _renamed(text, wrapper)) if line]
    if told:
        return "".join(f"\n  {line}" for line in told)
    model = {}
    if hidden := re.search(r"weight_hh_l0: expected \[\d+, (\d+)\], found \[\d+, (\d+)\]", text):
        if hidden[1] != hidden[2]:
            model["hidden"] = int(hidden[2])
    unknown, missing = (set(re.findall(rf"weight_hh_l(\d+): {found}", text)) for found in ("not known", "missing"))
    # Layers that are on both sides have other names.
    if more := unknown - missing:
        model["layers"] = max(map(int, more)) + 1
    elif fewer := missing - unknown:
        model["layers"] = min(map(int, fewer))
    settings = ", ".join(f'"{key}": {value}' for key, value in model.items())
    return f"\n  the weights fit model={{{settings}}}" if model else ""
