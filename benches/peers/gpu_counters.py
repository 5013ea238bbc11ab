"""Hardware counters of the hot kernels by Nsight Compute: a row a kernel, with its duration, tensor cores, MUFU, DRAM, L2 and what its warps wait for.

    python3 gpu_counters.py --bin FOLDER --kernels FOLDER [--device 0] [--seconds 90] [--tiny]

First the recurrence kernels, a launch of each case through gpu_kernels.py; then the kernels of `megabatch bench train` by their share of the time, and the
counters of the largest ones. Clocks and caches are left as they are. A stall is the number of a scheduler's warps that wait for that reason at an instruction's
issue. Exit codes: 0 counted, 77 Nsight Compute is absent or may not count here.
"""
import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROFILER, SKIPPED = "ncu", 77
# Timed cases of gpu_kernels.py by what ends their labels: few windows; as many as a GPU has room for, by tiles of both sizes.
CASES = r"^recurrence(_backward|_of_rows|_f32)? (bf16|f32) H 128 T \d+ B "
FEW, MANY = r"64 (bars|apart F 64) tile 8$", r"1056 (bars|apart F 64) tile (8|16)$"
RECURRENCE = r"^(forward|backward|rows)_.*$"
SECTIONS = ("SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "WarpStateStats")
DURATION = "gpu__time_duration.sum"
# What a column shows: the largest of the metrics that a name is found in. Names differ by GPU.
COLUMNS = {
    "tensor": re.compile(r"pipe_tensor.*\.avg\.pct_of_peak_sustained_active$"),
    "MUFU": re.compile(r"inst_executed_pipe_xu\.avg\.pct_of_peak_sustained_active$"),
    "DRAM": re.compile(r"dram__?throughput\.avg\.pct_of_peak_sustained_elapsed$"),
    "L2 hit": re.compile(r"lts__t_sector_hit_rate\.pct$"),
}
STALL = re.compile(r"average_warps_issue_stalled_((?!\w*not_issued)\w+?)_per_issue_active\.ratio$")
NO_STALLS = ("selected",)
STALLS_SHOWN, LARGEST, LAUNCHES_SWEPT = 3, 5, 600


@dataclass
class Kernel:
    """A launch that was profiled: its name, grid and metrics by name, times in ns."""

    name: str
    grid: str
    metrics: dict

    @property
    def us(self):
        return self.metrics.get(DURATION, 0.0) / 1e3

    @property
    def stalls(self):
        found = {match[1]: value for name, value in self.metrics.items() if (match := STALL.search(name)) and match[1] not in NO_STALLS}
        return sorted(found.items(), key=lambda stall: -stall[1])[:STALLS_SHOWN]

    def cells(self):
        largest = [max((value for name, value in self.metrics.items() if column.search(name)), default=None) for column in COLUMNS.values()]
        shares = ["" if value is None else f"{value:.1f}" for value in largest]
        return [self.grid, f"{self.us:.1f}", *shares, ", ".join(f"{name} {value:.2f}" for name, value in self.stalls)]


@dataclass
class Profile:
    """What a run under the profiler gave; without kernels, why."""

    kernels: list
    reason: str


HEADER = f"| kernel | grid | µs | {' | '.join(f'{name} %' for name in COLUMNS)} | first stalls |\n| --- | --- | ---: | {'---: | ' * len(COLUMNS)}--- |"


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def parsed(text):
    """Kernels of a raw page in CSV: a row of names, a row of units, a row a launch."""
    rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    launches = [row for row in rows if row.get("ID")]
    keep = lambda row: {name: value for name, text in row.items() if name and "__" in name and text and (value := number(text)) is not None}
    return [Kernel(row["Kernel Name"], row["Grid Size"].replace(" ", ""), keep(row)) for row in launches]


def profile(command, options, deadline):
    """Runs a command under the profiler until the deadline."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "counters.csv"
        whole = [PROFILER, "--clock-control", "none", "--cache-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
        whole += ["--print-kernel-base", "function", "--log-file", str(log)]
        process = subprocess.Popen(
            [*whole, *options, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        try:
            said, _ = process.communicate(timeout=max(deadline - time.monotonic(), 1))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[0]
        text = log.read_text(errors="replace") if log.exists() else ""
    errors = [line for line in (text + "\n" + said).splitlines() if "==ERROR==" in line or "Error" in line]
    return Profile(parsed(text), (errors or said.strip().splitlines() or [f"ended with {process.returncode}"])[0][:300])


def sections():
    return [word for name in SECTIONS for word in ("--section", name)] + ["--metrics", DURATION]


def recurrences(args, windows, deadline):
    """Rows of the recurrence kernels; false where nothing can be counted."""
    tiny = ["--dry-run"] if args.tiny else ["--worker", "0"]
    cases = ["--kernels", f"k0={args.kernels}", "--only", "times", "--match", CASES + windows, "--once"]
    found = profile([sys.executable, str(HERE / "gpu_kernels.py"), *cases, *tiny], [*sections(), "--kernel-name", f"regex:{RECURRENCE}"], deadline)
    if not found.kernels:
        print(f"{PROFILER} is skipped: {found.reason}", flush=True)
        return False
    print(HEADER)
    for kernel in found.kernels:
        print_row(kernel.name, kernel)
    return True


def print_row(name, kernel):
    print(f"| {' | '.join([name, *kernel.cells()])} |", flush=True)


def bench(args, batch):
    shape = ("single", 1, 2, 4) if args.tiny else ("multi", batch, 128, 128)
    options = dict(zip(("model", "batch", "features", "hidden"), shape)) | {"precision": "fp32" if args.tiny else "bf16", "steps": 3}
    return [args.megabatch, "--json", "bench", "train", f"--device=cuda:{args.device}", *(f"--{name}={value}" for name, value in options.items())]


def training(args, batch, deadline):
    """The kernels of training steps by their share of the time, and counters of the largest."""
    found = profile(bench(args, batch), ["--metrics", DURATION, "--launch-count", str(LAUNCHES_SWEPT)], deadline)
    if not found.kernels:
        print(f"\nB {batch}, steps are skipped: {found.reason}", flush=True)
        return
    launches = defaultdict(list)
    for kernel in found.kernels:
        launches[kernel.name].append(kernel.us)
    whole, by_time = sum(map(sum, launches.values())), sorted(launches, key=lambda name: -sum(launches[name]))
    print(f"\nB {batch}: {len(found.kernels)} launches, {whole:.0f} µs\n\n| kernel | launches | µs | share |\n| --- | ---: | ---: | ---: |")
    for name in by_time[:12]:
        print(f"| {name} | {len(launches[name])} | {sum(launches[name]):.1f} | {sum(launches[name]) / max(whole, 1e-9):.1%} |", flush=True)
    others = [name for name in by_time if not re.search(RECURRENCE, name)][:LARGEST]
    pattern = f"regex:^({'|'.join(map(re.escape, others))})$"
    counted = profile(bench(args, batch), [*sections(), "--kernel-name", pattern, "--launch-count", str(6 * LARGEST)], deadline)
    print(f"\n{HEADER}" if counted.kernels else f"\nB {batch}, counters are skipped: {counted.reason}")
    for name in others:
        if mine := [kernel for kernel in counted.kernels if kernel.name == name]:
            print_row(name, max(mine, key=lambda kernel: kernel.us))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path, help="the folder of the program megabatch")
    parser.add_argument("--kernels", required=True, type=Path, help="the folder of PTX")
    parser.add_argument("--device", default="0")
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--tiny", action="store_true", help="a small model, and no launches through PyTorch")
    args = parser.parse_args()
    begun = time.monotonic()
    args.megabatch = str(args.bin.resolve() / "megabatch")
    if shutil.which(PROFILER) is None:
        print(f"{PROFILER} is skipped: there is no {PROFILER}")
        sys.exit(SKIPPED)
    if not recurrences(args, FEW, begun + 0.3 * args.seconds):
        sys.exit(SKIPPED)
    recurrences(args, MANY, begun + 0.5 * args.seconds)
    for batch, share in ((64, 0.75), (2048, 1.0)):
        training(args, batch, begun + share * args.seconds - 1)


if __name__ == "__main__":
    main()
