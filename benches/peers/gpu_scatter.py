"""`megabatch.scatter` on a GPU: its numbers beside those of the CPU, and its times beside PyTorch's own operations.

    python3 gpu_scatter.py [--only checks,times] [--wheels DIR] [--rounds 20]

checks  every reduction and type with its gradient beside the CPU's; the same bits from run to run, on a stream of its own, under torch.compile.
times   forward and backward, 10^6 x 64 rows into 10^5 segments, f32: ms by events, the fastest of some rounds whose sides take turns.

PyTorch with CUDA and the Python module megabatch are needed, which DIR may have as a wheel. Exit codes: 0 passed, 1 a row failed, 77 nothing ran.
"""
from torch_suite import main

ROWS, COLUMNS, SEGMENTS = 1_000_000, 64, 100_000
# ms by the count of bytes over 3 TB/s, 60 us for a sort and 4 us for a launch that finds little to do.
PREDICTED_MS = {"sum": (0.33, 0.21), "mean": (0.34, 0.22), "max": (0.42, 0.30), "softmax": (0.75, 0.63)}


def reductions(ms, torch):
    """Functions of rows, an index and a number of segments, by name."""
    names = ("sum", "mean", "mul", "max", "min")

    def reduced(name):
        def function(src, index, segments):
            result = getattr(ms, f"scatter_{name}")(src, index, 0, None, segments)
            return result[0] if isinstance(result, tuple) else result

        return function

    softmax = {
        "softmax": lambda src, index, segments: ms.scatter_softmax(src, index, 0, segments),
        "log_softmax": lambda src, index, segments: ms.scatter_log_softmax(src, index, 0, dim_size=segments),
        "logsumexp": lambda src, index, segments: ms.scatter_logsumexp(src, index, 0, None, segments),
        "std": lambda src, index, segments: ms.scatter_std(src, index, 0, None, segments),
    }
    return {name: reduced(name) for name in names}, softmax


def results(function, src, index, segments, device):
    """A result and the gradient of the rows, on the CPU."""
    leaf = src.to(device).requires_grad_(src.is_floating_point())
    out = function(leaf, index.to(device), segments)
    if not src.is_floating_point():
        return [out.cpu()]
    out.backward(out.detach().cos())
    return [out.detach().cpu(), leaf.grad.cpu()]


def check_rows(torch, mb, args):
    ms = mb.scatter
    torch.manual_seed(5)
    exact, floats = reductions(ms, torch)
    sizes = {"short": (20_000, 7, 5_000), "long": (300_000, 3, 11), "one": (700_000, 1, 1), "wide": (3_000, 130, 40)}
    for size, (rows, columns, segments) in sizes.items():
        index = torch.randint(segments, (rows,))
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
            src = (torch.randn(rows, columns) * 4).to(dtype)
            for name, function in {**exact, **(floats if dtype.is_floating_point else {})}.items():
                same_bits = name in exact or (name == "softmax" and dtype != torch.float64)
                # The gradient of a product is PyTorch's own arithmetic.
                tolerance = 0 if same_bits and name != "mul" else 3e-2 if dtype.itemsize == 2 else 1e-4
                found, expected = (results(function, src, index, segments, device) for device in ("cuda", "cpu"))
                again = results(function, src, index, segments, "cuda")
                is_right = all(close(torch, one, other, tolerance) for one, other in zip(found, expected))
                is_same = all(close(torch, one, other, 0) for one, other in zip(found, again))
                if not (is_right and is_same):
                    yield f"{name} {size} {dtype}", False, "other numbers than the CPU's" if is_same else "another result the second time"
        yield f"{size}: {rows} x {columns} into {segments}", True, "every function and type"
    index, src = torch.randint(9, (5000,), device="cuda"), torch.randn(5000, 8, device="cuda")
    expected = ms.scatter_sum(src, index, 0, None, 9)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = ms.scatter_sum(src * 1, index, 0, None, 9)
    torch.cuda.current_stream().wait_stream(stream)
    yield "a stream of its own", torch.equal(found, expected), "the same bits"
    ms.scatter_sum(src, torch.full((5000,), 9, device="cuda"), 0, None, 9)
    torch.cuda.synchronize()
    try:
        ms.scatter_sum(src, index, 0, None, 9)
        yield "an index without a segment", False, "it was not told"
    except Exception as error:
        yield "an index without a segment", "is 9, which is none" in str(error), error
    compiled = torch.compile(lambda x: ms.scatter_sum(x.sin(), index, 0, None, 9).cos())
    yield "torch.compile", torch.allclose(compiled(src), ms.scatter_sum(src.sin(), index, 0, None, 9).cos(), atol=1e-4), ""


def close(torch, one, other, tolerance):
    if tolerance == 0 or not one.is_floating_point():
        return torch.equal(one.nan_to_num(77), other.nan_to_num(77))
    return torch.allclose(one.double(), other.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


def time_rows(torch, mb, args):
    ms = mb.scatter
    torch.manual_seed(5)
    src, index = torch.randn(ROWS, COLUMNS, device="cuda"), torch.randint(SEGMENTS, (ROWS,), device="cuda")
    full, shape = index.view(-1, 1).expand(-1, COLUMNS), (SEGMENTS, COLUMNS)
    plan = ms.Plan(index, SEGMENTS)
    counts = torch.bincount(index, minlength=SEGMENTS).clamp(min=1).view(-1, 1)
    reduced = lambda x, how: x.new_zeros(shape).scatter_reduce_(0, full, x, how, include_self=False)
    added = lambda x: x.new_zeros(shape).index_add_(0, index, x)

    def softmax(x):
        exponentials = (x - reduced(x.detach(), "amax").index_select(0, index)).exp()
        return exponentials / (added(exponentials) + 1e-16).index_select(0, index)

    peers = {"sum": added, "mean": lambda x: added(x) / counts, "max": lambda x: reduced(x, "amax"), "softmax": softmax}
    ours = {
        "sum": lambda x: ms.scatter_sum(x, index, 0, None, SEGMENTS),
        "mean": lambda x: ms.scatter_mean(x, index, 0, None, SEGMENTS),
        "max": lambda x: ms.scatter_max(x, index, 0, None, SEGMENTS)[0],
        "softmax": lambda x: ms.scatter_softmax(x, index, 0, SEGMENTS),
    }
    planned = {"sum": lambda x: plan.sum(x, 0), "mean": lambda x: plan.mean(x, 0), "max": lambda x: plan.max(x, 0)[0], "softmax": lambda x: plan.softmax(x, 0)}
    for name, peer in peers.items():
        sides = [trained(torch, function, src) for function in (ours[name], planned[name], peer)]
        times = [[side() for side in sides] for _ in range(args.rounds + 3)][3:]
        new, kept, theirs = (min(column) for column in zip(*times))
        predicted = " / ".join(f"{one:.2f}" for one in PREDICTED_MS[name])
        yield name, True, f"{new:.3f} ms, with a Plan {kept:.3f} (predicted {predicted}); PyTorch {theirs:.3f}: {theirs / new:.1f} and {theirs / kept:.1f} times"


def trained(torch, function, src):
    """ms of a forward and backward pass, by events."""
    leaf = src.detach().requires_grad_()
    gradient = torch.ones_like(function(leaf))

    def side():
        leaf.grad = None
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function(leaf).backward(gradient)
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    return side


if __name__ == "__main__":
    main(__doc__, {"checks": check_rows, "times": time_rows}, lambda parser: parser.add_argument("--rounds", type=int, default=20))
