"""Training steps of megabatch beside PyTorch's on one GPU, the most telling cases first, under the two ceilings of the card: copies and bf16 products.

    python3 gpu_training_speed.py --megabatch target/release/megabatch [--device 0] [--seconds 240] [--match REGEX] [--json FILE] [--tiny]

megabatch is `megabatch bench train`, a process a case; PyTorch is gpu_step.py, one process for all, in the forms that it describes. Both are asked in turn.
Where PyTorch finds no GPU, megabatch alone is measured. `predicted` has the rate written down before a measurement and measured / predicted.
Exit codes: 0 measured, 1 a case failed, 6 no GPU.
"""
import argparse
import json
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lstm_shapes import SHAPES
from sides import MIB, Side, cell, in_a_row, take_turns, verdict

HERE = Path(__file__).parent
NO_DEVICE = 6
HIDDEN = 128
# Units of a head, and features of a node.
GRAPH_HIDDEN, GRAPH_FEATURES = 64, 32
FORMS = ("eager", "captured", "once", "compiled")
# A form of PyTorch that failed so often is not asked for any more.
FAILURES_MOST = 2
# The least time that a case is begun with; compiling takes PyTorch a minute.
CASE_SECONDS_LEAST, COMPILED_SECONDS_LEAST = 3.0, 70.0
# The longest that a side is waited for, after which it is taken to hang.
ANSWER_SECONDS, COMPILED_SECONDS = 40.0, 120.0


@dataclass(frozen=True)
class Case:
    """A training step. `compiled` adds torch.compile to PyTorch's forms; `graph` has the nodes of a graph and the edges to each."""

    model: str
    batch: int
    precision: str
    order: str
    compiled: bool = False
    graph: tuple = ()

    @property
    def forms(self):
        """Forms of PyTorch that can run it: distinct windows are those of consecutive samples, and the host decides on fp16's loss scale."""
        if self.graph:
            return ["eager", "captured"]
        is_captured = self.precision != "fp16"
        held = (True, is_captured, is_captured and self.order == "consecutive", self.compiled)
        return [form for form, is_held in zip(FORMS, held) if is_held]

    @property
    def label(self):
        return f"{self.model} {self.batch} {self.precision} {self.order}" + (" compiled" if self.compiled else "")

    @property
    def steps(self):
        """Steps that take megabatch about half a second."""
        return (60 if self.batch > 1000 else 300) if self.precision in ("bf16", "fp16") else (20 if self.batch > 1000 else 100)


CONSECUTIVE, SHUFFLED = "consecutive", "shuffled"
# Molecules, and a universe of shares with as many neighbours as `graph build` keeps.
MOLECULES = Case("GAT", 32, "fp32", "25 nodes", graph=(25, 2))
SHARES = Case("GAT", 1, "fp32", "500 nodes", graph=(500, 10))
FIRST = [
    Case("multi", 64, "bf16", CONSECUTIVE),
    Case("multi", 64, "fp32", CONSECUTIVE),
    Case("multi", 2048, "bf16", CONSECUTIVE),
    Case("multi", 2048, "bf16", SHUFFLED),
    Case("multi", 128, "bf16", CONSECUTIVE),
    Case("single", 128, "bf16", SHUFFLED),
    Case("multi", 128, "fp32", CONSECUTIVE),
    Case("multi", 64, "tf32", CONSECUTIVE),
    MOLECULES,
    SHARES,
]
# Samples/s, written down before they are measured.
PREDICTED = {
    Case("multi", 64, "bf16", CONSECUTIVE): 45_000,
    Case("multi", 64, "bf16", SHUFFLED): 30_000,
    Case("multi", 2048, "bf16", CONSECUTIVE): 400_000,
    Case("multi", 2048, "bf16", SHUFFLED): 200_000,
    Case("multi", 64, "fp32", CONSECUTIVE): 20_000,
    Case("single", 128, "bf16", SHUFFLED): 100_000,
    MOLECULES: 130_000,
    SHARES: 4_000,
}
GOALS = {
    MOLECULES: {"eager": 5.0},
    SHARES: {"eager": 3.0},
    Case("multi", 64, "bf16", CONSECUTIVE): {"eager": 5.0, "captured": 2.5},
    Case("multi", 128, "bf16", CONSECUTIVE): {"eager": 5.0, "captured": 2.5},
    Case("multi", 2048, "bf16", CONSECUTIVE): {"eager": 6.0},
    Case("multi", 2048, "bf16", SHUFFLED): {"eager": 2.5},
    Case("single", 128, "bf16", SHUFFLED): {"eager": 2.0},
}
# GB/s of reads and writes together; TFLOP/s.
PREDICTED_CEILINGS = {"copy": 3000, "product": 798}


