"""Minute bars of made-up quotes by `megabatch ticks` and by polars, in turn: ticks a second, and peak resident memory.

Polars reads the whole file at once, and with --streaming by its streaming engine.

    cargo build --release -p megabatch
    python3 benches/ticks.py --megabatch target/release/megabatch --ticks 12000000
"""
import argparse
import datetime
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

START = datetime.datetime(2018, 1, 1, 22)


def write_quotes(path, ticks):
    """Quotes of a currency pair, one in 1 to 800 ms."""
    draw = random.Random(7)
    now, price = START, 120_000
    with path.open("w") as file:
        file.write("time,bid,ask\n")
        for _ in range(ticks):
            now += datetime.timedelta(milliseconds=draw.randint(1, 800))
            price += draw.choice((-1, 0, 0, 1))
            ask = price + draw.randint(1, 9)
            file.write(f"{now.isoformat(timespec='milliseconds')},{price / 1e5:.5f},{ask / 1e5:.5f}\n")


def polars_bars(ticks, out, streaming):
    """The same bars by polars."""
    import polars

    price = (polars.col("bid") + polars.col("ask")) / 2
    lazy = (
        polars.scan_csv(ticks, try_parse_dates=True)
        .with_columns(price=price, spread=polars.col("ask") - polars.col("bid"))
        .group_by_dynamic("time", every="1m")
        .agg(
            open=polars.col("price").first(),
            high=polars.col("price").max(),
            low=polars.col("price").min(),
            close=polars.col("price").last(),
            volume=polars.len(),
            spread=polars.col("spread").last(),
        )
    )
    lazy.collect(engine="streaming" if streaming else "in-memory").write_csv(out)


def measured(words):
    """Wall-clock seconds, CPU seconds and peak resident megabytes of a command."""
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{words[0]} failed")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def bars_of(path):
    """Times and rounded numbers of a file of bars."""
    rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return [(row[0][:16], [round(float(number), 7) for number in row[1:7]]) for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", type=pathlib.Path)
    parser.add_argument("--ticks", type=int, default=12_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--polars", nargs=2, metavar=("TICKS", "OUT"), help="the part of polars alone")
    parser.add_argument("--streaming", action="store_true", help="with --polars")
    options = parser.parse_args()
    if options.polars:
        polars_bars(*options.polars, options.streaming)
        return
    with tempfile.TemporaryDirectory() as folder:
        ticks, ours, theirs = (pathlib.Path(folder) / name for name in ("ticks.csv", "ours.csv", "theirs.csv"))
        write_quotes(ticks, options.ticks)
        print(f"{options.ticks} ticks, {ticks.stat().st_size / 1e6:.0f} MB")
        polars = [sys.executable, __file__, "--polars", str(ticks), str(theirs)]
        programs = {
            "megabatch ticks": [str(options.megabatch), "ticks", str(ticks), "--out", str(ours)],
            "polars": polars,
            "polars, streaming": [*polars, "--streaming"],
        }
        best = {}
        for _ in range(options.rounds):
            for name, words in programs.items():
                found = measured(words)
                best[name] = min(best.get(name, found), found)
        print("| program | time | CPU time | ticks a second | peak memory |\n| --- | ---: | ---: | ---: | ---: |")
        for name, (seconds, cpu_seconds, peak_mb) in best.items():
            rate = options.ticks / seconds / 1e6
            print(f"| {name} | {seconds:.1f} s | {cpu_seconds:.1f} s | {rate:.2f} million | {peak_mb:.0f} MB |")
        same = [one for one in zip(bars_of(ours), bars_of(theirs)) if one[0] != one[1]]
        print(f"{len(bars_of(ours))} and {len(bars_of(theirs))} bars, {len(same)} different")


if __name__ == "__main__":
    main()
