// Sums by a warp in the order of lanes.rs.
#pragma once

#include "mma.cuh"

// Every lane gets the sum over all of them: lane j + 16 is added to lane j, then j + 8, and so on.
__device__ inline float sum_of_lanes(float value) {
  for (int half = 16; half > 0; half /= 2) value = __fadd_rn(value, __shfl_xor_sync(ALL_LANES, value, half));
  return value;
}

// The sum of `term` over 0 … len - 1, of which lane j takes j, j + 32, … in turn.
template <class Term>
__device__ inline float sum_by_warp(unsigned len, Term term) {
  float sum = 0.0f;
  for (unsigned k = threadIdx.x % 32; k < len; k += 32) sum = __fadd_rn(sum, term(k));
  return sum_of_lanes(sum);
}
