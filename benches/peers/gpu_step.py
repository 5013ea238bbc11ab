"""The PyTorch side of gpu_speed.py and gpu_training_speed.py: a case a line in, an answer a line out, both JSON.

    echo '{"hidden": 128, "layers": 1, "features": 16, "batch": 64, "steps": 256, "precision": "bf16", "budget_s": 0.1}' |
    python gpu_step.py [--device 0 | --device cpu]

Such a case is nn.LSTM: the same numbers as `gpu_layers` of megabatch answers, in microseconds a step of the windows. A case with `model` is the model of
that name in lstm_shapes.py, a training step of which is forward, loss, backward, clipping and Adam under autocast, fp16 with its loss scale. Its `form`:

    eager      as most programs are
    compiled   torch.compile, which leaves nn.LSTM to cuDNN and compiles what is around it
    captured   the whole step as one CUDA graph, each timeframe on a stream of its own: not for fp16, whose loss scale the host decides on
    once       as captured, and each distinct window of consecutive samples is encoded once

A case with `graph_nodes` is two layers of PyG's GATConv and a linear head over `batch` graphs, with `graph_neighbours` edges to each node and its self-loops
in the list already, so that no layer adds them and the step can be captured; samples are graphs.

A case with `ceiling` is a rate of the GPU alone: `copy`, GB/s of reads and writes together, or `product`, TFLOP/s of square bf16 matrices.

fp32 has exact products everywhere; tf32 allows TF32 to cuBLAS and cuDNN, which is cuDNN's default in PyTorch. Exit code 6: no GPU that PyTorch can use.
"""
import argparse
import json
import sys
import time

import torch
from torch import nn

from lstm_shapes import SHAPES, TARGETS
from lstm_torch import MultiTimeframe

NO_DEVICE = 6
HEADS = 4
TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Clock:
    """Times work on a device: a GPU by its events, the CPU by its own clock."""

    def __init__(self, device):
        self.device, self.is_gpu = device, device.type == "cuda"

    def seconds(self, runs, work):
        """From the moment before so many runs to that after them, submitted one behind the other."""
        if not self.is_gpu:
            begun = time.perf_counter()
            for _ in range(runs):
                work()
            return time.perf_counter() - begun
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(runs):
            work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def seconds_each(self, budget_s, work):
        """Of one run: as many as fill the time, after one that does not count and one that tells how many that are."""
        self.seconds(1, work)
        once_s = self.seconds(1, work)
        runs = int(min(max(budget_s / max(once_s, 1e-9), 1), 1e4))
        return self.seconds(runs, work) / runs

    def take_peak_bytes(self):
        """The most that was allocated since this was last called; what PyTorch keeps without need goes back to the GPU."""
        if not self.is_gpu:
            return None
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return peak


def algorithm(case, properties):
    """Which of cuDNN's algorithms PyTorch chooses: by its own rules, those of aten/src/ATen/native/cudnn/RNN.cpp since 2.0, as it does not tell."""
    if properties is None or case["precision"] == "fp32":
        return None
    if case["hidden"] <= 128:
        return "persistent for small H"
    shape_suits = case["layers"] == 1 and case["hidden"] % 128 == 0 and case["hidden"] <= 1024 and case["features"] % 128 == 0
    batch_suits = case["batch"] % 8 == 0 and case["batch"] <= 128
    gpu_suits = properties.major >= 8 and properties.minor != 6 and properties.multi_processor_count >= 98
    is_static = case["precision"] == "fp16" and shape_suits and batch_suits and gpu_suits
    forward = "persistent" if is_static else "persistent for small H" if case["hidden"] <= 192 else "standard"
    backward = "persistent" if is_static else "standard"
    return forward if forward == backward else f"{forward}, backward {backward}"


def layers(case, clock):
    """nn.LSTM over windows that share nothing, from the gradients of the last hidden states to those of all weights."""
    hidden, batch, steps, dtype = case["hidden"], case["batch"], case["steps"], TYPES[case["precision"]]
    torch.manual_seed(0)
    lstm = nn.LSTM(case["features"], hidden, case["layers"]).to(clock.device, dtype)
    x = torch.randn(steps, batch, case["features"], device=clock.device, dtype=dtype)
    d_last = torch.randn(batch, hidden, device=clock.device, dtype=dtype)

    def forward():
        return lstm(x)[1][0][-1]

    def both():
        lstm.zero_grad(set_to_none=True)
        forward().backward(d_last)

    us_a_step = lambda work: clock.seconds_each(case["budget_s"], work) / steps * 1e6
    return {"forward_us": us_a_step(forward), "both_us": us_a_step(both)}


class OnStreams(nn.Module):
    """A MultiTimeframe whose timeframes are encoded on streams of their own."""

    def __init__(self, net):
        super().__init__()
        self.net, self.streams = net, [torch.cuda.Stream() for _ in net.lstms]

    def forward(self, windows, of_sample):
        here, last = torch.cuda.current_stream(), []
        for stream, lstm, x in zip(self.streams, self.net.lstms, windows):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                last.append(lstm(x)[1][0][-1])
        for stream in self.streams:
            here.wait_stream(stream)
        if of_sample is not None:
            last = [states[index] for states, index in zip(last, of_sample)]
        return self.net.head(torch.cat(last, dim=1))


