"""The calls of a GPU campaign: suites one after the other, each in a process of its own with a time limit, with one summary at the end.

    python3 campaign.py truth a --out DIR [--only NAME,NAME] [--skip NAME] [--seconds 280] [--device 0] [--tiny]

It lies in the archive that `scripts/gpu-check build` packs, beside bin/, peers/ and kernels/, and needs Python alone. Results in DIR: CALL.log with all that
the suites printed, CALL.json with a record a suite. Printed: failures first, then a line a suite, then the last lines of each suite's tables. Exit code:
0 if all passed, 1 if one failed, 6 without a GPU.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
NO_DEVICE = 6
# Times a suite's limit that it has in a tiny call: the made-up driver runs kernels on the CPU.
TINY_PATIENCE = 5
# Code of a tool that is not on the machine, or does not work there.
SKIPPED = 77
# Time that a process has to end after it was killed.
KILL_SECONDS = 2
# Time that is kept for the summary.
SUMMARY_SECONDS = 3


@dataclass
class Suite:
    """A program, its time limit, and the number of its last lines that belong in the summary."""

    name: str
    command: list
    seconds: float
    lines: int = 0
    environment: dict = field(default_factory=dict)


@dataclass
class Outcome:
    """End of a suite. `failures` are its table rows and lines that say so."""

    name: str
    state: str
    seconds: float
    code: int | None
    failures: list
    tail: list


def program(name):
    return str(HERE / "bin" / name)


def script(name, *arguments):
    return [sys.executable, str(HERE / "peers" / f"{name}.py"), *arguments]


def kernels(args, only, seconds):
    """Checks or times of gpu_kernels.py with all variants of the archive; in tiny calls every launch is packed and none submitted."""
    name = {"checks": "kernels", "times": "times"}[only]
    variants = [word for folder in sorted((HERE / "kernels").glob("k*")) for word in ("--kernels", f"{folder.name}={folder}")]
    options = ["--only", only, "--seconds", str(seconds), "--json", str(args.out / f"{name}.json"), *(["--dry-run"] if args.tiny else [])]
    return Suite(name, script("gpu_kernels", *variants, *options), seconds + 5, 2 if args.tiny else 45)


def operations(args, seconds):
    """All operations; in tiny calls in one process, whose checks may take longer than a GPU's."""
    whole = ["--from", "0"] if args.tiny else []
    return Suite("operations", [program("gpu_operations"), "--device", str(args.device), *whole], seconds, 0)


def truth_a(args):
    device, megabatch = str(args.device), program("megabatch")
    checks = [program("gpu-check"), "--date", time.strftime("%Y-%m-%d"), "--device", device, *(["--quick"] if args.tiny else [])]
    training = script("gpu_training", "--bin", megabatch, "--device", device, "--seconds", "60", *tiny(args))
    return [
        Suite("machine", script("gpu_machine", "--bin", str(HERE / "bin")), 20, 12),
        Suite("checks", checks, 60, 5),
        operations(args, 90),
        Suite("training", training, 62, 12),
        kernels(args, "checks", 75),
        kernels(args, "times", 30),
        Suite("rates", script("gpu_rates", "--bin", megabatch, "--device", device, "--seconds", "40", *tiny(args)), 42, 14),
        Suite("jit", script("gpu_jit", "--kernels", str(HERE / "kernels/k0"), "--json", str(args.out / "jit.json")), 40, 9),
        Suite("doctor", [megabatch, "doctor"], 25, 12),
    ]


def truth_b(args):
    device, megabatch = str(args.device), program("megabatch")
    sanitizers = [
        Suite(tool, script("gpu_sanitizer", "--tool", tool, *folders(args), "--seconds", "32", *tiny(args)), 34, 5)
        for tool in ("racecheck", "synccheck", "memcheck")
    ]
    return [
        *sanitizers,
        kernels(args, "checks", 75),
        Suite("training", script("gpu_training", "--bin", megabatch, "--device", device, "--seconds", "60", *tiny(args)), 62, 12),
        operations(args, 60),
    ]


def speed_a(args):
    # What the times of single kernels leave.
    seconds = max(args.seconds - 55, 60)
    words = ("--megabatch", program("megabatch"), "--device", str(args.device), "--json", str(args.out / "steps.json"), *tiny(args))
    return [
        Suite("steps", script("gpu_training_speed", *words, "--seconds", str(seconds)), seconds + 5, 40),
        kernels(args, "times", 30),
    ]


def speed_b(args):
    return [Suite("counters", script("gpu_counters", *folders(args), "--seconds", "120", *tiny(args)), 125, 60)]


def whole(args, name, parts, seconds):
    """Parts of gpu_whole.py."""
    words = ("--bin", program("megabatch"), "--only", parts, "--device", str(args.device), "--seconds", str(seconds), *tiny(args))
    return Suite(name, script("gpu_whole", *words), seconds + 5, 12)


def whole_a(args):
    return [whole(args, "losses", "losses", 90), whole(args, "memory", "memory", 60), whole(args, "busy", "busy", 120)]


