// Sums and maxima of rows, in the order in which they lie. Source of fold.ptx; launched by fold.rs.
#include "place.cuh"

struct Sum {
  __device__ static float identity() { return 0.0f; }
  __device__ static float combine(float a, float b) { return __fadd_rn(a, b); }
};

struct Greatest {
  __device__ static float identity() { return -INFINITY; }
  __device__ static float combine(float a, float b) { return b > a || isnan(b) ? b : a; }
};

// offsets: [outputs + 1].  order: a row of x for each place, or null where they are the same.  x: [rows, columns].
// out: [outputs, columns], `len` numbers.  counts: [outputs + 1] or null.  A thread takes a column of an output, so that a warp reads
// neighbouring columns of a row at a time.
template <class Operation>
__device__ inline void fold(const unsigned* __restrict__ offsets, const unsigned* __restrict__ order, const float* __restrict__ x,
                            float* __restrict__ out, const unsigned* __restrict__ counts, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  unsigned end = offsets[at.row + 1];
  float value = Operation::identity();
#pragma unroll 4
  for (unsigned p = offsets[at.row]; p < end; p++) {
    u64 row = order ? order[p] : p;
    value = Operation::combine(value, x[row * columns + at.column]);
  }
  if (counts) {
    unsigned count = counts[at.row + 1] - counts[at.row];
    value = __fdiv_rn(value, (float)(count > 0 ? count : 1));
  }
  out[k] = value;
}

#define FOLD(name, Operation)                                                                                                        \
  extern "C" __global__ void name(const unsigned* offsets, const unsigned* order, const float* x, float* out, const unsigned* counts, \
                                  u64 columns, u64 len) {                                                                             \
    fold<Operation>(offsets, order, x, out, counts, columns, len);                                                                    \
  }

FOLD(segment_sum, Sum)
FOLD(segment_greatest, Greatest)
