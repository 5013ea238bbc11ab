"""How the comparisons take a time."""
import json
import subprocess
import sys
import time


def fastest(repeats, work):
    """Fastest seconds of so many runs, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def answer_of(program, numbers):
    """The JSON that a program of ours answers, called with these numbers."""
    command = [program, *map(str, numbers)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def least(rounds):
    """The least of each time over some rounds."""
    return {name: min(times[name] for times in rounds) for name in rounds[0]}
