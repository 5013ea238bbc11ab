// Fusion by attention between its products and norms. Source of fuse.ptx; launched by fuse.rs; ../fusion has the definition.
#include "warp.cuh"

#define WARPS 4  // of a block

// Of a sample's tokens.
struct Fuse {
  unsigned samples, tokens, heads, hidden;
};

__device__ inline unsigned head_width(Fuse of) { return of.hidden / of.heads; }

// The part of a head in q, k or v (`which`: 0, 1, 2) of a token of this block's sample, in [B, n, 3H].
template <class T>
__device__ inline T* part(Fuse of, T* qkv, unsigned head, unsigned which, unsigned token) {
  return qkv + (((u64)blockIdx.x * of.tokens + token) * 3 + which) * of.hidden + head * head_width(of);
}

// This block's row of a token in [B, n, H], from a head on.
template <class T>
__device__ inline T* row(Fuse of, T* rows, unsigned head, unsigned token) {
  return rows + ((u64)blockIdx.x * of.tokens + token) * of.hidden + head * head_width(of);
}

// Calls `each` for the pairs of tokens of every head, a warp for each.
template <class Each>
__device__ inline void each_pair(Fuse of, Each each) {
  unsigned pairs = of.heads * of.tokens * of.tokens;
  for (unsigned pair = threadIdx.x / 32; pair < pairs; pair += WARPS) {
    each(pair / of.tokens / of.tokens, pair / of.tokens % of.tokens, pair % of.tokens);
  }
}

// Calls `each` for the numbers of every token, a thread for each: head, token, number in the head.
template <class Each>
__device__ inline void each_number(Fuse of, Each each) {
  for (unsigned k = threadIdx.x; k < of.tokens * of.hidden; k += 32 * WARPS) {
    unsigned unit = k % of.hidden;
    each(unit / head_width(of), k / of.hidden, unit % head_width(of));
  }
}

// qkv: [B, n, 3H].  weights: [B, heads, n, n].  seen: [B, n, H].  scale: 1 / √(H / heads). A block takes a sample.
extern "C" __global__ void __launch_bounds__(32 * WARPS) attend(Fuse of, const float* qkv, float scale, float* weights, float* seen) {
  unsigned lane = threadIdx.x % 32, n = of.tokens;
  weights += (u64)blockIdx.x * of.heads * n * n;
  each_pair(of, [=](unsigned head, unsigned token, unsigned other) {
    const float *query = part(of, qkv, head, 0, token), *key = part(of, qkv, head, 1, other);
    float score = sum_by_warp(head_width(of), [=](unsigned k) { return __fmul_rn(query[k], key[k]); });
    if (lane == 0) weights[(head * n + token) * n + other] = __fmul_rn(score, scale);
  });
  __syncthreads();
  for (unsigned r = threadIdx.x; r < of.heads * n; r += 32 * WARPS) {
    float *own = weights + r * n, most = own[0], sum = 0.0f;
    for (unsigned other = 1; other < n; other++) most = own[other] > most ? own[other] : most;
    for (unsigned other = 0; other < n; other++) {
      own[other] = expf(__fsub_rn(own[other], most));
      sum = __fadd_rn(sum, own[other]);
    }
    for (unsigned other = 0; other < n; other++) own[other] = __fdiv_rn(own[other], sum);
  }
  __syncthreads();
  each_number(of, [=](unsigned head, unsigned token, unsigned k) {
    float sum = 0.0f;
    for (unsigned other = 0; other < n; other++) {
      sum = __fadd_rn(sum, __fmul_rn(weights[(head * n + token) * n + other], part(of, qkv, head, 2, other)[k]));
    }
    row(of, seen, head, token)[k] = sum;
  });
}

