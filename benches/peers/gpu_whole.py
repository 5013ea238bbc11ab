"""Whole runs of the program on a GPU: PyTorch's loss curves, the memory that `plan` promised, kill -9, a card that others hold.

    python3 gpu_whole.py --bin target/release/megabatch [--only losses,memory,busy,kill,shortage] [--device 0] [--seconds 250] [--folder DIR] [--tiny]

losses    megabatch and PyTorch train on the same stored windows from the same first weights. A batch has all samples, so that its order does not matter.
memory    the peak of a run beside `plan`, for stored windows and for a series, to MEMORY_TOLERANCES.
busy      the share of a run's time in which the GPU computed, by events, from stored windows of several chunks and from a series.
kill      a run killed by SIGKILL several times, each time resumed: the weights of one that was not.
shortage  another process holds most of the card: a run that does not fit is refused before its first step, with a batch size that fits.

PyTorch and h5py are needed by `losses`, `shortage` and stored windows of `busy` alone, whose rows are skipped without them. Exit codes: 0 passed, 1 a row failed.
"""
import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from gpu_training import Program

TIMEFRAMES = {"M1": 240, "M5": 120}
TARGETS = 4
# Largest difference of a loss over the largest loss.
LOSS_TOLERANCES = {"fp32": 1e-3, "bf16": 5e-2}
# By which the peak may be below the plan; never above it.
MEMORY_TOLERANCES = {"windows": 0.02, "series": 0.03}
BUSY_LEAST = 0.95
CAPACITY = 4
KILLS = 3
# Samples of the file that a large one repeats.
FEW_SAMPLES = 2000
GIB = 1 << 30


@dataclass
class Size:
    """Size of the work. `held_free_bytes`: what another process leaves of the card."""

    samples: int = 4096
    features: int = 64
    hidden: int = 128
    steps: int = 60
    stored_samples: int = 150_000
    timeframes: dict = None
    held_free_bytes: int = 20 * GIB

    def shape(self, samples):
        timeframes = ",".join(f"{name}:{bars}" for name, bars in self.timeframes.items())
        return "--samples", str(samples), "--timeframes", timeframes, "--features", str(self.features), "--targets", str(TARGETS)


FULL, TINY = Size(timeframes=TIMEFRAMES), Size(16, 3, 4, 6, 200, {"M1": 6, "M5": 3}, 0)
SKIPPED = "skipped"


class Whole:
    """The program, the size and the device of all rows."""

    def __init__(self, args, folder):
        self.program = Program(args.bin.resolve(), folder, time.monotonic() + args.seconds)
        self.folder, self.is_tiny = folder, args.tiny
        self.size = TINY if args.tiny else FULL
        self.device = f"cuda:{args.device}"

    def ask(self, *words):
        """The JSON answer of a command."""
        left = max(self.program.deadline - time.monotonic(), 1)
        done = subprocess.run([self.program.path, "--json", *words], cwd=self.folder, capture_output=True, text=True, timeout=left)
        if done.returncode:
            raise RuntimeError(f"`{' '.join(words)}` ended with {done.returncode}: {' '.join(done.stderr.split())[-300:]}")
        return json.loads(done.stdout)

    def data(self, name, layout, samples):
        """Samples that are not compressed: decompressing takes longer than what is measured."""
        if not (self.folder / name).exists():
            self.program.run("synth", name, "--layout", layout, "--compression", "none", *self.size.shape(samples))
        return name

    def stored_windows(self, name, samples):
        """A file of stored windows, those of a small one again and again: `synth` would draw 12 GB of random numbers for minutes."""
        import h5py

        if (self.folder / name).exists():
            return name
        few = self.data(f"few-{name}", "windows", min(samples, FEW_SAMPLES))
        with h5py.File(self.folder / few) as source, h5py.File(self.folder / name, "w") as file:
            file.attrs.update(source.attrs)
            paths = []
            source.visititems(lambda path, item: paths.append(path) if isinstance(item, h5py.Dataset) else None)
            for path in paths:
                again(source[path], file, path, samples)
        return name

    def training(self, data, batch, *settings):
        """Words of a run over `data` that `plan` and `train` share."""
        words = ["--data", data, "--device", self.device]
        settings = (f"model.hidden={self.size.hidden}", f"gpu_optimization.batch_size={batch}", "data.split=[1,0,0]", "data.purge=0s", *settings)
        return [*words, *(word for setting in settings for word in ("--set", setting))]

    def steps(self, run):
        lines = (json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == "step"]


