"""Models as `megabatch export --format onnx` writes them, in ONNX Runtime, beside `megabatch predict`.

Models of every option with random weights, those of norms and biases included: `onnx.checker` takes each file, and what ONNX Runtime computes of the
samples as `megabatch inspect --dump` gives them is what `megabatch predict` says, up to TOLERANCE of the largest prediction. Both sides compute in
f32 and add in another order; that is all that the tolerance is for.

    cargo xtask peers onnx            # builds megabatch, installs ONNX Runtime under target/, runs this
    cargo xtask peers onnx-oldest     # the same with ONNX Runtime 1.15.0, the oldest that PyPI has for this Python
"""
import argparse
import itertools
import pathlib
import sys
import tempfile

import h5py
import numpy as np
import onnx
import onnxruntime
from safetensors.numpy import load_file, save_file

from parity import Stage, difference, require

TOLERANCE = 2e-5
SAMPLES = 90
# Weights far larger than a training begins with, so that gates leave the straight part of their curves.
WEIGHT_SCALE = 0.4


class OnnxStage(Stage):
    """Runs of random weights, and what ONNX Runtime makes of them."""

    def make_run(self, name, data, settings):
        """A run of random weights."""
        # Nothing is learnt, so that no part of the split needs samples of its own.
        settings = {"data.split": "[1,0,0]", "data.purge": "0s", "gpu_optimization.batch_size": 16, **settings}
        line = " ".join(f"--set {key}={value}" for key, value in settings.items())
        self.run(f"train --data {data} --out {name}-shapes --max-steps 1 {line}")
        self.run(f"export --run {name}-shapes --out {name}.safetensors")
        random = np.random.default_rng(len(name))
        tensors = {key: random.normal(0, WEIGHT_SCALE, x.shape).astype(np.float32) for key, x in load_file(self.path(f"{name}.safetensors")).items()}
        save_file(tensors, self.path(f"{name}.safetensors"))
        self.run(f"import {name}.safetensors --data {data} --out {name} {line}")

    def features(self, data):
        """The samples' windows by the names of a model's inputs."""
        self.run(f"inspect {data} --dump 0..{SAMPLES} dump.safetensors")
        return {key: x for key, x in load_file(self.path("dump.safetensors")).items() if key.startswith("features")}

    def predictions(self, name):
        """What `predict` writes: the dataset `predictions` [n, K], and others beside it."""
        self.run(f"predict --run {name} --samples 0..{SAMPLES} --out {name}-predictions.h5")
        with h5py.File(self.path(f"{name}-predictions.h5")) as file:
            return {key: file[key][()] for key in file if key.startswith("predictions")}

    def onnx_predictions(self, name, features, options=""):
        """The outputs of the exported model [n, ..], computed in batches of the sizes that it takes."""
        self.run(f"export --run {name} --format onnx --out {name}.onnx {options}")
        model = onnx.load(self.path(f"{name}.onnx"))
        onnx.checker.check_model(model, full_check=True)
        require(model.ir_version == 8 and model.opset_import[0].version == 17, f"{name}: versions")
        require({x.name for x in model.graph.input} == set(features), f"{name}: inputs")
        session = onnxruntime.InferenceSession(self.path(f"{name}.onnx"), providers=["CPUExecutionProvider"])
        batch = session.get_inputs()[0].shape[0]
        sizes = [batch] * (SAMPLES // batch) if isinstance(batch, int) else [1, 2, SAMPLES - 3]
        ends = np.cumsum(sizes)
        parts = [session.run(["predictions"], {key: x[end - n : end] for key, x in features.items()})[0] for n, end in zip(sizes, ends)]
        return np.concatenate(parts)


def compare(name, found, expected):
    apart = difference(name, found, expected, TOLERANCE)
    print(f"{name:50} {apart:.1e}", flush=True)
    return apart


def every_option(stage):
    """All combinations of the model's options, on two timeframes."""
    stage.run(f"synth series.h5 --samples {SAMPLES} --timeframes M1:19,M5:7 --features 5 --targets 3")
    features = stage.features("series.h5")
    options = itertools.product(["lstm", "gru"], [1, 2], ["true", "false"], ["false", "true"], ["last", "attention"], ["concat", "attention"])
    for cell, layers, bias, norm, pooling, fusion in options:
        name = f"{cell}-layers{layers}-bias_{bias}-norm_{norm}-{pooling}-{fusion}"
        settings = {"model.hidden": 12, "model.layers": layers, "model.bias": bias, "model.layer_norm": norm, "model.dropout": 0.3}
        settings |= {"model.cell": cell, "model.pooling": pooling, "model.fusion": fusion}
        settings |= {"model.pooling_heads": 3} if pooling == "attention" else {}
        settings |= {"model.fusion_heads": 2, "model.fusion_feed_forward": 3} if fusion == "attention" else {}
        stage.make_run(name, "series.h5", settings)
        yield compare(name, stage.onnx_predictions(name, features), stage.predictions(name)["predictions"])


def other_outputs(stage):
    """Quantiles and classes, which are several outputs a target."""
    features = stage.features("series.h5")
    stage.make_run("quantiles", "series.h5", {"model.hidden": 7, "training.loss": "quantile", "training.quantile": "[0.1,0.5,0.9]"})
    expected = stage.predictions("quantiles")
    expected = np.stack([expected[f"predictions_q{level}"] for level in (0.1, 0.5, 0.9)], axis=2)
    yield compare("quantiles", stage.onnx_predictions("quantiles", features), expected.reshape(SAMPLES, -1))

    stage.make_run("classes", "series.h5", {"model.hidden": 7, "training.loss": "cross_entropy", "training.thresholds": "[-0.5,0.5]"})
    expected = stage.predictions("classes")
    expected = np.stack([expected[f"predictions_p{c}"] for c in range(3)], axis=2)
    scores = stage.onnx_predictions("classes", features).reshape(SAMPLES, -1, 3)
    shares = np.exp(scores - scores.max(axis=2, keepdims=True))
    yield compare("classes", shares / shares.sum(axis=2, keepdims=True), expected)


def sizes(stage):
    """A single timeframe without a name, batches of a fixed size, and a window and hidden units as people use them."""
    stage.run(f"synth windows.h5 --layout windows --steps 33 --samples {SAMPLES} --features 1 --targets 1")
    stage.make_run("unnamed", "windows.h5", {"model.hidden": 3})
    yield compare("unnamed", stage.onnx_predictions("unnamed", stage.features("windows.h5"), "--batch 1"), stage.predictions("unnamed")["predictions"])
    stage.run(f"synth large.h5 --samples {SAMPLES} --timeframes M1:480,H1:96 --features 16 --targets 36")
    stage.make_run("large", "large.h5", {"model.hidden": 64, "model.layers": 2, "model.pooling": "attention", "model.fusion": "attention"})
    yield compare("large", stage.onnx_predictions("large", stage.features("large.h5"), "--batch 30"), stage.predictions("large")["predictions"])


def folded_scalers(stage):
    """Raw features into a model that scales them, of one instrument and of one of two."""
    for seed, name in enumerate(("EURUSD", "GBPUSD")):
        stage.run(f"synth {name}.csv --days 4 --seed {seed}")
    for files, options in (("EURUSD.csv", ""), ("EURUSD.csv GBPUSD.csv", "--instrument EURUSD")):
        name = f"folded-{len(files.split())}"
        for scaling in ("none", "robust"):
            stage.run(f"ingest {files} --out {name}-{scaling}.h5 --timeframes M1:30,M5:12 --horizon 4 --scaling {scaling} --pip-size 0.0001")
        stage.make_run(name, f"{name}-robust.h5", {"model.hidden": 8})
        # The samples of the first instrument come first.
        raw = stage.features(f"{name}-none.h5")
        yield compare(name, stage.onnx_predictions(name, raw, f"--fold-scaler {options}"), stage.predictions(name)["predictions"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=pathlib.Path, help="the program")
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    print(f"ONNX Runtime {onnxruntime.__version__}, onnx {onnx.__version__}; differences relative to the largest prediction")
    with tempfile.TemporaryDirectory() as folder:
        stage = OnnxStage(args.megabatch.resolve(), folder)
        parts = (every_option, other_outputs, sizes, folded_scalers)
        differences = [apart for part in parts for apart in part(stage)]
    print(f"{len(differences)} models, the largest difference {max(differences):.1e}, allowed {TOLERANCE}")


if __name__ == "__main__":
    main()