// d_seen: [B, n, H].  d_scores: [B, heads, n, n].  d_qkv: [B, n, 3H].
extern "C" __global__ void __launch_bounds__(32 * WARPS) attend_backward(Fuse of, const float* qkv, float scale, const float* weights,
                                                                         const float* d_seen, float* d_scores, float* d_qkv) {
  unsigned lane = threadIdx.x % 32, n = of.tokens;
  weights += (u64)blockIdx.x * of.heads * n * n;
  d_scores += (u64)blockIdx.x * of.heads * n * n;
  each_pair(of, [=](unsigned head, unsigned token, unsigned other) {
    const float *d = row(of, d_seen, head, token), *value = part(of, qkv, head, 2, other);
    float d_weight = sum_by_warp(head_width(of), [=](unsigned k) { return __fmul_rn(d[k], value[k]); });
    if (lane == 0) d_scores[(head * n + token) * n + other] = d_weight;
  });
  __syncthreads();
  for (unsigned r = threadIdx.x; r < of.heads * n; r += 32 * WARPS) {
    const float* weight = weights + r * n;
    float *d = d_scores + r * n, mean = 0.0f;
    for (unsigned other = 0; other < n; other++) mean = __fadd_rn(mean, __fmul_rn(weight[other], d[other]));
    for (unsigned other = 0; other < n; other++) d[other] = __fmul_rn(__fmul_rn(weight[other], __fsub_rn(d[other], mean)), scale);
  }
  __syncthreads();
  each_number(of, [=](unsigned head, unsigned token, unsigned k) {
    const float *weight = weights + head * n * n, *d_score = d_scores + head * n * n;
    float d_query = 0.0f, d_key = 0.0f, d_value = 0.0f;
    for (unsigned other = 0; other < n; other++) {
      d_query = __fadd_rn(d_query, __fmul_rn(d_score[token * n + other], part(of, qkv, head, 1, other)[k]));
      d_key = __fadd_rn(d_key, __fmul_rn(d_score[other * n + token], part(of, qkv, head, 0, other)[k]));
      d_value = __fadd_rn(d_value, __fmul_rn(weight[other * n + token], row(of, d_seen, head, other)[k]));
    }
    part(of, d_qkv, head, 0, token)[k] = d_query;
    part(of, d_qkv, head, 1, token)[k] = d_key;
    part(of, d_qkv, head, 2, token)[k] = d_value;
  });
}

// x: [len]; what is below zero becomes zero.
extern "C" __global__ void rectify(float* x, u64 len) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k < len && x[k] < 0.0f) x[k] = 0.0f;
}

// d: [len], of numbers after that; becomes that of the numbers before.
extern "C" __global__ void rectify_backward(const float* x, float* d, u64 len) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k < len && x[k] == 0.0f) d[k] = 0.0f;
}

// rows: [B, n, H].  means: [B, H].  share: 1 / n. A thread takes a mean.
template <class T>
__device__ inline void mean_of_tokens(Fuse of, const float* rows, T* means, float share) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= (u64)of.samples * of.hidden) return;
  float sum = 0.0f;
  for (unsigned token = 0; token < of.tokens; token++) {
    sum = __fadd_rn(sum, __fmul_rn(rows[(k / of.hidden * of.tokens + token) * of.hidden + k % of.hidden], share));
  }
  narrow(sum, means[k]);
}

#define MEAN_OF_TOKENS(name, T) \
  extern "C" __global__ void name(Fuse of, const float* rows, T* means, float share) { mean_of_tokens(of, rows, means, share); }

MEAN_OF_TOKENS(mean_of_tokens_f32, float)
MEAN_OF_TOKENS(mean_of_tokens_f16, __half)
MEAN_OF_TOKENS(mean_of_tokens_bf16, __nv_bfloat16)

// d_means: [B, H].  d_rows: [B, n, H]. A thread takes a number of a row.
extern "C" __global__ void spread_to_tokens(Fuse of, const float* d_means, float* d_rows, float share) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x, rows = (u64)of.samples * of.tokens;
  if (k < rows * of.hidden) d_rows[k] = __fmul_rn(d_means[k / of.hidden / of.tokens * of.hidden + k % of.hidden], share);
}
