"""A stand-in for PyTorch and Lightning with what `megabatch._torch` and `megabatch.lightning` use of them. Tensors are numpy's arrays, which take memory over
by DLPack as tensors do."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import numpy as np

IS_REAL = importlib.util.find_spec("torch") is not None
"""True where PyTorch itself is installed."""


class IterableDataset:
    """Base of datasets."""

    def __class_getitem__(cls, _: Any) -> type:
        return cls


class DataLoader:
    """Batches of a dataset, which makes them itself."""

    def __init__(self, dataset: Any, *, batch_size: None, num_workers: int) -> None:
        self.dataset, self.options = dataset, (batch_size, num_workers)

    def __class_getitem__(cls, _: Any) -> type:
        return cls

    def __iter__(self) -> Any:
        return iter(self.dataset)


class LightningDataModule:
    """Base of data modules."""


class Allocator:
    """What `torch._C._cuda_customAllocator` makes, with what was set."""

    def __init__(self, malloc: int, free: int) -> None:
        self.functions = {"malloc": malloc, "free": free}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda address: self.functions.update({name: address})


class Cuda:
    """The state of the stand-in's CUDA."""

    is_initialized = False
    allocator: Any = None
    hooks: list[Any] = []


class Worker:
    """A worker of a DataLoader; `current` is what `get_worker_info` finds."""

    current: object = None


def install() -> None:
    """Puts the stand-in where `import torch` finds it, unless PyTorch is there."""
    if IS_REAL or "torch" in sys.modules:
        return
    torch, utils, data = (types.ModuleType(name) for name in ("torch", "torch.utils", "torch.utils.data"))
    torch.Tensor = np.ndarray  # type: ignore[attr-defined]
    torch.from_dlpack = np.from_dlpack  # type: ignore[attr-defined]
    torch.from_numpy = lambda array: array  # type: ignore[attr-defined]
    torch.utils, utils.data = utils, data  # type: ignore[attr-defined]
    data.IterableDataset = IterableDataset  # type: ignore[attr-defined]
    data.DataLoader = DataLoader  # type: ignore[attr-defined]
    data.get_worker_info = lambda: Worker.current  # type: ignore[attr-defined]
    sys.modules.update({"torch": torch, "torch.utils": utils, "torch.utils.data": data})
    install_cuda(torch)
    lightning, pytorch = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
    pytorch.LightningDataModule = LightningDataModule  # type: ignore[attr-defined]
    sys.modules.update({"lightning": lightning, "lightning.pytorch": pytorch})


def install_cuda(torch: Any) -> None:
    """Gives the stand-in what `megabatch.torch` uses of CUDA."""
    cuda, memory, c = (types.ModuleType(name) for name in ("torch.cuda", "torch.cuda.memory", "torch._C"))
    torch.__version__, torch.cuda, torch._C, cuda.memory = "0.0", cuda, c, memory  # type: ignore[attr-defined]
    torch.device = lambda name: types.SimpleNamespace(index=int(name.split(":")[1]) if ":" in name else None)
    torch.backends = types.SimpleNamespace(
        cuda=types.SimpleNamespace(is_built=lambda: True), cudnn=types.SimpleNamespace(benchmark=False)
    )
    torch.optim = types.SimpleNamespace(
        optimizer=types.SimpleNamespace(register_optimizer_step_post_hook=Cuda.hooks.append)
    )
    cuda.is_initialized = lambda: Cuda.is_initialized  # type: ignore[attr-defined]
    cuda.current_device = lambda: 0  # type: ignore[attr-defined]
    memory._CUDAAllocator = lambda allocator: allocator  # type: ignore[attr-defined]
    memory.change_current_allocator = lambda allocator: setattr(Cuda, "allocator", allocator)  # type: ignore[attr-defined]
    c._cuda_customAllocator = Allocator  # type: ignore[attr-defined]
    cuda.memory_stats = memory.memory_stats = None  # type: ignore[attr-defined]
    sys.modules.update({"torch.cuda": cuda, "torch.cuda.memory": memory, "torch._C": c})