def all_cases():
    """Those of `FIRST`, then the others by precision, then torch.compile."""
    shapes = [("multi", batch, order) for order in (CONSECUTIVE, SHUFFLED) for batch in (64, 128, 2048)] + [("single", 128, SHUFFLED)]
    each = [Case(model, batch, precision, order) for precision in ("bf16", "fp32", "tf32", "fp16") for model, batch, order in shapes]
    return [*dict.fromkeys(FIRST + each), Case("multi", 128, "bf16", CONSECUTIVE, compiled=True)]


def tiny_cases():
    return [Case("single", 1, "fp32", SHUFFLED), Case("single", 1, "bf16", CONSECUTIVE), Case("GAT", 2, "fp32", "3 nodes", graph=(3, 1))]


def goals(case):
    """Goals: times the speed of a form of PyTorch."""
    if case.graph:
        return GOALS.get(case, {})
    return {"eager": 2.0} if case.precision in ("fp32", "tf32") else GOALS.get(replace(case, compiled=False), {})


class Comparison:
    """Both sides, until a deadline."""

    def __init__(self, args):
        self.args, self.deadline, self.failures = args, time.monotonic() + args.seconds, dict.fromkeys(FORMS, 0)
        self.theirs = Side([args.python, HERE / "gpu_step.py", "--device", "cpu" if args.tiny else args.device])
        self.absence = None

    def left(self):
        return self.deadline - time.monotonic()

    def limit(self, most):
        """Seconds that an answer may take."""
        return max(min(self.left(), most), 1.0)

    def ceilings(self):
        """Rows of the two ceilings, and whether PyTorch is there, which measures them."""
        edge = 64 if self.args.tiny else 8192
        for name, unit in (("copy", "gb_per_s"), ("product", "tflop_per_s")):
            answer = self.theirs.ask({"ceiling": name, "edge": edge, "budget_s": self.args.budget_s / 4}, self.limit(COMPILED_SECONDS))
            if answer.get("error"):
                self.absence = answer["error"]
                print(f"PyTorch is not beside it: {self.absence}", flush=True)
                return
            self.keep({"ceiling": name, **answer})
            if name == "copy":
                print(f"PyTorch {answer['version']}, cuDNN {answer['cudnn']}\n\n| ceiling | measured | predicted |\n| --- | ---: | ---: |")
            print(in_a_row([f"{name}, {edge} × {edge}, {unit}", cell(answer[unit]), PREDICTED_CEILINGS[name]]), flush=True)

    def ours(self, case):
        """What `megabatch bench train` answers."""
        tf32 = ["--tf32"] if case.precision == "tf32" else []
        options = {"batch": case.batch} | self.size(case)
        options |= {f"graph-{name}": number for name, number in zip(("nodes", "neighbours"), case.graph)} if case.graph else {"model": case.model}
        options |= {"precision": "fp32" if tf32 else case.precision, "steps": 1 if self.args.tiny else case.steps}
        options["device"] = f"cuda:{self.args.device}"
        command = [self.args.megabatch, "--json", "bench", "train", *(f"--{name}={value}" for name, value in options.items()), *tf32]
        command += ["--shuffled"] * (case.order == SHUFFLED)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.limit(ANSWER_SECONDS))
        except subprocess.TimeoutExpired:
            return {"error": "**failed**: no answer in time"}
        if done.returncode == 0:
            return json.loads(done.stdout)
        return {"error": f"**failed**: {' '.join(done.stderr.split())[-240:] or f'it ended with {done.returncode}'}", "code": done.returncode}

    def size(self, case):
        """Hidden units and features."""
        hidden, features = (GRAPH_HIDDEN, GRAPH_FEATURES) if case.graph else (HIDDEN, SHAPES[case.model][1])
        return {"hidden": 4, "features": 2} if self.args.tiny else {"hidden": hidden, "features": features}

    def form(self, case, form):
        """What PyTorch answers; a form that has failed twice is left out."""
        asked = {"batch": case.batch, "precision": case.precision, "layers": 1, "form": form} | self.size(case)
        asked |= {f"graph_{name}": number for name, number in zip(("nodes", "neighbours"), case.graph)} if case.graph else {"model": case.model}
        limit = self.limit(COMPILED_SECONDS if form == "compiled" else ANSWER_SECONDS)
        answer = self.theirs.ask({**asked, "budget_s": self.args.budget_s}, limit)
        self.failures[form] += "error" in answer
        return answer

    def measure(self, case):
        sides = {"megabatch": lambda: self.ours(case)}
        for form in case.forms if self.absence is None else ():
            if self.failures[form] < FAILURES_MOST:
                sides[form] = lambda form=form: self.form(case, form)
        found = {"case": asdict(case), "predicted": PREDICTED.get(case), **take_turns(sides, self.args.rounds)}
        self.keep(found)
        return found

    def keep(self, found):
        if self.args.json:
            with self.args.json.open("a") as lines:
                lines.write(json.dumps(found) + "\n")


