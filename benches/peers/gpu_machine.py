"""The machine of a GPU campaign on one screen: card, driver, libraries, and what the programs of the archive need of it.

    python3 gpu_machine.py --bin FOLDER
"""
import argparse
import platform
import shutil
import subprocess
import sys
from pathlib import Path

FIELDS = "name,driver_version,memory.total,memory.free,clocks.max.sm,clocks.max.mem,power.limit,compute_mode,mig.mode.current"
TOOLS = ("nvcc", "ptxas", "ncu", "compute-sanitizer", "mpirun", "nvidia-smi")


def said(*command):
    """What a command prints, on one line, or why it does not."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=15)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return " ".join((done.stdout if done.returncode == 0 else done.stdout + done.stderr).split())


def missing_libraries(folder):
    """Names of libraries that the loader does not find, by program."""
    listed = {program.name: said("ldd", str(program)) for program in sorted(folder.iterdir())}
    return {name: text for name, text in listed.items() if "not found" in text or "Error" in text}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=Path)
    args = parser.parse_args()
    print("card:", said("nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader"))
    print("system:", platform.platform(), "glibc", platform.libc_ver()[1], "python", platform.python_version())
    print("tools:", ", ".join(f"{tool} {shutil.which(tool) or 'absent'}" for tool in TOOLS))
    print("cuBLASLt:", *sorted({str(path) for site in sys.path for path in Path(site).glob("nvidia/*/lib/libcublasLt.so.*")}) or ["not beside PyTorch"])
    print("cuBLASLt of the system:", said("sh", "-c", "ldconfig -p | grep -i cublaslt || echo none"))
    missing = missing_libraries(args.bin)
    for name, text in missing.items():
        print(f"failed: {name} lacks libraries: {text}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
