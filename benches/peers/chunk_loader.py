"""`megabatch.ChunkDataLoader` beside the class of the field report that it follows, written plainly over h5py: for each chunk of samples it reads a slab of
/features and /targets, moves it to the device at once, and slices batches.

A file of [N, 360, 167] float32 with 36 targets, contiguous and with gzip 4 and shuffle in chunks of one sample. Each side delivers every sample on the CPU
in batches of 128 and touches each cache line of them; opening the file is part of the time. Sides take turns, each epoch in a process of its own, which
says its peak of resident memory too: as a whole, and beyond what it had after its imports. Rates are those of the fastest round, memory that of the largest.
Both sides get the same chunk_size_gb, of which the report's class makes one chunk, and ours two.

    python benches/peers/chunk_loader.py                     # needs PyTorch, h5py, and `cargo xtask python build` before
    python benches/peers/chunk_loader.py --storage gzip --shuffled
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

SAMPLE_BYTES = 360 * 167 * 4
BATCH = 128
STORAGES = ("contiguous", "gzip")
SIDES = {"the report's class": "report", "the report's class, old chunk freed first": "report-freeing", "megabatch": "ours"}


class ReportLoader:
    """The class of the field report. `frees` lets a chunk go before the next one is read, which a loop over slabs does not do by itself."""

    def __init__(self, hdf5_path, batch_size, chunk_size_gb, device, shuffle, frees):
        import h5py

        self.path, self.batch_size, self.device, self.shuffle, self.frees = hdf5_path, batch_size, device, shuffle, frees
        with h5py.File(hdf5_path, "r") as file:
            self.samples = len(file["features"])
            sample_bytes = file["features"][0].nbytes + file["targets"][0].nbytes
        self.chunk = max(1, int(chunk_size_gb * 1e9 / sample_bytes))

    def __iter__(self):
        import h5py
        import torch

        with h5py.File(self.path, "r") as file:
            for first in range(0, self.samples, self.chunk):
                features = torch.from_numpy(file["features"][first : first + self.chunk]).to(self.device)
                targets = torch.from_numpy(file["targets"][first : first + self.chunk]).to(self.device)
                order = torch.randperm(len(features), device=self.device) if self.shuffle else None
                for start in range(0, len(features), self.batch_size):
                    rows = order[start : start + self.batch_size] if self.shuffle else slice(start, start + self.batch_size)
                    yield features[rows], targets[rows]
                if self.frees:
                    del features, targets


def status_bytes(key):
    line = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) << 10


def epoch(side, path, args):
    """Seconds and memory of one epoch of a side, in this process."""
    import h5py
    import torch

    sys.path.insert(0, str(args.module))
    from megabatch.chunks import ChunkDataLoader

    torch.set_num_threads(1)
    imported, start, samples = status_bytes("VmRSS"), time.perf_counter(), 0
    if side == "ours":
        loader = ChunkDataLoader(path, BATCH, args.chunk_size_gb, "cpu", args.shuffled)
    else:
        loader = ReportLoader(path, BATCH, args.chunk_size_gb, "cpu", args.shuffled, side == "report-freeing")
    features = targets = None
    for features, targets in loader:
        float(features.reshape(-1)[::16].sum())
        samples += len(targets)
        if side == "report-freeing":
            del features, targets
    seconds, peak = time.perf_counter() - start, status_bytes("VmHWM")
    versions = f"h5py {h5py.__version__} (HDF5 {h5py.version.hdf5_version}), PyTorch {torch.__version__}"
    return {"samples": samples, "seconds": seconds, "cpu_s": time.process_time(), "peak_bytes": peak, "own_bytes": peak - imported, "versions": versions}


def in_a_process(side, path, args):
    command = [sys.executable, __file__, "--side", side, "--file", path, "--module", args.module, "--chunk-size-gb", args.chunk_size_gb]
    done = subprocess.run([*map(str, command), *(["--shuffled"] if args.shuffled else [])], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{side} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def measure(storage, args):
    # Not above: a side's memory is counted from its own imports on.
    from loading import make

    make(args.folder, args.samples, [storage])
    path = args.folder / f"{storage}-{args.samples}.h5"
    answers = {name: [] for name in SIDES}
    for _ in range(args.rounds):
        for name, side in SIDES.items():
            # Warm: the file is in the page cache, as far as it fits.
            with open(path, "rb") as file:
                while file.read(1 << 24):
                    pass
            answer = in_a_process(side, path, args)
            assert answer["samples"] == args.samples, f"{name} gave {answer['samples']} samples"
            answers[name].append(answer)
    return path, {
        name: {
            "rate": max(own["samples"] / own["seconds"] for own in rounds),
            "peak": max(own["peak_bytes"] for own in rounds),
            "own": max(own["own_bytes"] for own in rounds),
            "versions": rounds[0]["versions"],
        }
        for name, rounds in answers.items()
    }


def report(storage, args):
    path, found = measure(storage, args)
    order = "shuffled" if args.shuffled else "in order"
    ours = found["megabatch"]
    print(f"\n{storage}, {order}: {path.stat().st_size / 1e9:.3f} GB on disk, chunk_size_gb={args.chunk_size_gb:g}; {ours['versions']}, fastest of {args.rounds} rounds\n")
    print("| side | samples/s | GB/s | peak memory, MB | beyond imports, MB | megabatch, samples/s | its memory | beyond imports |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, side in found.items():
        ratios = f"{ours['rate'] / side['rate']:.2f}x | {ours['peak'] / side['peak']:.2f}x | {ours['own'] / side['own']:.2f}x"
        rate = f"{side['rate']:,.0f} | {side['rate'] * SAMPLE_BYTES / 1e9:.2f}"
        print(f"| {name} | {rate} | {side['peak'] / 1e6:,.0f} | {side['own'] / 1e6:,.0f} | {ratios} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("target/peers-data"), help="where the files are made, up to 3 GB")
    parser.add_argument("--module", type=pathlib.Path, default=pathlib.Path("target/python-module"), help="the folder of the built module")
    parser.add_argument("--storage", action="append", choices=sorted(STORAGES), help="default: both")
    parser.add_argument("--samples", type=int, default=6400)
    parser.add_argument("--chunk-size-gb", type=float, default=0.4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shuffled", action="store_true", help="chunks in random order, and samples within a chunk; the report's class shuffles within only")
    parser.add_argument("--side", choices=SIDES.values(), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    if args.side:
        print(json.dumps(epoch(args.side, args.file, args)))
        return
    for storage in args.storage or STORAGES:
        report(storage, args)


if __name__ == "__main__":
    main()
