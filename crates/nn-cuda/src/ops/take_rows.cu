// Rows of a table, rounded. Source of take_rows.ptx; launched by take_rows.rs.
#include "mma.cuh"

// from: [.., bars, width], in single precision or rounded before.  rows: [count].  narrow_to, wide_to: [count, bars, stride], the same numbers in two types, zero
// from `width` on.  A thread takes one of them.
template <class From, class To>
__device__ inline void take_rows(const From* from, const unsigned* rows, To* narrow_to, float* wide_to, u64 count, u64 bars, u64 width, u64 stride) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= count * bars * stride) return;
  u64 column = k % stride, bar = k / stride;
  To value;
  narrow(column < width ? widen(from[(rows[bar / bars] * bars + bar % bars) * width + column]) : 0.0f, value);
  narrow_to[k] = value;
  wide_to[k] = widen(value);
}

#define TAKE_ROWS(name, From, To)                                                                                                                       \
  extern "C" __global__ void name(const From* from, const unsigned* rows, To* narrow_to, float* wide_to, u64 count, u64 bars, u64 width, u64 stride) {  \
    take_rows(from, rows, narrow_to, wide_to, count, bars, width, stride);                                                                              \
  }

TAKE_ROWS(take_rows_f32_f32, float, float)
TAKE_ROWS(take_rows_f32_f16, float, __half)
TAKE_ROWS(take_rows_f32_bf16, float, __nv_bfloat16)
TAKE_ROWS(take_rows_f16_f16, __half, __half)
TAKE_ROWS(take_rows_bf16_bf16, __nv_bfloat16, __nv_bfloat16)
