"""Writes step_fixture.json: weights after steps of GradScaler, clip_grad_norm_ and an optimizer, as PyTorch takes them.

    python crates/amp/tests/step_fixture.py

Floats are written as their bits. Gradients are those of the scaled loss; the third step overflows.
"""
import json
import pathlib

import torch

SIZES = (5, 1, 31)
STEPS = 6
CLIP = 2.0
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def bits(tensors):
    return [t.detach().view(torch.int32).tolist() for t in tensors]


def case(optimizer):
    parameters = [torch.nn.Parameter(torch.randn(n)) for n in SIZES]
    optimizer = optimizer(parameters)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    answer = {"start": bits(parameters), "steps": []}
    for step in range(STEPS):
        scaler.scale(torch.zeros(1))
        for p in parameters:
            # Every other step is short enough not to be clipped.
            p.grad = torch.randn(len(p)) * scaler.get_scale() * (0.1 if step % 2 else 1.0)
        if step == 2:
            parameters[2].grad[30] = float("nan")
        scaled = bits([p.grad for p in parameters])
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        scaler.step(optimizer)
        scaler.update()
        answer["steps"].append({"gradients": scaled, "norm": norm.view(torch.int32).item(), "weights": bits(parameters), "scale": scaler.get_scale()})
    return answer


def main():
    torch.manual_seed(7)
    answer = {"torch": torch.__version__, "clip": CLIP, "cases": {name: case(optimizer) for name, optimizer in OPTIMIZERS.items()}}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
