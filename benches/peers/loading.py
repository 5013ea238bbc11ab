"""megabatch beside h5py and PyTorch's DataLoader on delivering one epoch of windows from HDF5, all sides in one sitting.

Files of [N, 360, 167] float32 with 36 targets, 1.5 GB as numbers: contiguous, and in chunks of one sample without filters, with
gzip 4 and shuffle, with lzf and shuffle. Every side delivers every sample in batches of 128 and touches each cache line of them; opening
the file is part of the time. Sides take turns within a round, so that a noisy machine disturbs all alike; each reports its fastest
round, and ratios are taken of those.

    cargo xtask peers loading                            # builds megabatch, installs PyTorch and h5py under target/, runs this
    cargo xtask peers loading -- --storage gzip --cold   # one storage, from disk
"""
import argparse
import json
import mmap
import os
import pathlib
import subprocess
import sys
import time

import h5py
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

STEPS, FEATURES, TARGETS = 360, 167, 36
SAMPLE_BYTES = STEPS * FEATURES * 4
BATCH, SLAB = 128, 1024
STORAGES = {
    "contiguous": {},
    "chunked": {"chunks": (1, STEPS, FEATURES)},
    "gzip": {"chunks": (1, STEPS, FEATURES), "compression": "gzip", "compression_opts": 4, "shuffle": True},
    "lzf": {"chunks": (1, STEPS, FEATURES), "compression": "lzf", "shuffle": True},
}


