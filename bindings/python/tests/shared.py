"""Helpers of several tests."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Iterator
from typing import Any

import megabatch as mb
import numpy as np

PROGRAM = os.environ.get("MEGABATCH_PROGRAM", "megabatch")
BARS = {"timeframes": {"M1": 12, "M5": 6}, "target": "log_return", "horizon": 3, "stride": 20}
MODEL = {"model": {"hidden": 4}, "gpu_optimization": {"batch_size": 32}}

TEST_SECONDS_MAX = 900
"""A test that takes longer ends all tests with the stacks of its threads."""
CHILD_SECONDS_MAX = 600
"""A child that takes longer is killed."""


class InFolder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self) -> None:
        faulthandler.dump_traceback_later(TEST_SECONDS_MAX, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        # A log without a handler prints its warnings, and progress is printed where no log takes it.
        logging.getLogger("megabatch").addHandler(logging.NullHandler())
        logging.getLogger("megabatch").setLevel(logging.INFO)
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

    def program(self, *arguments: object) -> str:
        """The output of the program `megabatch`."""
        command = [PROGRAM, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=CHILD_SECONDS_MAX).stdout

    def python(self, code: str, *arguments: object) -> str:
        """The output of another Python."""
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS_MAX)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def require_same_forecasts(
        self, followed: dict[Any, Any], predicted: mb.Predictions, count: float, *, rtol: float, atol: float
    ) -> None:
        """Requires forecasts by time to be the predictions, more than `count` of them."""
        assert predicted.times is not None
        places = {time: place for place, time in enumerate(predicted.times)}
        seen = [time for time in followed if time in places]
        self.assertGreater(len(seen), count)
        for time in seen:
            np.testing.assert_allclose(followed[time], predicted.values[places[time]], rtol=rtol, atol=atol)

    @contextlib.contextmanager
    def child(self, code: str, *arguments: object, returns: int = 0) -> Iterator[subprocess.Popen[str]]:
        """Another Python, whose output is a pipe; it is waited for, and its exit code is `returns`. It hears interrupts,
        which background jobs ignore."""
        hears = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        command = [sys.executable, "-c", hears + code, *map(str, arguments)]

        def kill() -> None:
            print(f"killed after {CHILD_SECONDS_MAX} s: {command}", file=sys.stderr)
            child.kill()

        # A pipe of errors that nobody reads would stop the child.
        errors = self.folder / "errors"
        with errors.open("w") as file, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True) as child:
            timer = threading.Timer(CHILD_SECONDS_MAX, kill)
            timer.start()
            try:
                yield child
                child.communicate()
            finally:
                timer.cancel()
                child.kill()
        self.assertEqual(child.returncode, returns, errors.read_text())


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
