"""megabatch's two passes from gradients to updated weights beside PyTorch's, both in one sitting.

Each step unscales the gradients, looks for any that is not finite, clips their norm and takes a step of AdamW, on the CPU. PyTorch does it as users do, by
GradScaler, clip_grad_norm_ and AdamW; with AdamW fused, which is its fastest there, and tensor by tensor in a loop. The rounds of the two sides
alternate, so that a noisy machine disturbs both alike; each side reports its fastest time. `traffic` is what the memory takes for the bytes that the two
passes have to move, 20 read and 12 written a parameter.

    cargo build --release -p megabatch-amp --example step_speed
    target/peers/bin/python benches/peers/amp.py --program target/release/examples/step_speed --threads 1
"""
import argparse
import json
import sys

import torch

from timing import answer_of, fastest, least


class TorchSide:
    def __init__(self, args, tensors):
        torch.manual_seed(0)
        size = args.params // tensors
        self.parameters = [torch.nn.Parameter(torch.randn(size)) for _ in range(tensors)]
        for p in self.parameters:
            p.grad = torch.randn(size) * 1e-3
        self.gradients = [p.grad for p in self.parameters]
        self.steps = {name: self.step(options) for name, options in {"fused": {"fused": True}, "loop": {"foreach": False}}.items()}

    def step(self, options):
        optimizer = torch.optim.AdamW(self.parameters, 1e-9, **options)
        # A scale of 1, so that gradients, which are unscaled in their place, stay what they are from step to step.
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**9)

        def step():
            scaler.scale(torch.zeros(1))
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            scaler.step(optimizer)
            scaler.update()

        return step

    def round(self, repeats):
        return {name: fastest(repeats, step) for name, step in self.steps.items()}


def our_round(args, tensors):
    return answer_of(args.program, [args.params, tensors, args.threads, args.repeats])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the example step_speed, a release build")
    parser.add_argument("--params", type=int, default=5_000_000)
    parser.add_argument("--tensors", type=int, nargs="+", default=[16, 400])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9, help="timed runs of a round")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args([word for word in sys.argv[1:] if word != "--"])
    torch.set_num_threads(args.threads)
    print(f"PyTorch {torch.__version__}, {args.threads} threads, {args.params} parameters")
    for tensors in args.tensors:
        torch_side, theirs, ours = TorchSide(args, tensors), [], []
        for _ in range(args.rounds):
            theirs.append(torch_side.round(args.repeats))
            ours.append(our_round(args, tensors))
        theirs, ours = least(theirs), least(ours)
        milliseconds = {f"{name}_ms": round(1e3 * seconds, 3) for name, seconds in ours.items()}
        for name, seconds in theirs.items():
            answer = {"tensors": tensors, "pytorch": name, "pytorch_ms": round(1e3 * seconds, 3)}
            print(json.dumps(answer | milliseconds | {"ratio": round(seconds / ours["step"], 2)}), flush=True)


if __name__ == "__main__":
    main()
