"""Predictions of the same model by megabatch and by ONNX Runtime, in float32 on the CPU, both in one sitting.

One timeframe of T = 360 bars with F = 167 features, H = 128, 36 targets, consecutive samples a bar apart. ONNX Runtime computes the file that
`megabatch export --format onnx` writes, with windows made whole, since that is what it takes; megabatch computes what windows have in common once. The rounds of the two
sides alternate, so that a noisy machine disturbs both alike. A round's time is the median of its batches, and each side's the median of its rounds.

    cargo xtask peers onnx-speed                            # builds megabatch, installs ONNX Runtime under target/, runs this
    cargo xtask peers onnx-speed -- --case 1:1              # one case, BATCH:THREADS
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

STEPS, FEATURES, HIDDEN, TARGETS = 360, 167, 128, 36
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
    data = ["--layout", "windows", "--steps", STEPS, "--features", FEATURES, "--targets", TARGETS, "--samples", 8]
    answer(program, ["synth", "windows.h5", *data], folder)
    settings = [f"model.hidden={HIDDEN}", "gpu_optimization.batch_size=4", "data.split=[1,0,0]", "data.purge=0s"]
    settings = [word for setting in settings for word in ("--set", setting)]
    answer(program, ["train", "--data", "windows.h5", "--out", "run", "--max-steps", 1, *settings], folder)
    answer(program, ["export", "--run", "run", "--out", "model.onnx"], folder)
    return f"{folder}/model.onnx"


class OnnxSide:
    """ONNX Runtime on consecutive windows, made whole before it begins."""

    def __init__(self, model, batch, threads):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # As megabatch computes, and as is best for ONNX Runtime too.
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        bars = np.random.default_rng(0).uniform(-1, 1, (batch + STEPS - 1, FEATURES)).astype(np.float32)
        self.windows = np.stack([bars[n : n + STEPS] for n in range(batch)])
        self.predict()

    def predict(self):
        return self.session.run(["predictions"], {"features": self.windows})

    def batch_s(self, batches):
        times = []
        for _ in range(batches):
            start = time.perf_counter()
            self.predict()
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def compare(args, model, case):
    batch, threads, batches = CASES[case]
    theirs, words = OnnxSide(model, batch, threads), ["bench", "predict", "--model", "single", "--batch", batch, "--features", FEATURES]
    words += ["--hidden", HIDDEN, "--threads", threads, "--batches", batches]
    rounds = [(theirs.batch_s(batches), answer(args.megabatch, words)["batch_s_median"]) for _ in range(args.rounds)]
    onnx_s, ours_s = (statistics.median(times) for times in zip(*rounds))
    ratios = sorted(onnx / ours for onnx, ours in rounds)
    return {
        "batch": batch,
        "threads": threads,
        "onnx_runtime_ms": round(onnx_s * 1e3, 3),
        "megabatch_ms": round(ours_s * 1e3, 3),
        "onnx_runtime_samples_per_s": round(batch / onnx_s, 1),
        "megabatch_samples_per_s": round(batch / ours_s, 1),
        "ratio": round(onnx_s / ours_s, 2),
        "ratio_of_rounds": [round(ratios[0], 2), round(ratios[-1], 2)],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabatch", required=True, type=pathlib.Path, help="the program, a release build")
    parser.add_argument("--case", action="append", choices=list(CASES), help="BATCH:THREADS; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    args.megabatch = args.megabatch.resolve()
    print(f"ONNX Runtime {onnxruntime.__version__}, T = {STEPS}, F = {FEATURES}, H = {HIDDEN}, medians of {args.rounds} alternating rounds")
    with tempfile.TemporaryDirectory() as folder:
        model = exported(args.megabatch, folder)
        for case in args.case or CASES:
            print(json.dumps(compare(args, model, case)), flush=True)


if __name__ == "__main__":
    main()
