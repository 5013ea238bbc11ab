"""Exceptions of megabatch. Each says what the program `megabatch` says, with arguments in place of options and calls in
place of commands, and has the facts as attributes."""

from __future__ import annotations

from typing import Any

from ._wording import in_python

__all__ = [
    "CapacityError",
    "ConfigError",
    "DataError",
    "DeviceError",
    "ForkError",
    "MegabatchError",
    "NumericError",
]


class MegabatchError(RuntimeError):
    """An error of megabatch; the classes below it tell what can be done about it."""

    fields: dict[str, Any]
    """Facts by name, such as `file`, `line` or `key`. They are attributes of the exception too."""

    def __init__(self, message: str = "", **fields: Any) -> None:
        super().__init__(in_python(message))
        self.fields = fields

    def __getattr__(self, name: str) -> Any:
        if name != "fields" and name in self.fields:
            return self.fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), str(self), self.fields)


def _restored(kind: type[MegabatchError], message: str, fields: dict[str, Any]) -> MegabatchError:
    return kind(message, **fields)


class ConfigError(MegabatchError, ValueError):
    """A setting, an option or a combination of them is wrong."""


class DataError(MegabatchError, ValueError):
    """The data are wrong or not readable."""


class CapacityError(MegabatchError, MemoryError):
    """The request does not fit into memory; the message names what would."""


class NumericError(MegabatchError, ArithmeticError):
    """A number became NaN or infinite."""


class DeviceError(MegabatchError):
    """The device is absent or refused the request."""


class ForkError(MegabatchError):
    """The process was forked after megabatch was imported."""
