"""Whether TensorBoard reads what `train` writes for it: each scalar of each step, with its value, and a resumed session in place of what it does again.

    python tensorboard_events.py --megabatch PROGRAM
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# Tag, event of metrics.jsonl, and its key.
TAGS = [
    ("loss/training", "step", "loss"),
    ("learning_rate", "step", "lr"),
    ("grad_norm", "step", "grad_norm"),
    ("speed/samples_per_s", "step", "samples_per_s"),
    ("memory/allocated_bytes", "step", "allocated_bytes"),
    ("loss_scale", "step", "loss_scale"),
    ("loss/validation", "validation", "loss"),
    ("memory/reserved_bytes", "epoch", "reserved_bytes"),
]
TRAIN = "train --data series.h5 --out run --set model.hidden=4 --set gpu_optimization.batch_size=16 --set training.precision=fp16"


def read(folder):
    """The scalars of a run by tag, as (step, value), by TensorBoard's reader."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def check(folder, log):
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    scalars = read(folder)
    for tag, event, key in TAGS:
        expected = [(line["step"], line[key]) for line in lines if line["event"] == event and line.get(key) is not None]
        found = scalars.get(tag, [])
        # A step that overflowed has no norm in the log, and infinity in the event.
        found = [(step, value) for step, value in found if math.isfinite(value)]
        if [step for step, _ in found] != [step for step, _ in expected]:
            sys.exit(f"{tag}: steps {[step for step, _ in found]}, and {[step for step, _ in expected]} in the log")
        for (step, value), (_, truth) in zip(found, expected):
            if not math.isclose(value, truth, rel_tol=1e-6, abs_tol=1e-30):
                sys.exit(f"{tag}, step {step}: {value}, and {truth} in the log")
        print(f"{tag}: {len(found)} values, each as in the log")
    strangers = set(scalars) - {tag for tag, _, _ in TAGS} - {"speed/data_wait_share", "memory/allocated_bytes_peak"}
    if strangers:
        sys.exit(f"tags that nobody expected: {strangers}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabatch", required=True, type=Path)
    program = parser.parse_args().megabatch.resolve()
    with tempfile.TemporaryDirectory() as folder:
        def megabatch(line):
            done = subprocess.run([program, *line.split()], cwd=folder, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"megabatch {line} failed:\n{done.stderr}")

        megabatch("synth series.h5 --samples 200 --timeframes M1:4,M5:3 --features 3 --targets 2")
        megabatch(f"{TRAIN} --set training.epochs=2")
        run = Path(folder) / "run"
        check(run / "tb", run / "metrics.jsonl")
        print("and after a second session:")
        megabatch("train --out run --resume --max-steps 30")
        check(run / "tb", run / "metrics.jsonl")


if __name__ == "__main__":
    main()
