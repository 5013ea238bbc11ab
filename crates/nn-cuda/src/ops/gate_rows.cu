// Rows of gates in two orders, of all weights or biases of a layer at once. Source of gate_rows.ptx; launched by gate_rows.rs.
#include "mma.cuh"

// A tensor: `GateTensor` of gate_rows.rs.
struct GateTensor {
  u64 start;  // first element gate by gate, [4, H, K], as PyTorch has it
  u64 other;  // that of a second one of the same shape, or NONE
  u64 place, stride;  // first element unit by unit, [H, 4, stride], of which a row's first K are the tensor's
  unsigned width, first_block;  // K; and of its blocks
};

#define NONE ~0ull

// Calls `each` with the tensor of this block, the place of this thread's element unit by unit, and its number gate by gate.
template <class Each>
__device__ inline void each_element(const GateTensor* tensors, unsigned count, u64 H, Each each) {
  unsigned own = 0;
  while (own + 1 < count && tensors[own + 1].first_block <= blockIdx.x) own++;
  GateTensor of = tensors[own];
  u64 k = (blockIdx.x - of.first_block) * (u64)blockDim.x + threadIdx.x, K = of.width;
  if (k >= 4 * H * K) return;
  u64 row = k / K;
  each(of, of.place + row * of.stride + k % K, (row % 4 * H + row / 4) * K + k % K);
}

// A tensor or the sum of two, to `to`.
template <class T>
__device__ inline void interleave(const GateTensor* tensors, unsigned count, u64 H, const float* from, T* to) {
  each_element(tensors, count, H, [=](GateTensor of, u64 place, u64 separated) {
    float x = from[of.start + separated];
    if (of.other != NONE) x = __fadd_rn(x, from[of.other + separated]);
    narrow(x, to[place]);
  });
}

#define INTERLEAVE(name, T)                                                                                           \
  extern "C" __global__ void name(const GateTensor* tensors, unsigned count, u64 H, const float* from, T* to) {       \
    interleave(tensors, count, H, from, to);                                                                          \
  }

INTERLEAVE(interleave_f32, float)
INTERLEAVE(interleave_f16, __half)
INTERLEAVE(interleave_bf16, __nv_bfloat16)

// What lies unit by unit in `from`, added to the one tensor of `to` or to both.
extern "C" __global__ void add_separated(const GateTensor* tensors, unsigned count, u64 H, const float* from, float* to) {
  each_element(tensors, count, H, [=](GateTensor of, u64 place, u64 separated) {
    float x = from[place];
    float& sum = to[of.start + separated];
    sum = __fadd_rn(sum, x);
    if (of.other == NONE) return;
    float& other = to[of.other + separated];
    other = __fadd_rn(other, x);
  });
}
