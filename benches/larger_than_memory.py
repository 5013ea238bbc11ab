"""Trains on a file that is larger than the memory that the run may use, and says how much of the time the model waited for data.

The run is put into a control group of its own, version 2 or 1, whose limit also counts the page cache, and the file is dropped from the
page cache first. With --read-mb-s the control group also limits the rate of reads from the disk that has the file. Making a control group
takes root.

    cargo build --release
    target/release/megabatch synth windows.h5 --layout windows --samples 20000 --steps 360 --features 167 --compression none
    sudo python3 benches/larger_than_memory.py --megabatch target/release/megabatch --data windows.h5 --limit-gb 1 --out run --set data.purge=0s
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path("/sys/fs/cgroup")


class ControlGroup:
    """A control group with a limit on memory and, if asked for, one on reads from a disk; gone after the block."""

    def __init__(self, limit_bytes):
        name = f"megabatch-{os.getpid()}"
        self.is_unified = (ROOT / "cgroup.controllers").exists() and "memory" in (ROOT / "cgroup.controllers").read_text()
        self.limit_bytes = limit_bytes
        self.memory = ROOT / name if self.is_unified else ROOT / "memory" / name
        self.reads = ROOT / name if self.is_unified else ROOT / "blkio" / name
        self.folders = list(dict.fromkeys([self.memory, self.reads]))

    def __enter__(self):
        for folder in self.folders:
            folder.mkdir()
        (self.memory / ("memory.max" if self.is_unified else "memory.limit_in_bytes")).write_text(str(self.limit_bytes))
        return self

    def limit_reads(self, path, bytes_per_s):
        """Limits reads from the disk that has the file."""
        device = os.stat(path).st_dev
        disk = f"{os.major(device)}:{os.minor(device)}"
        if self.is_unified:
            (self.reads / "io.max").write_text(f"{disk} rbps={bytes_per_s}")
        else:
            (self.reads / "blkio.throttle.read_bps_device").write_text(f"{disk} {bytes_per_s}")

    def join(self):
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def peak_bytes(self):
        peak = self.memory / ("memory.peak" if self.is_unified else "memory.max_usage_in_bytes")
        return int(peak.read_text()) if peak.exists() else None

    def __exit__(self, *_):
        for folder in self.folders:
            folder.rmdir()


def forget(path):
    """Drops the file from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, help="the program, a release build")
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of the run")
    parser.add_argument("--limit-gb", type=float, default=1.0, help="in units of 10^9 bytes")
    parser.add_argument("--read-mb-s", type=float, help="reads from the disk, in units of 10^6 bytes a second")
    args, more = parser.parse_known_args()
    command = [args.megabatch, "--json", "train", "--data", args.data, "--out", args.out, *more]
    forget(args.data)
    with ControlGroup(int(args.limit_gb * 1e9)) as group:
        if args.read_mb_s is not None:
            group.limit_reads(args.data, int(args.read_mb_s * 1e6))
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, preexec_fn=group.join)
        peak_bytes = group.peak_bytes()
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}:\n{done.stderr}")
    lines = [json.loads(line) for line in (args.out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line["event"] == "step"]
    plan = json.loads((args.out / "plan.json").read_text())
    parts = ("data_wait_s", "forward_s", "backward_s", "optimizer_s")
    seconds = {part: sum(step[part] for step in steps) for part in parts}
    print(json.dumps({
        "file_bytes": os.path.getsize(args.data),
        "limit_bytes": group.limit_bytes,
        "peak_bytes": peak_bytes,
        "residence": plan["data"]["residence"],
        "chunks": plan["data"]["chunks"],
        "chunk_bytes": plan["data"]["chunk_bytes"],
        "steps": len(steps),
        "seconds": {part: round(value, 3) for part, value in seconds.items()},
        "waited_share": round(seconds["data_wait_s"] / sum(seconds.values()), 4),
        "samples_per_s": round(sum(step["samples"] for step in steps) / sum(seconds.values()), 1),
    }))


if __name__ == "__main__":
    main()
