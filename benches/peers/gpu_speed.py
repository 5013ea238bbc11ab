"""LSTM layers of megabatch beside nn.LSTM of PyTorch on one GPU, as a table for docs/measurements/gpu-results.md; gpu_training_speed.py has training steps.

Both sides are asked in turn, round by round, so that both see the same clocks; the table has the medians of the rounds. Where there is no PyTorch
that can use the GPU, megabatch alone is measured, and the table says so. `scripts/gpu-check` runs this; it needs Python alone.

    cargo xtask peers gpu                   # builds the layers, installs PyTorch under target/, runs this
    cargo xtask peers gpu -- --device cpu --quick        # the same without a GPU, on shapes whose times mean nothing
"""
import argparse
import json
import math
import sys
import time
from pathlib import Path

from sides import MIB, Side, cell, in_a_row, take_turns, verdict

HERE = Path(__file__).parent
NO_DEVICE = 6
PRECISIONS = ("bf16", "fp16")
# Steps of a window: enough for what a launch takes to vanish, few enough for 4096 windows to fit into a GPU's memory.
STEPS = 256
# Microseconds a step to be reached by one layer of 128 units at up to 128 windows.
LAYER_GOAL = {"forward_us": 1.0, "both_us": 3.0}


def layer_cases(args):
    shape = ((32,), (8,), (16,)) if args.quick else ((128, 256, 512), (64, 128, 512, 1024, 2048, 4096), (16, 128))
    hiddens, batches, widths = shape
    names = ("hidden", "batch", "layers", "features", "precision")
    # What tells most comes first, where the time is not enough for all.
    each = [(h, b, l, f, p) for p in PRECISIONS for l in (1, 2) for f in widths for h in hiddens for b in batches]
    steps = 4 if args.quick else STEPS
    return [{**dict(zip(names, values)), "steps": steps, "budget_s": args.budget_s} for values in each]


def measure_layers(args, ours, theirs, case):
    sides = {"megabatch": lambda: ours.ask(case)}
    if theirs:
        sides["pytorch"] = lambda: theirs.ask(case)
    return {"case": case, **take_turns(sides, args.rounds)}


def pair(times):
    """`forward / both`."""
    return "" if not times else f"{cell(times['forward_us'])} / {cell(times['both_us'])}"


LAYER_HEADER = """| H | B | layers | F | type | megabatch, µs a step: forward / both | its recurrence alone | floor | predicted | MiB \
| PyTorch | by cuDNN's algorithm | MiB | PyTorch's time over ours | goal |
| ---: | ---: | ---: | ---: | --- | --- | --- | --- | --- | ---: | --- | --- | ---: | --- | --- |"""


def layer_row(of):
    case, ours, theirs = of["case"], of["megabatch"], of.get("pytorch", {})
    cells = [case[name] for name in ("hidden", "batch", "layers", "features", "precision")]
    cells += [ours["error"], *[""] * 4] if ours.get("error") else [
        pair(ours), pair(ours["recurrence"]), pair(ours["floor"]), pair(ours["predicted"]), cell(ours["peak_allocated_bytes"] / MIB)
    ]
    if theirs.get("error") or not theirs:
        cells += [theirs.get("error", ""), "", "", ""]
    else:
        memory = theirs["peak_allocated_bytes"]
        ratios = "" if ours.get("error") else pair({name: theirs[name] / ours[name] for name in LAYER_GOAL})
        cells += [pair(theirs), theirs["algorithm"] or "", cell(memory and memory / MIB), ratios]
    has_goal = case["hidden"] == 128 and case["layers"] == 1 and case["batch"] <= 128 and not ours.get("error")
    cells.append(verdict(all(ours[name] <= most for name, most in LAYER_GOAL.items()), f"≤ {pair(LAYER_GOAL)}") if has_goal else "")
    return in_a_row(cells)


def tell(args, cases, measure):
    """Prints the table as it grows, of as many cases as are begun in time, and keeps all numbers where that is asked for."""
    end = time.monotonic() + args.seconds
    print(f"\n{LAYER_HEADER}", flush=True)
    for number, case in enumerate(cases):
        if time.monotonic() > end:
            print(f"\nThe time was over: {len(cases) - number} of {len(cases)} cases were not measured.", flush=True)
            return
        measured = measure(case)
        print(layer_row(measured), flush=True)
        if args.json:
            with args.json.open("a") as lines:
                lines.write(json.dumps(measured) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", required=True, type=Path, help="the example gpu_layers, a release build")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch; default: this one")
    parser.add_argument("--device", default="0", help="number of the GPU, or cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget-s", type=float, default=0.1, help="for how long runs of a part are repeated in a round")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after so long no further case is begun")
    parser.add_argument("--quick", action="store_true", help="one small shape: times that mean nothing")
    parser.add_argument("--json", type=Path, help="a file for all numbers, a line a case")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    if args.quick:
        args.rounds, args.budget_s = 1, 0.0
    ours = Side([args.layers.resolve(), "--device", args.device])
    if absence := ours.absence():
        code, why = absence
        print(why, file=sys.stderr)
        sys.exit(code if code == NO_DEVICE else 1)
    theirs = Side([args.python, HERE / "gpu_step.py", "--device", args.device])
    if absence := theirs.absence():
        print(f"### megabatch alone\n\nThere is no PyTorch beside it: {absence[1]}")
        theirs = None
    else:
        print("### megabatch and PyTorch in turn")
    print(f"\nMedians of {args.rounds} rounds; a layer's times are those of one of {4 if args.quick else STEPS} steps, all windows together.")
    tell(args, layer_cases(args), lambda case: measure_layers(args, ours, theirs, case))
    if theirs:
        about = theirs.ask({"model": "single", "batch": 1, "hidden": 8, "layers": 1, "precision": "fp32", "budget_s": 0.0})
        if about.get("error"):
            sys.exit(f"PyTorch does not answer any more: {about['error']}")
        print(f"\nPyTorch {about['version']}, cuDNN {about['cudnn']}; which algorithm cuDNN is asked for is told by PyTorch's rules, not by PyTorch.")


if __name__ == "__main__":
    main()
