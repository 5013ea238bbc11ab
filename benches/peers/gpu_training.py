"""Training steps on a GPU beside the same on the CPU, and a run that is interrupted beside one that is not, through the program alone.

    python3 gpu_training.py --bin target/release/megabatch [--device 0] [--steps 200] [--seconds 100] [--tiny]

A series is made by `megabatch synth`. For each precision two runs of the same seed train on it, one on each device; compared are the losses of all steps,
as the largest difference over the largest loss. Then a run of half the steps is resumed to the end: its weights must have the bits of a run that went through.
"""
import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Precision:
    """A precision by its settings, and the largest difference of a loss over the largest loss. Both sides round at other places of a sum; steps add that up."""

    name: str
    settings: tuple
    tolerance: float


PRECISIONS = (
    Precision("fp32", ("training.precision=fp32",), 2e-3),
    Precision("TF32", ("training.precision=fp32", "training.tf32=true"), 2e-2),
    Precision("bf16", ("training.precision=bf16",), 6e-2),
    Precision("fp16", ("training.precision=fp16",), 2e-2),
)


class Program:
    """The program in a folder of its own, until a deadline."""

    def __init__(self, path, folder, deadline):
        self.path, self.folder, self.deadline = path, folder, deadline

    def run(self, *words):
        """Runs a command; seconds that it took."""
        begun = time.monotonic()
        limit = max(self.deadline - begun, 1)
        done = subprocess.run([self.path, *words], cwd=self.folder, capture_output=True, text=True, timeout=limit)
        if done.returncode:
            raise RuntimeError(f"`{' '.join(words)}` ended with {done.returncode}: {' '.join(done.stderr.split())[-400:]}")
        return time.monotonic() - begun

    def train(self, run, device, steps, settings, *more):
        start = ("--resume",) if "--resume" in more else ("--data", "series.h5", *(word for setting in settings for word in ("--set", setting)))
        return self.run("train", "--out", run, "--device", device, "--max-steps", str(steps), *start)

    def losses(self, run):
        lines = (json.loads(line) for line in (self.folder / run / "metrics.jsonl").read_text().splitlines())
        return [line["loss"] for line in lines if line["event"] == "step"]

    def weights(self, run, steps):
        """Digest of the weights after so many steps."""
        file = self.folder / run / f"checkpoints/step-{steps:08}/model.safetensors"
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def compared(program, args, precision, shape):
    """A row of the table for a precision."""
    settings = (*shape, *precision.settings)
    seconds = {}
    for device in ("cpu", f"cuda:{args.device}"):
        seconds[device] = program.train(f"{precision.name}-{device[:4].strip(':')}", device, args.steps, settings)
    cpu, gpu = (program.losses(f"{precision.name}-{name}") for name in ("cpu", "cuda"))
    most = max(map(abs, cpu))
    differences = [abs(one - other) / most for one, other in zip(cpu, gpu)]
    farthest = max(differences) if differences else float("nan")
    is_right = len(cpu) == len(gpu) == args.steps and farthest <= precision.tolerance
    verdict = "ok" if is_right else "**failed**"
    times = " / ".join(f"{one:.1f}" for one in seconds.values())
    return f"| {precision.name} | {farthest:.1e} | {precision.tolerance:.0e} | {cpu[0]:.4f} → {cpu[-1]:.4f} | {gpu[-1]:.4f} | {times} | {verdict} |"


def resumed(program, args, precision, shape):
    """A row: the bits of a run that was interrupted, of one that was not, and of the same once more."""
    settings, device = (*shape, *precision.settings), f"cuda:{args.device}"
    whole, halved, again = (f"{precision.name}-{name}" for name in ("cuda", "halved", "again"))
    program.train(halved, device, args.steps // 2, settings)
    program.train(halved, device, args.steps, settings, "--resume")
    program.train(again, device, args.steps, settings)
    one, other, third = (program.weights(run, args.steps) for run in (whole, halved, again))
    verdict = "ok" if one == other == third else "**failed**"
    return f"| {precision.name}, weights: whole {one}, interrupted {other}, again {third} | {verdict} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path)
    parser.add_argument("--device", default="0")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    samples, timeframes, features, hidden = ("200", "M1:4,M5:3", "3", 4) if args.tiny else ("20000", "M1:120,M5:60,H1:24", "16", 128)
    shape = (f"model.hidden={hidden}", f"gpu_optimization.batch_size={16 if args.tiny else 64}", "training.lr=0.002", "training.seed=3", "training.epochs=100")
    if args.tiny:
        args.steps = 6
    is_wrong = False
    with tempfile.TemporaryDirectory() as folder:
        program = Program(args.bin.resolve(), Path(folder), time.monotonic() + args.seconds)
        program.run("synth", "series.h5", "--samples", samples, "--timeframes", timeframes, "--features", features, "--targets", "4")
        print(f"{args.steps} steps, {timeframes}, {features} features, {hidden} units")
        print("| precision | farthest loss | tolerance | CPU, first → last | GPU, last | s, CPU / GPU | verdict |\n| --- | ---: | ---: | --- | --- | --- | --- |")
        tasks = [(compared, precision) for precision in PRECISIONS] + [(resumed, precision) for precision in (PRECISIONS[0], PRECISIONS[2], PRECISIONS[3])]
        for task, precision in tasks:
            try:
                row = task(program, args, precision, shape)
            except (RuntimeError, OSError, ValueError, IndexError, KeyError, subprocess.TimeoutExpired) as error:
                row = f"| {precision.name}, {task.__name__} | **failed**: {type(error).__name__}: {error} |"
            is_wrong |= "**failed**" in row
            print(row, flush=True)
    sys.exit(int(is_wrong))


if __name__ == "__main__":
    main()
