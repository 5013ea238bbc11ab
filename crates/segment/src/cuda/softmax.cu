// Softmax and its logarithm over the rows of each segment, and their gradients, as in tensor/softmax.rs. Source of softmax.ptx; launched by
// softmax.rs.
#include "element.cuh"
#include "segments.cuh"

// 2^n for n of a normal number.
__device__ inline float power_of_two(int n) { return __uint_as_float(((unsigned)n + 127u) << 23); }

// e^x for x <= 0, as in tensor/exp.rs, which says how it works, to the bit.
__device__ inline float exponential(float x) {
  const float rounding = 12582912.0f;
  if (x < -105.0f) x = -105.0f;
  float rounded = __fadd_rn(__fmul_rn(x, 1.442695f), rounding);
  float n = __fsub_rn(rounded, rounding);
  float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.6933594f)), __fmul_rn(n, -2.1219444e-4f));
  float polynomial = 1.9875691e-4f;
  polynomial = __fadd_rn(__fmul_rn(polynomial, r), 1.3981999e-3f);
  polynomial = __fadd_rn(__fmul_rn(polynomial, r), 8.333452e-3f);
  polynomial = __fadd_rn(__fmul_rn(polynomial, r), 4.1665796e-2f);
  polynomial = __fadd_rn(__fmul_rn(polynomial, r), 1.6666665e-1f);
  polynomial = __fadd_rn(__fmul_rn(polynomial, r), 0.5f);
  polynomial = __fadd_rn(__fadd_rn(__fmul_rn(polynomial, __fmul_rn(r, r)), r), 1.0f);
  int power = (int)(__float_as_uint(rounded) - __float_as_uint(rounding));
  int half = power >> 1;
  return __fmul_rn(__fmul_rn(polynomial, power_of_two(half)), power_of_two((int)((unsigned)power - (unsigned)half)));
}
__device__ inline double exponential(double x) { return exp(x); }

__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

// What is reduced over the rows of a segment: the greatest x; the sum of e^(x - greatest); of y d_y; of d_y.
constexpr unsigned GREATEST = 0, EXPONENTIALS = 1, PRODUCTS = 2, GRADIENTS = 3;

// Tensors [batches, rows, columns] from a column of a batch on: x, or y and d_y.
template <class E>
struct Columns {
  const E* one;
  const E* other;
  u64 columns;
};

template <class N>
__device__ inline N identity(unsigned term) {
  return term == GREATEST ? -(N)INFINITY : 0;
}

template <class N>
__device__ inline N combine(unsigned term, N a, N b) {
  if (term == GREATEST) return b > a || isnan(b) ? b : a;
  return plus(a, b);
}

template <class E>
__device__ inline Wide<E> reduce(unsigned term, const Segments& segments, Columns<E> from, Wide<E> greatest, u64 first, u64 end) {
  Wide<E> value = identity<Wide<E>>(term);
#pragma unroll 2
  for (u64 p = first; p < end; p++) {
    u64 at = segments.row(p) * from.columns;
    Wide<E> one = widen(from.one[at]);
    if (term == EXPONENTIALS) one = exponential(minus(one, greatest));
    if (term == PRODUCTS) one = times(one, widen(from.other[at]));
    if (term == GRADIENTS) one = widen(from.other[at]);
    value = combine(term, value, one);
  }
  return value;
}

// Writes the rows of a segment: `term` is what `sum` was reduced from.
template <class E>
__device__ inline void write(unsigned term, bool is_logarithm, double eps, const Segments& segments, Columns<E> from, Wide<E> greatest,
                             Wide<E> sum, E* __restrict__ to, u64 first, u64 end) {
  if (term == EXPONENTIALS && is_logarithm) sum = logarithm(plus(sum, (Wide<E>)eps));
#pragma unroll 2
  for (u64 p = first; p < end; p++) {
    u64 at = segments.row(p) * from.columns;
    Wide<E> one = widen(from.one[at]), value;
    if (term == EXPONENTIALS) {
      one = minus(one, greatest);
      value = is_logarithm ? minus(one, sum) : over(exponential(one), sum);
    } else if (is_logarithm) {
      value = minus(widen(from.other[at]), times(exponential(one), sum));
    } else {
      value = times(one, minus(widen(from.other[at]), sum));
    }
    narrow(value, to[at]);
  }
}

// Results of pieces are [batches, slots, columns], and those of a long segment are in the slot of its first piece. Below, `len` is the
// number of these, one a thread; in `whole` of numbers of the segments, [batches, segments, columns].

// Reduces the pieces of long segments; greatest: those of the segments, or null.
template <class E>
__device__ inline void pieces(const unsigned* __restrict__ plan, const E* __restrict__ one, const E* __restrict__ other,
                              const Wide<E>* __restrict__ greatest, Wide<E>* __restrict__ partial, unsigned term, u64 segments, u64 rows,
                              u64 columns, u64 len) {
  PieceWork at(plan, segments, rows, columns, len);
  if (at.is_none()) return;
  u64 from = at.batch * rows * columns + at.column;
  Wide<E> most = greatest ? greatest[at.first_k(rows, columns)] : Wide<E>(0);
  partial[at.k] = reduce(term, at.segments, Columns<E>{one + from, other + from, columns}, most, at.piece.first, at.piece.end);
}

