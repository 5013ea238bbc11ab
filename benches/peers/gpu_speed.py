"""megabatch beside PyTorch on one GPU: LSTM layers, and training steps of the model of five timeframes, as tables for docs/measurements/gpu-results.md.

Both sides are asked in turn, round by round, so that both see the same clocks; tables have the medians of the rounds. Where there is no PyTorch
that can use the GPU, megabatch alone is measured, and the table says so. `scripts/gpu-check` runs this; it needs Python alone.

    cargo xtask peers gpu                   # builds megabatch, installs PyTorch under target/, runs this
    cargo xtask peers gpu -- --device cpu --quick        # the same without a GPU, on shapes whose times mean nothing
"""
import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from threading import Thread

HERE = Path(__file__).parent
MIB = 2**20
NO_DEVICE = 6
PRECISIONS = ("bf16", "fp16")
# Steps of a window of which layers are timed: enough for what a launch takes to vanish, few enough for 4096 windows to fit into a GPU's memory.
STEPS = 256
# What is to be reached: microseconds a step of one layer of 128 units at up to 128 windows; times PyTorch's samples/s by batch; share of time in which the GPU is busy.
LAYER_GOAL = {"forward_us": 1.0, "both_us": 3.0}
MODEL_GOALS = {128: 5.0, 2048: 3.0}
BUSY_GOAL = 0.95
# How long a side may take for an answer, after which its GPU is taken to hang: compiling a model takes PyTorch about a minute.
ANSWER_LIMIT_S = 150
# Of the time that there is, what goes to layers where training steps come after them.
LAYERS_SHARE = 0.5


def layer_cases(args):
    shape = ((32,), (8,), (16,)) if args.quick else ((128, 256, 512), (64, 128, 512, 1024, 2048, 4096), (16, 128))
    hiddens, batches, widths = shape
    names = ("hidden", "batch", "layers", "features", "precision")
    # What tells most comes first, where the time is not enough for all.
    each = [(h, b, l, f, p) for p in PRECISIONS for l in (1, 2) for f in widths for h in hiddens for b in batches]
    steps = 4 if args.quick else STEPS
    return [{**dict(zip(names, values)), "steps": steps, "budget_s": args.budget_s} for values in each]


def model_cases(args):
    """A batch, how many steps of it are timed, and the order of samples."""
    batches = ((4, 2),) if args.quick else ((128, 300), (2048, 60))
    each = [(batch, steps, order, precision) for precision in PRECISIONS for order in ("consecutive", "shuffled") for batch, steps in batches]
    return [dict(zip(("batch", "steps", "order", "precision"), values)) for values in each]


class Side:
    """A program that answers a case a line."""

    def __init__(self, command):
        self.command = [str(word) for word in command]
        self.process = None

    def absence(self):
        """Exit code and last words of the program where it cannot be asked."""
        try:
            tried = subprocess.run(self.command, input="", capture_output=True, text=True, timeout=ANSWER_LIMIT_S)
        except subprocess.TimeoutExpired:
            return 1, f"it does not start within {ANSWER_LIMIT_S} s"
        return (tried.returncode, (tried.stderr.strip().splitlines() or ["it does not say why"])[-1]) if tried.returncode else None

    def ask(self, case):
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self.lines = SimpleQueue()
            Thread(target=pass_on, args=(self.process.stdout, self.lines), daemon=True).start()
        answer = self.answer(case)
        if answer.get("error"):
            # A GPU that has failed may go on failing: the next case finds a new process.
            self.process.kill()
            self.process.wait()
            self.process = None
        return answer

    def answer(self, case):
        try:
            self.process.stdin.write(json.dumps(case) + "\n")
            self.process.stdin.flush()
            return json.loads(self.lines.get(timeout=ANSWER_LIMIT_S))
        except Empty:
            return {"error": f"no answer within {ANSWER_LIMIT_S} s"}
        except (BrokenPipeError, json.JSONDecodeError):
            return {"error": "the program died of this case"}


