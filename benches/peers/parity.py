"""How the comparisons of predictions run `megabatch`, and when predictions are the same."""
import json
import pathlib
import subprocess
import sys

import numpy as np


class Stage:
    """A folder, and `megabatch` run in it."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def run(self, line):
        done = subprocess.run([self.program, *line.split(), "--json"], cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"megabatch {line}\n{done.stderr}")
        return json.loads(done.stdout)

    def path(self, name):
        return str(self.folder / name)


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def difference(name, found, expected, tolerance):
    """Refuses predictions that differ; the largest difference relative to the largest prediction."""
    require(found.shape == expected.shape, f"{name}: shape {found.shape}, expected {expected.shape}")
    largest = np.abs(expected).max()
    require(np.std(expected, axis=0).max() > 1e-3 * largest, f"{name}: predictions that say nothing")
    apart = float(np.abs(found - expected).max() / largest)
    require(apart <= tolerance, f"{name}: differs by {apart:.1e} of the largest prediction, more than {tolerance}")
    return apart
