// Numbers in f32 rounded to those that a 16-bit type has. Source of round.ptx; launched by round.rs.
#include "mma.cuh"

#define ROUND(name, T)                                              \
  extern "C" __global__ void name(float* x, u64 len) {              \
    u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;             \
    if (k >= len) return;                                           \
    T narrowed;                                                     \
    narrow(x[k], narrowed);                                         \
    x[k] = widen(narrowed);                                         \
  }

ROUND(round_f16, __half)
ROUND(round_bf16, __nv_bfloat16)
