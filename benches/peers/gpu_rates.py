"""Rates of training steps on a GPU by `megabatch bench train`, without a peer: a first look, of seconds.

    python3 gpu_rates.py --bin target/release/megabatch [--device 0] [--seconds 60] [--tiny]
"""
import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass


@dataclass
class Case:
    """A benchmark by its options."""

    model: str
    batch: int
    precision: str
    order: str
    steps: int
    features: int = 128
    hidden: int = 128


CASES = [
    Case("multi", batch, precision, order, steps)
    for precision, steps in (("bf16", 100), ("fp32", 20))
    for batch, order in ((64, "consecutive"), (64, "shuffled"), (2048, "consecutive"), (2048, "shuffled"))
] + [Case("single", 128, "bf16", "shuffled", 100, features=167)]
TINY = [Case("single", 1, "fp32", "shuffled", 1, 2, 4)]


def measured(args, case, seconds):
    options = {name: value for name, value in asdict(case).items() if name != "order"} | {"device": f"cuda:{args.device}"}
    command = [args.bin, "--json", "bench", "train", *(f"--{name}={value}" for name, value in options.items())]
    command += ["--shuffled"] * (case.order == "shuffled")
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    if done.returncode:
        return f"**failed**: {' '.join(done.stderr.split())[-300:]}"
    answer = json.loads(done.stdout)
    median_ms = 1e3 * case.batch / answer["samples_per_s_median"]
    return f"{answer['samples_per_s_mean']:.0f} | {median_ms:.2f} | {1e3 * answer['step_s']:.2f} | {answer['peak_gpu_bytes'] / 2**20:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--device", default="0")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    deadline, is_wrong = time.monotonic() + args.seconds, False
    print("| model | batch | type | samples | samples/s | ms, median | ms, fastest | MiB |\n| --- | ---: | --- | --- | ---: | ---: | ---: | ---: |")
    for case in TINY if args.tiny else CASES:
        left = deadline - time.monotonic()
        if left < 2:
            break
        try:
            row = measured(args, case, left)
        except subprocess.TimeoutExpired:
            row = "**failed**: no answer in time"
        is_wrong |= "**failed**" in row
        print(f"| {case.model} | {case.batch} | {case.precision} | {case.order} | {row} |", flush=True)
    sys.exit(int(is_wrong))


if __name__ == "__main__":
    main()
