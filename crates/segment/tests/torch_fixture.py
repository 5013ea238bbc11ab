"""Writes torch_fixture.json: PyTorch's results of scatter_reduce and of PyTorch Geometric's softmax, with gradients, on a few small inputs.

    python crates/segment/tests/torch_fixture.py

Floats are written as their bits, so that NaN and the sign of zero are kept.
"""
import json
import pathlib

import torch

NAN, INF = float("nan"), float("inf")

CASES = {
    "ordinary, with empty segments": ([3, 0, 3, 1, 3, 0, 5, 3, 1, 5, 3], 7, 3, {}),
    "equal rows": ([0, 0, 1, 1, 1], 2, 1, {0: 2.0, 1: 2.0, 2: -1.0, 3: 4.0, 4: 4.0}),
    "nan and infinities": ([0, 0, 1, 1, 2, 2, 3, 3, 4], 6, 1, {1: NAN, 3: INF, 4: -INF, 6: -INF, 7: -INF, 8: NAN}),
    "nothing": ([], 2, 2, {}),
}


def bits(tensor):
    return tensor.detach().contiguous().view(torch.int32).flatten().tolist()


def softmax(x, index, segments):
    """torch_geometric.utils.softmax of version 2.6, on an index."""
    greatest = torch.zeros(segments, x.shape[1]).scatter_reduce(0, index, x.detach(), "amax", include_self=False)
    out = (x - greatest.gather(0, index)).exp()
    out_sum = torch.zeros(segments, x.shape[1]).scatter_add(0, index, out) + 1e-16
    return out / out_sum.gather(0, index)


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
    out = softmax(x, expanded, segments)
    (d_x,) = torch.autograd.grad(out, x, d_y)
    answer["softmax"] = {"out": bits(out), "d_x": bits(d_x)}
    return answer


def main():
    torch.manual_seed(6)
    answer = {"torch": torch.__version__, "cases": {name: case(*arguments) for name, arguments in CASES.items()}}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