def again(source, file, path, samples):
    """A dataset in `file` with `samples` rows: those of `source` again and again, timestamps rising."""
    rows, is_time = source[()], path == "timestamps"
    to = file.create_dataset(path, (samples, *source.shape[1:]), source.dtype, chunks=source.chunks)
    for first in range(0, samples, len(rows)):
        end = min(first + len(rows), samples)
        span = (rows[-1] - rows[0] + rows[1] - rows[0]) * (first // len(rows)) if is_time else rows.dtype.type(0)
        to[first:end] = rows[: end - first] + span


def write_safetensors(path, tensors):
    """Tensors in f32, as the format's specification has them: length of the header, header, bytes."""
    header, place = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [place, place + 4 * tensor.numel()]}
        place += 4 * tensor.numel()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensor.detach().cpu().contiguous().numpy().tobytes() for tensor in tensors.values()))


def torch_net(torch, size):
    """The module of docs/reference/weights.md, for LSTMs and a head."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            lstm = lambda: torch.nn.LSTM(size.features, size.hidden, batch_first=True)
            self.lstm = torch.nn.ModuleDict({name: lstm() for name in size.timeframes})
            self.head = torch.nn.Linear(len(size.timeframes) * size.hidden, TARGETS)

        def forward(self, windows):
            return self.head(torch.cat([self.lstm[name](windows[name])[1][0][-1] for name in size.timeframes], dim=1))

    torch.manual_seed(7)
    return Net()


def torch_losses(whole, precision):
    """PyTorch's losses and samples/s, after it wrote its first weights to first.safetensors."""
    import h5py
    import torch

    device = torch.device("cpu" if whole.is_tiny else whole.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    net = torch_net(torch, whole.size).to(device)
    write_safetensors(whole.folder / "first.safetensors", net.state_dict())
    with h5py.File(whole.folder / "losses.h5") as file:
        windows = {name: torch.from_numpy(file[f"features/{name}"][()]).float().to(device) for name in whole.size.timeframes}
        targets = torch.from_numpy(file["targets"][()]).float().to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    losses = []
    begun = time.monotonic()
    for _ in range(whole.size.steps):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            predictions = net(windows)
        loss = torch.nn.functional.mse_loss(predictions.float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, len(targets) * whole.size.steps / (time.monotonic() - begun)


def losses(whole):
    for precision, tolerance in LOSS_TOLERANCES.items():
        data = whole.data("losses.h5", "windows", whole.size.samples)
        try:
            theirs, their_rate = torch_losses(whole, precision)
        except ImportError as error:
            yield f"{precision}", SKIPPED, f"skipped: {error}"
            continue
        settings = ("training.optimizer=adam", "training.lr=0.001", "training.weight_decay=0", "training.clip_norm=1", "training.loss=mse")
        words = whole.training(data, whole.size.samples, f"training.precision={precision}", *settings)
        run = f"losses-{precision}"
        whole.program.run("train", "--out", run, "--init", "first.safetensors", "--max-steps", str(whole.size.steps), *words)
        steps = whole.steps(run)
        ours = [step["loss"] for step in steps]
        farthest = max(abs(one - other) for one, other in zip(ours, theirs)) / max(theirs)
        rates = sorted(step["samples_per_s"] for step in steps)
        text = f"{theirs[0]:.5f} → {theirs[-1]:.5f}; farthest {farthest:.1e} of {tolerance:.0e}; samples/s {rates[len(rates) // 2]:.0f} beside {their_rate:.0f}"
        yield precision, len(ours) == len(theirs) and farthest <= tolerance, text


def memory(whole):
    for layout, tolerance in MEMORY_TOLERANCES.items():
        data = whole.data(f"memory-{layout}.h5", layout, 2 * whole.size.samples)
        for precision in ("fp32", "bf16"):
            words = whole.training(data, whole.size.samples // 4, f"training.precision={precision}")
            answer = whole.ask("train", "--out", f"memory-{layout}-{precision}", "--max-steps", "8", *words)["gpu_memory"]
            planned, peak = answer["planned_bytes"], answer["peak_bytes"]
            # Tiny series are mostly what the bound rounds up.
            is_right = peak <= planned and (whole.is_tiny or peak >= (1 - tolerance) * planned)
            yield f"{layout}, {precision}", is_right, f"planned {planned / GIB:.4f} GiB, peak {peak / GIB:.4f}, {peak / planned:.1%}"


def busy(whole):
    batch_by_batch = ("gpu_optimization.use_chunk_loader=false",)
    for case, layout, settings in (("windows", "windows", ()), ("windows batch by batch", "windows", batch_by_batch), ("series", "series", ())):
        try:
            make = whole.stored_windows if layout == "windows" else lambda name, samples: whole.data(name, "series", samples)
            data = make(f"busy-{layout}.h5", whole.size.stored_samples)
        except ImportError as error:
            yield case, SKIPPED, f"skipped: {error}"
            continue
        words = whole.training(data, whole.size.samples // 4, "training.precision=bf16", "training.epochs=2", *settings)
        run = f"busy-{case.replace(' ', '-')}"
        whole.program.run("train", "--out", run, *words)
        steps = whole.steps(run)[5:]
        wall_s = sum(step["samples"] / step["samples_per_s"] for step in steps)
        gpu_s, wait_s = (sum(step.get(name) or 0.0 for step in steps) for name in ("gpu_s", "data_wait_s"))
        share, rate = gpu_s / wall_s, sum(step["samples"] for step in steps) / wall_s
        text = f"{share:.1%} of {wall_s:.1f} s in {len(steps)} steps, goal {BUSY_LEAST:.0%}; {rate:.0f} samples/s; waited for data {wait_s / wall_s:.1%}"
        # A goal, no promise: a miss is reported, and the row passes.
        yield f"{case}, {(whole.folder / data).stat().st_size / GIB:.2f} GiB", share > 0, text


def kill(whole):
    steps = 20 if whole.is_tiny else 400
    words = whole.training(whole.data("kill.h5", "series", 4 * whole.size.samples), 16, "training.checkpoint_every_steps=5", "training.epochs=1000")
    whole.program.run("train", "--out", "kill-whole", "--max-steps", str(steps), *words)
    command = [str(whole.program.path), "train", "--out", "kill", "--max-steps", str(steps)]
    killed = 0
    for number in range(KILLS):
        begun = words if number == 0 else ["--resume", "--device", whole.device]
        process = subprocess.Popen([*command, *begun], cwd=whole.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and len(list((whole.folder / "kill/checkpoints").glob("step-*"))) < 2:
            time.sleep(0.02)
        if process.poll() is None:
            time.sleep(0.05 * number)
            os.kill(process.pid, signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
    whole.program.run("train", "--out", "kill", "--max-steps", str(steps), "--resume", "--device", whole.device)
    one, other = (whole.program.weights(run, steps) for run in ("kill-whole", "kill"))
    yield f"{killed} kills in {steps} steps", one == other and (whole.is_tiny or killed > 0), f"whole {one}, killed and resumed {other}"


HOLDER = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(free - int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("holds", held.numel(), flush=True)
sys.stdin.read()
"""


def shortage(whole):
    if whole.is_tiny:
        yield "another process", SKIPPED, "skipped: nobody holds a made-up card"
        return
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(whole.size.held_free_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    held = holder.stdout.readline().strip()
    if not held:
        yield "another process", SKIPPED, "skipped: PyTorch could not hold the card"
        return
    try:
        data = whole.data("shortage.h5", "series", 200_000)
        for batch in (2048, 8192, 32_768, 131_072):
            words = whole.training(data, batch, "training.run_length=1")
            begun = time.monotonic()
            command = [str(whole.program.path), "train", "--out", f"shortage-{batch}", "--max-steps", "2", *words]
            done = subprocess.run(command, cwd=whole.folder, capture_output=True, text=True, timeout=60)
            text = f"{held}; ended with {done.returncode} after {time.monotonic() - begun:.1f} s; {' '.join(done.stderr.split())[-160:]}"
            yield f"B {batch}", done.returncode in (0, CAPACITY), text
    finally:
        holder.stdin.close()
        holder.wait(10)


PARTS = {part.__name__: part for part in (losses, memory, busy, kill, shortage)}


def rows(name, whole):
    try:
        yield from PARTS[name](whole)
    except (RuntimeError, OSError, ValueError, IndexError, KeyError, ZeroDivisionError, subprocess.TimeoutExpired) as error:
        yield "", False, f"{type(error).__name__}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--device", default="0")
    parser.add_argument("--seconds", type=float, default=250.0)
    parser.add_argument("--folder", help="where files are made, 15 GB of them; default: that of temporary files")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    is_wrong = False
    print("| part | case | verdict | |\n| --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        whole = Whole(args, Path(folder))
        for name in args.only.split(","):
            for case, verdict, text in rows(name, whole):
                is_wrong |= verdict is False
                words = {True: "ok", False: "**failed**", SKIPPED: SKIPPED}[verdict]
                print(f"| {name} | {case} | {words} | {text.replace('|', '/')[:400]} |", flush=True)
    sys.exit(int(is_wrong))


if __name__ == "__main__":
    main()