def make(folder, samples, storages=STORAGES):
    """Windows over one autoregressive series, a file of each storage; a third of the features has two decimals, and twenty are flags."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in storages if not (folder / f"{name}-{samples}.h5").exists()]
    if not missing:
        return
    random = numpy.random.default_rng(0)
    series = random.standard_normal((samples + STEPS - 1, FEATURES)).astype("f4")
    for bar in range(1, len(series)):
        series[bar] = 0.97 * series[bar - 1] + 0.243 * series[bar]
    rounded = slice(FEATURES // 2, FEATURES // 2 + FEATURES // 3)
    series[:, rounded] = numpy.round(series[:, rounded], 2)
    series[:, -20:] = series[:, -20:] > 0
    targets = random.standard_normal((samples, TARGETS)).astype("f4")
    windows = numpy.lib.stride_tricks.sliding_window_view(series, STEPS, 0).transpose(0, 2, 1)
    for name in missing:
        path = folder / f"{name}-{samples}.h5"
        with h5py.File(path.with_suffix(".part"), "w") as file:
            features = file.create_dataset("features", (samples, STEPS, FEATURES), "f4", **STORAGES[name])
            file.create_dataset("targets", data=targets)
            for first in range(0, samples, BATCH):
                features[first : first + BATCH] = windows[first : first + BATCH]
        os.replace(path.with_suffix(".part"), path)


class OneByOne(Dataset):
    """The usual Dataset: the file opened lazily in each worker, one sample an item."""

    def __init__(self, path, samples, holds_datasets):
        self.path, self.samples, self.holds_datasets, self.file = path, samples, holds_datasets, None

    def __len__(self):
        return self.samples

    def __getitem__(self, sample):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
            if self.holds_datasets:
                self.features, self.targets = self.file["features"], self.file["targets"]
        if self.holds_datasets:
            return torch.from_numpy(self.features[sample]), torch.from_numpy(self.targets[sample])
        return torch.from_numpy(self.file["features"][sample]), torch.from_numpy(self.file["targets"][sample])


def touch(batch):
    return float(batch.reshape(-1)[::16].sum())


def data_loader(path, samples, args, *, workers, holds_datasets):
    torch.manual_seed(0)
    dataset = OneByOne(path, samples, holds_datasets)
    for features, _ in DataLoader(dataset, BATCH, shuffle=args.shuffled, num_workers=workers):
        touch(features)


def slab(path, samples, args):
    """A large piece at a time, cut into batches; shuffled within the piece."""
    with h5py.File(path, "r") as file:
        for first in range(0, samples, SLAB):
            features = torch.from_numpy(file["features"][first : first + SLAB])
            torch.from_numpy(file["targets"][first : first + SLAB])
            order = torch.randperm(len(features)) if args.shuffled else None
            for start in range(0, len(features), BATCH):
                touch(features[order[start : start + BATCH]] if args.shuffled else features[start : start + BATCH])


def read_direct(path, samples, args):
    """h5py at its best: into memory that is there already, as much at a time as the slab."""
    features, targets = numpy.empty((SLAB, STEPS, FEATURES), "f4"), numpy.empty((SLAB, TARGETS), "f4")
    with h5py.File(path, "r") as file:
        for first in range(0, samples, SLAB):
            rows = numpy.s_[first : min(first + SLAB, samples)]
            into = numpy.s_[: rows.stop - rows.start]
            file["features"].read_direct(features, rows, into)
            file["targets"].read_direct(targets, rows, into)
            batches = torch.from_numpy(features[into])
            for start in range(0, len(batches), BATCH):
                touch(batches[start : start + BATCH])


def pread(path, samples, args):
    """The floor of a contiguous file: its bytes by the system call alone, into the same memory again and again."""
    piece = numpy.empty(SLAB * SAMPLE_BYTES, "u1")
    with h5py.File(path, "r") as file:
        offset = file["features"].id.get_offset()
    descriptor = os.open(path, os.O_RDONLY)
    view = memoryview(piece)
    for first in range(0, samples, SLAB):
        length = (min(first + SLAB, samples) - first) * SAMPLE_BYTES
        done = 0
        while done < length:
            done += os.preadv(descriptor, [view[done:length]], offset + first * SAMPLE_BYTES + done)
        batches = torch.from_numpy(piece[:length].view("f4"))
        for start in range(0, len(batches), BATCH * STEPS * FEATURES):
            touch(batches[start : start + BATCH * STEPS * FEATURES])
    os.close(descriptor)


def o_direct(path, samples, args):
    """The disk's own rate: the file in pieces of 8 MiB past the page cache, two reads in flight."""
    from concurrent.futures import ThreadPoolExecutor

    piece = 8 << 20
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    size = os.fstat(descriptor).st_size // 4096 * 4096
    buffers = [mmap.mmap(-1, piece) for _ in range(4)]

    def read(turn):
        return os.preadv(descriptor, [memoryview(buffers[turn % 4])[: min(piece, size - turn * piece)]], turn * piece)

    with ThreadPoolExecutor(4) as pool:
        total = sum(pool.map(read, range((size + piece - 1) // piece)))
    os.close(descriptor)
    assert total == size


def megabatch(path, samples, args, *, threads):
    command = [args.megabatch, "--json", "bench", "load", str(path), "--batch", str(BATCH), "--chunk-samples", str(BATCH)]
    command += ["--threads", str(threads), "--epochs", "1"] + (["--shuffled"] if args.shuffled else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def sides(storage, args):
    """Each side as (name, a function of path and number of samples, the share of samples that it is given)."""
    workers = [("DataLoader, 0 workers", 0), ("DataLoader, 2 workers", 2)]
    # One sample at a time is so slow that a part of the file has to do.
    for name, count in workers:
        yield name, lambda p, n, c=count: data_loader(p, n, args, workers=c, holds_datasets=False), args.part
        yield f"{name}, handle held", lambda p, n, c=count: data_loader(p, n, args, workers=c, holds_datasets=True), args.part
    yield "slab", lambda p, n: slab(p, n, args), 1.0
    yield "read_direct", lambda p, n: read_direct(p, n, args), 1.0
    if storage == "contiguous":
        yield "pread", lambda p, n: pread(p, n, args), 1.0
    if args.cold:
        yield "O_DIRECT", lambda p, n: o_direct(p, n, args), 1.0
    yield "megabatch, 1 thread", lambda p, n: megabatch(p, n, args, threads=1), 1.0
    yield "megabatch, 2 threads", lambda p, n: megabatch(p, n, args, threads=2), 1.0


def forget(path):
    """Drops the file from the page cache; what is not on disk yet could not be dropped."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def warm_up(path):
    with open(path, "rb") as file:
        while file.read(1 << 24):
            pass


def measure(storage, args):
    path = args.folder / f"{storage}-{args.samples}.h5"
    fastest, answers = {}, {}
    for _ in range(args.rounds):
        for name, deliver, share in sides(storage, args):
            samples = args.samples if name.startswith(("megabatch", "O_DIRECT")) else int(args.samples * share)
            forget(path) if args.cold else warm_up(path)
            wall, cpu = time.perf_counter(), time.process_time()
            answer = deliver(path, samples)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if answer:
                wall, cpu = answer["seconds"], answer["cpu_s"]
            rate = samples / wall
            if rate > fastest.get(name, {"samples_per_s": 0.0})["samples_per_s"]:
                fastest[name] = {"samples_per_s": round(rate, 1), "gb_per_s": round(rate * SAMPLE_BYTES / 1e9, 3), "cpu_s": round(cpu * args.samples / samples, 2)}
                answers[name] = answer
    return path, fastest, answers


def report(storage, args):
    path, fastest, answers = measure(storage, args)
    ours = {threads: fastest[f"megabatch, {threads} thread{'s' if threads > 1 else ''}"] for threads in (1, 2)}
    print(f"\n{storage}, {'cold' if args.cold else 'warm'}, {'shuffled' if args.shuffled else 'in order'}: {os.path.getsize(path) / 1e9:.3f} GB on disk\n")
    print("| side | samples/s | GB/s | processor time, s | megabatch on 1 thread | on 2 threads |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, numbers in fastest.items():
        ratios = " | ".join(f"{ours[threads]['samples_per_s'] / numbers['samples_per_s']:.2f}x" for threads in (1, 2))
        print(f"| {name} | {numbers['samples_per_s']:,.0f} | {numbers['gb_per_s']:.2f} | {numbers['cpu_s']:.2f} | {ratios} |")
    for threads in (1, 2):
        name = f"megabatch, {threads} thread{'s' if threads > 1 else ''}"
        answer = answers[name]
        print(f"\n{name}: pool peak {answer['pool_peak_bytes'] / 1e6:.1f} MB for chunks of {answer['chunk_bytes'] / 1e6:.1f} MB, resident peak {answer['peak_rss_bytes'] / 1e6:.1f} MB")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, help="the program, a release build")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("target/peers-data"), help="where the files are made, up to 6 GB")
    parser.add_argument("--storage", action="append", choices=sorted(STORAGES), help="default: all")
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", type=float, default=0.25, help="share of the samples for the sides that take one at a time")
    parser.add_argument("--cold", action="store_true", help="drop the file from the page cache before every epoch")
    parser.add_argument("--shuffled", action="store_true", help="in random order; the slab shuffles within its piece only")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    torch.set_num_threads(1)
    make(args.folder, args.samples)
    print(f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version}), PyTorch {torch.__version__}, fastest of {args.rounds} rounds")
    for storage in args.storage or STORAGES:
        report(storage, args)


if __name__ == "__main__":
    main()