// Reduces the results of pieces to those of segments.
template <class N>
__device__ inline void long_segments(const unsigned* __restrict__ plan, const N* __restrict__ partial, N* __restrict__ results,
                                     unsigned term, u64 segments, u64 rows, u64 columns, u64 len) {
  PieceWork at(plan, segments, rows, columns, len);
  if (at.is_none() || !at.is_first()) return;
  partial += at.batch * slots(rows) * columns + at.column;
  N value = identity<N>(term);
  u64 end = at.segments.offsets[at.piece.segment + 1];
  for (u64 p = at.piece.first; p < end; p += PIECE) value = combine(term, value, partial[slot(p, p == at.piece.first) * columns]);
  results[at.k] = value;
}

// Writes the rows of the pieces of long segments.
template <class E>
__device__ inline void rows_of_pieces(const unsigned* __restrict__ plan, const E* __restrict__ one, const E* __restrict__ other,
                                      const Wide<E>* __restrict__ greatest, const Wide<E>* __restrict__ sums, E* __restrict__ to,
                                      unsigned term, unsigned is_logarithm, double eps, u64 segments, u64 rows, u64 columns, u64 len) {
  PieceWork at(plan, segments, rows, columns, len);
  if (at.is_none()) return;
  u64 from = at.batch * rows * columns + at.column, first_k = at.first_k(rows, columns);
  Wide<E> most = greatest ? greatest[first_k] : Wide<E>(0);
  write(term, is_logarithm, eps, at.segments, Columns<E>{one + from, other + from, columns}, most, sums[first_k], to + from,
        at.piece.first, at.piece.end);
}

// Does all for segments that are not long; one thread reads a segment's rows several times, the second time from the cache.
template <class E>
__device__ inline void whole(const unsigned* __restrict__ plan, const E* __restrict__ one, const E* __restrict__ other, E* __restrict__ to,
                             unsigned term, unsigned is_logarithm, double eps, u64 segments, u64 rows, u64 columns, u64 len) {
  SegmentWork at(plan, segments, columns, len);
  if (at.k >= len || at.rows() > PIECE) return;
  u64 from = at.batch * rows * columns + at.column;
  Columns<E> columns_from = {one + from, other + from, columns};
  Wide<E> greatest = 0;
  if (term == EXPONENTIALS) greatest = reduce(GREATEST, at.segments, columns_from, greatest, at.first, at.end);
  Wide<E> sum = reduce(term, at.segments, columns_from, greatest, at.first, at.end);
  write(term, is_logarithm, eps, at.segments, columns_from, greatest, sum, to + from, at.first, at.end);
}

// Writes zeros to the rows outside of all segments, which few threads look for. to: [batches, rows, columns].
template <class E>
__device__ inline void outside(const unsigned* __restrict__ plan, E* __restrict__ to, u64 segment_count, u64 batches, u64 rows,
                               u64 columns) {
  Segments segments(plan, segment_count);
  u64 before = segments.offsets[0], end = segments.offsets[segment_count], len = before + (end < rows ? rows - end : 0);
  for (u64 k = thread_number(); k < batches * len * columns; k += gridDim.x * (u64)blockDim.x) {
    Place at = place(k, columns);
    Place in_batch = place(at.row, len);
    u64 p = in_batch.column < before ? in_batch.column : end + in_batch.column - before;
    narrow(Wide<E>(0), to[(in_batch.row * rows + segments.row(p)) * columns + at.column]);
  }
}

#define SOFTMAX(suffix, E)                                                                                                                \
  extern "C" __global__ void softmax_pieces_##suffix(const unsigned* plan, const E* one, const E* other, const Wide<E>* greatest,        \
                                                     Wide<E>* partial, unsigned term, u64 segments, u64 rows, u64 columns, u64 len) {    \
    pieces(plan, one, other, greatest, partial, term, segments, rows, columns, len);                                                     \
  }                                                                                                                                       \
  extern "C" __global__ void softmax_long_##suffix(const unsigned* plan, const Wide<E>* partial, Wide<E>* results, unsigned term,        \
                                                   u64 segments, u64 rows, u64 columns, u64 len) {                                       \
    long_segments(plan, partial, results, term, segments, rows, columns, len);                                                           \
  }                                                                                                                                       \
  extern "C" __global__ void softmax_rows_##suffix(const unsigned* plan, const E* one, const E* other, const Wide<E>* greatest,          \
                                                   const Wide<E>* sums, E* to, unsigned term, unsigned is_logarithm, double eps,         \
                                                   u64 segments, u64 rows, u64 columns, u64 len) {                                       \
    rows_of_pieces(plan, one, other, greatest, sums, to, term, is_logarithm, eps, segments, rows, columns, len);                         \
  }                                                                                                                                       \
  extern "C" __global__ void softmax_segments_##suffix(const unsigned* plan, const E* one, const E* other, E* to, unsigned term,         \
                                                       unsigned is_logarithm, double eps, u64 segments, u64 rows, u64 columns,           \
                                                       u64 len) {                                                                        \
    whole(plan, one, other, to, term, is_logarithm, eps, segments, rows, columns, len);                                                  \
  }                                                                                                                                       \
  extern "C" __global__ void softmax_outside_##suffix(const unsigned* plan, E* to, u64 segments, u64 batches, u64 rows, u64 columns) {   \
    outside(plan, to, segments, batches, rows, columns);                                                                                 \
  }
EACH_FLOAT(SOFTMAX)
