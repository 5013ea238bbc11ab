"""Devices of PyTorch, which is imported here, and what data may take of them."""

from __future__ import annotations

from typing import Any, Union

import torch

from ._arguments import require, wrong
from .errors import DeviceError

DeviceName = Union[str, "torch.device"]
"""A device as users name it."""

NumberType = Union["torch.dtype"]
"""Type of the numbers of a tensor."""

DEVICE_SHARE_MAX = 0.75
"""Share of a GPU's free memory that data may take."""


def free_bytes(device: torch.device) -> int | None:
    """Free memory of a GPU; `None` on the CPU."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def checked_device(device: DeviceName, path: Any) -> torch.device:
    """The device, with its number on CUDA."""
    expected = "cpu, or a GPU of NVIDIA: cuda, or cuda:0"
    try:
        made = torch.device(device)
    except (RuntimeError, TypeError):
        raise wrong(device, "device", expected, path) from None
    require(made.type in ("cpu", "cuda"), device, "device", expected, path)
    if made.type == "cpu":
        return made
    if not torch.cuda.is_available():
        raise DeviceError(
            f"{path}: device is {device}, and PyTorch {torch.__version__} finds no GPU: give device='cpu', or see "
            f"mb.doctor()",
            file=str(path),
            key="device",
        )
    index = torch.cuda.current_device() if made.index is None else made.index
    require(index < torch.cuda.device_count(), device, "device", f"a GPU of {torch.cuda.device_count()}", path)
    return torch.device("cuda", index)


def require_dtype(dtype: torch.dtype | None, path: Any) -> None:
    """Refuses types that windows are not converted to."""
    dtypes = (None, torch.float32, torch.float16, torch.bfloat16)
    names = "torch.float32, torch.float16, torch.bfloat16 or None"
    expected = f"{names}; data are float32, and a batch becomes float64 by .double()"
    require(dtype in dtypes, dtype, "dtype", expected, path)