def captured(step):
    """`step` as a CUDA graph, after steps that choose algorithms and fill the optimizer's state."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def model(case, clock):
    """A training step of one of the models that the CPU comparison has."""
    timeframes, features = SHAPES[case["model"]]
    device, dtype, form = clock.device, TYPES[case["precision"]], case.get("form", "eager")
    is_captured = form in ("captured", "once") and clock.is_gpu
    torch.manual_seed(0)
    net = MultiTimeframe(len(timeframes), features, case["hidden"], case["layers"]).to(device)
    encode = torch.compile(net) if form == "compiled" else OnStreams(net) if is_captured else net
    of_sample = [torch.arange(case["batch"], device=device) // minutes for _, minutes in timeframes] if form == "once" else None
    counts = [int(index[-1]) + 1 for index in of_sample] if of_sample else [case["batch"]] * len(timeframes)
    windows = [torch.randn(count, bars, features, device=device) for count, (bars, _) in zip(counts, timeframes)]
    targets = torch.randn(case["batch"], TARGETS, device=device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=clock.is_gpu, capturable=is_captured)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16 and clock.is_gpu)

    def step():
        optimizer.zero_grad(set_to_none=True)
        # Weights change every step, so that a cache of rounded ones serves nothing but the capture's memory.
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32, cache_enabled=not is_captured):
            predictions = encode(windows, of_sample)
        scaler.scale(nn.functional.mse_loss(predictions.float(), targets)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    run = captured(step) if is_captured else step
    return {"samples_per_s": case["batch"] / clock.seconds_each(case["budget_s"], run)}


class GraphNet(nn.Module):
    """GATConv, ReLU, GATConv, a linear head, as `megabatch bench train --graph-nodes` has them."""

    def __init__(self, features, hidden):
        from torch_geometric.nn import GATConv

        super().__init__()
        self.first = GATConv(features, hidden, heads=HEADS, add_self_loops=False)
        self.second = GATConv(HEADS * hidden, hidden, heads=HEADS, add_self_loops=False)
        self.head = nn.Linear(HEADS * hidden, 1)

    def forward(self, x, edge_index):
        return self.head(self.second(torch.relu(self.first(x, edge_index)), edge_index))


def ring_edges(case, device):
    """`edge_index` of all graphs of a batch: each node receives from those in front of it in its graph, and from itself."""
    nodes, graphs = case["graph_nodes"], case["batch"]
    node = torch.arange(nodes, device=device)
    steps = torch.arange(min(case["graph_neighbours"], nodes - 1) + 1, device=device)
    source = (node[:, None] + steps) % nodes
    first = (torch.arange(graphs, device=device) * nodes)[:, None, None]
    target = node[:, None].expand_as(source)
    return torch.stack([(first + source).reshape(-1), (first + target).reshape(-1)])


def graph(case, clock):
    """A training step over graphs."""
    device, form = clock.device, case.get("form", "eager")
    is_captured = form == "captured" and clock.is_gpu
    torch.manual_seed(0)
    net = GraphNet(case["features"], case["hidden"]).to(device)
    edges = ring_edges(case, device)
    x = torch.randn(case["batch"] * case["graph_nodes"], case["features"], device=device)
    targets = torch.randn(len(x), 1, device=device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=clock.is_gpu, capturable=is_captured)

    def step():
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(net(x, edges), targets).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    run = captured(step) if is_captured else step
    return {"samples_per_s": case["batch"] / clock.seconds_each(case["budget_s"], run)}


def ceiling(case, clock):
    """The best that a copy or a product reaches, by the edge of its square matrices."""
    edge = case["edge"]
    if case["ceiling"] == "copy":
        source = torch.zeros(edge, edge, device=clock.device)
        target = torch.empty_like(source)
        return {"gb_per_s": 2 * 4 * edge**2 / clock.seconds_each(case["budget_s"], lambda: target.copy_(source)) / 1e9}
    left, right = (torch.randn(edge, edge, device=clock.device, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    return {"tflop_per_s": 2 * edge**3 / clock.seconds_each(case["budget_s"], lambda: torch.mm(left, right, out=out)) / 1e12}


def answer(case, clock):
    """What was measured, or what kept it from being measured: the next case may be smaller."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.get("precision") == "tf32"
    try:
        kinds = {"ceiling": ceiling, "graph_nodes": graph, "model": model}
        measure = next((kind for key, kind in kinds.items() if key in case), layers)
        measured = measure(case, clock)
    except Exception as error:  # PyTorch's own, torch.compile's and the compiler's behind it have no class in common.
        measured = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:240]}
    return {**measured, "peak_allocated_bytes": clock.take_peak_bytes()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="0", help="number of the GPU, or cpu")
    args = parser.parse_args()
    if args.device != "cpu" and not torch.cuda.is_available():
        print(f"gpu_step.py: PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
        sys.exit(NO_DEVICE)
    device = torch.device("cpu" if args.device == "cpu" else f"cuda:{args.device}")
    properties = None
    if device.type == "cuda":
        torch.cuda.set_device(device)
        properties = torch.cuda.get_device_properties(device)
    about = {"version": torch.__version__, "cudnn": torch.backends.cudnn.version() if properties else None}
    clock = Clock(device)
    for line in sys.stdin:
        case = json.loads(line)
        about["algorithm"] = algorithm(case, properties) if "steps" in case else None
        print(json.dumps({**answer(case, clock), **about}), flush=True)


if __name__ == "__main__":
    main()
