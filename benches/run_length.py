"""Time to the same validation loss for several run lengths of one data set.

Each run trains the same model on the same samples with the same settings but `training.run_length`, and validates every few
steps. The time is that of the optimizer steps alone, waiting for data included and validations left out. Run lengths take turns
within a seed, so that a machine that slows down slows them all.

    python benches/run_length.py --megabatch target/release/megabatch --data eurusd15.h5

Needs Python alone. Prints a table for docs/speed.md.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path


def train(options, run_length, seed, folder):
    """One run: the (training seconds, validation loss) of every validation, and samples per second of the median step."""
    settings = {
        "training.run_length": run_length,
        "training.seed": seed,
        "training.batch_size": options.batch,
        "training.epochs": options.epochs,
        "training.validate_every_steps": options.every,
        "model.hidden": options.hidden,
    }
    out = Path(folder) / f"run-{run_length}-{seed}"
    command = [options.megabatch, "train", "--data", options.data, "--out", str(out)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds, curve, rates = 0.0, [], []
    for line in (out / "metrics.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            seconds += event["samples"] / event["samples_per_s"]
            rates.append(event["samples_per_s"])
        elif event["event"] == "validation":
            curve.append((seconds, event["loss"]))
    return curve, statistics.median(rates)


def seconds_to(curve, target):
    return next((seconds for seconds, loss in curve if loss <= target), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True)
    parser.add_argument("--data", required=True, help="a series file, as `megabatch ingest` writes it")
    parser.add_argument("--run-lengths", nargs="+", default=["1", "8", "32", "batch"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--every", type=int, default=16, help="steps between two validations")
    options = parser.parse_args()

    curves = {length: [] for length in options.run_lengths}
    rates = {length: [] for length in options.run_lengths}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            for length in options.run_lengths:
                curve, rate = train(options, length, seed, folder)
                curves[length].append(curve)
                rates[length].append(rate)
                best = min(loss for _, loss in curve)
                print(f"seed {seed}, run length {length}: {rate:.0f} samples/s, best {best:.4f}", flush=True)

    # The loss that every run reached: the best of the worst run.
    target = max(min(loss for _, loss in curve) for runs in curves.values() for curve in runs)
    print(f"\nvalidation loss {target:.4f}, which all {options.seeds * len(curves)} runs reach\n")
    print("| run length | samples/s | seconds to that loss, median (each seed) | best loss, median |")
    print("| --- | --- | --- | --- |")
    for length, runs in curves.items():
        times = [seconds_to(curve, target) for curve in runs]
        each = ", ".join(f"{time:.1f}" for time in times)
        best = statistics.median(min(loss for _, loss in curve) for curve in runs)
        rate = statistics.median(rates[length])
        print(f"| {length} | {rate:.0f} | {statistics.median(times):.1f} ({each}) | {best:.4f} |")


if __name__ == "__main__":
    main()
