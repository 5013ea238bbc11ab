// Sums, means and products of segments, as in tensor/fold.rs. Source of fold.ptx; launched by fold.rs.
#include "element.cuh"
#include "segments.cuh"

constexpr unsigned PRODUCT = 2;

template <class N>
__device__ inline N combine(unsigned which, N a, N b) {
  return which == PRODUCT ? times(a, b) : plus(a, b);
}

template <class E>
__device__ inline Wide<E> fold_rows(unsigned which, const Segments& segments, const E* __restrict__ x, u64 columns, u64 first, u64 end) {
  Wide<E> value = which == PRODUCT ? 1 : 0;
#pragma unroll 4
  for (u64 p = first; p < end; p++) value = combine(which, value, widen(x[segments.row(p) * columns]));
  return value;
}

// Folds the pieces of a long segment, in the order in which reductions of PIECE rows each would come one after the other: three levels are
// enough for rows that 32 bits count. `partial` is the results of a batch's pieces, from a column on.
template <class N>
__device__ inline N fold_pieces(unsigned which, const N* __restrict__ partial, u64 columns, u64 first, u64 rows) {
  const N identity = which == PRODUCT ? 1 : 0;
  N level[3] = {identity, identity, identity};
  u64 pieces = (rows + PIECE - 1) / PIECE;
  for (u64 k = 0; k < pieces; k++) {
    level[0] = combine(which, level[0], partial[slot(first + k * PIECE, k == 0) * columns]);
    if ((k + 1) % PIECE != 0) continue;
    level[1] = combine(which, level[1], level[0]);
    level[0] = identity;
    if ((k + 1) % (PIECE * PIECE) != 0) continue;
    level[2] = combine(which, level[2], level[1]);
    level[1] = identity;
  }
  return combine(which, level[2], combine(which, level[1], level[0]));
}

// x: [batches, rows, columns].  partial: [batches, slots, columns], `len` numbers, one a thread.
template <class E>
__device__ inline void pieces(const unsigned* __restrict__ plan, const E* __restrict__ x, Wide<E>* __restrict__ partial, unsigned which,
                              u64 segments, u64 rows, u64 columns, u64 len) {
  PieceWork at(plan, segments, rows, columns, len);
  if (at.is_none()) return;
  partial[at.k] = fold_rows(which, at.segments, x + at.batch * rows * columns + at.column, columns, at.piece.first, at.piece.end);
}

// x, partial: as above; partial is null where no segment is long.  base: [batches, segments, columns] or null.  out: as base, `len`
// numbers, one a thread, so that a warp reads neighbouring columns of a row at a time.
template <class E>
__device__ inline void whole(const unsigned* __restrict__ plan, const E* __restrict__ x, const Wide<E>* __restrict__ partial,
                             const E* __restrict__ base, E* __restrict__ out, unsigned which, unsigned is_mean, u64 segments, u64 rows,
                             u64 columns, u64 len) {
  SegmentWork at(plan, segments, columns, len);
  if (at.k >= len) return;
  unsigned count = at.rows();
  Wide<E> value;
  if (count <= PIECE || !partial) {
    value = fold_rows(which, at.segments, x + at.batch * rows * columns + at.column, columns, at.first, at.end);
  } else {
    value = fold_pieces(which, partial + at.batch * slots(rows) * columns + at.column, columns, at.first, count);
  }
  if (base) value = combine(which, widen(base[at.k]), value);
  if (is_mean) value = over_count(value, count > 0 ? count : 1);
  narrow(value, out[at.k]);
}

#define FOLD(suffix, E)                                                                                                                   \
  extern "C" __global__ void fold_pieces_##suffix(const unsigned* plan, const E* x, Wide<E>* partial, unsigned which, u64 segments,      \
                                                  u64 rows, u64 columns, u64 len) {                                                      \
    pieces(plan, x, partial, which, segments, rows, columns, len);                                                                       \
  }                                                                                                                                       \
  extern "C" __global__ void fold_segments_##suffix(const unsigned* plan, const E* x, const Wide<E>* partial, const E* base, E* out,     \
                                                    unsigned which, unsigned is_mean, u64 segments, u64 rows, u64 columns, u64 len) {    \
    whole(plan, x, partial, base, out, which, is_mean, segments, rows, columns, len);                                                    \
  }
EACH_NUMBER(FOLD)
