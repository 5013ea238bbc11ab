"""The recurrence kernels of the CUDA engine, checked and timed on a GPU without a line of Rust.

It launches the committed PTX through CuPy on tensors of PyTorch and compares every step with a recurrence in float64 on the same GPU, which rounds where
the kernels round: h and the gates' gradients to the type, kept gates to f16. A case is also five runs with equal bits, outputs poisoned with NaN before each,
guards around every buffer, and the same bits with tiles of other sizes. numpy packs the fragments of weights; the kernels that pack them are cases, too.
Covered: the recurrence of one block and of groups, forward and backward; over rows that it projects itself; with W_hh in eight bits.

    python gpu_kernels.py --kernels k0=crates/nn-cuda/ptx [--kernels k1=DIR ...] [--seconds 200] [--json FILE] [--only checks|times] [--match REGEX]
    python gpu_kernels.py --kernels k0=crates/nn-cuda/ptx --dry-run        # numpy alone: every launch, its arguments compared with the PTX

A later folder may lack files: those of the first stand in for them, and only what it has is checked again. Cases run in a second process, which is replaced
when it hangs or loses the GPU. Exit codes: 0 all passed, 1 a check failed or was not run, 6 no GPU, 77 no numpy.
"""
import argparse
import ctypes
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

NO_GPU, LOST, SKIPPED = 6, 7, 77
try:
    import numpy as np
except ImportError as error:
    print(f"gpu_kernels.py is skipped: {error}")
    sys.exit(SKIPPED)

GUARD_BYTES = 4096
ONES = 0xFF  # the byte of guards and of poison: NaN in every float type, but not the NaN that the hardware makes
BLOCK_UNITS, GROUP_BLOCK_UNITS, PACK_THREADS = 128, 32, 256
WINDOWS_BY_FOURS, WINDOWS_BY_EIGHTS = 512, 1024
RUNS = 5
DRY_RESIDENT_BLOCKS = 132  # multiprocessors of an H100, for --dry-run
TOLERANCE = {("forward", "f16"): 2e-3, ("backward", "f16"): 2e-3, ("forward", "bf16"): 1.2e-2, ("backward", "bf16"): 2e-2,
             ("forward", "f32"): 3e-4}
EXACT_TOLERANCE = 2e-5  # of f32, over 480 steps
EXACT_TILE_SHARE, EXACT_REGISTER_NUMBERS, EXACT_SINGLES = 4, {1: 160, 2: 168, 4: 168}, 132  # recurrence_f32.rs, and blocks that an H100 runs at once
SEQUENCE = np.dtype([("projected_row", "<u8"), ("step_row", "<u8"), ("row_step", "<u8"), ("weight", "<u4"), ("window", "<u4"), ("windows", "<u4"),
                     ("steps", "<u4"), ("input", "<u8"), ("features", "<u8")])
TILE = np.dtype([("sequence", "<u4"), ("window", "<u4")])


# Cases, and what a launch is told of them: numpy alone.

@dataclass(frozen=True)
class Sequence:
    """One timeframe. Rows: "bars" that windows share in any order; "steps" of a layer below, `windows` apart; "apart", of each window its own."""
    steps: int
    windows: int
    layout: str

    @property
    def rows(self):
        return self.steps + self.windows if self.layout == "bars" else self.steps * self.windows

    @property
    def row_step(self):
        return self.windows if self.layout == "steps" else 1

    def first(self, rng):
        numbers = np.arange(self.windows, dtype=np.uint32)
        return {"bars": lambda: rng.permutation(numbers), "steps": lambda: numbers, "apart": lambda: numbers * np.uint32(self.steps)}[self.layout]()


