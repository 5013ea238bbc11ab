// What a launch of the recurrence works on: `SequencePlace` and `Tile` of work_list.rs.
#pragma once

// One layer of one timeframe. Arrays of all sequences follow one another; where this one's begins, in rows:
struct Sequence {
  u64 projected_row;   // of the projected inputs
  u64 step_row;        // of gates, T steps of B windows each; of states, which are those of T + 1 steps, it is `window` rows further
  u64 row_step;        // rows from a window's step to its next one in the projected inputs
  unsigned weight;     // number of its weight
  unsigned window;     // windows of the sequences before it
  unsigned windows;    // B
  unsigned steps;      // T
  u64 input;           // first element of its rows where they are not projected
  u64 features;        // F of these
};

// Steps back from the one that is loaded to that whose numbers set out for the second-level cache: memory takes about as long as half a step.
#define STEPS_AHEAD 3

// Has the line of `address` in the second-level cache soon; nothing waits for it.
__device__ inline void prefetch(const void* address) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#else
  (void)address;
#endif
}

// Windows of a sequence that a block takes, from number `window` on.
struct Tile {
  unsigned sequence, window;
};

// Where a lane is: its unit, the first of its windows of a tile among the sequence's, and the tile.
struct Lane {
  Sequence of;
  Tile tile;
  unsigned H, unit, own;
  bool has_unit;

  // A window past the last one reads what the last one does, and writes nothing.
  __device__ unsigned window(unsigned further) const { return min(own + further, of.windows - 1); }
};
