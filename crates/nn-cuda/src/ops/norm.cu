// Layer normalisation of rows. Source of norm.ptx; launched by norm.rs, which has the definition. A warp takes a row.
#include "warp.cuh"

#define WARPS 8     // of a block
#define ROWS 256    // of a block, where columns are added
#define COLUMNS 32  // of a block, where columns are added

#define EPSILON 1e-5f

// x: [rows, width].  weight, bias: [width].  to: [rows, width].  moments: [rows, 2], mean and one over the standard deviation.  share: 1 / width.
template <class From, class To>
__device__ inline void layer_norm(const From* x, const float* weight, const float* bias, To* to, float* moments, u64 rows, unsigned width, float share) {
  u64 row = blockIdx.x * (u64)WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  x += row * width;
  float mean = __fmul_rn(sum_by_warp(width, [=](unsigned k) { return widen(x[k]); }), share);
  float variance = __fmul_rn(sum_by_warp(width,
                                         [=](unsigned k) {
                                           float rest = __fsub_rn(widen(x[k]), mean);
                                           return __fmul_rn(rest, rest);
                                         }),
                             share);
  float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, EPSILON)));
  for (unsigned k = threadIdx.x % 32; k < width; k += 32) {
    float unit = __fmul_rn(__fsub_rn(widen(x[k]), mean), scale);
    narrow(__fadd_rn(__fmul_rn(unit, weight[k]), bias[k]), to[row * width + k]);
  }
  if (threadIdx.x % 32 > 0) return;
  moments[2 * row] = mean;
  moments[2 * row + 1] = scale;
}

// d: [rows, width], of the normalised rows; becomes that of the rows.
template <class From>
__device__ inline void layer_norm_backward(const From* x, const float* weight, const float* moments, float* d, u64 rows, unsigned width, float share) {
  u64 row = blockIdx.x * (u64)WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  x += row * width;
  d += row * width;
  float center = moments[2 * row], scale = moments[2 * row + 1];
  float mean = __fmul_rn(sum_by_warp(width, [=](unsigned k) { return __fmul_rn(d[k], weight[k]); }), share);
  float along = __fmul_rn(sum_by_warp(width,
                                      [=](unsigned k) {
                                        float unit = __fmul_rn(__fsub_rn(widen(x[k]), center), scale);
                                        return __fmul_rn(__fmul_rn(d[k], weight[k]), unit);
                                      }),
                          share);
  for (unsigned k = threadIdx.x % 32; k < width; k += 32) {
    float unit = __fmul_rn(__fsub_rn(widen(x[k]), center), scale);
    float rest = __fsub_rn(__fsub_rn(__fmul_rn(d[k], weight[k]), mean), __fmul_rn(unit, along));
    d[k] = __fmul_rn(rest, scale);
  }
}

// d: [rows, width], of the normalised rows.  parts: [2, chunks, width], sums of every ROWS rows for the gradients of weight and bias. Blocks: tiles of columns fastest.
template <class From>
__device__ inline void norm_columns(const From* x, const float* moments, const float* d, float* parts, u64 rows, unsigned width) {
  __shared__ float lanes[2][WARPS][COLUMNS];
  unsigned tiles = (width + COLUMNS - 1) / COLUMNS, in_tile = threadIdx.x % COLUMNS, column = blockIdx.x % tiles * COLUMNS + in_tile;
  unsigned chunk = blockIdx.x / tiles, lane = threadIdx.x / COLUMNS;
  u64 start = (u64)chunk * ROWS, end = start + ROWS < rows ? start + ROWS : rows, chunks = (rows + ROWS - 1) / ROWS;
  float of_weight = 0.0f, of_bias = 0.0f;
  if (column < width) {
    for (u64 row = start + lane; row < end; row += WARPS) {
      float term = d[row * width + column];
      float unit = __fmul_rn(__fsub_rn(widen(x[row * width + column]), moments[2 * row]), moments[2 * row + 1]);
      of_weight = __fadd_rn(of_weight, __fmul_rn(term, unit));
      of_bias = __fadd_rn(of_bias, term);
    }
  }
  lanes[0][lane][in_tile] = of_weight;
  lanes[1][lane][in_tile] = of_bias;
  __syncthreads();
  if (lane > 1 || column >= width) return;
  float sum = lanes[lane][0][in_tile];
  for (unsigned other = 1; other < WARPS; other++) sum = __fadd_rn(sum, lanes[lane][other][in_tile]);
  parts[(lane * chunks + chunk) * width + column] = sum;
}

#define FORWARD(name, From, To)                                                                                                          \
  extern "C" __global__ void __launch_bounds__(32 * WARPS) name(const From* x, const float* weight, const float* bias, To* to, float* moments, \
                                                                u64 rows, unsigned width, float share) {                                 \
    layer_norm(x, weight, bias, to, moments, rows, width, share);                                                                        \
  }

FORWARD(norm_f32_f32, float, float)
FORWARD(norm_f16_f32, __half, float)
FORWARD(norm_bf16_f32, __nv_bfloat16, float)
FORWARD(norm_f16_f16, __half, __half)
FORWARD(norm_bf16_bf16, __nv_bfloat16, __nv_bfloat16)

#define BACKWARD(suffix, From)                                                                                                           \
  extern "C" __global__ void __launch_bounds__(32 * WARPS) norm_backward_##suffix(const From* x, const float* weight, const float* moments, \
                                                                                  float* d, u64 rows, unsigned width, float share) {     \
    layer_norm_backward(x, weight, moments, d, rows, width, share);                                                                      \
  }                                                                                                                                      \
  extern "C" __global__ void __launch_bounds__(COLUMNS * WARPS) norm_columns_##suffix(const From* x, const float* moments, const float* d,  \
                                                                                      float* parts, u64 rows, unsigned width) {          \
    norm_columns(x, moments, d, parts, rows, width);                                                                                     \
  }

BACKWARD(f32, float)
BACKWARD(f16, __half)
BACKWARD(bf16, __nv_bfloat16)
