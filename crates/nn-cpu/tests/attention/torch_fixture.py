"""Writes torch_fixture.safetensors: what PyTorch Geometric's GATConv and GATv2Conv compute, forward and backward, in double precision.

    python torch_fixture.py [OUT]

Each case is a small graph, a stack of layers with the functions between them, the loss mean((y - target)^2), every gradient, and for some three
steps of Adam. Dropout takes the factors that megabatch draws: Philox4x32-10 of (seed, step, graph, layer, place), written here once more.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from safetensors.numpy import save_file
from torch_geometric.nn import GATConv, GATv2Conv

SEED, STEP, GRAPH = 7, 3, 5_000_000_011
LEARNING_RATE, ADAM_STEPS = 0.01, 3
DEFAULT = {
    "kind": "gat", "layers": 1, "heads": 2, "hidden": 3, "output": "linear", "output_heads": 1, "activation": "elu", "residual": False,
    "dropout": 0.0, "attention_dropout": 0.0, "negative_slope": 0.2, "self_loops": True, "nodes": 7, "features": 5, "attributes": 0,
    "outputs": 2, "graph": "random", "adam": False,
}
KINDS = ("gat", "gatv2")
SHAPES = {
    "plain": {},
    "no loops added, isolated nodes, loops of its own": {"self_loops": False, "graph": "isolated"},
    "loops of its own are replaced": {"graph": "isolated", "attributes": 2},
    "edge attributes": {"attributes": 3, "self_loops": False},
    "no edge": {"graph": "empty", "attributes": 1},
    "no edge and no loop": {"graph": "empty", "self_loops": False, "residual": True},
    "one node": {"nodes": 1, "graph": "empty"},
    "residual": {"residual": True, "layers": 2, "heads": 3},
    "averaged": {"output": "attention", "output_heads": 3, "outputs": 4},
    "averaged with residual": {"output": "attention", "output_heads": 2, "residual": True, "layers": 2, "attributes": 1},
    "a slope of its own": {"negative_slope": 0.05, "activation": "relu", "layers": 2},
    "a head wider than a panel": {"hidden": 19, "heads": 3, "layers": 2, "features": 17, "nodes": 9, "attributes": 2},
    "more heads than a group": {"hidden": 2, "heads": 18, "layers": 2, "nodes": 19, "attributes": 1},
    "dropout": {"dropout": 0.4, "attention_dropout": 0.3, "layers": 2, "heads": 5, "attributes": 2, "residual": True, "nodes": 19},
    "trained": {"adam": True, "layers": 2, "heads": 8, "hidden": 8, "output": "attention", "outputs": 3, "nodes": 12, "attributes": 1},
}


def philox(key, counter):
    for _ in range(10):
        a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [b >> 32 ^ counter[1] ^ key[0], b & 0xFFFFFFFF, a >> 32 ^ counter[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def halves(x):
    return [x & 0xFFFFFFFF, x >> 32]


def bits(seed, name, index):
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    words = philox(halves(seed), halves(index) + halves(key))
    return words[0] | words[1] << 32


def factors(name, layer, rate, rows, columns):
    """What is dropped, [rows, columns]: Mask::factor of (row, column)."""
    rate = float(np.float32(rate))
    key = halves(bits(bits(SEED, "graph dropout", STEP), name, layer))
    drops = [[philox(key, [c, r // 4] + halves(GRAPH))[r % 4] < int(rate * 2**32) for c in range(columns)] for r in range(rows)]
    return (~torch.tensor(drops)).double() / (1.0 - rate)


def made_up_graph(case, generator):
    """Rows and columns of the edges, by rows, then columns."""
    nodes = case["nodes"]
    if case["graph"] == "empty":
        return np.zeros((2, 0), dtype=np.int64)
    dense = torch.rand(nodes, nodes, generator=generator).numpy() < 0.4
    if case["graph"] == "isolated":
        dense[2] = dense[:, 2] = False
        dense[4] = False
        dense[0, 0] = dense[5, 5] = True
    else:
        np.fill_diagonal(dense, False)
    return np.stack(np.nonzero(dense))


class Stack(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        self.case, self.convs = case, torch.nn.ModuleList()
        width, conv = case["features"], GATConv if case["kind"] == "gat" else GATv2Conv
        for layer in range(case["layers"]):
            averaged = case["output"] == "attention" and layer + 1 == case["layers"]
            units, heads = (case["outputs"], case["output_heads"]) if averaged else (case["hidden"], case["heads"])
            self.convs.append(conv(
                width, units, heads=heads, concat=not averaged, negative_slope=case["negative_slope"], dropout=case["attention_dropout"],
                add_self_loops=case["self_loops"], edge_dim=case["attributes"] or None, residual=case["residual"]))
            width = units if averaged else units * heads

    def forward(self, x, edge_index, edge_attr, places):
        for layer, conv in enumerate(self.convs):
            if self.case["dropout"] > 0:
                x = x * factors("input", layer, self.case["dropout"], *x.shape)

            def drop(coefficients, p, training):
                if p == 0:
                    return coefficients
                count = int(places.max()) + 1
                return coefficients * factors("attention", layer, p, coefficients.shape[1], count).T[places]

            torch.nn.functional.dropout = drop
            x = conv(x, edge_index, edge_attr)
            if layer + 1 < len(self.convs):
                x = torch.nn.functional.elu(x) if self.case["activation"] == "elu" else torch.relu(x)
        return x


def places_of(case, rows, columns):
    """The place of each edge in PyTorch Geometric's order: those between different nodes, then the loops."""
    edges = np.arange(len(rows))
    if not case["self_loops"]:
        return torch.tensor(edges)
    kept = rows != columns
    ends = np.searchsorted(rows, np.arange(case["nodes"]), side="right")
    return torch.tensor(np.concatenate([(edges + rows)[kept], ends + np.arange(case["nodes"])]))


