"""Arguments that are wrong, refused by their names."""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
import os
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ._wording import argument_name
from .errors import ConfigError

_WHOLE_NUMBER_MAX = 2**64 - 1
_F = TypeVar("_F", bound=Callable[..., Any])


def refuses_unknown(function: _F) -> _F:
    """Has a call with an unknown keyword name the argument that is meant: that of the program's option of this name, or
    the nearest."""
    known = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def checked(*values: Any, **named: Any) -> Any:
        for name in named:
            if name not in known:
                own = argument_name(name)
                nearest = [own] if own in known else difflib.get_close_matches(name, known, 1)
                meant = f"; did you mean {nearest[0]}?" if nearest else ""
                raise TypeError(f"{function.__name__}() has no argument {name}{meant}")
        return function(*values, **named)

    return cast(_F, checked)


def require(is_right: bool, value: Any, name: str, expected: str, path: Any = None) -> None:
    """Refuses an argument, of a call on the file `path` if there is one."""
    if not is_right:
        raise wrong(value, name, expected, path)


def whole_number(value: Any, name: str, least: int = 0, takes: str = "a whole number", path: Any = None) -> int:
    """`value` as a whole number of at least `least`; `takes` says what the argument counts. A float that is whole is one."""
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        value = int(value)
    try:
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least:
        raise wrong(value, name, f"{takes} from {least} on", path)
    if number > _WHOLE_NUMBER_MAX:
        raise wrong(value, name, f"{takes} from {least} to {_WHOLE_NUMBER_MAX}", path)
    return number


def flag(value: Any, name: str, path: Any = None) -> bool:
    """`value` as one of the two flags."""
    require(isinstance(value, (bool, np.bool_)), value, name, "True or False", path)
    return bool(value)


def require_number(value: Any, name: str) -> None:
    """Refuses what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        raise wrong(value, name, "a number")


def require_text(value: Any, name: str, takes: str) -> None:
    """Refuses what is neither a text nor `None`."""
    if value is not None and not isinstance(value, str):
        raise wrong(value, name, f"a text, {takes}")


def require_path(value: Any, name: str, takes: str) -> str:
    """A path, in which `~` is the home; refuses what is none. `takes` says of what it is one."""
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"{name} is {type_name(value)}: expected {takes}", key=name)
    return os.path.expanduser(value)


def require_paths(value: Any, name: str, takes: str) -> list[str]:
    """One path or several as a list, in which `~` is the home; refuses what is neither. `takes` says of what they are."""
    if isinstance(value, (str, os.PathLike)):
        value = [value]
    require(isinstance(value, Iterable), value, name, takes)
    return [require_path(one, name, takes) for one in value]


def type_name(value: Any) -> str:
    """The type of `value` with its article: `an int`, `a list`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def mask_places(mask: npt.NDArray[np.bool_], name: str, count: int, noun: str) -> npt.NDArray[np.int64]:
    """The places at which a mask over `count` things is true."""
    if mask.shape != (count,):
        shape = "x".join(str(size) for size in mask.shape)
        raise wrong(mask, name, f"a mask with a value for each of the {count} {noun}, found one of shape {shape}")
    return np.flatnonzero(mask)


def wrong(value: Any, name: str, expected: str, path: Any = None) -> ConfigError:
    """The error of an argument that is not what was `expected`, of a call on the file `path` if there is one."""
    fields = {"key": name} if path is None else {"key": name, "file": str(path)}
    return ConfigError(f"{'' if path is None else f'{path}: '}{name}={reprlib.repr(value)}: expected {expected}", **fields)
