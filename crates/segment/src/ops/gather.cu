// A row for each row of the segment that it belongs to. Source of gather.ptx; launched by gather.rs.
#include "place.cuh"

// segment: [rows].  values: [segments, columns].  counts: [segments + 1] or null.  out: [rows, columns], `len` numbers, one a thread.
extern "C" __global__ void segment_gather(const unsigned* __restrict__ segment, const float* __restrict__ values,
                                          const unsigned* __restrict__ counts, float* __restrict__ out, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  unsigned s = segment[at.row];
  float value = values[s * columns + at.column];
  out[k] = counts ? __fdiv_rn(value, (float)(counts[s + 1] - counts[s])) : value;
}
