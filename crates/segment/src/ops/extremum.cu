// Maxima and minima of rows with the rows they are in. Source of extremum.ptx; launched by extremum.rs.
#include "place.cuh"

// A NaN takes the place of every number, and keeps it.
__device__ inline bool takes(bool better, float value, float best) { return better || (isnan(value) && !isnan(best)); }

struct Max {
  __device__ static bool better(float value, float best) { return takes(value > best, value, best); }
};

struct Min {
  __device__ static bool better(float value, float best) { return takes(value < best, value, best); }
};

// offsets: [outputs + 1].  order: a row of x for each place, or null where they are the same.  x: [rows, columns].
// found: [rows, columns], the arguments of x, or null where each is its own row.
// out, argument: [outputs, columns], `len` numbers.  none: the argument where there are no rows.  A thread takes a column of an output.
template <class Operation>
__device__ inline void extremum(const unsigned* __restrict__ offsets, const unsigned* __restrict__ order, const float* __restrict__ x,
                                const unsigned* __restrict__ found, float* __restrict__ out, unsigned* __restrict__ argument,
                                unsigned none, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  unsigned p = offsets[at.row], end = offsets[at.row + 1];
  if (p == end) {
    out[k] = 0.0f;
    argument[k] = none;
    return;
  }
  u64 winner = order ? order[p] : p;
  float best = x[winner * columns + at.column];
#pragma unroll 4
  for (p++; p < end; p++) {
    u64 row = order ? order[p] : p;
    float value = x[row * columns + at.column];
    if (Operation::better(value, best)) {
      best = value;
      winner = row;
    }
  }
  out[k] = best;
  argument[k] = found ? found[winner * columns + at.column] : (unsigned)winner;
}

#define EXTREMUM(name, Operation)                                                                                             \
  extern "C" __global__ void name(const unsigned* offsets, const unsigned* order, const float* x, const unsigned* found,       \
                                  float* out, unsigned* argument, unsigned none, u64 columns, u64 len) {                      \
    extremum<Operation>(offsets, order, x, found, out, argument, none, columns, len);                                         \
  }

EXTREMUM(segment_max, Max)
EXTREMUM(segment_min, Min)
