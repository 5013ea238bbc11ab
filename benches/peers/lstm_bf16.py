"""Training and predictions in bf16 beside our float32 and beside PyTorch in bf16 and float32, all in one sitting.

The cases, the step and the alternation are those of lstm_step.py. PyTorch runs in three ways: float32, autocast to bf16, and weights in bf16; its bf16
is the faster of the last two.

    cargo xtask peers bf16                  # builds megabatch, installs PyTorch under target/, runs this
"""
import argparse
import json
import sys
from pathlib import Path
from statistics import median

from lstm_step import Case, ours, theirs

CASES = [
    Case("train:multi:64:consecutive"),
    Case("train:single:128:shuffled"),
    Case("predict:single:128:shuffled"),
]

HEADER = """| case | PyTorch float32 | PyTorch bf16 | float32 | bf16 | bf16 beside float32 | beside PyTorch's bf16 | beside PyTorch's float32 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def measure(case, args):
    """A row of the table: medians of the rounds, in which the sides take turns, and of the rounds' ratios."""
    rounds = []
    for _ in range(args.rounds):
        torch = {precision: theirs(case, args, "--precision", precision)["step_s"] for precision in ("fp32", "autocast", "bf16")}
        ours_s = {precision: ours(case, args, "--precision", precision)["step_s"] for precision in ("fp32", "bf16")}
        rounds.append({"torch fp32": torch["fp32"], "torch bf16": min(torch["autocast"], torch["bf16"]), **ours_s})
    of = lambda side: median(each[side] for each in rounds)
    ratio = lambda side: median(each[side] / each["bf16"] for each in rounds)
    sides = ("torch fp32", "torch bf16", "fp32", "bf16")
    return {"case": case.title(), "step_s": {side: of(side) for side in sides}, "ratio": {side: ratio(side) for side in sides[:3]}, "rounds": rounds}


def row(of):
    times = [f"{of['step_s'][side] * 1e3:.1f} ms" for side in ("torch fp32", "torch bf16", "fp32", "bf16")]
    ratios = [f"{of['ratio'][side]:.2f}" for side in ("fp32", "torch bf16", "torch fp32")]
    return f"| {' | '.join([of['case'], *times, *ratios])} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=Path, help="the program, a release build")
    parser.add_argument("--only", default="", help="the cases whose name in the table begins so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a round, after one that is not")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file for all numbers, a line a case")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    args.keep_denormals = False
    print(f"{args.threads} threads, medians of {args.rounds} rounds of the fastest of {args.steps} steps\n\n{HEADER}", flush=True)
    for case in (case for case in CASES if case.title().startswith(args.only)):
        measured = measure(case, args)
        print(row(measured), flush=True)
        if args.json:
            with args.json.open("a") as lines:
                lines.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
