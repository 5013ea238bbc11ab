"""The loader beside PyTorch's DataLoader over h5py on the same files, in tensors, and a training loop of `nn.LSTM` fed by
the loader beside the same loop fed by tensors in memory. Sides take turns within a round.

`cargo xtask python measure --torch [ROUNDS [SAMPLES]]`
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable

import h5py
import megabatch as mb
import torch
from measure_loader import BATCH, seconds
from torch import nn
from torch.utils.data import DataLoader, Dataset

HIDDEN = 64


class OneByOne(Dataset[dict[str, torch.Tensor]]):
    """A sample an item. The file is opened for each, or once in each process."""

    def __init__(self, path: pathlib.Path, samples: int, *, holds_file: bool) -> None:
        self.path, self.samples, self.holds_file = path, samples, holds_file
        self.tables: dict[str, h5py.Dataset] = {}

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, sample: int) -> dict[str, torch.Tensor]:
        if not self.holds_file:
            with h5py.File(self.path) as file:
                return self._read(self._tables_of(file), sample)
        if not self.tables:
            self.tables = self._tables_of(h5py.File(self.path))
        return self._read(self.tables, sample)

    @staticmethod
    def _tables_of(file: h5py.File) -> dict[str, h5py.Dataset]:
        return {**file["features"], "targets": file["targets"]}

    @staticmethod
    def _read(tables: dict[str, h5py.Dataset], sample: int) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(table[sample]) for name, table in tables.items()}


def touch(batches: Iterable[dict[str, torch.Tensor]]) -> None:
    """Reads every cache line of every batch."""
    for batch in batches:
        for table in batch.values():
            table.reshape(-1)[::16].sum()


def loading(folder: pathlib.Path, rounds: int, samples: int) -> None:
    """An epoch of windows of five timeframes, 71 kB a sample, shuffled."""
    print("| file | samples/s | the same, all samples shuffled | file opened for each sample | held open | 2 workers |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for compression in ("contiguous", "gzip"):
        path = folder / f"windows-{compression}.h5"
        mb.synth.samples(path, samples=samples, layout="windows", compression=compression)
        ds = mb.open(path)

        def peer(workers: int, *, holds_file: bool, path: pathlib.Path = path) -> Callable[[], object]:
            dataset = OneByOne(path, samples, holds_file=holds_file)
            return lambda: touch(DataLoader(dataset, BATCH, shuffle=True, num_workers=workers))

        ours, apart = ds.torch(batch_size=BATCH, shuffle=True), ds.torch(batch_size=BATCH, shuffle=True, run_length=1)
        sides: list[Callable[[], object]] = [
            lambda: touch(ours),
            lambda: touch(apart),
            peer(0, holds_file=False),
            peer(0, holds_file=True),
            peer(2, holds_file=True),
        ]
        times = [[seconds(side) for side in sides] for _ in range(rounds)]
        best = [min(column) for column in zip(*times)]
        others = " | ".join(f"{samples / time:.0f} ({time / best[0]:.1f} times as long)" for time in best[2:])
        print(f"| {compression} | {samples / best[0]:.0f} | {samples / best[1]:.0f} | {others} |", flush=True)


class Model(nn.Module):
    """An LSTM over one timeframe, and a head."""

    def __init__(self, features: int, targets: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(features, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, targets)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(windows)
        predicted: torch.Tensor = self.head(states[:, -1])
        return predicted


def train(model: Model, batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """An epoch of AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for windows, targets in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(windows), targets).backward()
        optimizer.step()


def training(folder: pathlib.Path, rounds: int, samples: int) -> None:
    """An epoch of training, the windows of a series gathered by the loader, or lying in a tensor that is indexed."""
    path = folder / "series.h5"
    mb.synth.samples(path, samples=samples, timeframes={"M1": 96}, features=16, targets=4)
    loader = mb.open(path).torch(batch_size=BATCH, shuffle=True, run_length=1)
    everything = list(mb.open(path).torch(batch_size=BATCH))
    windows, targets = (torch.cat([batch[name] for batch in everything]) for name in ("M1", "targets"))
    torch.manual_seed(0)
    model = Model(windows.shape[2], targets.shape[1])

    def resident() -> None:
        order = torch.randperm(samples)
        train(model, ((windows[rows], targets[rows]) for rows in order.split(BATCH)))

    def loaded() -> None:
        train(model, ((batch["M1"], batch["targets"]) for batch in loader))

    resident(), loaded()
    times = [(seconds(resident), seconds(loaded)) for _ in range(rounds)]
    of_resident = min(time for time, _ in times) / min(time for _, time in times)
    of_pairs = statistics.median(resident / loaded for resident, loaded in times)
    print(f"\nnn.LSTM fed by the loader: {of_resident:.3f} of the speed on tensors in memory (pairs: {of_pairs:.3f})")


def main() -> None:
    rounds, samples = (int(sys.argv[n]) if len(sys.argv) > n else default for n, default in ((1, 5), (2, 3000)))
    with tempfile.TemporaryDirectory() as folder:
        loading(pathlib.Path(folder), rounds, samples)
        training(pathlib.Path(folder), rounds, 2 * samples)


if __name__ == "__main__":
    main()