def whole_b(args):
    scatter = Suite("scatter", script("gpu_scatter", "--wheels", str(HERE / "wheels"), *tiny(args)), 60, 30)
    loaders = Suite("loaders", script("gpu_loaders", "--wheels", str(HERE / "wheels"), *tiny(args)), 80, 30)
    return [pool(args), scatter, loaders, whole(args, "kill", "kill", 60), whole(args, "shortage", "shortage", 60)]


def pool(args):
    """PyTorch on megabatch's pool."""
    words = ("--wheels", str(HERE / "wheels"), "--example", str(HERE / "peers/out_of_memory_at_epoch_5.py"), "--seconds", "150", "--rounds", "2")
    return Suite("pool", script("gpu_pool", *words, *tiny(args)), 160, 60)


def folders(args):
    """Options of a suite that takes programs and PTX from the archive."""
    return "--bin", str(HERE / "bin"), "--kernels", str(HERE / "kernels/k0"), "--device", str(args.device)


def tiny(args):
    return ["--tiny"] if args.tiny else []


CALLS = {
    ("truth", "a"): truth_a,
    ("truth", "b"): truth_b,
    ("speed", "a"): speed_a,
    ("speed", "b"): speed_b,
    ("whole", "a"): whole_a,
    ("whole", "b"): whole_b,
}


def cublas_folder():
    """The folder of PyTorch's own libcublasLt, for a machine without a toolkit."""
    found = [path for site in sys.path for path in Path(site).glob("nvidia/*/lib/libcublasLt.so.*")]
    return str(sorted(found)[-1].parent) if found else None


def run(suite, args, deadline):
    """Runs a suite to its end or its limit; all that it prints goes to `args.out`."""
    limit = min(suite.seconds * (TINY_PATIENCE if args.tiny else 1), deadline - time.monotonic())
    if limit < 3:
        return Outcome(suite.name, "no time", 0.0, None, [], [])
    begun = time.monotonic()
    log = args.out / f".{suite.name}.log"
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(
                suite.command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | suite.environment
            )
        except OSError as error:
            return Outcome(suite.name, "failed", 0.0, None, [str(error)], [])
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(KILL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
    text = log.read_text(errors="replace")
    log.unlink()
    return outcome(suite, text, code, time.monotonic() - begun)


def outcome(suite, text, code, seconds):
    lines = [line.rstrip() for line in text.splitlines()]
    failures = [line for line in lines if "failed" in line.lower() and "0 failed" not in line]
    if code is None:
        failures.append(f"{suite.name} did not end within {seconds:.0f} s and was killed; last line: {lines[-1] if lines else 'none'}")
    elif code not in (0, SKIPPED) and not failures:
        failures = [f"{suite.name} ended with {code}: {' / '.join(lines[-3:])}"]
    state = "passed" if code == 0 else "skipped" if code == SKIPPED else "failed"
    return Outcome(suite.name, state, round(seconds, 2), code, failures, lines)


def summary(call, outcomes, suites):
    failed = [one for one in outcomes if one.failures and one.state != "skipped"]
    print(f"\n# {call}\n")
    for one in failed:
        print(f"## {one.name}: {len(one.failures)} failures")
        for line in one.failures[:25]:
            print(line[:420])
    print("\n| suite | state | s |\n| --- | --- | ---: |")
    for one in outcomes:
        print(f"| {one.name} | {one.state} | {one.seconds:.1f} |")
    for one, suite in zip(outcomes, suites):
        if suite.lines and one.tail:
            print(f"\n## {one.name}")
            print("\n".join(line[:260] for line in one.tail[-suite.lines :]))


def chosen(suites, args):
    only, skip = ([name for name in words.split(",") if name] for words in (args.only, args.skip))
    return [suite for suite in suites if (not only or suite.name in only) and suite.name not in skip]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lease", choices=sorted({lease for lease, _ in CALLS}))
    parser.add_argument("call", choices=["a", "b"])
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    parser.add_argument("--only", default="")
    parser.add_argument("--skip", default="")
    parser.add_argument("--seconds", type=int, default=285, help="of the whole call")
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="sizes that show that everything runs, on a made-up driver")
    args = parser.parse_args()
    args.out = args.out.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + args.seconds - SUMMARY_SECONDS
    if folder := cublas_folder():
        # The examples look there; megabatch itself finds the wheels of the first python3 on the path.
        os.environ["MEGABATCH_LIBRARIES"] = folder
    os.environ["PYTHONUNBUFFERED"] = "1"
    call, suites = f"{args.lease}-{args.call}", chosen(CALLS[args.lease, args.call](args), args)
    outcomes = []
    with (args.out / f"{call}.log").open("w") as log:
        for suite in suites:
            print(f"{suite.name} …", file=sys.stderr, flush=True)
            one = run(suite, args, deadline)
            log.write(f"\n===== {suite.name}: {one.state}, {one.seconds} s\n$ {' '.join(suite.command)}\n" + "\n".join(one.tail) + "\n")
            log.flush()
            outcomes.append(one)
            records = [{**asdict(one), "tail": one.tail[-5:]} for one in outcomes]
            (args.out / f"{call}.json").write_text(json.dumps(records, indent=1))
    summary(call, outcomes, suites)
    sys.exit(NO_DEVICE if all(one.code == NO_DEVICE for one in outcomes) else int(any(one.state == "failed" for one in outcomes)))


if __name__ == "__main__":
    main()
