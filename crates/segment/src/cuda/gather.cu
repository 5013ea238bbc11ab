// A row for each row of the segment that it belongs to, as in tensor/gather.rs. Source of gather.ptx; launched by gather.rs.
#include "element.cuh"
#include "segments.cuh"

// index: [rows], or null for rows in the order of segments.  values: [batches, segments, columns].  out: [batches, rows, columns], `len`
// numbers, one a thread; 0 for a row without a segment.
template <class E>
__device__ inline void gather(const unsigned* __restrict__ plan, const i64* __restrict__ index, const E* __restrict__ values,
                              E* __restrict__ out, unsigned is_share, u64 segment_count, u64 rows, u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Segments segments(plan, segment_count);
  Place at = place(k, columns);
  Place in_batch = place(at.row, rows);
  u64 row = in_batch.column, segment;
  if (index) {
    segment = index[row] < 0 ? segment_count : (u64)index[row];
  } else {
    segment = segments.at(row);
    if (segment < segment_count && row >= segments.offsets[segment + 1]) segment = segment_count;
  }
  if (segment >= segment_count) {
    narrow(Wide<E>(0), out[k]);
    return;
  }
  E value = values[(in_batch.row * segment_count + segment) * columns + at.column];
  if (!is_share) {
    out[k] = value;
    return;
  }
  unsigned count = segments.rows(segment);
  narrow(over_count(widen(value), count > 0 ? count : 1), out[k]);
}

#define GATHER(suffix, E)                                                                                                                 \
  extern "C" __global__ void gather_##suffix(const unsigned* plan, const i64* index, const E* values, E* out, unsigned is_share,         \
                                             u64 segments, u64 rows, u64 columns, u64 len) {                                             \
    gather(plan, index, values, out, is_share, segments, rows, columns, len);                                                            \
  }
EACH_NUMBER(GATHER)
