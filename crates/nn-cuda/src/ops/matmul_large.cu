// Matrix products of 16-bit operands by larger tiles: less is read of either operand for the same output, by fewer blocks. A warp takes [64, 32]. Source of matmul_large.ptx; launched
// by matmul.rs.
#include "matmul.cuh"

using Tall = Tiling<128, 64, 64, 3>;
using Large = Tiling<128, 128, 32, 1>;

#define MULTIPLY_BY(size, suffix, S, T)                                     \
  MULTIPLY(product_##size##_##suffix, Narrowed, S, T, false, false)          \
  MULTIPLY(product_##size##_b_turned_##suffix, Narrowed, S, T, false, true)  \
  MULTIPLY(product_##size##_both_turned_##suffix, Narrowed, S, T, true, true)

MULTIPLY_BY(128_64, f16, Tall, __half)
MULTIPLY_BY(128_64, bf16, Tall, __nv_bfloat16)
MULTIPLY_BY(128_128, f16, Large, __half)
MULTIPLY_BY(128_128, bf16, Large, __nv_bfloat16)
