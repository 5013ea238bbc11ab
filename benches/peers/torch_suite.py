"""What suites of a GPU share that need PyTorch with CUDA and the Python module, which a folder may have as a wheel: for gpu_scatter.py and gpu_loaders.py."""
import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu_pool import SKIPPED, missing


def main(description, parts, add_options=lambda parser: None):
    """Runs `parts`, functions by name that take PyTorch, the module and the options and give rows (case, is right, text), in a process that finds the module."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(parts))
    parser.add_argument("--wheels", type=Path, help="a folder with a wheel of the module")
    parser.add_argument("--tiny", action="store_true", help="nothing runs: a made-up driver has no PyTorch")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    add_options(parser)
    args = parser.parse_args()
    if args.child:
        return run(args, parts)
    with tempfile.TemporaryDirectory() as folder:
        if reason := missing(args, folder):
            print(f"skipped: {reason}")
            sys.exit(SKIPPED)
        sys.exit(subprocess.run([sys.executable, *sys.argv, "--child"], env=os.environ).returncode)


def run(args, parts):
    import megabatch as mb
    import torch

    is_wrong = False
    print("| part | case | verdict | |\n| --- | --- | --- | --- |", flush=True)
    for part in args.only.split(","):
        for case, is_right, text in parts[part](torch, mb, args):
            is_wrong |= not is_right
            print(f"| {part} | {case} | {'ok' if is_right else '**failed**'} | {str(text)[:200].replace('|', '/')} |", flush=True)
    sys.exit(int(is_wrong))
