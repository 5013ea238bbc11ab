// Matrix products by tiles [64, 64], of which a warp takes a quarter. Source of matmul.ptx; launched by matmul.rs.
#include "matmul.cuh"

using Square = Tiling<64, 64, 32, 0>;

#define MULTIPLY_IN_ALL_LAYOUTS(suffix, How, T)                       \
  MULTIPLY(product_##suffix, How, Square, T, false, false)            \
  MULTIPLY(product_a_turned_##suffix, How, Square, T, true, false)    \
  MULTIPLY(product_b_turned_##suffix, How, Square, T, false, true)    \
  MULTIPLY(product_both_turned_##suffix, How, Square, T, true, true)

MULTIPLY_IN_ALL_LAYOUTS(f16, Narrowed, __half)
MULTIPLY_IN_ALL_LAYOUTS(bf16, Narrowed, __nv_bfloat16)
MULTIPLY_IN_ALL_LAYOUTS(tf32, Tf32, float)
MULTIPLY_IN_ALL_LAYOUTS(f32, Exact, float)

// The parts of a product that was split, one after the other.  parts: [splits, len].  out: [len].
extern "C" __global__ void add_parts(const float* parts, float* out, u64 len, unsigned splits, unsigned adds) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  float sum = adds ? out[k] : 0.0f;
  // Parts are on their way together: one by one, each would wait for memory.
#pragma unroll 16
  for (unsigned split = 0; split < splits; split++) sum += parts[split * len + k];
  out[k] = sum;
}
