// Vectors of windows side by side for each sample, and their gradients back. Source of join.ptx; launched by join.rs.
#include "mma.cuh"
#include "work.cuh"

// reads: [samples, N], the window of a sample in each of N sequences, counted over all of them.  from: [Σ B, H]; or the states [Σ (T + 1)·B, H] of `sequences`,
// of which those after the last step are read.  to: [samples, N, H]. A thread takes an element of `to`.
template <class From, class To>
__device__ inline void join(const Sequence* sequences, unsigned N, const unsigned* reads, const From* from, To* to, u64 len, unsigned H) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  u64 row = reads[k / H];
  if (sequences) {
    Sequence of = sequences[k / H % N];
    row += of.step_row + (u64)of.steps * of.windows;
  }
  narrow(widen(from[row * H + k % H]), to[k]);
}

#define JOIN(name, From, To)                                                                                                             \
  extern "C" __global__ void name(const Sequence* sequences, unsigned N, const unsigned* reads, const From* from, To* to, u64 len, unsigned H) { \
    join(sequences, N, reads, from, to, len, H);                                                                                         \
  }

JOIN(join_f32_f32, float, float)
JOIN(join_f32_f16, float, __half)
JOIN(join_f32_bf16, float, __nv_bfloat16)
JOIN(join_f16_f16, __half, __half)
JOIN(join_bf16_bf16, __nv_bfloat16, __nv_bfloat16)
JOIN(join_f16_f32, __half, float)
JOIN(join_bf16_f32, __nv_bfloat16, float)

// readers: of window w those from number starts[w] to starts[w + 1], ascending, as places in [samples, N].  d_joined: [samples, N, H].  d_vectors: [Σ B, H].
template <class T>
__device__ inline void separate(const unsigned* starts, const unsigned* readers, const float* d_joined, float* d_vectors, u64 len, unsigned H) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  u64 window = k / H;
  float sum = 0.0f;
  for (unsigned reader = starts[window]; reader < starts[window + 1]; reader++) {
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
