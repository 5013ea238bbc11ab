"""Weights as `megabatch export --format safetensors` writes them, in the module of docs/reference/weights.md, beside `megabatch predict`.

Models of every option are trained for a few steps. The module is taken from the page as it stands there; it takes each file with
`load_state_dict(strict=True)`, and what PyTorch computes of the samples as `megabatch inspect --dump` gives them is what `megabatch predict` says, up to
TOLERANCE of the largest prediction. Both sides compute in f32 and add in another order; that is all that the tolerance is for. The same weights then go
back: a run that `megabatch import` makes of the module's own file predicts the same to the last bit.

    cargo xtask peers weights         # builds megabatch, installs PyTorch under target/, runs this
"""
import argparse
import itertools
import pathlib
import sys
import tempfile

import h5py
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from parity import Stage, difference, require

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/weights.md"
TOLERANCE = 1e-5
SAMPLES = 90
# Steps large enough that a few of them leave no tensor near what it began with, and small enough that predictions still differ.
TRAINING = {"training.lr": 0.02, "gpu_optimization.batch_size": 16, "data.split": "[1,0,0]", "data.purge": "0s"}
STEPS = 8


class WeightsStage(Stage):
    """What PyTorch is given of a run, and what the program predicts with it."""

    def dumped(self, data):
        """Samples as the model sees them: windows by timeframe, and the number of targets."""
        self.run(f"inspect {data} --dump 0..{SAMPLES} dump.safetensors")
        tensors = load_file(self.path("dump.safetensors"))
        windows = {key.partition(".")[2]: x for key, x in tensors.items() if key.startswith("features")}
        return windows, tensors["targets"].shape[1]

    def predictions(self, run, names=("predictions",)):
        self.run(f"predict --run {run} --samples 0..{SAMPLES} --out {run}.h5")
        with h5py.File(self.path(f"{run}.h5")) as file:
            return np.stack([file[name][()] for name in names], axis=2).reshape(SAMPLES, -1)


def module():
    """The classes of docs/reference/weights.md."""
    code = PAGE.read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["Model"]


def compare(stage, case):
    """Trains, exports, loads, predicts on both sides; the largest difference relative to the largest prediction."""
    name, data, arguments, settings, names = (case[key] for key in ("name", "data", "arguments", "settings", "names"))
    line = " ".join(f"--set {key}={value}" for key, value in (TRAINING | settings).items())
    stage.run(f"train --data {data} --out {name} --max-steps {STEPS} {line}")
    stage.run(f"export --run {name} --format safetensors --out {name}.safetensors")
    windows, targets = stage.dumped(data)
    features = {timeframe: x.shape[2] for timeframe, x in sorted(windows.items(), key=lambda item: case["order"].index(item[0]))}
    model = module()(features, outputs=targets * len(names), **arguments)
    fresh = {key: x.clone() for key, x in model.state_dict().items()}
    model.load_state_dict(load_file(stage.path(f"{name}.safetensors")), strict=True)
    unmoved = [key for key, x in model.state_dict().items() if torch.equal(x, fresh[key])]
    require(not unmoved, f"{name}: {unmoved} are as a fresh module has them")
    with torch.no_grad():
        found = model.eval()(windows).numpy()
    expected = stage.predictions(name, names)
    apart = difference(name, found, expected, TOLERANCE)

    save_file({key: x.contiguous() for key, x in model.state_dict().items()}, stage.path(f"{name}-back.safetensors"))
    stage.run(f"import {name}-back.safetensors --data {data} --out {name}-back {line}")
    require(np.array_equal(stage.predictions(f"{name}-back", names), expected), f"{name}: imported weights predict otherwise")
    print(f"{name:58} {apart:.1e}", flush=True)
    return apart


def every_option():
    """All combinations of the model's options, on two timeframes."""
    options = itertools.product(["lstm", "gru"], [1, 2], [True, False], [False, True], [None, 3], [None, 2])
    for cell, layers, bias, norm, pooling, fusion in options:
        settings = {"model.hidden": 12, "model.layers": layers, "model.bias": str(bias).lower(), "model.layer_norm": str(norm).lower()}
        settings |= {"model.cell": cell}
        settings |= {"model.pooling": "attention", "model.pooling_heads": pooling} if pooling else {}
        settings |= {"model.fusion": "attention", "model.fusion_heads": fusion, "model.fusion_feed_forward": 3} if fusion else {}
        arguments = {"cell": cell, "hidden": 12, "layers": layers, "bias": bias, "layer_norm": norm, "pooling_heads": pooling, "fusion_heads": fusion, "fusion_feed_forward": 3}
        name = f"{cell}-layers{layers}-bias_{bias}-norm_{norm}-pooling_{pooling}-fusion_{fusion}"
        yield {"name": name, "data": "series.h5", "arguments": arguments, "settings": settings}


def others():
    """Several outputs a target, five timeframes with windows as people use them, and one timeframe without a name."""
    quantiles = {"training.loss": "quantile", "training.quantile": "[0.1,0.5,0.9]"}
    names = [f"predictions_q{level}" for level in (0.1, 0.5, 0.9)]
    yield {"name": "quantiles", "data": "series.h5", "arguments": {"hidden": 7}, "settings": {"model.hidden": 7, **quantiles}, "names": names}
    attention = {"model.pooling": "attention", "model.fusion": "attention"}
    settings = {"model.hidden": 32, "model.layers": 2, "model.layer_norm": "true", "model.pooling_heads": 4, "model.fusion_heads": 4, "training.lr": 0.002, **attention}
    arguments = {"hidden": 32, "layers": 2, "layer_norm": True, "pooling_heads": 4, "fusion_heads": 4}
    yield {"name": "five-timeframes", "data": "five.h5", "arguments": arguments, "settings": settings}
    yield {"name": "unnamed", "data": "windows.h5", "arguments": {"hidden": 6}, "settings": {"model.hidden": 6}, "order": [""]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=pathlib.Path, help="the program")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    print(f"PyTorch {torch.__version__}; differences relative to the largest prediction")
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        stage = WeightsStage(args.megabatch.resolve(), folder)
        stage.run(f"synth series.h5 --samples {SAMPLES} --timeframes M1:19,M5:7 --features 5 --targets 3")
        stage.run(f"synth five.h5 --samples {SAMPLES} --timeframes M1:480,M5:288,M15:192,H1:96,H4:48 --features 16 --targets 36")
        stage.run(f"synth windows.h5 --layout windows --steps 33 --samples {SAMPLES} --features 4 --targets 2")
        usual = {"names": ["predictions"], "order": ["M1", "M5", "M15", "H1", "H4"]}
        differences = [compare(stage, usual | case) for case in itertools.chain(every_option(), others())]
    print(f"{len(differences)} models, the largest difference {max(differences):.1e}, allowed {TOLERANCE}")


if __name__ == "__main__":
    main()
