// Blocks that share the units of a layer, 32 each: which windows a group of them takes, and how they wait for each other.
#pragma once

#include "work.cuh"

#define UNITS_OF_A_BLOCK 32

// Windows of a sequence, from `begin` to before `end`, that a group takes from the first step to the last. Numbers as in Sequence, none of which needs more than 32 bits here.
struct Span {
  unsigned projected_row, step_row, row_step, weight, window, windows, steps, begin, end;
};

// What there is to do: sequences in the order of their tiles of `width` windows each, of which a span has up to `tiles_each`.
struct Spans {
  const Sequence* sequences;
  const Tile* tiles;
  unsigned tile_count, tiles_each, width;
};

// Span number `number`; false where there are not so many.
__device__ inline bool find_span(Span& span, const Spans& spans, unsigned number) {
  for (unsigned tile = 0; tile < spans.tile_count;) {
    const Sequence& of = spans.sequences[spans.tiles[tile].sequence];
    unsigned tiles = (of.windows + spans.width - 1) / spans.width, each = spans.tiles_each * spans.width, count = (of.windows + each - 1) / each;
    if (number < count) {
      unsigned begin = number * each;
      span = {(unsigned)of.projected_row, (unsigned)of.step_row, (unsigned)of.row_step, of.weight, of.window, of.windows, of.steps, begin,
              min(begin + each, of.windows)};
      return true;
    }
    number -= count;
    tile += tiles;
  }
  return false;
}

// Tells the group that this block has written all of round `round`. All its threads have passed a barrier since; one of them calls this.
__device__ inline void announce(unsigned* arrived, unsigned round) {
  __nv_atomic_store_n(arrived, round, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
}

// A warp waits until each of `count` blocks, whose rounds lie from `arrived` on, has announced round `round`. The blocks of a cooperative launch all run, so that they will.
__device__ inline void wait_for(unsigned* arrived, unsigned count, unsigned round) {
  unsigned lane = threadIdx.x % 32;
  if (lane < count) {
    while (__nv_atomic_load_n(arrived + lane, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE) < round) {
    }
  }
  __syncwarp();
}
