// Rows of gates in two orders. Source of gate_rows.ptx; launched by gate_rows.rs.
#include "mma.cuh"

// from: [4, H, K], as PyTorch has them.  to: [H, 4, K].  A thread takes an element of `to`.
template <class T>
__device__ inline void interleave(const float* from, T* to, u64 H, u64 K) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= 4 * H * K) return;
  u64 row = k / K;
  narrow(from[(row % 4 * H + row / 4) * K + k % K], to[k]);
}

#define INTERLEAVE(name, T) \
  extern "C" __global__ void name(const float* from, T* to, u64 H, u64 K) { interleave(from, to, H, K); }

INTERLEAVE(interleave_f32, float)
INTERLEAVE(interleave_f16, __half)
INTERLEAVE(interleave_bf16, __nv_bfloat16)

// from: [H, 4, K].  to: [4, H, K], added to.
extern "C" __global__ void add_separated(const float* from, float* to, u64 H, u64 K) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= 4 * H * K) return;
  u64 row = k / K;
  float& sum = to[(row % 4 * H + row / 4) * K + k % K];
  sum = __fadd_rn(sum, from[k]);
}
