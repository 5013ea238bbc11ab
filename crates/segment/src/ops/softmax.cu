// The steps of softmax that go over rows. Source of softmax.ptx; launched by softmax.rs. The others are those of fold.cu.
#include "place.cuh"

// 2^n for n of a normal number.
__device__ inline float power_of_two(int n) { return __uint_as_float(((unsigned)n + 127u) << 23); }

// As in exp.rs, which says how it works, to the bit.
__device__ inline float exp_nonpositive(float x) {
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

// Each takes, in `one` and `other`, arrays [rows, columns], and in `of_segments` one of [segments, columns]; those that it has no use for are
// null.  segment: [rows].  to: [rows, columns], `len` numbers, one a thread.
#define STEP(name, expression)                                                                                                 \
  extern "C" __global__ void name(const unsigned* __restrict__ segment, const float* one, const float* other,                  \
                                  const float* __restrict__ of_segments, float* to, u64 columns, u64 len) {                    \
    u64 k = thread_number();                                                                                                   \
    if (k >= len) return;                                                                                                      \
    Place at = place(k, columns);                                                                                              \
    u64 s = segment[at.row] * columns + at.column;                                                                             \
    to[k] = expression;                                                                                                        \
  }

STEP(segment_exp, exp_nonpositive(__fsub_rn(one[k], of_segments[s])))
STEP(segment_divide, __fdiv_rn(to[k], of_segments[s]))
STEP(segment_product, __fmul_rn(one[k], other[k]))
STEP(segment_softmax_backward, __fmul_rn(one[k], __fsub_rn(other[k], of_segments[s])))
