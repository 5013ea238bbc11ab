"""Writes scaler_fixture.json: the scales that torch.amp.GradScaler chooses in recorded sequences of overflows.

    python crates/amp/tests/scaler_fixture.py

A step is `x` where its gradients overflow and `.` where they do not. Scales are written as their bits, with the step after which they
begin to hold: [steps done, bits of the scale, growth tracker].
"""
import json
import pathlib
import random
import struct

import torch

DRAWS = random.Random(7)


def drawn(steps, share):
    """Steps of which each overflows with the probability `share`."""
    return "".join("x" if DRAWS.random() < share else "." for _ in range(steps))


CASES = {
    "no overflow, every step grows": (65536.0, 2.0, 0.5, 1, "." * 140),
    "grows until single precision ends": (2.0**120, 2.0, 0.5, 3, "." * 40 + "x" + "." * 10),
    "PyTorch's settings": (65536.0, 2.0, 0.5, 2000, "xxx" + "." * 2001 + "x" + "." * 4000 + drawn(600, 0.01) + "." * 1999 + "x"),
    "an overflow one step before growth": (1024.0, 2.0, 0.5, 5, ("." * 4 + "x") * 6 + "." * 11),
    "one overflow in twenty, interval 7": (65536.0, 2.0, 0.5, 7, drawn(600, 0.05)),
    "one overflow in three, interval 2": (65536.0, 2.0, 0.5, 2, drawn(400, 0.33)),
    "factors that are no powers of two": (1000.0, 1.7, 0.3, 3, drawn(400, 0.12)),
    "overflows in bursts": (65536.0, 2.0, 0.5, 16, "".join(drawn(20, 0.8) + "." * DRAWS.randrange(60) for _ in range(8))),
}


def bits(number):
    return struct.unpack("<I", struct.pack("<f", number))[0]


def scales(initial, growth, backoff, interval, steps):
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", initial, growth, backoff, interval)
    answer = [[0, bits(initial), 0]]
    for done, step in enumerate(steps, 1):
        scaler.scale(torch.zeros(1))
        parameter.grad = torch.tensor([1.0, float("inf") if step == "x" else 1.0])
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        now = [done, bits(scaler.get_scale()), scaler._get_growth_tracker()]
        if now[1] != answer[-1][1] or done == len(steps):
            answer.append(now)
    return answer


def main():
    cases = {}
    for name, (initial, growth, backoff, interval, steps) in CASES.items():
        settings = {"initial_scale": initial, "growth_factor": growth, "backoff_factor": backoff, "growth_interval": interval}
        cases[name] = settings | {"steps": steps, "scales": scales(initial, growth, backoff, interval, steps)}
    answer = {"torch": torch.__version__, "cases": cases}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
