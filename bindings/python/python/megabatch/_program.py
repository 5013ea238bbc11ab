"""The program `megabatch` of an installed wheel: the one that `cargo install` builds, in Python's process."""

from __future__ import annotations

import signal
import sys

from . import _megabatch


def main() -> int:
    """Does what the command line says, and returns the exit code."""
    # The program handles its signals itself; Python's handler would wait for it to end.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _megabatch.program(["megabatch", *sys.argv[1:]])
