// Maxima and minima of segments with the rows that they are in, and their gradient, as in tensor/extremum.rs. Source of extremum.ptx;
// launched by extremum.rs.
#include "element.cuh"
#include "segments.cuh"

constexpr unsigned MIN = 1;

// A NaN takes the place of every number, and keeps it.
template <class N>
__device__ inline bool takes(unsigned which, N value, N best) {
  return (which == MIN ? value < best : value > best) || (is_none(value) && !is_none(best));
}

template <class E>
struct Found {
  E value;
  u64 row;
};

// The first of the extreme numbers of at least one row.
template <class E>
__device__ inline Found<E> search(unsigned which, const Segments& segments, const E* __restrict__ x, u64 columns, u64 first, u64 end) {
  u64 winner = segments.row(first);
  E best = x[winner * columns];
#pragma unroll 4
  for (u64 p = first + 1; p < end; p++) {
    u64 row = segments.row(p);
    E value = x[row * columns];
    if (takes(which, widen(value), widen(best))) {
      best = value;
      winner = row;
    }
  }
  return {best, winner};
}

// x: [batches, rows, columns].  values, found: [batches, slots, columns], `len` numbers, one a thread.
template <class E>
__device__ inline void pieces(const unsigned* __restrict__ plan, const E* __restrict__ x, E* __restrict__ values,
                              unsigned* __restrict__ found, unsigned which, u64 segments, u64 rows, u64 columns, u64 len) {
  PieceWork at(plan, segments, rows, columns, len);
  if (at.is_none()) return;
  const E* from = x + at.batch * rows * columns + at.column;
  Found<E> best = search(which, at.segments, from, columns, at.piece.first, at.piece.end);
  values[at.k] = best.value;
  found[at.k] = (unsigned)best.row;
}

// x: as above.  values, found: as above, null where no segment is long.  base: [batches, segments, columns] or null.  out, arguments: as
// base, `len` numbers, one a thread; an argument is the number of rows where no row has the extremum.
template <class E>
__device__ inline void whole(const unsigned* __restrict__ plan, const E* __restrict__ x, const E* __restrict__ values,
                             const unsigned* __restrict__ found, const E* __restrict__ base, E* __restrict__ out,
                             i64* __restrict__ arguments, unsigned which, u64 segments, u64 rows, u64 columns, u64 len) {
  SegmentWork at(plan, segments, columns, len);
  if (at.k >= len) return;
  if (at.rows() == 0) {
    if (base) {
      out[at.k] = base[at.k];
    } else {
      narrow(Wide<E>(0), out[at.k]);
    }
    arguments[at.k] = (i64)rows;
    return;
  }
  Found<E> best;
  if (at.rows() <= PIECE || !values) {
    best = search(which, at.segments, x + at.batch * rows * columns + at.column, columns, at.first, at.end);
  } else {
    u64 part = at.batch * slots(rows) * columns + at.column;
    u64 winner = part + slot(at.first, true) * columns;
    for (u64 p = at.first + PIECE; p < at.end; p += PIECE) {
      u64 next = part + slot(p, false) * columns;
      if (takes(which, widen(values[next]), widen(values[winner]))) winner = next;
    }
    best = {values[winner], found[winner]};
  }
  if (base && !takes(which, widen(best.value), widen(base[at.k]))) best = {base[at.k], rows};
  out[at.k] = best.value;
  arguments[at.k] = (i64)best.row;
}

// arguments, d_out: [batches, segments, columns], `len` numbers, one a thread.  d_x: [batches, rows, columns], zeros.
template <class E>
__device__ inline void backward(const i64* __restrict__ arguments, const E* __restrict__ d_out, E* __restrict__ d_x, u64 segments, u64 rows,
                                u64 columns, u64 len) {
  u64 k = thread_number();
  if (k >= len) return;
  Place at = place(k, columns);
  i64 row = arguments[k];
  if (row < 0 || row >= (i64)rows) return;
  d_x[(place(at.row, segments).row * rows + row) * columns + at.column] = d_out[k];
}

#define EXTREMUM(suffix, E)                                                                                                               \
  extern "C" __global__ void extremum_pieces_##suffix(const unsigned* plan, const E* x, E* values, unsigned* found, unsigned which,      \
                                                      u64 segments, u64 rows, u64 columns, u64 len) {                                    \
    pieces(plan, x, values, found, which, segments, rows, columns, len);                                                                 \
  }                                                                                                                                       \
  extern "C" __global__ void extremum_segments_##suffix(const unsigned* plan, const E* x, const E* values, const unsigned* found,        \
                                                        const E* base, E* out, i64* arguments, unsigned which, u64 segments, u64 rows,  \
                                                        u64 columns, u64 len) {                                                          \
    whole(plan, x, values, found, base, out, arguments, which, segments, rows, columns, len);                                            \
  }                                                                                                                                       \
  extern "C" __global__ void extremum_backward_##suffix(const i64* arguments, const E* d_out, E* d_x, u64 segments, u64 rows,            \
                                                        u64 columns, u64 len) {                                                          \
    backward(arguments, d_out, d_x, segments, rows, columns, len);                                                                       \
  }
EACH_NUMBER(EXTREMUM)
