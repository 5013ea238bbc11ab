"""Predictions of the same model by megabatch and by ONNX Runtime, in float32 and in eight bits on the CPU, both in one sitting.

One timeframe of T = 360 bars with F = 167 features, H = 128, 36 targets, consecutive samples a bar apart. ONNX Runtime computes the file that
`megabatch export --format onnx` writes, with windows made whole, since that is what it takes; megabatch computes what windows have in common once. The rounds of the two
sides alternate, so that a noisy machine disturbs both alike. A round's time is the median of its batches, and each side's the median of its rounds;
beside them stands the fastest batch of all rounds, which other programs on the machine disturb least.

In eight bits it is `megabatch bench predict --int8` beside the same export after ONNX Runtime's `quantize_dynamic`, with what serves it best: LSTMs alone, a scale a
tensor. How far each is from the predictions in float32 is said first, also with its defaults, which quantise the head too, and with a scale a channel.

    cargo xtask peers onnx-speed                            # builds megabatch, installs ONNX Runtime under target/, runs this
    cargo xtask peers onnx-speed -- --case 1:1              # one case, BATCH:THREADS
    cargo xtask peers onnx-speed -- --weights int8          # one of both
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np
import onnxruntime
from onnxruntime.quantization import quantize_dynamic
from safetensors.numpy import load_file

STEPS, FEATURES, HIDDEN, TARGETS = 360, 167, 128, 36
# Those that errors are measured on.
SAMPLES = 64
# What ONNX Runtime is told to quantise; the first is the one that is timed.
QUANTIZED = {
    "LSTM": {"op_types_to_quantize": ["LSTM"]},
    "LSTM, a scale a channel": {"op_types_to_quantize": ["LSTM"], "per_channel": True},
    "defaults": {},
}
# Samples in a batch, threads, batches of a round.
CASES = {"128:2": (128, 2, 3), "128:1": (128, 1, 3), "1:1": (1, 1, 40), "1:2": (1, 2, 40)}


def answer(program, words, folder=None):
    """The JSON that megabatch answers."""
    command = [str(program), "--json", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def exported(program, folder):
    """The model as megabatch exports it: with the weights of a first step, which its speed does not depend on."""
    data = ["--layout", "windows", "--steps", STEPS, "--features", FEATURES, "--targets", TARGETS, "--samples", SAMPLES]
    answer(program, ["synth", "windows.h5", *data], folder)
    settings = [f"model.hidden={HIDDEN}", "gpu_optimization.batch_size=4", "data.split=[1,0,0]", "data.purge=0s"]
    settings = [word for setting in settings for word in ("--set", setting)]
    answer(program, ["train", "--data", "windows.h5", "--out", "run", "--max-steps", 1, *settings], folder)
    answer(program, ["export", "--run", "run", "--out", "model.onnx"], folder)
    return f"{folder}/model.onnx"


def session(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # As megabatch computes, and as is best for ONNX Runtime too.
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def errors(program, model, folder):
    """How far predictions in eight bits are from those in float32; the model that ONNX Runtime is timed with."""
    answer(program, ["inspect", "windows.h5", "--dump", f"0..{SAMPLES}", "dump.safetensors"], folder)
    windows = load_file(f"{folder}/dump.safetensors")["features"]
    exact = session(model, 1).run(None, {"features": windows})[0]
    answer(program, ["predict", "--run", "run", "--int8", "--out", "int8.h5"], folder)
    with h5py.File(f"{folder}/int8.h5") as file:
        found = {"megabatch": file["predictions"][:]}
    for name, options in QUANTIZED.items():
        quantized = session(quantize(model, name, options), 1)
        # A sample at a time: ONNX Runtime has one scale for all bars of a batch.
        found[f"ONNX Runtime, {name}"] = np.concatenate([quantized.run(None, {"features": window[None]})[0] for window in windows])
    for name, predictions in found.items():
        error = (predictions - exact).astype(np.float64)
        sqnr_db = 10 * np.log10((exact.astype(np.float64) ** 2).sum() / (error**2).sum())
        print(json.dumps({"int8": name, "max_error": abs(error).max(), "rms_error": (error**2).mean() ** 0.5, "sqnr_db": round(sqnr_db, 1)}), flush=True)
    return f"{model}.{next(iter(QUANTIZED))}"


def quantize(model, name, options):
    quantize_dynamic(model, f"{model}.{name}", **options)
    return f"{model}.{name}"


class OnnxSide:
    """ONNX Runtime on consecutive windows, made whole before it begins."""

    def __init__(self, model, batch, threads):
        self.session = session(model, threads)
        bars = np.random.default_rng(0).uniform(-1, 1, (batch + STEPS - 1, FEATURES)).astype(np.float32)
        self.windows = np.stack([bars[n : n + STEPS] for n in range(batch)])
        self.predict()

    def predict(self):
        return self.session.run(["predictions"], {"features": self.windows})

    def batches_s(self, batches):
        """The median and the fastest of some batches."""
        times = []
        for _ in range(batches):
            start = time.perf_counter()
            self.predict()
            times.append(time.perf_counter() - start)
        return statistics.median(times), min(times)


def compare(args, model, case, weights):
    batch, threads, batches = CASES[case]
    theirs, words = OnnxSide(model, batch, threads), ["bench", "predict", "--model", "single", "--batch", batch, "--features", FEATURES]
    words += ["--hidden", HIDDEN, "--threads", threads, "--batches", batches] + (["--int8"] if weights == "int8" else [])
    ours = lambda said: (said["batch_s_median"], said["batch_s"])
    rounds = [(theirs.batches_s(batches), ours(answer(args.megabatch, words))) for _ in range(args.rounds)]
    onnx_s, ours_s = (statistics.median(median for median, _ in side) for side in zip(*rounds))
    onnx_fastest, ours_fastest = (min(fastest for _, fastest in side) for side in zip(*rounds))
    ratios = sorted(onnx / ours for (onnx, _), (ours, _) in rounds)
    return {
        "weights": weights,
        "batch": batch,
        "threads": threads,
        "onnx_runtime_ms": round(onnx_s * 1e3, 3),
        "megabatch_ms": round(ours_s * 1e3, 3),
        "ratio": round(onnx_s / ours_s, 2),
        "ratio_of_rounds": [round(ratios[0], 2), round(ratios[-1], 2)],
        "onnx_runtime_fastest_ms": round(onnx_fastest * 1e3, 3),
        "megabatch_fastest_ms": round(ours_fastest * 1e3, 3),
        "ratio_of_fastest": round(onnx_fastest / ours_fastest, 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=pathlib.Path, help="the program, a release build")
    parser.add_argument("--case", action="append", choices=list(CASES), help="BATCH:THREADS; default: all")
    parser.add_argument("--weights", action="append", choices=["float32", "int8"], help="default: both")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    args.megabatch = args.megabatch.resolve()
    print(f"ONNX Runtime {onnxruntime.__version__}, T = {STEPS}, F = {FEATURES}, H = {HIDDEN}, medians of {args.rounds} alternating rounds")
    with tempfile.TemporaryDirectory() as folder:
        model = exported(args.megabatch, folder)
        models = {"float32": model, "int8": errors(args.megabatch, model, folder)}
        for case in args.case or CASES:
            for weights in args.weights or models:
                print(json.dumps(compare(args, models[weights], case, weights)), flush=True)


if __name__ == "__main__":
    main()
