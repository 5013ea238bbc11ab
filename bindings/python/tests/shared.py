"""What the tests share."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import megabatch as mb

PROGRAM = os.environ.get("MEGABATCH_PROGRAM", "megabatch")
BARS = {"timeframes": {"M1": 12, "M5": 6}, "target": "log_return", "horizon": 3, "stride": 20}
MODEL = {"model": {"hidden": 4}, "gpu_optimization": {"batch_size": 32}}


class InFolder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        kept = tempfile.TemporaryDirectory(prefix="megabatch-test-")
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)

    def bars(self, days: int = 14) -> pathlib.Path:
        """One-minute bars."""
        path = self.folder / "EURUSD.csv"
        mb.synth.bars(path, days=days)
        return path

    def series(self, **options: Any) -> mb.Dataset:
        """A series file of made-up samples."""
        given = {"samples": 400, "timeframes": {"M1": 7, "M5": 4}, "features": 3, "targets": 2, **options}
        name = f"{given.get('layout', 'series')}-{given.get('compression', 'gzip')}.h5"
        mb.synth.samples(self.folder / name, **given)
        return mb.open(self.folder / name)

    def program(self, *arguments: object) -> None:
        """Runs the program `megabatch`."""
        subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True)

    def python(self, code: str, *arguments: object) -> str:
        """What another Python prints."""
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
