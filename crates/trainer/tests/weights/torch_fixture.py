"""Writes torch_float32.safetensors and torch_float64.safetensors: what the module of docs/reference/weights.md computes, forward and backward.

    python torch_fixture.py [FOLDER]

Each case is a model of that page with random weights, a batch of windows and targets, the loss mean((y - target)^2), the weights of attention, every
gradient, and three steps of AdamW.
"""
import json
import re
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
PAGE = HERE.joinpath("../../../../docs/reference/weights.md").resolve()
# With a small ε, AdamW would turn what PyTorch rounds in a gradient of zero into steps.
STEPS, LEARNING_RATE, WEIGHT_DECAY, EPSILON = 3, 0.01, 0.01, 1e-3
# Samples, (bars, features) by timeframe, outputs, and the arguments of the module.
CASES = {
    "one timeframe, last state": (3, {"": (5, 3)}, 2, {"hidden": 7}),
    "attention, one timeframe": (4, {"": (6, 3)}, 2, {"hidden": 8, "pooling_heads": 4}),
    "attention of one head and a single bar": (2, {"M1": (1, 2)}, 1, {"hidden": 5, "pooling_heads": 1}),
    "attention, heads of one unit, beyond a panel": (3, {"M1": (9, 2)}, 2, {"hidden": 18, "pooling_heads": 18}),
    "attention, two layers, three timeframes": (5, {"M1": (12, 4), "M15": (7, 3), "H4": (3, 2)}, 4,
                                                {"hidden": 12, "layers": 2, "pooling_heads": 3}),
    "layer norm": (3, {"": (5, 3)}, 2, {"hidden": 7, "layer_norm": True}),
    "layer norm in two layers, beyond a panel": (3, {"M1": (9, 2), "H1": (4, 3)}, 2, {"hidden": 18, "layers": 2, "layer_norm": True}),
    "layer norm and attention in three layers": (4, {"M5": (6, 4), "H1": (5, 3)}, 2,
                                                 {"hidden": 8, "layers": 3, "bias": False, "layer_norm": True, "pooling_heads": 2, "fusion_heads": 4}),
    "fusion of last states": (4, {"M1": (6, 3), "H1": (4, 2)}, 2, {"hidden": 8, "fusion_heads": 4}),
    "fusion of one timeframe": (2, {"": (4, 3)}, 1, {"hidden": 5, "fusion_heads": 1, "fusion_feed_forward": 1}),
    "attention in pooling and fusion": (5, {"M1": (9, 4), "M5": (7, 3), "M15": (5, 3), "H1": (4, 2), "H4": (2, 2)}, 3,
                                        {"hidden": 12, "layers": 2, "pooling_heads": 4, "fusion_heads": 3, "fusion_feed_forward": 2}),
    "attention without biases of the LSTM": (4, {"M5": (20, 5), "H1": (8, 5)}, 3, {"hidden": 16, "bias": False, "pooling_heads": 4}),
    "GRU, last state": (3, {"": (5, 3)}, 2, {"cell": "gru", "hidden": 7}),
    "GRU, two layers beyond a panel, attention": (4, {"M1": (9, 4), "H1": (4, 2)}, 2,
                                                  {"cell": "gru", "hidden": 18, "layers": 2, "pooling_heads": 3}),
    "GRU without biases, layer norm and fusion": (4, {"M5": (6, 4), "H1": (5, 3)}, 2,
                                                  {"cell": "gru", "hidden": 8, "layers": 2, "bias": False, "layer_norm": True, "fusion_heads": 4}),
}


def module():
    """The module of the page, and its code."""
    code = re.search(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M).group(1)
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["Model"], code


def run(model_of, seed, dtype):
    samples, timeframes, outputs, arguments = model_of
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)

    def draw(*shape):
        """Numbers of single precision, so that both precisions begin from the same."""
        return torch.randn(*shape, generator=generator)

    model = module()[0]({name: features for name, (_, features) in timeframes.items()}, outputs, **arguments)
    model = model.to(dtype).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Biases and the query begin at zero, or nearly, which would test nothing. Attention is sharpened.
            spread = 1.0 if "query" in name else 0.3 if parameter.dim() == 1 else 1.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(draw(*parameter.shape) * spread)
    windows = {name: draw(samples, bars, features).to(dtype) for name, (bars, features) in timeframes.items()}
    target = draw(samples, outputs).to(dtype)
    tensors = {f"input.{name}": window for name, window in windows.items()} | {"target": target}
    tensors |= {f"param.{name}": value.clone() for name, value in model.state_dict().items()}
    for name in timeframes:
        weights = model.encode(name, windows[name])[1]
        tensors |= {} if weights is None else {f"weights.{name}": weights}
    if hasattr(model, "fusion"):
        tokens = torch.stack([model.encode(name, windows[name])[0] for name in timeframes], dim=1)
        tensors["fusion_weights"] = model.fusion.self_attn(tokens, tokens, tokens, average_attn_weights=False)[1]
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, eps=EPSILON)
    for step in range(STEPS):
        y = model(windows)
        optimizer.zero_grad()
        loss = (y - target).square().mean()
        loss.backward()
        tensors[f"loss{step}"] = loss
        if step == 0:
            tensors["y"] = y
            tensors |= {f"grad.{name}": parameter.grad.clone() for name, parameter in model.named_parameters()}
        optimizer.step()
    tensors |= {f"after.{name}": value.clone() for name, value in model.state_dict().items()}
    return {name: value.detach().contiguous() for name, value in tensors.items()}


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    torch.set_num_threads(1)
    keys = ("samples", "timeframes", "outputs", "model")
    cases = json.dumps({name: dict(zip(keys, case)) for name, case in CASES.items()})
    about = {"torch": torch.__version__, "module": module()[1], "cases": cases, "lr": str(LEARNING_RATE), "weight_decay": str(WEIGHT_DECAY)}
    about |= {"epsilon": str(EPSILON), "steps": str(STEPS)}
    for dtype in (torch.float32, torch.float64):
        tensors = {}
        for number, (name, case) in enumerate(CASES.items()):
            tensors |= {f"{name}/{tensor}": value for tensor, value in run(case, 100 + number, dtype).items()}
        save_file(tensors, folder / f"torch_{str(dtype).removeprefix('torch.')}.safetensors", metadata=about)


if __name__ == "__main__":
    main()
