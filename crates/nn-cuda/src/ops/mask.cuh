// The numbers that masks are drawn from, and what they multiply by; ../dropout.rs has the definition.
#pragma once

#include "mma.cuh"
#include "philox.cuh"

#define WORDS 4  // numbers along the second index that are the words of one answer

// `MaskNumbers` of dropout.rs.
struct Mask {
  unsigned key[2];
  unsigned dropped_below;
  float scale;
};

// The answer for four numbers along the second index.
__device__ inline uint4 draw_words(Mask of, u64 end, unsigned quad, unsigned unit) {
  return philox(make_uint2(of.key[0], of.key[1]), make_uint4(unit, quad, (unsigned)end, (unsigned)(end >> 32)));
}

// Whether the number at (t, unit) is dropped.
__device__ inline bool is_dropped(Mask of, u64 end, unsigned t, unsigned unit) {
  uint4 words = draw_words(of, end, t / WORDS, unit);
  unsigned word = t % WORDS == 0 ? words.x : t % WORDS == 1 ? words.y : t % WORDS == 2 ? words.z : words.w;
  return word < of.dropped_below;
}
