"""LeakBench: how many planted leaks a method finds, and of how many honest functions it alarms.

    python benches/leakbench --method all --list-missed

Needs pandas, polars, pyarrow and numpy, and for the method `megabatch` the module of that name.
Prints a table. Its columns `leaks caught` and `false alarms` count cases; a case that could not be
computed or ingested is an error, and counts as neither. The exit status is 1 if the method
`megabatch` misses a leak, alarms of a clean case or has an error.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable

import pandas as pd
from bars import quarter_hours
from case import Case
from cases import CLEAN, LEAKS
from others import freqtrade_method, shift_test
from ours import leak_of_functions

METHODS = {"shift": shift_test, "freqtrade": freqtrade_method, "megabatch": leak_of_functions}


class Outcome:
    """What a method said of the cases. `missed`, `alarms` and `errors` have a text for each case."""

    def __init__(self, method: Callable, leaks: list[Case], clean: list[Case], frame: pd.DataFrame):
        self.missed: list[tuple[Case, str]] = []
        self.alarms: list[tuple[Case, str]] = []
        self.errors: list[tuple[Case, str]] = []
        self.caught = 0
        start = time.perf_counter()
        for case, leaks_ahead in [(case, True) for case in leaks] + [(case, False) for case in clean]:
            try:
                alarm = method(case, frame)
            except Exception as error:
                self.errors.append((case, f"{type(error).__name__}: {error}"))
                continue
            if leaks_ahead and alarm is None:
                self.missed.append((case, case.source))
            elif not leaks_ahead and alarm is not None:
                self.alarms.append((case, alarm))
            self.caught += leaks_ahead and alarm is not None
        self.seconds = time.perf_counter() - start

    def names(self) -> str:
        lines = []
        for title, cases in (("missed", self.missed), ("false alarm", self.alarms), ("error", self.errors)):
            lines += [f"  {title}: {case.name} ({case.kind}){text and ': ' + text}" for case, text in cases]
        return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="leakbench", description=__doc__.splitlines()[0])
    parser.add_argument("--method", choices=[*METHODS, "all"], default="all")
    parser.add_argument("--list-missed", action="store_true", help="name the cases that a method got wrong")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this case; may be given several times")
    options = parser.parse_args()

    chosen = list(METHODS) if options.method == "all" else [options.method]
    if "megabatch" in chosen and importlib.util.find_spec("megabatch") is None:
        parser.error("megabatch is not installed: install it, or choose --method shift or freqtrade")
    names = set(options.case or [case.name for case in LEAKS + CLEAN])
    leaks, clean = ([case for case in cases if case.name in names] for cases in (LEAKS, CLEAN))
    unknown = names - {case.name for case in leaks + clean}
    if unknown:
        parser.error(f"there is no case {', '.join(sorted(unknown))}")

    frame, wrong = quarter_hours(), False
    print(f"{'method':12}{'leaks caught':>18}{'false alarms':>18}{'errors':>10}{'seconds':>10}")
    for name in chosen:
        outcome = Outcome(METHODS[name], leaks, clean, frame)
        caught, alarms = f"{outcome.caught} of {len(leaks)}", f"{len(outcome.alarms)} of {len(clean)}"
        print(f"{name:12}{caught:>18}{alarms:>18}{len(outcome.errors):>10}{outcome.seconds:>10.1f}", flush=True)
        if options.list_missed and outcome.names():
            print(outcome.names(), flush=True)
        wrong |= name == "megabatch" and bool(outcome.missed or outcome.alarms or outcome.errors)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
