"""How the comparisons take a time."""
import time


def fastest(repeats, work):
    """Fastest seconds of so many runs, after one that does not count."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times[1:])
