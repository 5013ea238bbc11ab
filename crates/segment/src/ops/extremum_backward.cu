// Gradients of maxima and minima: to the row that was found, and shared among equals. Source of extremum_backward.ptx; launched by
// extremum_backward.rs.
#include "place.cuh"

// segment: [rows].  argument, d_out: [segments, columns].  d_x: [rows, columns], `len` numbers, one a thread.
extern "C" __global__ void segment_extremum_backward(const unsigned* __restrict__ segment, const unsigned* __restrict__ argument,
                                                     const float* __restrict__ d_out, float* __restrict__ d_x, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  u64 number = segment[at.row] * columns + at.column;
  d_x[k] = argument[number] == at.row ? d_out[number] : 0.0f;
}

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
