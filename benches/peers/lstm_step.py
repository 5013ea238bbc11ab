"""megabatch beside PyTorch on one training step, or one batch of predictions, of the same model, both in one sitting.

A step is forward, mean squared error, backward, clipping to norm 1 and Adam, in float32 on the CPU. The rounds of all sides alternate, each in a
process of its own, so that a noisy machine disturbs them alike and the peak of memory is theirs; a side's time in a round is that of its fastest
step, and the table has the medians of the rounds. So much can be multiplied and added at the most is measured in the same rounds.

    cargo xtask peers                       # builds megabatch, installs PyTorch under target/, runs this
    cargo xtask peers -- --only 'train multi 64'        # the cases whose name begins so
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

from lstm_shapes import SHAPES, case_of, multiply_adds

HERE = Path(__file__).parent
MIB = 2**20


class Case:
    """One row of the table; `once`: whether PyTorch is timed besides when it encodes each distinct window once."""

    def __init__(self, name, hidden=128, layers=1, once=False):
        self.name, self.hidden, self.layers, self.once = name, hidden, layers, once

    def title(self):
        what, model, batch, order = case_of(self.name)
        extra = [f"{self.layers} layers"] * (self.layers > 1) + [f"H = {self.hidden}"] * (self.hidden != 128)
        return ", ".join([f"{what} {model} {batch}, {order}", *extra])

    def options(self, args):
        return ["--hidden", self.hidden, "--layers", self.layers, "--threads", args.threads]


CASES = [
    Case("train:multi:64:consecutive", once=True),
    Case("train:multi:128:consecutive", once=True),
    Case("train:multi:64:shuffled"),
    Case("train:single:128:consecutive"),
    Case("train:single:128:shuffled"),
    Case("train:multi:64:consecutive", layers=2),
    Case("train:single:128:consecutive", layers=2),
    *(Case("train:single:128:consecutive", hidden=hidden) for hidden in (32, 96, 100, 256, 512)),
    Case("predict:multi:64:consecutive", once=True),
    Case("predict:multi:64:shuffled"),
    Case("predict:single:128:consecutive"),
    Case("predict:single:128:shuffled"),
]


def answer(command):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def ours(case, args, *more):
    """Seconds of a step or batch, and bytes at the peak, of `megabatch bench`."""
    what, model, batch, order = case_of(case.name)
    command = [args.megabatch, "--json", "bench", what, "--model", model, "--batch", batch, "--features", SHAPES[model][1], *case.options(args)]
    command += ["--steps" if what == "train" else "--batches", args.steps]
    answered = answer([*command, *["--shuffled"] * (order == "shuffled"), *more])
    return {"step_s": batch / answered["samples_per_s"], "peak_rss_bytes": answered["peak_rss_bytes"]}


def theirs(case, args, *more):
    command = [sys.executable, HERE / "lstm_torch.py", "--case", case.name, *case.options(args), "--steps", args.steps, *more]
    return answer(command + ["--keep-denormals"] * args.keep_denormals)


def measure(case, args):
    """Medians of the rounds, in which the sides take turns."""
    rounds = []
    for _ in range(args.rounds):
        sides = {"torch": theirs(case, args), "megabatch": ours(case, args)}
        if case.once:
            sides["once"] = theirs(case, args, "--once")
        rounds.append({**sides, "peak": answer([args.peak, args.threads])})
    of = lambda side, key: median(each[side][key] for each in rounds)
    torch_s, our_s = of("torch", "step_s"), of("megabatch", "step_s")
    ratios = [each["torch"]["step_s"] / each["megabatch"]["step_s"] for each in rounds]
    peaks = {name: median(each["peak"][name] for each in rounds) for name in rounds[0]["peak"]}
    return {
        "case": case.title(),
        "pytorch_s": torch_s,
        "megabatch_s": our_s,
        "ratio": torch_s / our_s,
        "ratio_of_rounds": [min(ratios), max(ratios)],
        "ratio_once": of("once", "step_s") / our_s if case.once else None,
        "multiply_adds_per_s": multiply_adds(case.name, case.hidden, case.layers) / our_s,
        "multiply_adds_per_s_peak": peaks,
        "pytorch_peak_rss_bytes": of("torch", "peak_rss_bytes"),
        "pytorch_library_rss_bytes": of("torch", "library_rss_bytes"),
        "megabatch_peak_rss_bytes": of("megabatch", "peak_rss_bytes"),
        "pytorch": rounds[0]["torch"]["version"],
    }


HEADER = """| case | PyTorch | megabatch | ratio | in the rounds | once | multiply-adds, of the peak | memory: PyTorch | without its libraries | megabatch | of the whole | of the rest |
| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"""


def row(of):
    """A row of the Markdown table."""
    least, most = of["ratio_of_rounds"]
    once = "" if of["ratio_once"] is None else f"{of['ratio_once']:.2f}"
    share = of["multiply_adds_per_s"] / max(of["multiply_adds_per_s_peak"].values())
    whole, memory = of["pytorch_peak_rss_bytes"], of["megabatch_peak_rss_bytes"]
    rest = max(whole - of["pytorch_library_rss_bytes"], 1)
    cells = [of["case"], f"{of['pytorch_s'] * 1e3:.1f} ms", f"{of['megabatch_s'] * 1e3:.1f} ms", f"{of['ratio']:.2f}", f"{least:.2f} to {most:.2f}"]
    cells += [once, f"{of['multiply_adds_per_s'] / 1e9:.0f} G/s, {share:.0%}", f"{whole / MIB:.0f} MiB", f"{rest / MIB:.0f} MiB"]
    cells += [f"{memory / MIB:.0f} MiB", f"{memory / whole:.2f}", f"{memory / rest:.2f}"]
    return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=Path, help="the program, a release build")
    parser.add_argument("--peak", type=Path, help="the example multiply_add_peak; default: examples/ beside the program")
    parser.add_argument("--only", default="", help="the cases whose name in the table begins so")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a round, after one that is not")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file for all numbers, a line a case")
    parser.add_argument("--keep-denormals", action="store_true", help="leave PyTorch's default, by which vanishing gradients become subnormal")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    args.peak = args.peak or args.megabatch.parent / "examples/multiply_add_peak"
    cases = [case for case in CASES if case.title().startswith(args.only)]
    if not cases:
        sys.exit(f"no case begins with `{args.only}`: {'; '.join(case.title() for case in CASES)}")
    denormals = "kept" if args.keep_denormals else "flushed"
    print(f"{args.threads} threads, subnormal numbers {denormals}, medians of {args.rounds} rounds of the fastest of {args.steps} steps\n\n{HEADER}", flush=True)
    for case in cases:
        measured = measure(case, args)
        print(row(measured), flush=True)
        if args.json:
            with args.json.open("a") as lines:
                lines.write(json.dumps(measured) + "\n")
    peaks = ", ".join(f"{name} {rate / 1e9:.0f} G/s" for name, rate in measured["multiply_adds_per_s_peak"].items())
    print(f"\nPyTorch {measured['pytorch']}; multiply-adds at the most: {peaks}.")


if __name__ == "__main__":
    main()
