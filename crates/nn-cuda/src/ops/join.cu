// What samples read of windows, side by side for each, and gradients back. Source of join.ptx; launched by gather.rs.
#include "mma.cuh"

// rows: [samples, N], the row of `from`, [.., H], that a sample reads in each of N sequences.  to: [samples, N, H]. A thread takes an element of `to`.
template <class From, class To>
__device__ inline void join(const unsigned* rows, const From* from, To* to, u64 len, unsigned H) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  narrow(widen(from[(u64)rows[k / H] * H + k % H]), to[k]);
}

#define JOIN(name, From, To)                                                                                          \
  extern "C" __global__ void name(const unsigned* rows, const From* from, To* to, u64 len, unsigned H) { \
    join(rows, from, to, len, H);                                                                                     \
  }

JOIN(join_f32_f32, float, float)
JOIN(join_f32_f16, float, __half)
JOIN(join_f32_bf16, float, __nv_bfloat16)
JOIN(join_f16_f16, __half, __half)
JOIN(join_bf16_bf16, __nv_bfloat16, __nv_bfloat16)
JOIN(join_f16_f32, __half, float)
JOIN(join_bf16_f32, __nv_bfloat16, float)

// readers: of vector v those from number starts[v] to starts[v + 1], ascending, as places in [samples, N].  d_joined: [samples, N, H].  d_vectors: [vectors, H].
template <class T>
__device__ inline void separate(const unsigned* starts, const unsigned* readers, const float* d_joined, float* d_vectors, u64 len, unsigned H) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  u64 vector = k / H;
  float sum = 0.0f;
  for (unsigned reader = starts[vector]; reader < starts[vector + 1]; reader++) {
    T term;
    narrow(d_joined[(u64)readers[reader] * H + k % H], term);
    sum = __fadd_rn(sum, widen(term));
  }
  d_vectors[k] = sum;
}

#define SEPARATE(name, T)                                                                                                                \
  extern "C" __global__ void name(const unsigned* starts, const unsigned* readers, const float* d_joined, float* d_vectors, u64 len, unsigned H) { \
    separate<T>(starts, readers, d_joined, d_vectors, len, H);                                                                            \
  }

SEPARATE(separate_f32, float)
SEPARATE(separate_f16, __half)
SEPARATE(separate_bf16, __nv_bfloat16)
