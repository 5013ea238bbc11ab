// Gradients shared among equals. Source of shared.ptx; launched by shared.rs.
#include "place.cuh"

// segment: [rows].  x: [rows, columns].  out: [segments, columns].  to: [rows, columns], `len` numbers, one a thread.
extern "C" __global__ void segment_equal(const unsigned* __restrict__ segment, const float* __restrict__ x, const float* __restrict__ out,
                                         float* __restrict__ to, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  to[k] = x[k] == out[segment[at.row] * columns + at.column] ? 1.0f : 0.0f;
}

// segment: [rows].  d_out, equals: [segments, columns].  to: [rows, columns], `len` numbers, one a thread.
extern "C" __global__ void segment_share(const unsigned* __restrict__ segment, const float* __restrict__ d_out,
                                         const float* __restrict__ equals, float* __restrict__ to, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  u64 s = segment[at.row] * columns + at.column;
  to[k] = __fmul_rn(to[k], __fdiv_rn(d_out[s], equals[s]));
}
