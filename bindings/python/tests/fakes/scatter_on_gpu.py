"""Sends tensors of the CPU to `megabatch.scatter`'s kernels for GPUs, in a process with the fake CUDA driver, whose kernels
run on the CPU."""

from __future__ import annotations

import sys
import unittest
from typing import Any

import torch
from megabatch import _scatter_kernels as kernels

DEFAULT_STREAM = 0


def install() -> None:
    """Takes every tensor for one of the first GPU."""
    kernels.is_on_gpu = lambda tensor: True
    kernels._place = lambda tensor: (0, DEFAULT_STREAM)
    cuda: Any = torch.cuda
    cuda.synchronize = lambda device: None


if __name__ == "__main__":
    install()
    unittest.main(module=None, argv=sys.argv)
