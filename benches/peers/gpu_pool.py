"""PyTorch programs with PyTorch's allocator, with its expandable segments, and with megabatch's pool (`mb.torch.use_pool`), each in a process of its own.

    python3 gpu_pool.py [--only checks,epoch5,lstm,gat,calls] [--seconds 200] [--example FILE] [--rounds 3] [--wheels DIR]

checks    what a program may ask of the pool: streams, shortages, statistics, scopes, snapshots, traces.
epoch5    the program of docs/guide/out-of-memory.md on a card of several sizes.
lstm, gat ms a step in the third epoch, with ragged last batches, and of graphs that grow; reserved over allocated.
calls     ns for an allocation and its free, of sizes that come again.

PyTorch with CUDA and the Python module megabatch are needed, which DIR may have as a wheel. Exit codes: 0 passed, 1 a row failed, 77 nothing ran.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ALLOCATORS = {"native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "pool": {}}
GIB = 1 << 30
SKIPPED = 77
CARDS_GIB = (2.6, 2.8, 3.0, 3.2, 3.4, 3.6, 3.8)


def lstm(torch):
    """Five timeframes, 64 features, 128 units, three epochs: seconds of each, and its steps."""
    from torch import nn

    timeframes = {"M1": 480, "M5": 288, "M15": 192, "H1": 96, "H4": 48}
    net = nn.ModuleDict({name: nn.LSTM(64, 128, batch_first=True) for name in timeframes}).cuda()
    head = nn.Linear(5 * 128, 4).cuda()
    optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], fused=True)
    forward = lambda windows: head(torch.cat([net[name](windows[name])[1][0][-1] for name in timeframes], 1))
    draw = lambda batch: {name: torch.randn(batch, bars, 64, device="cuda") for name, bars in timeframes.items()}
    train, validation = [512] * 12 + [173], [512] * 3 + [91]
    seconds = []
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for batch in train:
            loss = forward(draw(batch)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            for batch in validation:
                forward(draw(batch))
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return seconds, len(train) + len(validation)


def gat(torch):
    """Two layers of PyG's GATConv on batches of 128 graphs that grow, three epochs."""
    from torch import nn
    from torch_geometric.nn import GATConv, global_mean_pool

    generator = torch.Generator().manual_seed(1)
    layers = nn.ModuleList([GATConv(32, 64, heads=4), GATConv(256, 64, heads=4)]).cuda()
    head = nn.Linear(256, 1).cuda()
    optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()], fused=True)
    batches = []
    for step in range(40):
        sizes = torch.randint(10 + 4 * step, 30 + 12 * step, (128,), generator=generator)
        nodes, starts = int(sizes.sum()), sizes.cumsum(0) - sizes
        sources = (torch.rand(nodes * 4, generator=generator) * sizes.repeat_interleave(sizes * 4)).long() + starts.repeat_interleave(sizes * 4)
        edges = torch.stack([sources, torch.arange(nodes).repeat_interleave(4)])
        batches.append((nodes, edges.pin_memory(), torch.repeat_interleave(torch.arange(128), sizes).pin_memory()))
    seconds = []
    for _ in range(3):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for nodes, edges, graphs in batches:
            edges, graphs = edges.cuda(non_blocking=True), graphs.cuda(non_blocking=True)
            x = torch.randn(nodes, 32, device="cuda")
            for layer in layers:
                x = layer(x, edges).relu()
            loss = head(global_mean_pool(x, graphs)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return seconds, len(batches)


def calls(torch):
    """Allocations and frees of sixteen sizes in turn; 64 tensors are live. Seconds less those of tensors without memory."""
    sizes = [512 << (k % 14) for k in range(16)]
    live = [None] * 64

    def seconds(lengths, count):
        begun = time.perf_counter()
        for k in range(count):
            live[k % 64] = torch.empty(lengths[k % 16], dtype=torch.uint8, device="cuda")
        return time.perf_counter() - begun

    count = 200_000
    seconds(sizes, count)
    return [seconds(sizes, count) - seconds([0] * 16, count)], count


def measured(name, allocator):
    """In a process of its own: a case, as JSON."""
    import torch

    if allocator == "pool":
        import megabatch as mb

        mb.torch.use_pool()
    torch.manual_seed(0)
    seconds, count = {"lstm": lstm, "gat": gat, "calls": calls}[name](torch)
    stats = torch.cuda.memory_stats()
    peak = {key: stats[f"{key}_bytes.all.peak"] for key in ("allocated", "reserved")}
    print(json.dumps({"seconds": seconds[-1], "first": seconds[0], "count": count, **peak, "driver_calls": stats.get("driver_calls")}))


def checks():
    """In a process of its own: what programs ask of the pool."""
    import pickle
    import threading
    import warnings

    import megabatch as mb
    import torch

    mb.torch.use_pool(leave="2GiB")
    x = torch.randn(2000, 2000, device="cuda")
    difference = (x @ x - (x.cpu().double() @ x.cpu().double()).cuda().float()).abs().max().item()
    yield "a product", difference < 0.05, f"{difference:.4f}"
    side = torch.cuda.Stream()
    right = True
    for _ in range(300):
        block = torch.full((1 << 20,), 1.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            total = (block @ block) + torch.ones((), device="cuda")
        block.record_stream(side)
        del block
        other = torch.full((1 << 20,), 2.0, device="cuda")
        torch.cuda.current_stream().wait_stream(side)
        right &= total.item() == (1 << 20) + 1 and bool((other == 2).all().item())
    yield "another stream", right, "300 blocks recorded on it"
    results = []

    def work(seed):
        generator = torch.Generator(device="cuda").manual_seed(seed)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for k in range(200):
                values = torch.full((1 + 7919 * (seed + k) % 500_000,), float(seed), device="cuda")
                kept = values.clone()
                del values
                results.append(bool((kept == seed).all().item()))
        del generator

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    yield "eight threads with streams of their own", len(results) == 1600 and all(results), f"{len(results)} tensors"
    free, _ = torch.cuda.mem_get_info()
    kept = []
    try:
        while True:
            kept.append(torch.empty(4 * GIB, dtype=torch.uint8, device="cuda"))
    except RuntimeError as error:
        text = str(error)
    yield "a shortage", text.startswith("CUDA out of memory. ") and len(kept) >= (free - 2 * GIB) // GIB // 4 - 1, f"after {4 * len(kept)} GiB: {text[:300]}"
    left = torch.cuda.mem_get_info()[0]
    yield "what is left to others", left >= 1 * GIB, f"{left / GIB:.2f} GiB"
    kept = kept[1::2]
    yield "a request for all free pieces", torch.empty(8 * GIB, dtype=torch.uint8, device="cuda").numel() == 8 * GIB, f"stitches {mb.torch.memory_stats()['stitches']}"
    del kept
    torch.cuda.empty_cache()
    after = torch.cuda.memory_reserved()
    yield "empty_cache", after < GIB, f"{after / GIB:.3f} GiB reserved"
    torch.cuda.reset_peak_memory_stats()
    with mb.torch.scope("encoder"):
        encoder = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
    owners = mb.torch.memory_stats()["owners"]
    yield "scopes", owners["encoder"]["allocated_bytes"] == encoder.numel(), f"max_memory_allocated {torch.cuda.max_memory_allocated() >> 20} MiB"
    growing = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(6):
            with mb.torch.scope("history"):
                growing.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
            changes = mb.torch.epoch()
    yield "a leak", len(said) >= 1 and "history" in str(said[0].message) and changes == {"history": 100 << 20}, str(said[0].message) if said else "no warning"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        with mb.torch.trace(path):
            torch.nn.LSTM(8, 8).cuda()(torch.zeros(3, 2, 8, device="cuda"))
        lines = len(path.read_text().splitlines())
        snapshot = mb.torch.memory_snapshot(Path(folder) / "snapshot.pickle")
        again = pickle.loads((Path(folder) / "snapshot.pickle").read_bytes())
        replayed = mb.memory.replay(path, capacity="1GiB")
    yield "trace and snapshot", lines > 5 and snapshot["segments"] and len(again["segments"]) == len(snapshot["segments"]) and bool(replayed), f"{lines} lines, {len(snapshot['segments'])} segments"
    yield "summary", "encoder" in torch.cuda.memory_summary(), " / ".join(torch.cuda.memory_summary().split("\n"))[:300]
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            pass
        yield "a capture", False, "not refused"
    except RuntimeError as error:
        yield "a capture", "CUDA graphs" in str(error), str(error)[:120]
    yield "after the refusal", torch.ones(3, device="cuda").sum().item() == 3, ""
    try:
        mb.torch.use_pool()
        yield "a second pool", False, "not refused"
    except mb.ConfigError as error:
        yield "a second pool", True, str(error)


def child(words, environment=None, seconds=60):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=seconds, env={**os.environ, **(environment or {})})
    return done.returncode, done.stdout, " ".join(done.stderr.split())


def check_rows(_):
    code, out, err = child([__file__, "--checks"], seconds=100)
    for line in out.splitlines():
        if line.startswith("["):
            name, is_right, text = json.loads(line)
            yield name, is_right, text
    yield "ended", code == 0, f"code {code} {err[-300:]}"


def epoch5_rows(args):
    for gib in CARDS_GIB:
        for allocator, environment in ALLOCATORS.items():
            pool = ["--pool"] if allocator == "pool" else []
            code, out, err = child([str(args.example), "--gib", str(gib), *pool], environment)
            last = (out.splitlines() or ["nothing"])[-1]
            yield f"card of {gib} GiB, {allocator}", True, f"code {code}; {last}; {err[err.find('CUDA out of memory'):][:420] if code else ''}"


def speed_rows(name):
    def rows(args):
        best = {}
        for _ in range(args.rounds):
            for allocator, environment in ALLOCATORS.items():
                code, out, err = child([__file__, "--case", name, "--allocator", allocator], environment)
                if code:
                    yield f"{allocator}", False, err[-300:]
                    continue
                found = json.loads(out.splitlines()[-1])
                if allocator not in best or found["seconds"] < best[allocator]["seconds"]:
                    best[allocator] = found
        for allocator, found in best.items():
            each = found["seconds"] / found["count"]
            per = f"{each * 1e9:.0f} ns" if name == "calls" else f"{each * 1e3:.3f} ms a step"
            ratio = found["seconds"] / best["native"]["seconds"] if "native" in best else float("nan")
            over = found["reserved"] / max(found["allocated"], 1)
            first = "" if name == "calls" else f", the first epoch {found['first']:.3f} s"
            text = f"{per}, {ratio:.3f} of native's{first}; allocated {found['allocated'] / GIB:.3f} GiB, reserved {found['reserved'] / GIB:.3f}, {over:.2f} ×"
            yield allocator, True, f"{text}; driver calls {found['driver_calls']}" if found["driver_calls"] else text

    return rows


PARTS = {"checks": check_rows, "epoch5": epoch5_rows, "calls": speed_rows("calls"), "lstm": speed_rows("lstm"), "gat": speed_rows("gat")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--example", type=Path, default=Path(__file__).resolve().parents[2] / "bindings/python/examples/out_of_memory_at_epoch_5.py")
    parser.add_argument("--wheels", type=Path, help="a folder with a wheel of the module")
    parser.add_argument("--tiny", action="store_true", help="nothing runs: a made-up driver has no PyTorch")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--allocator", help=argparse.SUPPRESS)
    parser.add_argument("--checks", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        return measured(args.case, args.allocator)
    if args.checks:
        for row in checks():
            print(json.dumps(row), flush=True)
        return None
    with tempfile.TemporaryDirectory() as folder:
        if reason := missing(args, folder):
            print(f"skipped: {reason}")
            sys.exit(SKIPPED)
        return run(args)


def missing(args, folder):
    """What is not there, after the wheel was unpacked into `folder`, if there is one."""
    wheels = sorted(args.wheels.glob("megabatch-*.whl")) if args.wheels else []
    if args.tiny or (args.wheels and not wheels):
        return "a made-up driver" if args.tiny else f"no wheel in {args.wheels}"
    if wheels:
        zipfile.ZipFile(wheels[-1]).extractall(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    code, out, err = child(["-c", "import megabatch, torch; print(torch.cuda.is_available())"])
    return err[-300:] if code else "" if out.strip() == "True" else "PyTorch finds no GPU"


def run(args):
    deadline, is_wrong = time.monotonic() + args.seconds, False
    print("| part | case | verdict | |\n| --- | --- | --- | --- |", flush=True)
    for name in args.only.split(","):
        if time.monotonic() > deadline:
            print(f"| {name} | | skipped | no time |", flush=True)
            continue
        try:
            for case, is_right, text in PARTS[name](args):
                is_wrong |= not is_right
                print(f"| {name} | {case} | {'ok' if is_right else '**failed**'} | {str(text).replace('|', '/')} |", flush=True)
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            is_wrong = True
            print(f"| {name} | | **failed** | {type(error).__name__}: {error} |", flush=True)
    sys.exit(int(is_wrong))


if __name__ == "__main__":
    main()