def pass_on(stream, lines):
    """Each line as it comes, and nothing for the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def medians(rounds):
    """Of each number over the rounds; other values, and those of a round with an error, as they are."""
    failed = next((each for each in rounds if each.get("error")), None)
    if failed:
        return failed
    of = lambda name: [each[name] for each in rounds]
    combine = lambda values: (
        medians(values) if isinstance(values[0], dict) else median(values) if isinstance(values[0], (int, float)) else values[0]
    )
    return {name: combine(of(name)) for name in rounds[0]}


def take_turns(sides, rounds):
    """What each side answers, by its name: `sides` are asked in order, again and again, but for one that failed."""
    answers = {name: [] for name in sides}
    for _ in range(rounds):
        for name, ask in sides.items():
            if not any(answer.get("error") for answer in answers[name]):
                answers[name].append(ask())
    return {name: medians(answers[name]) for name in sides}


def train(args, case):
    """What `megabatch bench train` answers."""
    device = args.device if args.device == "cpu" else f"cuda:{args.device}"
    options = {"model": "multi", "batch": case["batch"], "hidden": hidden_of(args), "precision": case["precision"], "steps": case["steps"], "device": device}
    command = [args.megabatch, "--json", "bench", "train", *(f"--{name}={value}" for name, value in options.items())]
    command = [str(word) for word in command] + ["--shuffled"] * (case["order"] == "shuffled")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {ANSWER_LIMIT_S} s"}
    if done.returncode == 0:
        return json.loads(done.stdout)
    return {"error": " ".join(done.stderr.split())[-300:] or f"it ended with {done.returncode}"}


def hidden_of(args):
    return 16 if args.quick else 128


def measure_layers(args, ours, theirs, case):
    sides = {"megabatch": lambda: ours.ask(case)}
    if theirs:
        sides["pytorch"] = lambda: theirs.ask(case)
    return {"case": case, **take_turns(sides, args.rounds)}


def measure_model(args, theirs, case):
    sides = {"megabatch": lambda: train(args, case)}
    if theirs:
        asked = {"model": "multi", "hidden": hidden_of(args), "layers": 1, "budget_s": 10 * args.budget_s}
        asked |= {name: case[name] for name in ("batch", "precision")}
        sides["pytorch"] = lambda: theirs.ask(asked)
        sides["compiled"] = lambda: theirs.ask({**asked, "compiled": True})
    return {"case": case, **take_turns(sides, args.rounds)}


def cell(number, unit=""):
    return "" if number is None else f"{number:.3g}{unit}" if number < 1000 else f"{number:.0f}{unit}"


def pair(times):
    """`forward / both`."""
    return "" if not times else f"{cell(times['forward_us'])} / {cell(times['both_us'])}"


def verdict(is_reached, goal):
    return f"{goal}: {'reached' if is_reached else '**missed**'}"


def in_a_row(cells):
    return f"| {' | '.join(str(text).replace('|', '/') for text in cells)} |"


LAYER_HEADER = """| H | B | layers | F | type | megabatch, µs a step: forward / both | its recurrence alone | floor | predicted | MiB | PyTorch | by cuDNN's algorithm | MiB | PyTorch's time over ours | goal |
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


MODEL_HEADER = """| five timeframes, batch | samples | type | megabatch, samples/s | GPU busy | MiB | PyTorch | with torch.compile | MiB | times the faster | goal |
| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"""


def model_row(of):
    case, ours = of["case"], of["megabatch"]
    forms = [of.get("pytorch", {}), of.get("compiled", {})]
    rates = [form["samples_per_s"] for form in forms if "samples_per_s" in form]
    rate, busy = ours.get("samples_per_s_mean"), ours.get("gpu_busy")
    memory = ours.get("peak_gpu_bytes")
    their_memory = forms[0].get("peak_allocated_bytes")
    ratio = rate / max(rates) if rate and rates else None
    cells = [case["batch"], case["order"], case["precision"], ours.get("error") or cell(rate), "" if busy is None else f"{busy:.0%}", cell(memory and memory / MIB)]
    cells += [form.get("error") or cell(form.get("samples_per_s")) for form in forms]
    goal, goals = MODEL_GOALS.get(case["batch"]), []
    if goal and ratio:
        goals.append(verdict(ratio >= goal, f"≥ {goal:g} times"))
    if goal and busy is not None:
        goals.append(verdict(busy >= BUSY_GOAL, f"busy ≥ {BUSY_GOAL:.0%}"))
    return in_a_row([*cells, cell(their_memory and their_memory / MIB), cell(ratio), "; ".join(goals)])


def tell(args, header, rows, row):
    """Prints a table as it grows, of as many cases as are begun in time, and keeps all numbers where that is asked for. `rows`: cases, what measures one, and when the time is over."""
    cases, measure, end = rows
    print(f"\n{header}", flush=True)
    for number, case in enumerate(cases):
        if time.monotonic() > end:
            print(f"\nThe time was over: {len(cases) - number} of {len(cases)} cases were not measured.", flush=True)
            return
        measured = measure(case)
        print(row(measured), flush=True)
        if args.json:
            with args.json.open("a") as lines:
                lines.write(json.dumps(measured) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=Path, help="the program, a release build")
    parser.add_argument("--layers", type=Path, help="the example gpu_layers; default: examples/ beside the program")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch; default: this one")
    parser.add_argument("--device", default="0", help="number of the GPU, or cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget-s", type=float, default=0.1, help="for how long runs of a part are repeated in a round; training steps ten times as long")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after so long no further case is begun; layers have half of it where training steps come after them")
    parser.add_argument("--only", choices=("layers", "training"), help="one of the two tables")
    parser.add_argument("--quick", action="store_true", help="one small shape of each: times that mean nothing")
    parser.add_argument("--json", type=Path, help="a file for all numbers, a line a case")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    if args.quick:
        args.rounds, args.budget_s = 1, 0.0
    args.megabatch = args.megabatch.resolve()
    begun = time.monotonic()
    ours = Side([args.layers or args.megabatch.parent / "examples/gpu_layers", "--device", args.device])
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
    if args.only != "training":
        end = begun + args.seconds * (1 if args.only else LAYERS_SHARE)
        tell(args, LAYER_HEADER, (layer_cases(args), lambda case: measure_layers(args, ours, theirs, case), end), layer_row)
    if args.only != "layers":
        tell(args, MODEL_HEADER, (model_cases(args), lambda case: measure_model(args, theirs, case), begun + args.seconds), model_row)
    if theirs:
        about = theirs.ask({"model": "single", "batch": 1, "hidden": 8, "layers": 1, "precision": "fp32", "budget_s": 0.0})
        if about.get("error"):
            sys.exit(f"PyTorch does not answer any more: {about['error']}")
        print(f"\nPyTorch {about['version']}, cuDNN {about['cudnn']}; which algorithm cuDNN is asked for is told by PyTorch's rules, not by PyTorch.")


if __name__ == "__main__":
    main()