def run(case, seed):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    rows, columns = made_up_graph(case, generator)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    model = Stack(case).double()
    with torch.no_grad():
        # Biases start at zero, which would test nothing. Attention vectors are enlarged, so that coefficients differ.
        for name, parameter in model.named_parameters():
            parameter.copy_(draw(*parameter.shape) * (0.5 if "att" in name or "bias" in name else parameter.shape[-1] ** -0.5))
    x = draw(case["nodes"], case["features"]).requires_grad_()
    attributes = draw(len(rows), case["attributes"]).float().double() if case["attributes"] else None
    index, places = torch.tensor(np.stack([columns, rows])), places_of(case, rows, columns)
    tensors = {"row": rows.astype(np.uint32), "col": columns.astype(np.uint32), "x": x, "attributes": attributes}
    tensors |= {f"param.{name}": parameter.clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    target = None
    for step in range(ADAM_STEPS if case["adam"] else 1):
        y = model(x, index, attributes, places)
        target = draw(*y.shape) if target is None else target
        optimizer.zero_grad()
        x.grad = None
        (y - target).square().mean().backward()
        if step == 0:
            tensors |= {"target": target, "y": y, "grad_x": x.grad.clone()}
            tensors |= {f"grad.{name}": p.grad.clone() if p.grad is not None else torch.zeros_like(p) for name, p in model.named_parameters()}
        if case["adam"]:
            optimizer.step()
            tensors |= {f"step{step + 1}.{name}": parameter.clone() for name, parameter in model.named_parameters()}
    return {name: np.ascontiguousarray(t if isinstance(t, np.ndarray) else t.detach().numpy()) for name, t in tensors.items() if t is not None}


def main():
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("torch_fixture.safetensors")
    cases, tensors = {}, {}
    for number, (kind, (shape, changes)) in enumerate((k, s) for k in KINDS for s in SHAPES.items()):
        name = f"{kind}: {shape}"
        cases[name] = DEFAULT | {"kind": kind} | changes
        tensors |= {f"{name}/{tensor}": values for tensor, values in run(cases[name], 100 + number).items()}
    about = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__, "lr": str(LEARNING_RATE), "cases": json.dumps(cases)}
    save_file(tensors, out, metadata=about | {"seed": str(SEED), "step": str(STEP), "graph": str(GRAPH)})


if __name__ == "__main__":
    main()
