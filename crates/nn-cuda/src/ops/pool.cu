// Attention pooling between the keys and the sums of states. Source of pool.ptx; launched by pool.rs; ../pooling has the definition. A block takes a window.
#include "warp.cuh"

#define WARPS 4  // of a block

// Of windows that lie side by side: states [T, B, H].
struct Pool {
  unsigned steps, windows, heads, hidden;
};

// Element 0 of this block's window after step t.
template <class T>
__device__ inline T* state(Pool of, T* states, unsigned t) { return states + ((u64)t * of.windows + blockIdx.x) * of.hidden; }

// Calls `each` for the heads' steps, a warp for each.
template <class Each>
__device__ inline void each_step(Pool of, Each each) {
  for (unsigned row = threadIdx.x / 32; row < of.heads * of.steps; row += WARPS) each(row / of.steps, row % of.steps);
}

// keys: [heads, H].  weights: [B, heads, T].  sums: [heads, B, H].
template <class T>
__device__ inline void pool(Pool of, const T* states, const float* keys, float* weights, float* sums) {
  unsigned lane = threadIdx.x % 32;
  weights += (u64)blockIdx.x * of.heads * of.steps;
  each_step(of, [=](unsigned head, unsigned t) {
    const T* own = state(of, states, t);
    const float* key = keys + head * of.hidden;
    float score = sum_by_warp(of.hidden, [=](unsigned k) { return __fmul_rn(key[k], widen(own[k])); });
    if (lane == 0) weights[head * of.steps + t] = score;
  });
  __syncthreads();
  for (unsigned head = threadIdx.x / 32; head < of.heads; head += WARPS) {
    float* own = weights + head * of.steps;
    float most = -INFINITY;
    for (unsigned t = lane; t < of.steps; t += 32) most = own[t] > most ? own[t] : most;
    for (int half = 16; half > 0; half /= 2) {
      float other = __shfl_xor_sync(ALL_LANES, most, half);
      most = other > most ? other : most;
    }
    for (unsigned t = lane; t < of.steps; t += 32) own[t] = expf(__fsub_rn(own[t], most));
    float sum = sum_by_warp(of.steps, [=](unsigned t) { return own[t]; });
    for (unsigned t = lane; t < of.steps; t += 32) own[t] = __fdiv_rn(own[t], sum);
  }
  __syncthreads();
  for (unsigned k = threadIdx.x; k < of.heads * of.hidden; k += 32 * WARPS) {
    unsigned head = k / of.hidden, unit = k % of.hidden;
    float sum = 0.0f;
    for (unsigned t = 0; t < of.steps; t++) sum = __fadd_rn(sum, __fmul_rn(weights[head * of.steps + t], widen(state(of, states, t)[unit])));
    sums[((u64)head * of.windows + blockIdx.x) * of.hidden + unit] = sum;
  }
}

// d_sums: [heads, B, H].  d_scores: [B, heads, T].  d_states: [T, B, H].  d_keys: [B, heads, H], what each window adds to those of the keys.
template <class T>
__device__ inline void pool_backward(Pool of, const T* states, const float* keys, const float* weights, const float* d_sums, float* d_scores,
                                     float* d_states, float* d_keys) {
  unsigned lane = threadIdx.x % 32;
  weights += (u64)blockIdx.x * of.heads * of.steps;
  d_scores += (u64)blockIdx.x * of.heads * of.steps;
  d_sums += (u64)blockIdx.x * of.hidden;
  u64 head_stride = (u64)of.windows * of.hidden;
  each_step(of, [=](unsigned head, unsigned t) {
    const T* own = state(of, states, t);
    const float* d_sum = d_sums + head * head_stride;
    float d_weight = sum_by_warp(of.hidden, [=](unsigned k) { return __fmul_rn(d_sum[k], widen(own[k])); });
    if (lane == 0) d_scores[head * of.steps + t] = d_weight;
  });
  __syncthreads();
  for (unsigned head = threadIdx.x / 32; head < of.heads; head += WARPS) {
    const float* weight = weights + head * of.steps;
    float* d = d_scores + head * of.steps;
    float mean = sum_by_warp(of.steps, [=](unsigned t) { return __fmul_rn(weight[t], d[t]); });
    for (unsigned t = lane; t < of.steps; t += 32) d[t] = __fmul_rn(weight[t], __fsub_rn(d[t], mean));
  }
  __syncthreads();
  for (unsigned k = threadIdx.x; k < of.steps * of.hidden; k += 32 * WARPS) {
    unsigned t = k / of.hidden, unit = k % of.hidden;
    float sum = 0.0f;
    for (unsigned head = 0; head < of.heads; head++) {
      sum = __fadd_rn(sum, __fmul_rn(weights[head * of.steps + t], d_sums[head * head_stride + unit]));
      sum = __fadd_rn(sum, __fmul_rn(d_scores[head * of.steps + t], keys[head * of.hidden + unit]));
    }
    state(of, d_states, t)[unit] = sum;
  }
  for (unsigned k = threadIdx.x; k < of.heads * of.hidden; k += 32 * WARPS) {
    unsigned head = k / of.hidden, unit = k % of.hidden;
    float sum = 0.0f;
    for (unsigned t = 0; t < of.steps; t++) sum = __fadd_rn(sum, __fmul_rn(d_scores[head * of.steps + t], widen(state(of, states, t)[unit])));
    d_keys[(u64)blockIdx.x * of.heads * of.hidden + k] = sum;
  }
}

#define POOL(suffix, T)                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(32 * WARPS) pool_##suffix(Pool of, const T* states, const float* keys, float* weights, float* sums) { \
    pool(of, states, keys, weights, sums);                                                                                                \
  }                                                                                                                                       \
  extern "C" __global__ void __launch_bounds__(32 * WARPS) pool_backward_##suffix(Pool of, const T* states, const float* keys, const float* weights, \
                                                                                  const float* d_sums, float* d_scores, float* d_states,  \
                                                                                  float* d_keys) {                                        \
    pool_backward(of, states, keys, weights, d_sums, d_scores, d_states, d_keys);                                                         \
  }

POOL(f32, float)
POOL(f16, __half)
POOL(bf16, __nv_bfloat16)
