"""The models that lstm_step.py compares, and how much there is to compute at the least where windows share what they have in common."""
import random

TARGETS = 36
# Bars in a window, and minutes in a bar, of each timeframe; features.
SHAPES = {
    "multi": (((480, 1), (288, 5), (192, 15), (96, 60), (48, 240)), 128),
    "single": (((360, 1),), 167),
}
# Samples that megabatch takes through the model at a time, and those that its shuffled benchmarks draw from.
SHARD, SHUFFLED = 32, 100_000


def case_of(name):
    """train|predict : multi|single : batch : consecutive|shuffled"""
    what, model, batch, order = name.split(":")
    return what, model, int(batch), order


def multiply_adds(name, hidden, layers):
    """Multiply-adds of one step, as megabatch forms them: a distinct window once a shard, a bar that windows share projected once."""
    what, model, batch, order = case_of(name)
    timeframes, features = SHAPES[model]
    draw = random.Random(0)
    total = 0
    for first in range(0, batch, SHARD):
        size = min(SHARD, batch - first)
        samples = range(first, first + size) if order == "consecutive" else draw.sample(range(SHUFFLED), size)
        for bars, minutes in timeframes:
            ends = sorted({sample // minutes for sample in samples})
            rows = bars * len(ends)
            covered = bars + sum(min(bars, after - end) for end, after in zip(ends, ends[1:]))
            projected = covered if 2 * covered <= rows else rows
            for layer in range(layers):
                products = (projected * features if layer == 0 else rows * hidden) + rows * hidden
                # Backward: the same for the weights, and the gradients of states and of what is below.
                back = products + (rows - len(ends)) * hidden + (rows * hidden if layer > 0 else 0)
                total += 4 * hidden * (products + (back if what == "train" else 0))
    return total