@dataclass(frozen=True)
class Case:
    kernel: str  # forward, backward, rows, which projects what it reads, or bytes, with W_hh in eight bits
    dtype: str  # of hidden states; f32 without bytes: the exact kernels
    hidden: int
    sequences: tuple
    features: int = 0
    is_training: bool = True  # forward: gates are kept; backward: gradients come from every output

    @property
    def units(self):
        if self.hidden <= BLOCK_UNITS:
            return max(32, 1 << (self.hidden - 1).bit_length())
        return -(-self.hidden // BLOCK_UNITS) * BLOCK_UNITS

    @property
    def is_exact(self):
        return self.dtype == "f32" and self.kernel != "bytes"

    def exact_windows(self, tile):
        """Windows of a block of the exact kernels: one where all blocks run at once."""
        blocks = sum(-(-of.windows // tile) * tile for of in self.sequences)
        return 1 if tile == self.tiles[0] and blocks <= EXACT_SINGLES else tile // EXACT_TILE_SHARE

    @property
    def is_group(self):
        return self.units > BLOCK_UNITS

    @property
    def module(self):
        if self.is_exact:
            return "recurrence_f32"
        if self.kernel in ("rows", "bytes"):
            return {"rows": "recurrence_of_rows", "bytes": "recurrence_bytes"}[self.kernel]
        return "recurrence" + ("_group" if self.is_group else "") + ("_backward" if self.kernel == "backward" else "")

    @property
    def direction(self):
        return "backward" if self.kernel == "backward" else "forward"

    @property
    def windows(self):
        return sum(of.windows for of in self.sequences)

    @property
    def step_rows(self):
        return sum(of.steps * of.windows for of in self.sequences)

    @property
    def tiles(self):
        """Windows of a block, or of a part of the exact kernels' blocks."""
        has_fours = self.kernel in ("forward", "backward", "rows") and not self.is_exact and not self.is_group
        return (4, 8, 16) if has_fours else (8, 16)

    @property
    def tile(self):
        if self.windows > WINDOWS_BY_EIGHTS:
            return 16
        return self.tiles[0] if self.windows <= WINDOWS_BY_FOURS else 8

    @property
    def input_width(self):
        """Numbers to which rows are padded: 16, 32 or 64."""
        return max(16, 1 << (self.features - 1).bit_length())

    @property
    def label(self):
        shapes = " + ".join(f"T {of.steps} B {of.windows} {of.layout}" for of in self.sequences)
        extra = (f" F {self.features}" if self.features else "") + ("" if self.is_training else " without gates or d_outputs")
        return f"{self.module} {self.dtype} H {self.hidden} {shapes}{extra}"

    @property
    def keeps_gates(self):
        return self.kernel == "backward" or self.is_training and self.kernel != "bytes"

    def kernel_name(self, tile):
        if self.kernel == "bytes":
            return f"forward_bytes_{self.units}_{tile}"
        if self.is_exact:
            return f"{self.kernel}_f32_{self.units}_{self.exact_windows(tile)}"
        return f"{self.kernel}_{self.dtype}_{self.units}" + ("" if self.is_group else f"_{tile}")


@dataclass
class Argument:
    name: str
    bits: int
    value: int = None  # None: the address of the buffer of that name, or null where there is none


@dataclass
class Launch:
    module: str
    kernel: str
    blocks: int
    threads: int
    arguments: list
    is_cooperative: bool = False
    shared_bytes: int = 0

    def __str__(self):
        told = ", ".join(a.name if a.value is None else f"{a.name}={a.value}" for a in self.arguments)
        return f"{self.module}.{self.kernel}<<<{self.blocks}, {self.threads}{', cooperative' if self.is_cooperative else ''}>>>({told})"


def addresses(names):
    return [Argument(name, 64) for name in names.split()]


def numbers(**values):
    return [Argument(name, 32, int(value)) for name, value in values.items()]


@dataclass
class WorkList:
    """`WorkList` of work_list.rs: sequences in the case's order, tiles of the longest first."""
    places: np.ndarray
    tiles: np.ndarray
    first: np.ndarray
    projected_rows: int


def work_list(case, tile, rng):
    places, firsts = np.zeros(len(case.sequences), SEQUENCE), []
    projected_row = step_row = window = 0
    for number, of in enumerate(case.sequences):
        places[number] = (projected_row, step_row, of.row_step, number, window, of.windows, of.steps, projected_row * case.features, case.features)
        firsts.append(of.first(rng))
        projected_row, step_row, window = projected_row + of.rows, step_row + of.steps * of.windows, window + of.windows
    assert 4 * projected_row * case.hidden < 1 << 32 and step_row + window < 1 << 32, "too many rows for one launch"
    longest_first = sorted(range(len(case.sequences)), key=lambda number: -case.sequences[number].steps)
    tiles = [(number, start) for number in longest_first for start in range(0, case.sequences[number].windows, tile)]
    return WorkList(places, np.array(tiles, TILE), np.concatenate(firsts), projected_row)


def shares(case, tile, groups):
    """Groups with something to do, and tiles of each: `Shares` of group.rs."""
    tiles = [-(-of.windows // tile) for of in case.sequences if of.windows]
    spans = lambda each: sum(-(-count // each) for count in tiles)
    each = next((each for each in range(1, max(tiles)) if spans(each) <= groups), max(tiles))
    return min(groups, spans(each)), each


def launch(case, work, tile, resident_blocks):
    """A launch as recurrence/mod.rs, recurrence_backward/mod.rs and recurrence_of_rows/mod.rs submit it. `resident_blocks`: what the GPU runs at once."""
    in_direction = {"forward": "fragments projected first hidden cell gates", "backward": "fragments cell gates d_outputs d_hidden d_cell d_gates",
                    "bytes": "fragments scales projected first hidden cell"}
    if case.is_group:
        blocks = case.units // GROUP_BLOCK_UNITS
        groups, each = shares(case, tile, resident_blocks // blocks)
        assert groups > 0, f"room for {resident_blocks} blocks, a group has {blocks}"
        told = numbers(tile_count=len(work.tiles), tiles_each=each, width=tile, H=case.hidden)
        arguments = addresses("sequences tiles") + told + addresses(in_direction[case.kernel] + " arrived")
        return Launch(case.module, case.kernel_name(tile), groups * blocks, 32 * blocks, arguments, True)
    if case.is_exact:
        return exact_launch(case, work, tile, in_direction[case.kernel])
    arguments = addresses("sequences tiles") + numbers(H=case.hidden)
    if case.kernel == "rows":
        doublings = (case.input_width // 16).bit_length() - 1
        arguments += addresses("fragments rows input_fragments bias") + numbers(doublings=doublings) + addresses("first hidden cell gates")
    else:
        arguments += addresses(in_direction[case.kernel])
    threads = (4 if case.kernel == "bytes" else 2) * case.units
    return Launch(case.module, case.kernel_name(tile), len(work.tiles), threads, arguments)


def exact_launch(case, work, tile, names):
    """A launch as recurrence_f32.rs submits it."""
    arguments = addresses("sequences tiles") + numbers(tile_windows=tile, H=case.hidden) + addresses(names)
    threads, windows = 2 * case.units, case.exact_windows(tile)
    shared = max(0, 2 * case.units - EXACT_REGISTER_NUMBERS[windows]) * threads + windows * 4 * case.units
    return Launch(case.module, case.kernel_name(tile), len(work.tiles) * tile // windows, threads, arguments, shared_bytes=4 * shared)


# Weights: bits of the type, as the kernels' lanes hold them.

def rounded_bits(values, dtype):
    """f32 to the nearest number of the type, ties to even."""
    if dtype == "f32":
        return values.astype(np.float32)
    if dtype == "f16":
        return values.astype(np.float16).view(np.uint16)
    wide = values.astype(np.float32).view(np.uint32)
    return ((wide + 0x7FFF + (wide >> 16 & 1)) >> 16).astype(np.uint16)


def widened(bits, dtype):
    if dtype == "f32":
        return bits.astype(np.float64)
    return bits.view(np.float16).astype(np.float64) if dtype == "f16" else (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@dataclass
class Lanes:
    """Of each register of fragments: its number, the line and quad of its lane, and its number of four."""
    number: np.ndarray

    def __post_init__(self):
        self.part, self.line, self.quad = self.number % 4, self.number // 4 % 32 // 4, self.number // 4 % 4
        self.low, self.inner = self.part % 2, self.part // 2


def registers(rows, units, width, low, high):
    """Two elements each of `rows` [4H, K], zero behind its ends, at (row, column) `low` and `high`."""
    padded = np.zeros((4 * units, width), np.uint32)
    padded[:rows.shape[0], :rows.shape[1]] = rows
    return padded[low] | padded[high] << 16


def forward_fragments(rows, units, width):
    """[units / 16 warps, width / 16, 4 gates, 32 lanes, 4], as `a` of mma.m16n8k16: of 16 units the even ones, then the odd. Also W_ih, by columns padded to `width`."""
    of = Lanes(np.arange(2 * units * width))
    tile, warp = of.number // 128 % (width // 4), of.number // 128 // (width // 4)
    gate_row = 4 * (16 * warp + 2 * of.line + of.low) + tile % 4
    column = tile // 4 * 16 + 2 * of.quad + 8 * of.inner
    return registers(rows, units, width, (gate_row, column), (gate_row, column + 1))


def backward_fragments(rows, units):
    """[units / 16 warps, units / 8, 2 tiles, 32 lanes, 4] of the transpose: 32 units of two warps, half of the gates' rows each."""
    of = Lanes(np.arange(2 * units * units))
    tile, warp = of.number // 128 % (units // 4), of.number // 128 // (units // 4)
    unit = warp // 2 * 32 + tile % 2 * 16 + 2 * of.line + of.low
    gate_row = warp % 2 * 2 * units + tile // 2 * 16 + 2 * of.quad + 8 * of.inner
    return registers(rows, units, units, (gate_row, unit), (gate_row + 1, unit))


def exact_fragments(rows, units, direction):
    """[units / 16, 8, 2 · units threads, 4] f32: by four columns at a time eight rows, of W_hh or of its transpose."""
    number = np.arange(4 * units * units)
    column, row, thread, of_four = number // (64 * units), number // (8 * units) % 8, number // 4 % (2 * units), number % 4
    padded = np.zeros((4 * units, units), np.float32)
    padded[:rows.shape[0], :rows.shape[1]] = rows
    if direction == "forward":
        return padded[thread // 4 * 8 + row, 16 * column + thread % 4 * 4 + of_four].view(np.uint32)
    return padded[64 * column + thread % 16 * 4 + of_four, thread // 16 * 8 + row].view(np.uint32)


def group_fragments(rows, units, direction):
    """[units / 32 blocks, units / 32 warps, 16, 32 lanes, 4], columns in the order in which a lane reads states or gradients."""
    of, warps = Lanes(np.arange(2 * units * units)), units // 32
    tile, warp, block = of.number // 128 % 16, of.number // 2048 % warps, of.number // 2048 // warps
    if direction == "forward":
        gate_row = 4 * (32 * block + 8 * (warp % 4) + of.line) + tile % 2 * 2 + of.low
        column = 128 * (warp // 4) + tile // 4 * 32 + 8 * of.quad + tile // 2 % 2 * 4 + 2 * of.inner
        return registers(rows, units, units, (gate_row, column), (gate_row, column + 1))
    unit = 32 * block + tile // 8 * 16 + of.line + 8 * of.low
    gate_row = 4 * (32 * warp + tile % 8 * 4 + of.quad) + 2 * of.inner
    return registers(rows, units, units, (gate_row, unit), (gate_row + 1, unit))


def byte_fragments(rows, units):
    """[units / 8 warps, units / 32, 2, 32 lanes, 16 bytes], as `a` of mma.m16n8k32: `fragments` of recurrence_bytes.rs."""
    number = np.arange(4 * units * units)
    byte, register, lane, pairs = number % 4, number // 4 % 4, number // 16 % 32, number // 512 % 2
    step, warp = number // 1024 % (units // 32), number // (32 * units)
    padded = np.zeros((4 * units, units), np.int8)
    padded[:rows.shape[0], :rows.shape[1]] = rows
    return padded[4 * (8 * warp + lane // 4) + 2 * pairs + register % 2, 32 * step + 4 * (lane % 4) + byte + register // 2 * 16].view(np.uint32)


def fragments(rows, units, direction):
    if rows.dtype == np.int8:
        return byte_fragments(rows, units)
    if rows.dtype == np.float32:
        return exact_fragments(rows, units, direction)
    if units > BLOCK_UNITS:
        return group_fragments(rows, units, direction)
    return forward_fragments(rows, units, units) if direction == "forward" else backward_fragments(rows, units)


def random_weight(rng, hidden, width, dtype):
    """[4H, width], unit by unit its rows of i, f, g, o: as nn.LSTM begins."""
    return rounded_bits(rng.uniform(-1, 1, (4 * hidden, width)).astype(np.float32) / np.float32(np.sqrt(hidden)), dtype)


@dataclass
class Weights:
    """Of every sequence."""
    recurrent: list
    input: list
    bias: np.ndarray  # [sequences, H, 4]
    scales: np.ndarray  # of rows in eight bits, [sequences, H, 4]

    def wide(self, number, dtype):
        """W_hh of a sequence in float64, [4H, H]."""
        rows = self.recurrent[number]
        if rows.dtype == np.int8:
            return rows * self.scales[number].reshape(-1, 1).astype(np.float64)
        return widened(rows, dtype)


def weights(case, rng):
    bound = 2 / np.sqrt(case.hidden)
    bias = rng.uniform(-bound, bound, (len(case.sequences), case.hidden, 4)).astype(np.float32)
    scales = rng.uniform(0.5, 1, bias.shape).astype(np.float32) * np.float32(bound / 2 / 127)
    if case.kernel == "bytes":
        return Weights([rng.integers(-127, 128, (4 * case.hidden, case.hidden), np.int8) for _ in case.sequences], [], bias, scales)
    each = lambda width: [random_weight(rng, case.hidden, width, case.dtype) for _ in case.sequences]
    return Weights(each(case.hidden), each(case.features) if case.features else [], bias, scales)


def seed_of(seed, case):
    return (seed << 32) + zlib.crc32(case.label.encode())


# What the PTX says of its kernels.

@dataclass
class Entry:
    bits: list
    threads: int


def entries(path):
    found, text = {}, Path(path).read_text()
    for match in re.finditer(r"\.entry\s+(\w+)\s*\((.*?)\)(.*?)\{", text, re.S):
        threads = re.search(r"\.maxntid\s+(\d+)", match[3])
        found[match[1]] = Entry([int(bits) for bits in re.findall(r"\.param\s+\.[busf](\d+)", match[2])], int(threads[1]) if threads else None)
    return found


def disagreement(told, known):
    """What a launch has other than the PTX, or none."""
    entry = known.get(told.kernel)
    if entry is None:
        return f"{told.kernel}: no such kernel in {told.module}.ptx"
    if entry.bits != [a.bits for a in told.arguments]:
        return f"{told.kernel}: parameters of {entry.bits} bits, arguments of {[a.bits for a in told.arguments]}"
    if entry.threads not in (None, told.threads):
        return f"{told.kernel}: made for {entry.threads} threads, launched with {told.threads}"
    return None


@dataclass
class Variant:
    name: str
    folder: Path
    first: Path

    def has(self, module):
        return (self.folder / f"{module}.ptx").is_file()

    def path(self, module):
        return (self.folder if self.has(module) else self.first) / f"{module}.ptx"


# The list of what is run.

@dataclass
class Item:
    kind: str  # weights, check, time
    case: Case
    variant: Variant = None  # None: all of them, side by side
    tile: int = None

    @property
    def label(self):
        if self.kind == "weights":
            return f"recurrent_weights {self.case.dtype} H {self.case.hidden}" + (f" F {self.case.features}" if self.case.features else "")
        return self.case.label + (f" tile {self.tile}" if self.tile else "")


def one(steps, windows, layout):
    return (Sequence(steps, windows, layout),)


def checked_cases(steps):
    several = (Sequence(steps, 9, "bars"), Sequence(max(steps // 5, 1), 33, "steps"), Sequence(1, 5, "bars"), Sequence(steps, 17, "bars"))
    shapes = [(9, "bars"), (1056, "steps"), (2048, "bars")]
    cases = []
    for hidden, some in [(128, shapes), (100, shapes[:2]), (20, shapes[:2]), (50, shapes[:1])]:
        for dtype in ("bf16", "f16"):
            for kernel in ("forward", "backward"):
                cases += [Case(kernel, dtype, hidden, one(steps, windows, layout)) for windows, layout in some]
            for windows, features in [(9, 5), (1056, 16), (2048, 64)][:len(some)]:
                cases.append(Case("rows", dtype, hidden, one(steps, windows, "apart"), features))
            if hidden == 128:
                cases += [Case(kernel, dtype, hidden, several) for kernel in ("forward", "backward")]
                cases += [Case("rows", dtype, hidden, several, 40), Case("rows", dtype, hidden, one(steps, 9, "steps"), 16, False)]
                cases += [Case(kernel, dtype, hidden, one(steps, 9, "bars"), 0, False) for kernel in ("forward", "backward")]
        cases += [Case("bytes", "f32", hidden, one(steps, windows, layout)) for windows, layout in some]
        cases += [Case(kernel, "f32", hidden, one(steps, windows, layout)) for kernel in ("forward", "backward") for windows, layout in some]
    cases += [Case(kernel, "f32", 128, several) for kernel in ("forward", "backward")]
    cases.append(Case("bytes", "f32", 128, several))
    for hidden in (256, 384, 512, 200, 509):
        for dtype in ("bf16", "f16"):
            for kernel in ("forward", "backward"):
                cases += [Case(kernel, dtype, hidden, one(steps, windows, layout)) for windows, layout in (shapes if hidden % 128 == 0 else shapes[:1])]
                if hidden == 256:
                    cases.append(Case(kernel, dtype, hidden, several))
    return sorted(cases, key=lambda case: (case.is_group, case.windows > 1100, case.windows > 100))


def timed_cases(steps):
    cases = []
    for dtype in ("bf16", "f16"):
        for windows in (64, 512, 1056, 2048):
            cases += [Case("forward", dtype, 128, one(steps, windows, layout)) for layout in ("bars", "steps")]
            cases += [Case("backward", dtype, 128, one(steps, windows, "bars"))]
            cases += [Case("rows", dtype, 128, one(steps, windows, "apart"), features) for features in (16, 64)]
    cases += [Case(kernel, "f32", 128, one(steps, windows, "bars")) for windows in (64, 1056, 2048) for kernel in ("forward", "backward", "bytes")]
    wide = [Case(kernel, "bf16", hidden, one(steps, windows, "bars")) for hidden in (256, 512) for windows in (64, 1056) for kernel in ("forward", "backward")]
    return cases, wide


def items(options):
    """All of them in order; the same in both processes."""
    checks, times = [], []
    for variant in options.variants:
        for dtype in ("bf16", "f16", "f32") if variant.has("recurrent_weights") else ():
            widths = [(hidden, features) for hidden in (20, 100, 128, 200, 512) for features in ((0, 5, 64) if hidden <= BLOCK_UNITS else (0,))]
            if dtype == "f32":
                widths = [(hidden, 0) for hidden in (20, 50, 100, 128)]
            checks += [Item("weights", Case("forward", dtype, hidden, one(1, 1, "bars") * 2, features), variant) for hidden, features in widths]
        checks += [Item("check", case, variant) for case in checked_cases(options.steps) if variant.has(case.module)]
    narrow, wide = timed_cases(options.steps)
    times = [Item("time", case, None, case.tile) for case in narrow + wide]
    times += [Item("time", case, None, tile) for case in narrow if case.dtype == "bf16" for tile in case.tiles if tile != case.tile]
    chosen = (checks if options.only != "times" else []) + (times if options.only != "checks" else [])
    return [item for item in chosen if re.search(options.match, item.label)]


# The GPU.

class CupyLauncher:
    """Launches through CuPy, on PyTorch's stream."""

    def __init__(self, torch):
        import cupy
        self.cupy, self.torch = cupy, torch

    def load(self, path, is_cooperative):
        module = self.cupy.RawModule(path=str(path), enable_cooperative_groups=is_cooperative)
        module.module  # loads it
        return module

    def function(self, module, name):
        function = module.get_function(name)
        function.kernel  # loads it
        return function

    def resident_blocks(self, function, threads):
        each = self.cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, threads, 0)
        return each * self.torch.cuda.get_device_properties(0).multi_processor_count

    def resources(self, function):
        return {"registers": function.num_regs, "spilled_bytes": function.local_size_bytes, "shared_bytes": function.shared_size_bytes}

    def submit(self, function, told, values):
        arguments = tuple(np.uint64(value) if a.bits == 64 else np.uint32(value) for a, value in zip(told.arguments, values))
        with self.cupy.cuda.ExternalStream(self.torch.cuda.current_stream().cuda_stream):
            if told.shared_bytes > function.max_dynamic_shared_size_bytes:
                function.max_dynamic_shared_size_bytes = told.shared_bytes
            function((told.blocks,), (told.threads,), arguments, shared_mem=told.shared_bytes)


class DriverLauncher:
    """The same by the driver itself, for where there is no CuPy: PyTorch's context is current."""

    def __init__(self, torch):
        self.torch, self.driver = torch, ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{name}: {code}, {(text.value or b'').decode()}")

    def load(self, path, is_cooperative):
        module = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), Path(path).read_bytes() + b"\0")
        return module, is_cooperative

    def function(self, module, name):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), module[0], name.encode())
        return function

    def resident_blocks(self, function, threads):
        each = ctypes.c_int()
        self.call("cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(each), function, ctypes.c_int(threads), ctypes.c_size_t(0))
        return each.value * self.torch.cuda.get_device_properties(0).multi_processor_count

    def resources(self, function):
        found = {}
        for name, number in (("shared_bytes", 1), ("spilled_bytes", 3), ("registers", 4)):
            value = ctypes.c_int()
            self.call("cuFuncGetAttribute", ctypes.byref(value), ctypes.c_int(number), function)
            found[name] = value.value
        return found

    def submit(self, function, told, values):
        held = [(ctypes.c_uint64 if a.bits == 64 else ctypes.c_uint32)(value) for a, value in zip(told.arguments, values)]
        pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(value) for value in held])
        if told.shared_bytes > 48 << 10:
            self.call("cuFuncSetAttribute", function, ctypes.c_int(8), ctypes.c_int(told.shared_bytes))
        shape = [ctypes.c_uint(size) for size in (told.blocks, 1, 1, told.threads, 1, 1, told.shared_bytes)]
        stream = ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)
        rest = (pointers,) if told.is_cooperative else (pointers, None)
        self.call("cuLaunchCooperativeKernel" if told.is_cooperative else "cuLaunchKernel", function, *shape, stream, *rest)


class Gpu:
    def __init__(self, options):
        import torch
        self.torch, self.device, self.options = torch, options.device, options
        if self.device == "cuda" and not torch.cuda.is_available():
            sys.exit(NO_GPU)
        self.types = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "u8": torch.uint8, "u32": torch.int32}
        torch.zeros(1, device=self.device)
        self.jit, self.modules, self.functions, self.known = {}, {}, {}, {}
        self.launcher, self.remark = self.make_launcher()

    def make_launcher(self):
        """The launcher, and why it is not CuPy's: that loads and asks for all that cases need, once, before any case depends on it."""
        if self.options.launcher == "driver":
            return DriverLauncher(self.torch), ""
        try:
            launcher, variant = CupyLauncher(self.torch), self.options.variants[0]
            function = launcher.function(launcher.load(variant.path("recurrent_weights"), True), "fragments_bf16")
            assert launcher.resident_blocks(function, PACK_THREADS) > 0 and launcher.resources(function)["registers"] > 0
            length, bits = 2 * 32 * 32, self.torch.zeros(3, 2 * 32 * 32, dtype=self.torch.int32, device=self.device)
            told = Launch("", "", length // PACK_THREADS, PACK_THREADS, addresses("rows forward backward") + numbers(H=20, HP=32, len=length), True)
            launcher.submit(function, told, [of.data_ptr() for of in bits] + [20, 32, length])
            self.synchronize()
            return launcher, ""
        except Exception as error:
            return DriverLauncher(self.torch), f", not CuPy: {type(error).__name__}: {error}"[:300]

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def function(self, variant, module, name, is_cooperative=False):
        path = variant.path(module)
        times = self.jit.setdefault(f"{variant.name} {module}", {"load_s": 0.0, "functions_s": 0.0, "functions": 0})
        begun = time.perf_counter()
        if path not in self.modules:
            self.modules[path] = self.launcher.load(path, is_cooperative)
            times["load_s"] += time.perf_counter() - begun
        begun = time.perf_counter()
        if (path, name) not in self.functions:
            self.functions[path, name] = self.launcher.function(self.modules[path], name)
            times["functions_s"] += time.perf_counter() - begun
            times["functions"] += 1
        return self.functions[path, name]

    def submit(self, variant, told, buffers):
        """Submits a launch that agrees with the PTX; buffers that are missing are null."""
        path = variant.path(told.module)
        if path not in self.known:
            self.known[path] = entries(path)
        problem = disagreement(told, self.known[path])
        if problem:
            raise ValueError(problem)
        values = [a.value if a.value is not None else buffers[a.name].address if a.name in buffers else 0 for a in told.arguments]
        self.launcher.submit(self.function(variant, told.module, told.kernel, told.is_cooperative), told, values)

    def upload(self, array):
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


class Buffer:
    """Memory with guards on both sides."""

    def __init__(self, gpu, dtype, size):
        self.gpu, self.dtype = gpu, gpu.types[dtype]
        self.bytes = size * self.dtype.itemsize
        total = -(-(2 * GUARD_BYTES + self.bytes) // 8) * 8
        self.all = gpu.torch.full((total,), ONES, dtype=gpu.torch.uint8, device=gpu.device)
        self.memory = self.all[GUARD_BYTES:GUARD_BYTES + self.bytes]
        self.data = self.memory.view(self.dtype)
        self.address = self.memory.data_ptr()

    @classmethod
    def holding(cls, gpu, dtype, array):
        memory = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8).copy()
        buffer = cls(gpu, dtype, len(memory) // gpu.types[dtype].itemsize)
        buffer.memory.copy_(gpu.upload(memory))
        return buffer

    def poison(self):
        self.memory.fill_(ONES)

    def guards_are_intact(self):
        ends = (self.all[:GUARD_BYTES], self.all[GUARD_BYTES + self.bytes:])
        return all(bool((end == ONES).all()) for end in ends)

    def checksum(self):
        """Of every byte and its place, guards too: another number for any change of eight bytes in a row."""
        torch, chunk = self.gpu.torch, 1 << 22
        words, total = self.all.view(torch.int64), torch.zeros((), dtype=torch.int64, device=self.gpu.device)
        places = (torch.arange(min(chunk, len(words)), dtype=torch.int64, device=self.gpu.device) * 2 + 1) * 0x1E3779B97F4A7C15
        for start in range(0, len(words), chunk):
            part = words[start:start + chunk]
            total = total * 1000003 + (part * places[:len(part)]).sum()
        return int(total)


@dataclass
class Setup:
    """A case's arrays. `given`: what outputs hold before a run, by name."""
    case: Case
    weights: Weights
    work: dict  # by tile
    buffers: dict
    given: dict = field(default_factory=dict)


OUTPUTS = {"forward": ("hidden", "cell", "gates"), "backward": ("d_hidden", "d_cell", "d_gates")}


def setup(gpu, case, random_inputs):
    """`random_inputs`: gates and cells of a backward case are any numbers, for timing."""
    rng = np.random.default_rng(seed_of(gpu.options.seed, case))
    made, state = weights(case, rng), rng.bit_generator.state
    work = {}
    for tile in case.tiles:
        rng.bit_generator.state = state  # the same first rows
        work[tile] = work_list(case, tile, rng)
    gpu.torch.manual_seed(seed_of(gpu.options.seed, case))
    normal = lambda *shape: gpu.torch.randn(shape, device=gpu.device)
    rows, hidden, some = case.step_rows, case.hidden, work[case.tile]
    packed = np.concatenate([fragments(rows, case.units, case.direction) for rows in made.recurrent])
    buffers = {"sequences": Buffer.holding(gpu, "u8", some.places), "first": Buffer.holding(gpu, "u32", some.first),
               "fragments": Buffer.holding(gpu, "u32", packed), "cell": Buffer(gpu, "f32", (rows + case.windows) * hidden)}
    of = Setup(case, made, work, buffers)
    of.given = {"hidden": (normal(case.windows, hidden) * 0.3).to(gpu.types[case.dtype]), "cell": normal(case.windows, hidden) * 0.5}
    if case.keeps_gates:
        buffers["gates"] = Buffer(gpu, "f32" if case.is_exact else "f16", 4 * rows * hidden)
    if case.kernel == "rows":
        add_rows(gpu, of, normal)
    elif case.kernel != "backward" or not random_inputs:
        buffers["projected"] = Buffer(gpu, "f32", some.projected_rows * 4 * hidden)
        buffers["projected"].data.copy_(normal(some.projected_rows * 4 * hidden))
    if case.kernel == "bytes":
        buffers["scales"] = Buffer.holding(gpu, "f32", made.scales)
    if case.kernel == "backward":
        add_gradients(gpu, of, normal, random_inputs)
    else:
        buffers["hidden"] = Buffer(gpu, case.dtype, (rows + case.windows) * hidden)
    return of


def add_rows(gpu, of, normal):
    case, work = of.case, of.work[of.case.tile]
    of.buffers["rows"] = Buffer(gpu, case.dtype, work.projected_rows * case.features)
    of.buffers["rows"].data.copy_(normal(work.projected_rows * case.features).to(gpu.types[case.dtype]))
    packed = np.concatenate([forward_fragments(rows, case.units, case.input_width) for rows in of.weights.input])
    of.buffers["input_fragments"] = Buffer.holding(gpu, "u32", packed)
    of.buffers["bias"] = Buffer.holding(gpu, "f32", of.weights.bias)


def add_gradients(gpu, of, normal, random_inputs):
    """Gates and cells are those of the float64 forward pass, rounded as the kernels keep them."""
    case, buffers = of.case, of.buffers
    rows, edge = case.step_rows * case.hidden, case.windows * case.hidden
    if random_inputs:
        buffers["gates"].data.uniform_(0.1, 0.9)
        buffers["cell"].data.uniform_(-1, 1)
    else:
        for number in range(len(case.sequences)):
            place = Place(of, number)
            place.states("cell", 0).copy_(of.given["cell"][place.edge])
            for step in forward_reference(gpu, of, number):
                place.states("cell", step.t + 1).copy_(step.cell)
                place.gates("gates", step.t).copy_(step.gates)
        del buffers["projected"]
    if case.is_training:
        buffers["d_outputs"] = Buffer(gpu, "f32", rows)
        buffers["d_outputs"].data.normal_(0, 0.5)
    of.given = {name: normal(case.windows, case.hidden) for name in ("d_hidden", "d_cell")}
    buffers["d_hidden"], buffers["d_cell"] = (Buffer(gpu, "f32", edge) for _ in range(2))
    buffers["d_gates"] = Buffer(gpu, case.dtype, 4 * rows)


class Place:
    """A sequence's parts of the arrays."""

    def __init__(self, of, number):
        self.of, self.sequence = of, of.case.sequences[number]
        place = of.work[of.case.tile].places[number]
        self.step_row, self.window, self.projected_row = (int(place[name]) for name in ("step_row", "window", "projected_row"))
        self.edge = slice(self.window, self.window + self.sequence.windows)

    def rows(self, name, start, *shape):
        return self.of.buffers[name].data.view(-1, self.of.case.hidden, *shape)[start:start + self.sequence.windows]

    def gates(self, name, t):
        return self.rows(name, self.step_row + t * self.sequence.windows, 4)

    def steps(self, name, t):
        return self.rows(name, self.step_row + t * self.sequence.windows)

    def states(self, name, t):
        return self.rows(name, self.step_row + self.window + t * self.sequence.windows)


# The oracle.

@dataclass
class Step:
    t: int
    gates: object
    cell: object
    hidden: object


def forward_reference(gpu, of, number):
    """Every step of a sequence in float64, h rounded to the type."""
    case, place, torch = of.case, Place(of, number), gpu.torch
    weight_t = gpu.upload(of.weights.wide(number, case.dtype)).T.contiguous()
    first = gpu.upload(of.work[case.tile].first[place.edge].astype(np.int64)) + place.projected_row
    hidden, cell = (of.given[name][place.edge].double() for name in ("hidden", "cell"))
    if case.kernel == "rows":
        input_t, bias = gpu.upload(widened(of.weights.input[number], case.dtype)).T.contiguous(), gpu.upload(of.weights.bias[number]).double()
    for t in range(place.sequence.steps):
        rows = first + t * place.sequence.row_step
        if case.kernel == "rows":
            start = bias + (of.buffers["rows"].data.view(-1, case.features)[rows].double() @ input_t).view(-1, case.hidden, 4)
        else:
            start = of.buffers["projected"].data.view(-1, case.hidden, 4)[rows].double()
        if case.kernel == "bytes":
            hidden = quantized(hidden)
        sums = start + (hidden @ weight_t).view(-1, case.hidden, 4)
        gates = torch.sigmoid(sums)
        gates[..., 2] = torch.tanh(sums[..., 2])
        cell = gates[..., 1] * cell + gates[..., 0] * gates[..., 2]
        hidden = (gates[..., 3] * torch.tanh(cell)).to(gpu.types[case.dtype]).double()
        yield Step(t, gates, cell, hidden)


def quantized(hidden):
    """Each row as integers of fourteen bits with one scale: bytes.cuh."""
    scale = hidden.abs().amax(1, keepdim=True).clamp(min=1e-300) / 8191
    return (hidden / scale).round() * scale


class Part:
    """How far an output is from the oracle, summed on the GPU."""

    def __init__(self, gpu):
        zero = lambda: gpu.torch.zeros((), dtype=gpu.torch.float64, device=gpu.device)
        self.torch, self.difference, self.magnitude, self.squares, self.of_squares, self.nans = gpu.torch, zero(), zero(), zero(), zero(), zero()

    def add(self, found, expected):
        if expected.numel() == 0:
            return
        found = found.double()
        apart, torch = found - expected, self.torch
        self.nans += torch.isnan(found).sum()
        self.difference = torch.maximum(self.difference, apart.abs().max())
        self.magnitude = torch.maximum(self.magnitude, expected.abs().max())
        self.squares += apart.square().sum()
        self.of_squares += expected.square().sum()

    def result(self):
        """`relative` is 0 where all has vanished, as gradients of 480 steps ago do: below what 16 bits can say."""
        relative = 0.0 if float(self.magnitude) < 1e-2 else float((self.squares / self.of_squares).sqrt())
        largest = float(self.difference / self.magnitude.clamp(min=1))
        return {"largest": largest, "relative": relative, "magnitude": float(self.magnitude), "nans": int(self.nans)}


def compare_forward(gpu, of):
    parts = {name: Part(gpu) for name in OUTPUTS["forward"] if name in of.buffers}
    for number in range(len(of.case.sequences)):
        place = Place(of, number)
        for name in ("hidden", "cell"):
            parts[name].add(place.states(name, 0), of.given[name][place.edge].double())
        for step in forward_reference(gpu, of, number):
            parts["hidden"].add(place.states("hidden", step.t + 1), step.hidden)
            parts["cell"].add(place.states("cell", step.t + 1), step.cell)
            if "gates" in parts:
                parts["gates"].add(place.gates("gates", step.t), step.gates if of.case.is_exact else step.gates.half().double())
    return parts


def compare_backward(gpu, of):
    """The twin of recurrence_backward/mod.rs in float64, gradients of gates rounded to the type."""
    case, torch, parts = of.case, gpu.torch, {name: Part(gpu) for name in OUTPUTS["backward"]}
    for number, sequence in enumerate(case.sequences):
        place, weight = Place(of, number), gpu.upload(of.weights.wide(number, case.dtype))
        d_hidden, d_cell = (of.given[name][place.edge].double() for name in ("d_hidden", "d_cell"))
        for t in reversed(range(sequence.steps)):
            i, f, g, o = place.gates("gates", t).double().unbind(-1)
            before, tangent = place.states("cell", t).double(), torch.tanh(place.states("cell", t + 1).double())
            if "d_outputs" in of.buffers:
                d_hidden = d_hidden + place.steps("d_outputs", t).double()
            d = d_cell + d_hidden * o * (1 - tangent * tangent)
            d_cell = d * f
            exact = torch.stack([d * g * i * (1 - i), d * before * f * (1 - f), d * i * (1 - g * g), d_hidden * tangent * o * (1 - o)], -1)
            d_gates = exact.to(gpu.types[case.dtype]).double()
            parts["d_gates"].add(place.gates("d_gates", t), d_gates)
            d_hidden = d_gates.view(-1, 4 * case.hidden) @ weight
        edges = {name: of.buffers[name].data.view(-1, case.hidden)[place.edge] for name in ("d_hidden", "d_cell")}
        parts["d_hidden"].add(edges["d_hidden"], d_hidden)
        parts["d_cell"].add(edges["d_cell"], d_cell)
    return parts


# Running an item.

def prepare(gpu, of):
    """Poisons the outputs and sets what a kernel finds in them."""
    for name in OUTPUTS[of.case.direction]:
        if name in of.buffers:
            of.buffers[name].poison()
    for name, value in of.given.items():
        if of.case.kernel == "backward":
            of.buffers[name].data.copy_(value.view(-1))
            continue
        for number in range(len(of.case.sequences)):
            place = Place(of, number)
            place.states(name, 0).copy_(value[place.edge])


def told_for(gpu, of, variant, tile):
    """The launch, with buffers of its own for tiles and rounds."""
    case, work, resident = of.case, of.work[tile], None
    if case.is_group:
        threads = 32 * case.units // GROUP_BLOCK_UNITS
        resident = gpu.launcher.resident_blocks(gpu.function(variant, case.module, case.kernel_name(tile), True), threads)
    told, buffers = launch(case, work, tile, resident), dict(of.buffers)
    buffers["tiles"] = Buffer.holding(gpu, "u8", work.tiles)
    if case.is_group:
        buffers["arrived"] = Buffer(gpu, "u32", told.blocks)
    return told, buffers


def submit(gpu, variant, told, buffers):
    if "arrived" in buffers:
        buffers["arrived"].data.zero_()
    gpu.submit(variant, told, buffers)


def digest(of):
    """Checksums of the outputs."""
    return " ".join(f"{of.buffers[name].checksum() & 0xFFFFFFFFFFFFFFFF:016x}" for name in OUTPUTS[of.case.direction] if name in of.buffers)


def run_tile(gpu, of, variant, tile, runs):
    """Digests of so many runs, and faults."""
    told, buffers = told_for(gpu, of, variant, tile)
    changing = {*OUTPUTS[of.case.direction], "arrived"}
    inputs = lambda: {name: buffer.checksum() for name, buffer in buffers.items() if name not in changing}
    before, digests = inputs(), []
    for _ in range(runs):
        prepare(gpu, of)
        submit(gpu, variant, told, buffers)
        gpu.synchronize()
        digests.append(digest(of))
    faults = [f"tile {tile}: guards of {name} overwritten" for name, buffer in buffers.items() if not buffer.guards_are_intact()]
    after = inputs()
    faults += [f"tile {tile}: input {name} changed" for name in before if before[name] != after[name]]
    if len(set(digests)) > 1:
        faults.append(f"tile {tile}: {len(set(digests))} different results of {runs} runs")
    return digests, faults, told


def judge(case, parts, tile):
    """Numbers of every part, and faults."""
    limit, faults, found = EXACT_TOLERANCE if case.is_exact else TOLERANCE[case.direction, case.dtype], [], {}
    for name, part in parts.items():
        found[name] = part.result()
        if found[name]["nans"]:
            faults.append(f"tile {tile}: {name} has {found[name]['nans']} NaN")
        elif not max(found[name]["largest"], found[name]["relative"]) <= limit:
            faults.append(f"tile {tile}: {name} is off by {found[name]['largest']:.1e}, relatively {found[name]['relative']:.1e}; {limit:.1e} allowed")
    return found, faults


def check(gpu, item):
    case, variant = item.case, item.variant
    compare = compare_backward if case.kernel == "backward" else compare_forward
    of = setup(gpu, case, False)
    digests, faults, told = run_tile(gpu, of, variant, case.tile, RUNS)
    found, more = judge(case, compare(gpu, of), case.tile)
    faults += more
    for other in case.tiles:
        if other == case.tile:
            continue
        digests_of_other, more, _ = run_tile(gpu, of, variant, other, 2)
        faults += more
        if digests_of_other[0] != digests[0]:
            faults.append(f"tiles of {other} give other bits than those of {case.tile}")
            faults += judge(case, compare(gpu, of), other)[1]
    resources = gpu.launcher.resources(gpu.function(variant, case.module, told.kernel, told.is_cooperative))
    return {"parts": found, "faults": faults, "digest": digests[0], "launch": str(told), "seed": seed_of(gpu.options.seed, case), **resources}


def packing_launches(case):
    """(launch, expected registers by name) of recurrent_weights.ptx for one case."""
    rng = np.random.default_rng(1)
    rows = [random_weight(rng, case.hidden, case.features or case.hidden, case.dtype) for _ in case.sequences]
    if case.features:
        length, bias = 2 * case.units * case.input_width, rng.uniform(-1, 1, 4 * case.hidden).astype(np.float32)
        told = Launch("recurrent_weights", f"input_fragments_{case.dtype}", -(-length // PACK_THREADS), PACK_THREADS,
                      addresses("rows bias fragments bias_to") + numbers(H=case.hidden, F=case.features, width=case.input_width, len=length))
        expected = {"fragments": forward_fragments(rows[0], case.units, case.input_width), "bias_to": bias.view(np.uint32)}
        return told, {"rows": rows[0], "bias": bias}, expected
    length = (4 if case.is_exact else 2) * case.units ** 2 * len(rows)
    told = Launch("recurrent_weights", f"{'group_' if case.is_group else ''}fragments_{case.dtype}", -(-length // PACK_THREADS), PACK_THREADS,
                  addresses("rows forward backward") + numbers(H=case.hidden, HP=case.units, len=length))
    expected = {name: np.concatenate([fragments(of, case.units, name) for of in rows]) for name in ("forward", "backward")}
    return told, {"rows": np.stack(rows)}, expected


def check_weights(gpu, item):
    told, given, expected = packing_launches(item.case)
    buffers = {name: Buffer.holding(gpu, "u8", array) for name, array in given.items()}
    buffers |= {name: Buffer(gpu, "u32", len(array)) for name, array in expected.items()}
    gpu.submit(item.variant, told, buffers)
    gpu.synchronize()
    faults = [f"guards of {name} overwritten" for name, buffer in buffers.items() if not buffer.guards_are_intact()]
    for name, array in expected.items():
        wrong = int((buffers[name].data.cpu().numpy().view(np.uint32) != array).sum())
        if wrong:
            faults.append(f"{wrong} of {len(array)} numbers of {name} differ from numpy's")
    return {"faults": faults, "launch": str(told)}


def timed(gpu, item):
    """Microseconds a step of each variant that has the kernel, in alternating rounds; with --once, a launch of each."""
    case, tile, launches, rounds, warm_s = item.case, item.tile, 2, 7, 0.05
    of, times, told = setup(gpu, case, True), {}, {}
    for variant in gpu.options.variants:
        if variant.has(case.module) and case.kernel_name(tile) in entries(variant.path(case.module)):
            told[variant.name] = (variant, *told_for(gpu, of, variant, tile))
    prepare(gpu, of)
    if gpu.options.once:
        for variant, one_launch, buffers in told.values():
            submit(gpu, variant, one_launch, buffers)
        gpu.synchronize()
        return {"faults": []}

    def round_of_all():
        for name, (variant, one_launch, buffers) in told.items():
            seconds = seconds_of(gpu, lambda: [submit(gpu, variant, one_launch, buffers) for _ in range(launches)])
            times.setdefault(name, []).append(seconds / launches / case.sequences[0].steps * 1e6)

    begun = time.perf_counter()
    while time.perf_counter() - begun < warm_s:
        round_of_all()
    times.clear()
    for _ in range(rounds):
        round_of_all()
    return {"faults": [], "us_per_step": {name: median(values) for name, values in times.items()}, "all_us_per_step": times}


def seconds_of(gpu, work):
    if gpu.device != "cuda":
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun
    start, end = (gpu.torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


RUN = {"weights": check_weights, "check": check, "time": timed}


def row_of(item):
    return {"kind": item.kind, "label": item.label, "module": item.case.module if item.kind != "weights" else "recurrent_weights",
            "variant": item.variant.name if item.variant else "", "case": asdict(item.case), "tile": item.tile}


# Two processes: one runs items, the other replaces it when it hangs or has lost the GPU.

def say(message):
    print(json.dumps(message), flush=True)


def worker(options, start):
    gpu = Gpu(options)
    name = gpu.torch.cuda.get_device_name(0) if gpu.device == "cuda" else "CPU"
    say({"ready": f"{name}, torch {gpu.torch.__version__}, {type(gpu.launcher).__name__}{gpu.remark}"})
    for number, item in list(enumerate(items(options)))[start:]:
        say({"begun": number})
        row, begun = row_of(item), time.perf_counter()
        try:
            row |= RUN[item.kind](gpu, item)
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            row["faults"] = [f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"[:600]]
        row["seconds"] = time.perf_counter() - begun
        say({"ended": number, "row": row, "jit": gpu.jit})
        leave_if_lost(gpu)


def leave_if_lost(gpu):
    try:
        gpu.synchronize()
        if gpu.device == "cuda" and gpu.torch.cuda.memory_reserved() > 30e9:
            gpu.torch.cuda.empty_cache()
    except Exception as error:
        print(f"the GPU is lost: {error}", file=sys.stderr, flush=True)
        os._exit(LOST)


class Worker:
    def __init__(self, options, start):
        self.errors = tempfile.TemporaryFile("w+")
        environment = {"CUDA_CACHE_DISABLE": "1", **os.environ}  # every JIT is cold
        self.process = subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--worker", str(start)], stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def next(self, seconds):
        """The next message; none at its end. Raises queue.Empty after so many seconds."""
        deadline = time.monotonic() + seconds
        while (line := self.lines.get(timeout=max(deadline - time.monotonic(), 0.01))) is not None:
            try:
                return json.loads(line)
            except ValueError:
                continue  # not ours: a library prints
        return None

    def end(self):
        self.process.kill()
        self.process.wait()
        self.errors.seek(0)
        return self.process.returncode, self.errors.read().strip()[-400:]


@dataclass
class Report:
    rows: list = field(default_factory=list)
    jit: dict = field(default_factory=dict)
    device: str = ""
    not_run: int = 0
    has_no_gpu: bool = False


def supervise(options, report):
    todo, start, deadline = items(options), 0, time.monotonic() + options.seconds
    report.not_run = len(todo)
    while start < len(todo) and time.monotonic() < deadline and not report.has_no_gpu:
        current = Worker(options, start)
        try:
            start = follow(current, options, report, todo, start, deadline)
        finally:
            current.end()


def follow(current, options, report, todo, start, deadline):
    """One worker's life; the number of the item to go on with."""
    is_ready, begun, reason = False, None, "ended"
    while True:
        left = deadline - time.monotonic()
        if begun is None and left <= 0:
            return start
        try:
            message = current.next(options.case_seconds if is_ready else 120)
        except queue.Empty:
            message, reason = None, f"no answer in {options.case_seconds} s"
        if message is None:
            break
        if "ready" in message:
            report.device, is_ready = message["ready"], True
        elif "begun" in message:
            begun = message["begun"]
        else:
            begun, start = None, message["ended"] + 1
            keep_jit(report, message["jit"])
            add_row(options, report, message["row"])
    code, errors = current.end()
    if not is_ready:
        report.has_no_gpu = code == NO_GPU
        if not report.has_no_gpu:
            add_row(options, report, {"kind": "check", "label": "start", "faults": [f"worker: exit code {code}: {errors}"], "variant": ""}, False)
        return len(todo)
    if begun is not None:
        lost = row_of(todo[begun]) | {"faults": [f"worker: {reason}, exit code {code}: {errors}"]}
        add_row(options, report, lost)
        return begun + 1
    return start


def keep_jit(report, jit):
    """Of workers that replaced one another, the one that loaded most of a module."""
    for name, times in jit.items():
        if times["functions"] >= report.jit.get(name, times)["functions"]:
            report.jit[name] = times


def add_row(options, report, row, is_item=True):
    report.rows.append(row)
    report.not_run -= is_item
    if options.json:
        unfinished = Path(f"{options.json}.unfinished")
        unfinished.write_text(json.dumps(asdict(report) | {"seed": options.seed}, indent=1))
        unfinished.replace(options.json)


# The report: failures first, short tables last.

def print_report(options, report):
    failed = [row for row in report.rows if row["faults"]]
    print(f"{report.device or 'no GPU'}; seed {options.seed}; {len(report.rows)} run, {len(failed)} failed, {report.not_run} not run")
    for row in failed[:40]:
        print(f"FAILED {row['variant']} {row['label']}\n    " + "\n    ".join(fault[:300] for fault in row["faults"][:6]))
    if len(failed) > 40:
        print(f"... and {len(failed) - 40} more, in the JSON")
    print_checks(report)
    print_jit(report)
    print_times(options, report)


def print_checks(report):
    """Of each kernel and type its worst numbers."""
    groups = {}
    for row in report.rows:
        if row["kind"] == "check" and "case" in row:
            groups.setdefault((row["variant"], row["module"], row["case"]["dtype"]), []).append(row)
    if groups:
        print(f"\n{'checks':<42}{'passed':>9}{'largest':>10}{'relative':>10}{'registers':>11}{'spilled':>9}")
    for (variant, module, dtype), rows in groups.items():
        worst = lambda key: max((part[key] for row in rows for part in row.get("parts", {}).values()), default=float("nan"))
        most = lambda key: max((row[key] for row in rows if key in row), default="")
        passed = sum(not row["faults"] for row in rows)
        print(f"{f'{variant} {module} {dtype}':<42}{f'{passed}/{len(rows)}':>9}{worst('largest'):>10.1e}{worst('relative'):>10.1e}"
              f"{most('registers'):>11}{most('spilled_bytes'):>9}")


def print_jit(report):
    if report.jit:
        print("\nJIT, seconds: module, then its functions")
    for name, times in report.jit.items():
        print(f"{name:<42}{times['load_s']:>8.2f}{times['functions_s']:>8.2f} for {times['functions']}")


def print_times(options, report):
    names = [variant.name for variant in options.variants]
    rows = [row for row in report.rows if "us_per_step" in row]
    if rows:
        print(f"\n{'microseconds a step, median':<62}" + "".join(f"{name:>9}" for name in names))
    for row in rows:
        print(f"{row['label']:<62}" + "".join(f"{row['us_per_step'][name]:>9.3f}" if name in row["us_per_step"] else f"{'=':>9}" for name in names))


def dry_run(options):
    """Every launch, packed and compared with the PTX."""
    problems, launches = [], 0
    for item in items(options):
        if item.kind == "weights":
            some = [packing_launches(item.case)[0]]
        else:
            rng = np.random.default_rng(seed_of(options.seed, item.case))
            made = weights(item.case, rng) if item.kind == "check" and item.case.windows < 100 else None
            packed = [fragments(rows, item.case.units, item.case.direction) for rows in made.recurrent] if made else []
            assert all(len(of) == (1 if item.case.kernel == "bytes" else 4 if item.case.is_exact else 2) * item.case.units ** 2 for of in packed)
            some = [launch(item.case, work_list(item.case, tile, rng), tile, DRY_RESIDENT_BLOCKS) for tile in ([item.tile] if item.tile else item.case.tiles)]
        for variant in [item.variant] if item.variant else options.variants:
            for told in some:
                launches += 1
                problem = disagreement(told, entries(variant.path(told.module)))
                problems += [problem] if problem else []
                print(f"{item.kind:<8}{variant.name:<4}{item.label}\n            {told}" + (f"\n            PROBLEM {problem}" if problem else ""))
    print(f"{launches} launches, {len(problems)} problems")
    return 1 if problems else 0


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", action="append", required=True, metavar="NAME=DIR")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--case-seconds", type=float, default=30.0, help="after which a case counts as hung")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--only", choices=["checks", "times"])
    parser.add_argument("--match", default="", metavar="REGEX", help="cases whose line it is found in")
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--seed", type=int, default=int(time.time()) & 0xFFFFFFF)
    parser.add_argument("--launcher", choices=["cupy", "driver"], default="cupy")
    parser.add_argument("--once", action="store_true", help="launches a timed case once and times nothing: for a profiler")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    named = [text.split("=", 1) if "=" in text else [f"k{number}", text] for number, text in enumerate(options.kernels)]
    options.variants = [Variant(name, Path(folder), Path(named[0][1])) for name, folder in named]
    options.device = "cuda"
    for variant in options.variants:
        if not any(variant.folder.glob("recur*.ptx")):
            parser.error(f"--kernels {variant.name}={variant.folder}: no recurrence*.ptx there")
    if not items(options):
        parser.error("no case is left: --only and --match")
    return options


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    options = parsed()
    if options.dry_run:
        return dry_run(options)
    if options.worker is not None:
        return worker(options, options.worker)
    if "--seed" not in sys.argv:
        sys.argv += ["--seed", str(options.seed)]
    signal.signal(signal.SIGTERM, interrupted)
    report = Report()
    try:
        supervise(options, report)
    except KeyboardInterrupt:
        pass
    if report.has_no_gpu:
        print("no GPU that PyTorch can use")
        return NO_GPU
    print_report(options, report)
    return 1 if report.not_run or any(row["faults"] for row in report.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
