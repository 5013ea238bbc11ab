// A step of the recurrence apart from its product, for widths that no block can hold the weight of. Source of cell.ptx; launched by cell.rs.
#include "mma.cuh"
#include "cell.cuh"

// product: [B, H, 4], W_hh · h.  projected: [rows, H, 4], row first[b] + `further` of window b.  cell_before, cell_after: [B, H].  hidden: [B, H], after the step.
// gates: [B, H, 4].  A thread takes a unit of a window.
template <class T, class K>
__device__ inline void step_forward(const float4* product, const float4* projected, const unsigned* first, u64 further, const float* cell_before,
                                    float* cell_after, T* hidden, Narrow<K>* gates, unsigned B, unsigned H) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= (u64)B * H) return;
  float4 own = product[k], start = projected[(first[k / H] + further) * H + k % H];
  Gates now = {start.x + own.x, start.y + own.y, start.z + own.z, start.w + own.w};
  float c = cell_before[k];
  narrow(advance<T>(now, c), hidden[k]);
  cell_after[k] = c;
  gates[k] = narrow_gates<K>(now);
}

// d_output: [B, H], from above, or null.  d_hidden, d_cell: [B, H], after the step; d_cell becomes that before it.  d_gates: [B, H, 4].
template <class T, class K>
__device__ inline void step_backward(const Narrow<K>* gates, const float* cell_before, const float* cell_after, const float* d_output,
                                     const float* d_hidden, float* d_cell, Narrow<T>* d_gates, u64 len) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  float dh = d_hidden[k] + (d_output ? d_output[k] : 0.0f);
  d_gates[k] = narrow_gates<T>(cell_backward<T>(widen_gates(gates[k]), cell_before[k], cell_after[k], dh, d_cell[k]));
}

#define STEP(suffix, T, K)                                                                                                                 \
  extern "C" __global__ void step_forward_##suffix(const float4* product, const float4* projected, const unsigned* first, u64 further,     \
                                                   const float* cell_before, float* cell_after, T* hidden, Narrow<K>* gates, unsigned B,   \
                                                   unsigned H) {                                                                           \
    step_forward(product, projected, first, further, cell_before, cell_after, hidden, gates, B, H);                                        \
  }                                                                                                                                        \
  extern "C" __global__ void step_backward_##suffix(const Narrow<K>* gates, const float* cell_before, const float* cell_after,             \
                                                    const float* d_output, const float* d_hidden, float* d_cell, Narrow<T>* d_gates,       \
                                                    u64 len) {                                                                             \
    step_backward(gates, cell_before, cell_after, d_output, d_hidden, d_cell, d_gates, len);                                               \
  }

STEP(f32, float, float)
STEP(f16, __half, __half)
STEP(bf16, __nv_bfloat16, __half)
