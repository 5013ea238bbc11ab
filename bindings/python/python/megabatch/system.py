"""The set-up of this machine."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

from . import _arguments, _megabatch

__all__ = ["Examination", "doctor"]


@dataclasses.dataclass(frozen=True)
class Examination:
    """Faults that prevent training on a GPU."""

    is_healthy: bool
    text: str
    facts: dict[str, Any]

    def __repr__(self) -> str:
        return self.text


def doctor(python: str | os.PathLike[str] | None = None) -> Examination:
    """Examines GPU, driver, container and a Python environment, by default this one. Nothing is changed."""
    path = _arguments.require_path(python or sys.executable, "python", "the path of a Python interpreter")
    is_healthy, text, facts = _megabatch.doctor(path)
    return Examination(is_healthy, text, facts)
