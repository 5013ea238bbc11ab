"""Programs in the guides for users of PyTorch; they need it: cargo xtask python test --torch."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

from fake_torch import IS_REAL as HAS_TORCH
from shared import InFolder

GUIDES = pathlib.Path(__file__).parents[3] / "docs" / "guide"
HAS_PYG = HAS_TORCH and importlib.util.find_spec("torch_geometric") is not None


@unittest.skipUnless(HAS_TORCH, "PyTorch is not installed: cargo xtask python test --torch")
class Guides(InFolder):
    def run_guide(self, name: str) -> None:
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", (GUIDES / name).read_text(), re.M | re.S))
        self.assertIn("import", code)
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=self.folder, timeout=300)

    def test_scatter(self) -> None:
        self.run_guide("scatter.md")

    def test_your_lstm(self) -> None:
        self.run_guide("your-lstm.md")

    @unittest.skipUnless(HAS_PYG, "PyTorch Geometric: cargo xtask python test --torch")
    def test_your_gnn(self) -> None:
        self.run_guide("your-gnn.md")
