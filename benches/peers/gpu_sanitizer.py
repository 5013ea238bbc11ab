"""compute-sanitizer over small launches of the recurrence kernels and over three training steps: a row a program.

    python3 gpu_sanitizer.py --tool racecheck|synccheck|memcheck --bin FOLDER --kernels FOLDER [--device 0] [--seconds 30] [--tiny]

The programs run side by side, each under a compute-sanitizer of its own: gpu_kernels.py, of which only our kernels are watched, and `megabatch train` in bf16
and fp32, of which all are. For memcheck each buffer is an allocation of its own on both sides, so that an overrun from one into the next is seen. Exit codes: 0 no errors, 1 errors, 77 the tool is absent or does not work here.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
SANITIZER = "compute-sanitizer"
SKIPPED, ERRORS_FOUND = 77, 86
STEPS, BARS = 3, 6
# A case of each kernel: two tiles of one block; groups of eight blocks; the fragments of both.
CASES = (
    r"^(recurrence(_of_rows|_backward)?|recurrence_group(_backward)?) bf16 H (128|256) T \d+ B 9 (bars|apart F \d+)$"
    r"|^recurrence_(bytes|f32) f32 H 128 T \d+ B 9 bars$|^recurrent_weights (bf16|f32) H (128|512)( F 64)?$"
)
# Parts of our kernels' names that PyTorch's have not.
OUR_KERNELS = ("bf16", "forward_bytes", "_f32")
SUMMARY = re.compile(r"SUMMARY: (\d+) (?:errors?|hazards? displayed \((\d+) errors?, (\d+) warnings?\))")
# Lines that precede what was found.
BANNER = re.compile(r"^=========\s*(COMPUTE-SANITIZER.*|)$")
# What the tool says where it does not work.
BROKEN = re.compile(r"not supported|terminated before|Unable to|Internal Sanitizer Error|[Ff]ailed to initialize|out of memory", re.I)


@dataclass
class Program:
    """A program and the kernels that are watched, by parts of their names; none: all."""

    name: str
    command: list
    watched: tuple = ()


@dataclass
class Row:
    """End of a program. `state`: ok, failed or skipped."""

    name: str
    state: str
    errors: int | None
    seconds: float
    text: str = ""

    def __str__(self):
        verdict = "ok" if self.state == "ok" else f"**failed**: {self.text}" if self.state == "failed" else f"skipped: {self.text}"
        return f"| {self.name} | {'' if self.errors is None else self.errors} | {self.seconds:.1f} | {verdict.replace('|', '/')[:400]} |"


@dataclass
class Running:
    """A program under the tool; all that it prints goes to a file."""

    program: Program
    process: subprocess.Popen
    log: Path
    begun: float = field(default_factory=time.monotonic)

    def row(self, is_late):
        seconds, lines = time.monotonic() - self.begun, self.log.read_text(errors="replace").splitlines()
        if is_late:
            return Row(self.program.name, "skipped", None, seconds, f"no end in time; last line: {lines[-1] if lines else 'none'}")
        return verdict(self.program.name, lines, self.process.returncode, seconds)


def verdict(name, lines, code, seconds):
    """A row from what the tool and the program printed."""
    said = [line for line in lines if line.startswith("=========") and not BANNER.match(line)]
    sums = [[int(number) for number in match.groups() if number] for line in said if (match := SUMMARY.search(line))]
    own = [line for line in lines if not line.startswith("=========") and not line.startswith("{")]
    faults = [fault for row in kernel_rows(lines) for fault in row["faults"]]
    broken = [line for line in said if BROKEN.search(line)]
    errors = sum(sum(numbers[1:]) if len(numbers) > 1 else numbers[0] for numbers in sums)
    if errors:
        return Row(name, "failed", errors, seconds, " ".join(line.strip("= ") for line in said[:2]))
    if not sums or broken or code == SKIPPED:
        words = broken[:1] or (own[-1:] if code == SKIPPED else (said or lines)[-3:])
        return Row(name, "skipped", None, seconds, f"ended with {code}: {' '.join(line.strip('= ') for line in words)}")
    if code or faults:
        return Row(name, "failed", 0, seconds, "; ".join(faults) or f"the program ended with {code}: {' '.join((own or said)[-2:])}")
    return Row(name, "ok", 0, seconds)


def kernel_rows(lines):
    """Rows of gpu_kernels.py, a message a line."""
    for line in lines:
        if line.startswith('{"ended"'):
            yield json.loads(line)["row"]


def programs(args, folder):
    kernels = [sys.executable, str(HERE / "gpu_kernels.py"), "--kernels", f"k0={args.kernels}", "--only", "checks", "--match", CASES, "--steps", str(BARS)]
    kernels += ["--dry-run"] if args.tiny else ["--worker", "0"]
    trainings = [Program(f"{STEPS} training steps, {precision}", training(args, folder, precision)) for precision in ("bf16", "fp32")]
    return [Program(f"recurrence kernels, {BARS} steps", kernels, OUR_KERNELS), *trainings]


def training(args, folder, precision):
    settings = [f"training.precision={precision}", f"model.hidden={4 if args.tiny else 128}", "gpu_optimization.batch_size=16", "training.seed=3"]
    command = [args.megabatch, "train", "--data", str(folder / "series.h5"), "--out", str(folder / precision), "--device", f"cuda:{args.device}"]
    return [*command, "--max-steps", str(STEPS), *(word for setting in settings for word in ("--set", setting))]


def synthesize(args, folder):
    """The series that is trained on, made without the tool."""
    shape = ("--samples", "600" if args.tiny else "2000", "--timeframes", "M1:4,M5:3" if args.tiny else "M1:24,M5:8", "--features", "8", "--targets", "4")
    subprocess.run([args.megabatch, "synth", str(folder / "series.h5"), *shape], check=True, capture_output=True, timeout=20)


def start(args, program, log):
    options = ["--tool", args.tool, "--target-processes", "all", "--error-exitcode", str(ERRORS_FOUND), "--print-limit", "20"]
    # Every library of Python asks for functions that a driver may lack; megabatch's own errors end it.
    options += ["--report-api-errors", "no", "--padding", "256"] if args.tool == "memcheck" else []
    options += [word for part in program.watched for word in ("--kernel-name", f"kns={part}")]
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "CUDA_CACHE_DISABLE": "0"}
    environment |= {"MEGABATCH_ALLOCATE_APART": "1"} if args.tool == "memcheck" else {}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [SANITIZER, *options, *program.command], stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True, env=environment
        )
    return Running(program, process, log)


def watch(args, folder, deadline):
    """Rows of all programs, printed as they end."""
    running = [start(args, program, folder / f"{number}.log") for number, program in enumerate(programs(args, folder))]
    rows = []
    while running:
        is_late = time.monotonic() > deadline
        for one in [one for one in running if is_late or one.process.poll() is not None]:
            if is_late:
                os.killpg(one.process.pid, signal.SIGKILL)
                one.process.wait(2)
            rows.append(one.row(is_late))
            print(rows[-1], flush=True)
            running.remove(one)
        time.sleep(0.05)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, choices=("racecheck", "synccheck", "memcheck"))
    parser.add_argument("--bin", required=True, type=Path, help="the folder of the program megabatch")
    parser.add_argument("--kernels", required=True, type=Path, help="the folder of PTX")
    parser.add_argument("--device", default="0")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--tiny", action="store_true", help="a small model, and no launches through PyTorch")
    args = parser.parse_args()
    deadline = time.monotonic() + args.seconds - 1
    args.megabatch = str(args.bin.resolve() / "megabatch")
    if shutil.which(SANITIZER) is None:
        print(f"{args.tool} is skipped: there is no {SANITIZER}")
        sys.exit(SKIPPED)
    print(f"| {args.tool} | errors | s | verdict |\n| --- | ---: | ---: | --- |")
    with tempfile.TemporaryDirectory() as folder:
        synthesize(args, Path(folder))
        rows = watch(args, Path(folder), deadline)
    states = {row.state for row in rows}
    sys.exit(1 if "failed" in states else 0 if "ok" in states else SKIPPED)


if __name__ == "__main__":
    main()
