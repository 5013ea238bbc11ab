"""Memory of megabatch's loaders over many epochs, and of many files that are opened.

    python3 loader_memory.py [--epochs 1000] [--files 10000]

Printed: resident memory after a tenth of the work and at its end, in a process of its own for each row. PyTorch and the Python module megabatch are needed.
"""
import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path

import megabatch as mb


def resident_mib():
    fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
    return int(fields[0]) / 1024


def epochs_of(batches):
    """An epoch that looks at each batch."""
    for batch in batches:
        windows, targets = (batch, batch["targets"]) if isinstance(batch, dict) else batch
        for tensor in (*windows.values(), targets):
            float(tensor.reshape(-1)[0])


def opened(path):
    """A dataset that is opened, asked and left."""
    ds = mb.open(path)
    return len(ds) + len(ds.split()[0]) + len(next(iter(ds.loader(8))))


def work(folder):
    """What is repeated, by its name."""
    series, windows = folder / "series.h5", folder / "windows.h5"
    chunks = {"device": "cpu", "shuffle": True}
    return {
        "loader of a series": lambda: mb.open(series).loader(256, shuffle=True),
        'torch(device="cpu") of a series': lambda: mb.open(series).torch(256, shuffle=True, device="cpu"),
        "ChunkDataLoader, all samples stay": lambda: mb.ChunkDataLoader(windows, 256, **chunks),
        "ChunkDataLoader, four chunks": lambda: mb.ChunkDataLoader(windows, 256, windows.stat().st_size / 2e9, **chunks),
    }


def watch(folder, name, count, answers):
    path, make = folder / "series.h5", work(folder).get(name)
    loader = make() if make else None
    begun, marks = time.perf_counter(), []
    for number in range(1, count + 1):
        epochs_of(loader) if make else opened(path)
        if number in (count // 10, count):
            marks.append(resident_mib())
    answers.put((*marks, time.perf_counter() - begun))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--files", type=int, default=10_000)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    print("| | times | MiB after a tenth | MiB at the end | s |\n| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for layout in ("series", "windows"):
            mb.synth.samples(folder / f"{layout}.h5", layout=layout, samples=2048, timeframes={"M1": 60, "M5": 24}, features=8, targets=2)
        for row, count in [*((row, args.epochs) for row in work(folder)), ("files opened", args.files)]:
            answers = context.SimpleQueue()
            process = context.Process(target=watch, args=(folder, row, count, answers))
            process.start()
            early, late, seconds = answers.get()
            process.join()
            print(f"| {row} | {count} | {early:.1f} | {late:.1f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
