"""Writes torch_fixture.json: what scatter_reduce of PyTorch and torch_geometric.utils.softmax give, with gradients, on a few small inputs.

    python crates/segment/tests/torch_fixture.py

Floats are written as their bits, so that NaN and the sign of zero are kept.
"""
import json
import pathlib

import torch
import torch_geometric
from torch_geometric.utils import softmax

NAN, INF = float("nan"), float("inf")

CASES = {
    "ordinary, with empty segments": ([3, 0, 3, 1, 3, 0, 5, 3, 1, 5, 3], 7, 3, {}),
    "equal rows": ([0, 0, 1, 1, 1], 2, 1, {0: 2.0, 1: 2.0, 2: -1.0, 3: 4.0, 4: 4.0}),
    "nan and infinities": ([0, 0, 1, 1, 2, 2, 3, 3, 4], 6, 1, {1: NAN, 3: INF, 4: -INF, 6: -INF, 7: -INF, 8: NAN}),
    "nothing": ([], 2, 2, {}),
}


def bits(tensor):
    return tensor.detach().contiguous().view(torch.int32).flatten().tolist()


def case(index, segments, columns, special):
    x = torch.randn(len(index), columns) * 3
    for k, value in special.items():
        x.view(-1)[k] = value
    expanded = torch.tensor(index, dtype=torch.int64).view(-1, 1).expand(-1, columns)
    d_out, d_y = torch.randn(segments, columns), torch.randn(len(index), columns)
    answer = {"index": index, "segments": segments, "columns": columns, "x": bits(x), "d_out": bits(d_out), "d_y": bits(d_y)}
    for reduce in ("sum", "mean", "amax", "amin"):
        x.requires_grad_(True)
        out = torch.zeros(segments, columns).scatter_reduce(0, expanded, x, reduce, include_self=False)
        (d_x,) = torch.autograd.grad(out, x, d_out)
        answer[reduce] = {"out": bits(out), "d_x": bits(d_x)}
    out = softmax(x, torch.tensor(index, dtype=torch.int64), num_nodes=segments)
    (d_x,) = torch.autograd.grad(out, x, d_y)
    answer["softmax"] = {"out": bits(out), "d_x": bits(d_x)}
    return answer


def main():
    torch.manual_seed(6)
    versions = {"torch": torch.__version__, "torch_geometric": torch_geometric.__version__}
    answer = versions | {"cases": {name: case(*arguments) for name, arguments in CASES.items()}}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
