"""The loader beside the same loop in Rust, and beside h5py on the same files, in turn: samples of five timeframes, 71 kB
each, shuffled, in batches of 256.

`cargo xtask python measure [ROUNDS [SAMPLES [series or windows]]]`
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import h5py
import megabatch as mb
import numpy as np

BATCH = 256


def seconds(work: Callable[[], object]) -> float:
    """Time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def held_open(path: pathlib.Path, samples: np.ndarray) -> None:
    """An epoch by h5py, the file held open, each batch by sorted indices."""
    with h5py.File(path) as file:
        tables = [*file["features"].values(), file["targets"]] if "features" in file else []
        for first in range(0, len(samples), BATCH):
            chosen = np.sort(samples[first : first + BATCH])
            for table in tables:
                table[chosen]


def main() -> None:
    rounds, samples = (int(sys.argv[n]) if len(sys.argv) > n else default for n, default in ((1, 7), (2, 3000)))
    with tempfile.TemporaryDirectory() as folder:
        print("| file | samples/s | of the Rust loop | h5py, held open |")
        print("| --- | ---: | ---: | ---: |")
        files = (("series", "contiguous"), ("windows", "contiguous"), ("windows", "gzip"))
        for layout, compression in files:
            if sys.argv[3:] and layout not in sys.argv[3:]:
                continue
            path = pathlib.Path(folder) / f"{layout}-{compression}.h5"
            mb.synth.samples(path, samples=samples, layout=layout, compression=compression)
            loader = mb.open(path).loader(BATCH, shuffle=True)
            times: dict[str, list[float]] = {"python": [], "rust": [], "h5py": []}
            order = np.concatenate([batch["sample"] for batch in loader])
            for _ in range(rounds):
                times["rust"].append(seconds(lambda: loader._native.drain(1)))
                loader.set_epoch(1)
                times["python"].append(seconds(lambda: sum(1 for _ in loader)))
                if layout == "windows":
                    times["h5py"].append(seconds(lambda: held_open(path, order)))
            python, rust = min(times["python"]), min(times["rust"])
            of_pairs = statistics.median(b / a for a, b in zip(times["python"], times["rust"]))
            other = f"{min(times['h5py']) / python:.1f} times as long" if times["h5py"] else ""
            print(f"| {layout}, {compression} | {samples / python:.0f} | {rust / python:.2f} ({of_pairs:.2f}) | {other} |")


if __name__ == "__main__":
    main()
