// What pooling does once a layer and not once a window: from the query to the keys, and back. Source of pool_keys.ptx; launched by pool/keys.rs. Sums of rows are in the order of warp.cuh.
#include "warp.cuh"

#define WARPS 8  // of a block

// Calls `each` with the rows of this block's head, [H / heads], a warp for each.
template <class Each>
__device__ inline void each_row(unsigned heads, unsigned H, Each each) {
  unsigned width = H / heads, first = blockIdx.x * width;
  for (unsigned row = first + threadIdx.x / 32; row < first + width; row += WARPS) each(row);
}

// query: [H].  weight_q, weight_k, weight_o: [H, H].  bias_q, bias_v, bias_o: [H].  A block for each head gives
// scaled = scale · (W_q query + b_q) [H] and keys = scaledᵀ · W_k of the head [heads, H]; those behind, bias = W_o b_v + b_o [H], a warp for each number.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    pool_keys(unsigned heads, unsigned H, float scale, const float* query, const float* weight_q, const float* bias_q, const float* weight_k,
              const float* weight_o, const float* bias_v, const float* bias_o, float* scaled, float* keys, float* bias) {
  bool is_first_lane = threadIdx.x % 32 == 0;
  if (blockIdx.x >= heads) {
    unsigned row = (blockIdx.x - heads) * WARPS + threadIdx.x / 32;
    if (row >= H) return;
    float sum = sum_by_warp(H, [=](unsigned k) { return __fmul_rn(weight_o[(u64)row * H + k], bias_v[k]); });
    if (is_first_lane) bias[row] = __fadd_rn(sum, bias_o[row]);
    return;
  }
  each_row(heads, H, [=](unsigned row) {
    float sum = sum_by_warp(H, [=](unsigned k) { return __fmul_rn(weight_q[(u64)row * H + k], query[k]); });
    if (is_first_lane) scaled[row] = __fmul_rn(__fadd_rn(sum, bias_q[row]), scale);
  });
  __syncthreads();
  unsigned width = H / heads;
  for (unsigned unit = threadIdx.x; unit < H; unit += 32 * WARPS) {
    float sum = 0.0f;
    for (unsigned row = blockIdx.x * width; row < (blockIdx.x + 1) * width; row++) sum = __fadd_rn(sum, __fmul_rn(scaled[row], weight_k[(u64)row * H + unit]));
    keys[blockIdx.x * H + unit] = sum;
  }
}

// Back from d_keys [heads, H]: d_query = scale · W_k d_keys of the head [H], and d_weight_k += scaled · d_keysᵀ. A block takes a head.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    pool_keys_backward(unsigned heads, unsigned H, float scale, const float* d_keys, const float* scaled, const float* weight_k, float* d_query, float* d_weight_k) {
  const float* d_key = d_keys + blockIdx.x * H;
  each_row(heads, H, [=](unsigned row) {
    float sum = sum_by_warp(H, [=](unsigned k) { return __fmul_rn(d_key[k], weight_k[(u64)row * H + k]); });
    if (threadIdx.x % 32 == 0) d_query[row] = __fmul_rn(sum, scale);
    for (unsigned k = threadIdx.x % 32; k < H; k += 32) {
      float& d = d_weight_k[(u64)row * H + k];
      d = __fadd_rn(d, __fmul_rn(scaled[row], d_key[k]));
    }
  });
}

#define COLUMNS 32  // of a block

// Back from the gradient d [H] of y = W x + b: d_weight += d · xᵀ, d_bias += d, d_x += Wᵀ d. A block takes 32 columns, of which warp j starts at zero and takes rows j, j + 8, … in turn; warps are
// added to the first one in order.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    affine_backward(unsigned H, const float* d, const float* x, const float* weight, float* d_weight, float* d_bias, float* d_x) {
  __shared__ float sums[WARPS][COLUMNS];
  unsigned warp = threadIdx.x / 32, column = blockIdx.x * COLUMNS + threadIdx.x % 32;
  float sum = 0.0f;
  if (column < H) {
    for (unsigned row = warp; row < H; row += WARPS) {
      u64 k = (u64)row * H + column;
      sum = __fadd_rn(sum, __fmul_rn(d[row], weight[k]));
      d_weight[k] = __fadd_rn(d_weight[k], __fmul_rn(d[row], x[column]));
    }
  }
  sums[warp][threadIdx.x % 32] = sum;
  __syncthreads();
  if (warp != 0 || column >= H) return;
  for (unsigned other = 1; other < WARPS; other++) sum = __fadd_rn(sum, sums[other][threadIdx.x]);
  d_x[column] = __fadd_rn(d_x[column], sum);
  d_bias[column] = __fadd_rn(d_bias[column], d[column]);
}
