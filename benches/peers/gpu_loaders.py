"""Batches on a GPU: `mb.ChunkDataLoader` and `dataset.torch(device=)` beside the report's class and PyTorch's DataLoader, feeding an LSTM.

    python3 gpu_loaders.py [--only checks,windows,series] [--wheels DIR] [--folder /dev/shm] [--samples 12000]

checks   batches of both on the GPU are those on the CPU, in the same order.
windows  samples/s of an LSTM of 167 features and 128 units over windows [N, 360, 167], contiguous in a file: alone (one batch again and again), and fed by each.
series   the same of five timeframes of a series: windows gathered on the GPU, and on the CPU and copied.

PyTorch with CUDA, h5py and the Python module megabatch are needed, which DIR may have as a wheel. Exit codes: 0 passed, 1 a row failed, 77 nothing ran.
"""
import tempfile
import time
from pathlib import Path

from torch_suite import main

BATCH, STEPS, FEATURES, UNITS, TARGETS = 128, 360, 167, 128, 36
TIMEFRAMES = {"M1": 480, "M5": 288, "M15": 192, "H1": 96, "H4": 48}
# Of the model's own speed: with chunks that stay, and with chunks that pass through.
PREDICTED_SHARE = {"stays": 0.98, "chunks": 0.95}


class Model:
    """An LSTM that is trained a step a batch."""

    def __init__(self, torch, features, targets):
        self.torch = torch
        self.lstm = torch.nn.LSTM(features, UNITS, batch_first=True).cuda()
        self.head = torch.nn.Linear(UNITS, targets).cuda()
        self.optimizer = torch.optim.Adam([*self.lstm.parameters(), *self.head.parameters()], fused=True)

    def step(self, features, targets):
        loss = self.torch.nn.functional.mse_loss(self.head(self.lstm(features)[0][:, -1]), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def rate(self, batches):
        """Samples/s over batches of features and targets, the first two of which do not count."""
        samples = 0
        for number, (features, targets) in enumerate(batches):
            if number == 2:
                self.torch.cuda.synchronize()
                begun, samples = time.perf_counter(), 0
            self.step(features, targets)
            samples += len(features)
        self.torch.cuda.synchronize()
        return samples / (time.perf_counter() - begun)


def windows_file(folder, samples):
    import h5py
    import numpy as np

    path, rng = folder / "windows.h5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.attrs["horizon_bars"] = 1
        features = file.create_dataset("features", (samples, STEPS, FEATURES), "f4")
        slab = rng.standard_normal((min(samples, 500), STEPS, FEATURES), np.float32)
        for first in range(0, samples, len(slab)):
            features[first : first + len(slab)] = slab[: samples - first]
        file["targets"] = rng.standard_normal((samples, TARGETS), np.float32)
    return path


def check_rows(torch, mb, folder, args):
    path = windows_file(folder, 700)
    for shuffle in (False, True):
        for chunk_size_gb in (12.0, 0.3):
            sides = [mb.ChunkDataLoader(path, BATCH, chunk_size_gb, device, shuffle=shuffle) for device in ("cuda", "cpu")]
            same = all(all(torch.equal(one.cpu(), other) for one, other in zip(*pair)) for _ in range(2) for pair in zip(*sides))
            yield f"ChunkDataLoader, {chunk_size_gb} GB, shuffle {shuffle}", same, sides[0].plan()
    path = folder / "series.h5"
    mb.synth.samples(path, samples=3000, timeframes={"M1": 48, "M5": 12}, features=7, targets=3)
    for options in ({}, {"shuffle": True}, {"overlap": True}):
        device_only = {name: value for name, value in options.items() if name != "overlap"}
        pairs = zip(mb.open(path).torch(BATCH, device="cuda", **options), mb.open(path).torch(BATCH, **device_only))
        yield f"series {options}", all(torch.equal(one[key].cpu(), other[key]) for one, other in pairs for key in other), ""


def window_rows(torch, mb, folder, args):
    from chunk_loader import ReportLoader

    path = windows_file(folder, args.samples)
    model = Model(torch, FEATURES, TARGETS)
    held = torch.randn(BATCH, STEPS, FEATURES, device="cuda"), torch.randn(BATCH, TARGETS, device="cuda")
    alone = max(model.rate([held] * 60) for _ in range(3))
    yield "the model alone", True, f"{alone:.0f} samples/s"
    file_gb = args.samples * STEPS * FEATURES * 4 / 1e9
    ours = {"stays": 2.5 * file_gb, "chunks": file_gb / 3}
    for name, chunk_size_gb in ours.items():
        for shuffle in (False, True):
            loader = mb.ChunkDataLoader(path, BATCH, chunk_size_gb, "cuda", shuffle=shuffle, drop_last=True)
            first, second = model.rate(loader), model.rate(loader)
            yield (
                f"ChunkDataLoader, {name}, shuffle {shuffle}",
                True,
                f"{first:.0f}, then {second:.0f} samples/s: {second / alone:.2f} of the model's (predicted {PREDICTED_SHARE[name]:.2f})",
            )
            del loader
    report = ReportLoader(path, BATCH, file_gb / 3, "cuda", True, True)
    yield "the report's class", True, f"{model.rate(report) / alone:.2f} of the model's"
    yield "DataLoader, 8 workers, pinned", True, f"{model.rate(worker_batches(torch, path)) / alone:.2f} of the model's"


def worker_batches(torch, path):
    """Batches of PyTorch's DataLoader over samples of the file."""
    loader = torch.utils.data.DataLoader(FileSamples(path), BATCH, shuffle=True, num_workers=8, pin_memory=True, drop_last=True)
    for features, targets in loader:
        yield features.cuda(non_blocking=True), targets.cuda(non_blocking=True)


class FileSamples:
    """Samples of a windows file, as a program over h5py has them."""

    def __init__(self, path):
        import h5py

        self.path, self.file = path, None
        with h5py.File(path, "r") as file:
            self.samples = len(file["features"])

    def __len__(self):
        return self.samples

    def __getitem__(self, sample):
        import h5py

        self.file = self.file or h5py.File(self.path, "r")
        return self.file["features"][sample], self.file["targets"][sample]


def series_rows(torch, mb, folder, args):
    path = folder / "large.h5"
    mb.synth.samples(path, samples=60_000, timeframes=TIMEFRAMES, features=64, targets=4, compression="none")
    ds = mb.open(path)
    model = Model(torch, 64, 4)
    of_m1 = lambda batches: ((batch["M1"].cuda(), batch["targets"].cuda()) for batch in batches)
    on_gpu = ds.torch(1024, shuffle=True, device="cuda", drop_last=True)
    copied = ds.torch(1024, shuffle=True, drop_last=True)
    rates = [max(model.rate(of_m1(batches)) for _ in range(2)) for batches in (on_gpu, copied)]
    yield "five timeframes, the LSTM of one", True, f"gathered on the GPU {rates[0]:.0f} samples/s, on the CPU {rates[1]:.0f}: {rates[0] / rates[1]:.1f} times"
    torch.cuda.synchronize()
    begun = time.perf_counter()
    samples = sum(len(batch["sample"]) for batch in on_gpu)
    torch.cuda.synchronize()
    yield "batches alone", True, f"{samples / (time.perf_counter() - begun):.0f} samples/s of {sum(TIMEFRAMES.values()) * 64 * 4 // 1000} kB"


def in_folder(rows):
    """`rows` with a folder of their own."""

    def part(torch, mb, args):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            yield from rows(torch, mb, Path(folder), args)

    return part


def add_options(parser):
    parser.add_argument("--samples", type=int, default=12_000)
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"))


if __name__ == "__main__":
    parts = {"checks": check_rows, "windows": window_rows, "series": series_rows}
    main(__doc__, {name: in_folder(rows) for name, rows in parts.items()}, add_options)
