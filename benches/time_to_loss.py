"""Time to the same validation loss for several settings of one model on one data set.

Each contender is a name and the settings by which it differs, such as `dense: training.loss_on=every_step training.run_length=512`. All
validate every few steps. The time is that of the optimizer steps alone, waiting for data included and validations left out.
Contenders take turns within a seed, so that a machine that slows down slows them all.

    python benches/time_to_loss.py --megabatch target/release/megabatch --data eurusd15.h5

Needs Python alone. Prints a table for docs/measurements/speed.md.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

RUN_LENGTHS = [f"{length}: training.run_length={length}" for length in ("1", "8", "32", "batch")]


def contender(text):
    """`name: key=value key=value` as the name and its settings."""
    name, _, settings = text.partition(":")
    return name.strip(), settings.split()


def train(options, settings, out):
    """One run: the (training seconds, validation loss) of every validation, and samples per second of the median step."""
    command = [options.megabatch, "train", "--data", options.data, "--out", str(out)]
    for setting in options.set + settings:
        command += ["--set", setting]
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
    parser.add_argument("--contenders", nargs="+", type=contender, default=[contender(text) for text in RUN_LENGTHS])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all contenders")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()

    curves = {name: [] for name, _ in options.contenders}
    rates = {name: [] for name, _ in options.contenders}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seeds):
            for name, settings in options.contenders:
                out = Path(folder) / f"{name}-{seed}"
                curve, rate = train(options, [*settings, f"training.seed={seed}"], out)
                curves[name].append(curve)
                rates[name].append(rate)
                best = min(loss for _, loss in curve)
                print(f"seed {seed}, {name}: {rate:.0f} samples/s, best {best:.4f} after {curve[-1][0]:.1f} s", flush=True)

    # The loss that every run reached: the best of the worst run.
    target = max(min(loss for _, loss in curve) for runs in curves.values() for curve in runs)
    print(f"\nvalidation loss {target:.4f}, which all {options.seeds * len(curves)} runs reach\n")
    print("| | samples/s | seconds to that loss, median (each seed) | best loss, median |")
    print("| --- | --- | --- | --- |")
    for name, runs in curves.items():
        times = [seconds_to(curve, target) for curve in runs]
        each = ", ".join(f"{time:.1f}" for time in times)
        best = statistics.median(min(loss for _, loss in curve) for curve in runs)
        rate = statistics.median(rates[name])
        print(f"| {name} | {rate:.0f} | {statistics.median(times):.1f} ({each}) | {best:.4f} |")


if __name__ == "__main__":
    main()
