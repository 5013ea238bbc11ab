"""Seconds that the CUDA driver takes to compile each PTX file of a folder: without its cache, filling it, and from it.

    python3 gpu_jit.py --kernels FOLDER [--json FILE]

The driver is called through ctypes, each pass in a process of its own, with a cache folder of its own.
"""
import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PASSES = ("no cache", "cold cache", "warm cache")


class Driver:
    """A context on the first GPU."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name} failed: {code}, {(text.value or b'').decode()}")

    def compile(self, ptx):
        """Seconds to load a module with all its kernels; free memory that it took."""
        before, after = self.free_bytes(), 0
        module, begun = ctypes.c_void_p(), time.perf_counter()
        self.call("cuModuleLoadDataEx", ctypes.byref(module), ctypes.c_char_p(ptx), 0, None, None)
        seconds = time.perf_counter() - begun
        after = self.free_bytes()
        return {"seconds": seconds, "bytes": before - after}

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value


def one_pass(folder):
    """A record for each PTX file of a folder, in this process."""
    begun = time.perf_counter()
    driver = Driver()
    records = {"driver": {"seconds": time.perf_counter() - begun, "bytes": 0}}
    for path in sorted(folder.glob("*.ptx")):
        try:
            records[path.stem] = driver.compile(path.read_bytes() + b"\0")
        except RuntimeError as error:
            records[path.stem] = {"error": str(error)}
    return records


def passes(folder):
    """Records of each pass."""
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"CUDA_CACHE_PATH": cache, "CUDA_CACHE_DISABLE": "0"}
        for name in PASSES:
            own = environment | ({"CUDA_CACHE_DISABLE": "1"} if name == "no cache" else {})
            done = subprocess.run([sys.executable, __file__, "--kernels", str(folder), "--in-this-process"], env=own, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"failed: {name}: {done.stderr.strip()[-400:]}")
            yield name, json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", required=True, type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--in-this-process", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.in_this_process:
        print(json.dumps(one_pass(args.kernels)))
        return
    results = dict(passes(args.kernels))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    errors = {name: record["error"] for records in results.values() for name, record in records.items() if "error" in record}
    for name, error in errors.items():
        print(f"failed: {name}.ptx: {error}")
    seconds = lambda records, name: records[name].get("seconds", float("nan"))
    first = results[PASSES[0]]
    slowest = sorted((name for name in first if name != "driver"), key=lambda name: -seconds(first, name))[:5]
    print(f"| {len(first) - 1} modules | {' | '.join(PASSES)} |\n| --- | {' | '.join('---:' for _ in PASSES)} |")
    for name in ["driver", *slowest]:
        print(f"| {name} | {' | '.join(f'{seconds(results[one], name):.3f}' for one in PASSES)} |")
    totals = [sum(record.get("seconds", 0.0) for name, record in records.items() if name != "driver") for records in results.values()]
    taken = sum(record.get("bytes", 0) for record in first.values()) / 2**20
    print(f"| all modules, s | {' | '.join(f'{total:.2f}' for total in totals)} |\n{taken:.0f} MiB of the card taken by modules")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
