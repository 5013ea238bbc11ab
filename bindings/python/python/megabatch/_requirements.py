"""Packages that parts of megabatch need, and what is said where one of them is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

ARRAYS = "without it, dataset.loader() gives batches as arrays of numpy"

_PACKAGES = {
    "torch": ("PyTorch", "torch"),
    "torch_geometric": ("PyTorch Geometric", "torch_geometric"),
    "lightning": ("Lightning", "lightning"),
    "pytorch_lightning": ("Lightning", "lightning"),
    "pandas": ("pandas", "pandas"),
    "polars": ("polars", "polars"),
}
"""Names of the packages and what installs them, by what is imported."""


@contextlib.contextmanager
def required(needs: str, otherwise: str | None = None) -> Iterator[None]:
    """Says what is to be installed where an import of what `needs` it fails, and what works `otherwise`, if anything."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        name, installed_as = package
        instead = "" if otherwise is None else f"; {otherwise}"
        raise ModuleNotFoundError(
            f"{needs} needs {name}, which is not installed: pip install {installed_as}{instead}", name=error.name
        ) from None
