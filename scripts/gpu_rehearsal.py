"""Rehearses a call of a GPU campaign: its command line, from the unpacked archive, in an empty environment, under the fake driver, at tiny sizes.

    python3 gpu_rehearsal.py ROOT ARCHIVE truth|speed|whole a|b [words of the call]

ROOT is the repository, whose example `fake_machine`, or $FAKE_MACHINE, compiles the kernels for the CPU; ARCHIVE is what `scripts/gpu-check build` packed. compute-sanitizer and
ncu are stand-ins that run the program and print a fixed answer; the Python that `doctor` finds has no packages. $PYTHON is the interpreter of the call; what it
lacks (numpy, PyTorch, CuPy) is skipped or stood in for by what the suites have for --tiny. Programs and kernels must be of the same tree: build before you
rehearse. Prints the summary of the call; exit code of the call.
"""
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

KERNELS = ("segment/src/cuda", "amp/src/ops", "nn-cuda/src/ops")
# The made-up driver runs kernels on the CPU, which takes longer than a GPU.
SECONDS = 1200
SANITIZER = """#!/bin/sh
# Options of compute-sanitizer have a value each.
while case ${1:-} in --*) true ;; *) false ;; esac; do shift 2; done
echo '========= COMPUTE-SANITIZER'
"$@"
code=$?
echo '========= ERROR SUMMARY: 0 errors'
exit $code
"""
PROFILER = """#!/bin/sh
log=
while case ${1:-} in --*) true ;; *) false ;; esac; do
    case $1 in
        --csv) shift ;;
        --log-file) log=$2 && shift 2 ;;
        *) shift 2 ;;
    esac
done
"$@" || exit
cat >"$log" <<'END'
==PROF== Connected to process 1
"ID","Kernel Name","Grid Size","gpu__time_duration.sum","sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
"","","","ns","%"
"0","forward_bf16_128_8","(8, 1, 1)","520,000","41.5"
"1","matmul_bf16","(64, 1, 1)","90,000","0"
END
"""


def main():
    root, archive, *call = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        (folder / "tools").mkdir()
        for name, text in (("compute-sanitizer", SANITIZER), ("ncu", PROFILER), ("python3", f"#!/bin/sh\nexec {interpreter()} -S \"$@\"\n")):
            (folder / "tools" / name).write_text(text)
            (folder / "tools" / name).chmod(0o755)
        words = [*call, "--tiny"]
        words += [] if "--out" in call else ["--out", str(folder / "results")]
        words += [] if "--seconds" in call else ["--seconds", str(SECONDS)]
        done = subprocess.run([folder / "gpu-check/gpu-check", *words], env=environment(Path(root), folder), cwd=folder)
    sys.exit(done.returncode)


def environment(root, folder):
    """Variables of a process that has tools, the fake driver and nothing else."""
    cargo = ["cargo", "run", "--quiet", "--package", "megabatch-simt", "--example", "fake_machine", "--"]
    machine = [os.environ["FAKE_MACHINE"]] if "FAKE_MACHINE" in os.environ else cargo
    command = [*machine, *(f"crates/{name}" for name in KERNELS)]
    fake = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout
    path = f"{folder / 'tools'}:/usr/bin:/bin"
    return {"PATH": path, "HOME": str(folder), "PYTHON": interpreter(), **dict(pair.split("=", 1) for pair in fake.split())}


def interpreter():
    return os.environ.get("PYTHON", sys.executable)


if __name__ == "__main__":
    main()
