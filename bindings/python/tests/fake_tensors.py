"""A stand-in for PyTorch with what `megabatch.chunks` uses of tensors and of CUDA, on top of `fake_torch`. Tensors are
numpy's arrays in memory of the CPU, whatever their device; `Gpu` writes down what streams and events are asked for."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import fake_torch
import numpy as np


class Device:
    """A device of tensors."""

    def __init__(self, name: Any, index: int | None = None) -> None:
        kind, _, number = str(name).partition(":")
        if kind not in ("cpu", "cuda", "xpu"):
            raise RuntimeError(f"Invalid device string: {name!r}")
        self.type = kind
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Tensor(np.ndarray[Any, Any]):
    """An array with a tensor's methods."""

    device: Any = Device("cpu")

    def __array_finalize__(self, base: Any) -> None:
        self.device = getattr(base, "device", Tensor.device)

    def to(self, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> Tensor:
        made = self.astype(dtype or self.dtype, copy=False)
        if device is not None and str(device) != str(self.device):
            made = made.copy()
            made.device = device if isinstance(device, Device) else Device(device)
        return made

    def pin_memory(self) -> Tensor:
        Gpu.said.append(("pin_memory", self.nbytes))
        return self.copy()

    def as_strided(self, shape: Any, strides: Any, offset: int) -> Any:
        apart = [stride * self.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(self.reshape(-1)[offset:], shape, apart, subok=True)

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        self[...] = source

    def index_select(self, dimension: int, places: Any) -> Any:
        return np.take(self, places, axis=dimension).view(Tensor)

    def record_stream(self, stream: Any) -> None:
        Gpu.said.append(("record_stream", stream))


class Gpu:
    """The GPU of the stand-in; absent unless `is_there`."""

    is_there = False
    free_bytes = 0
    said: list[tuple[str, Any]] = []

    @classmethod
    @contextlib.contextmanager
    def there(cls, free_bytes: int) -> Iterator[None]:
        """Has a GPU with so much free memory."""
        cls.is_there, cls.free_bytes = True, free_bytes
        cls.said.clear()
        try:
            yield
        finally:
            cls.is_there = False


class Stream:
    """A stream other than the default one."""

    def __init__(self, device: Any) -> None:
        self.device = device


class DefaultStream:
    """The default stream."""

    def wait_event(self, event: Any) -> None:
        assert event.stream is not None, "the event was recorded before"
        Gpu.said.append(("wait_event", event))


class Event:
    """An event, which is over at once."""

    def __init__(self) -> None:
        self.stream: Any = None

    def record(self, stream: Any) -> None:
        self.stream = stream

    def synchronize(self) -> None:
        Gpu.said.append(("synchronize", self))


def install() -> None:
    """Extends the stand-in, unless PyTorch is there."""
    fake_torch.install()
    if fake_torch.IS_REAL:
        return
    torch: Any = sys.modules["torch"]
    torch.Tensor = Tensor
    torch.from_dlpack = lambda table: np.from_dlpack(table).view(Tensor)
    torch.from_numpy = lambda array: array.view(Tensor)
    torch.empty = empty
    torch.arange = arange
    torch.cat = lambda tensors: np.concatenate(tensors).view(Tensor)
    torch.device = Device
    torch.float32, torch.float16, torch.bfloat16 = np.dtype("f4"), np.dtype("f2"), object()
    torch.bool = np.dtype("?")
    default = DefaultStream()
    cuda: Any = torch.cuda
    cuda.is_available = lambda: Gpu.is_there
    cuda.device_count = lambda: 1
    cuda.mem_get_info = lambda device: (Gpu.free_bytes, 2 * Gpu.free_bytes)
    cuda.current_stream = lambda device: default
    cuda.stream = lambda stream: contextlib.nullcontext()
    cuda.Stream, cuda.Event = Stream, Event



def arange(*bounds: int, device: Any = Tensor.device) -> Any:
    """Consecutive numbers."""
    made = np.arange(*bounds, dtype=np.int64).view(Tensor)
    made.device = device
    return made


def empty(shape: tuple[int, ...], *, dtype: Any, device: Any = Tensor.device, pin_memory: bool = False) -> Any:
    """A tensor of undefined numbers: NaN, so that what is not written shows."""
    made = np.full(shape, np.nan, dtype).view(Tensor)
    made.device = device
    Gpu.said.append(("empty", (device.type, pin_memory, made.nbytes)))
    return made