HEADER = """
| model | B | samples | type | megabatch, samples/s | predicted | busy | MiB | PyTorch eager | captured | once | compiled | MiB | times eager | captured \
| once | compiled | goals |
| --- | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"""


def row(case, found):
    ours, forms = found["megabatch"], [found.get(form, {}) for form in FORMS]
    rate, busy, memory = (ours.get(name) for name in ("samples_per_s_mean", "gpu_busy", "peak_gpu_bytes"))
    rates = {name: form["samples_per_s"] for name, form in zip(FORMS, forms) if "samples_per_s" in form}
    times = {name: rate / theirs for name, theirs in rates.items() if rate}
    predicted = f"{found['predicted']}, × {rate / found['predicted']:.2f}" if found["predicted"] and rate else found["predicted"] or ""
    their_memory = forms[0].get("peak_allocated_bytes")
    cells = [case.model, case.batch, case.order, case.precision, ours.get("error") or cell(rate), predicted, "" if busy is None else f"{busy:.0%}"]
    cells += [cell(memory and memory / MIB), *(form.get("error") or cell(form.get("samples_per_s")) for form in forms)]
    cells += [cell(their_memory and their_memory / MIB), *(cell(times.get(name)) for name in FORMS)]
    reached = [verdict(times[name] >= least, f"≥ {least:g} × {name}") for name, least in goals(case).items() if name in times]
    return in_a_row([*cells, "; ".join(reached)])


def tell(comparison, cases):
    """Prints the table as it grows; exit code."""
    print(HEADER, flush=True)
    is_wrong = False
    for number, case in enumerate(cases):
        if comparison.left() < (COMPILED_SECONDS_LEAST if case.compiled else CASE_SECONDS_LEAST):
            print(f"\nThe time was over: {len(cases) - number} of {len(cases)} cases were not measured.")
            break
        found = comparison.measure(case)
        print(row(case, found), flush=True)
        if number == 0 and found["megabatch"].get("code") == NO_DEVICE:
            return NO_DEVICE
        is_wrong |= "error" in found["megabatch"]
    return int(is_wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=Path, help="the program, a release build")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has PyTorch; default: this one")
    parser.add_argument("--device", default="0", help="number of the GPU")
    parser.add_argument("--rounds", type=int, default=1, help="how often both sides are asked; the table has medians")
    parser.add_argument("--budget-s", type=float, default=0.5, help="for how long PyTorch repeats a step")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--match", default="", help="measure only cases whose `MODEL B TYPE SAMPLES` has this regular expression, such as '^GAT'")
    parser.add_argument("--tiny", action="store_true", help="one small shape a precision, PyTorch on the CPU: times that mean nothing")
    parser.add_argument("--json", type=Path, help="a file for all numbers, a line a case")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    args.megabatch = args.megabatch.resolve()
    if args.tiny:
        args.budget_s = 0.0
    comparison = Comparison(args)
    try:
        comparison.ceilings()
        cases = tiny_cases() if args.tiny else all_cases()
        code = tell(comparison, [case for case in cases if re.search(args.match, case.label)])
    finally:
        comparison.theirs.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
