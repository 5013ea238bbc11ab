// The recurrence of LSTM layers backwards, all steps in one launch. Source of recurrence_backward.ptx; launched by recurrence_backward.rs.
//
//   block: takes 8·N windows of a sequence; holds all of W_hhᵀ in its registers                                  (1)
//   for each step, from the last:  dgates from dh, dc;  dgates to shared and to global memory                     (2)
//                                  dh = W_hhᵀ · dgates, each half of the sum in another warp
//
// 1. Warps 2 p and 2 p + 1 have rows 16 p … 16 p + 15 of W_hhᵀ [HP, 4·HP], one the first half of the columns and the other the second. Of what comes out, each
//    warp gives away what the other one's units need, so that warp w goes on with units 8 w … 8 w + 7, whose gradients stay in its lanes' registers.
// 2. In 16 bits, as the products that follow read them.
#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"

// Arrays as in recurrence.cu, but that `fragments` are those of W_hhᵀ.  d_outputs: [Σ T·B, H], what comes from above after each step, or null.  d_hidden, d_cell: [windows, H], the gradients of the last
// states; they become those of the first ones.  d_gates: [Σ T·B, H, 4], before the gates' functions.
template <class T, int HP, int N>
__device__ inline void backward(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float* cell,
                                const Narrow<__half>* gates, const float* d_outputs, float* d_hidden, float* d_cell, Narrow<T>* d_gates) {
  constexpr int INNER = HP / 8;  // tiles of 16 gates in half of them
  __shared__ __align__(16) T gradients[8 * N][4 * HP + 8];
  __shared__ float2 given[HP / 8][N][32];

  Tile tile = tiles[blockIdx.x];
  Sequence of = sequences[tile.sequence];
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = 8 * warp + lane / 4, quad = lane % 4;
  unsigned half = warp % 2 * 2 * HP;  // first gate of this warp's half of the sums
  bool has_unit = unit < H;

  unsigned weight[INNER][4];
  const uint4* fragment = fragments + ((u64)of.weight * HP / 8 + warp) * INNER * 32 + lane;
#pragma unroll
  for (int k = 0; k < INNER; k++) take(fragment[k * 32], weight[k]);

  unsigned own = tile.window + 2 * quad, at = own * H + unit;  // in arrays [B, H]
  float c[N][2], dh[N][2], dc[N][2];
  u64 edge = (u64)of.window * H + at, step = (of.step_row + (u64)of.steps * of.windows) * H + at;
  unsigned before = of.window * H;  // from a number of a step to that of the state before it
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      bool has = has_unit && own + 8 * n + j < of.windows;
      unsigned further = (8 * n + j) * H;
      c[n][j] = has ? cell[step + before + further] : 0.0f;
      dh[n][j] = has ? d_hidden[edge + further] : 0.0f;
      dc[n][j] = has ? d_cell[edge + further] : 0.0f;
    }
  }

  Narrow<__half> kept[N][2];
  float cell_before[N][2], d_output[N][2];
  // What the next step back reads: on its way during a product.
  auto fetch = [&]() {
    step -= of.windows * H;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        if (!has_unit || own + 8 * n + j >= of.windows) continue;
        u64 number = step + (8 * n + j) * H;
        kept[n][j] = gates[number];
        cell_before[n][j] = cell[number + before];
        d_output[n][j] = d_outputs ? d_outputs[number] : 0.0f;
      }
    }
  };
  fetch();
  for (unsigned t = of.steps; t-- > 0;) {
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        bool has = has_unit && own + 8 * n + j < of.windows;
        Gates d = {0.0f, 0.0f, 0.0f, 0.0f};
        if (has) {
          d = unwind(widen_gates(kept[n][j]), cell_before[n][j], c[n][j], dh[n][j] + d_output[n][j], dc[n][j]);
          c[n][j] = cell_before[n][j];
        }
        Narrow<T> rounded = narrow_gates<T>(d);
        *(Narrow<T>*)&gradients[8 * n + 2 * quad + j][4 * unit] = rounded;
        if (has) d_gates[step + (8 * n + j) * H] = rounded;
      }
    }
    if (t > 0) fetch();
    __syncthreads();

    float sums[N][4];
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int i = 0; i < 4; i++) sums[n][i] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < INNER; k += 2) {
#pragma unroll
      for (int n = 0; n < N; n++) {
        unsigned gradient[4];
        load_matrices(gradient, &gradients[8 * n + lane % 8][half + 16 * k + lane / 8 * 8]);
        multiply_add(sums[n], weight[k], gradient[0], gradient[1], T());
        multiply_add(sums[n], weight[k + 1], gradient[2], gradient[3], T());
      }
    }
    bool is_upper = warp % 2 == 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
      given[warp][n][lane] = is_upper ? make_float2(sums[n][2], sums[n][3]) : make_float2(sums[n][0], sums[n][1]);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
      float2 other = given[warp ^ 1][n][lane];
      dh[n][0] = (is_upper ? sums[n][0] : sums[n][2]) + other.x;
      dh[n][1] = (is_upper ? sums[n][1] : sums[n][3]) + other.y;
    }
  }
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      unsigned further = (8 * n + j) * H;
      if (!has_unit || own + 8 * n + j >= of.windows) continue;
      d_hidden[edge + further] = dh[n][j];
      d_cell[edge + further] = dc[n][j];
    }
  }
}

#define BACKWARD(name, T, HP, N)                                                                                                        \
  extern "C" __global__ void __launch_bounds__(4 * HP, 1)                                                                                \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float* cell, const Narrow<__half>* gates,  \
           const float* d_outputs, float* d_hidden, float* d_cell, Narrow<T>* d_gates) {                                                \
    backward<T, HP, N>(sequences, tiles, H, fragments, cell, gates, d_outputs, d_hidden, d_cell, d_gates);                                \
  }

BACKWARD(backward_f16_32_8, __half, 32, 1)
BACKWARD(backward_f16_64_8, __half, 64, 1)
BACKWARD(backward_f16_128_8, __half, 128, 1)
BACKWARD(backward_f16_32_16, __half, 32, 2)
BACKWARD(backward_f16_64_16, __half, 64, 2)
BACKWARD(backward_f16_128_16, __half, 128, 2)
BACKWARD(backward_bf16_32_8, __nv_bfloat16, 32, 1)
BACKWARD(backward_bf16_64_8, __nv_bfloat16, 64, 1)
BACKWARD(backward_bf16_128_8, __nv_bfloat16, 128, 1)
BACKWARD(backward_bf16_32_16, __nv_bfloat16, 32, 2)
BACKWARD(backward_bf16_64_16, __nv_bfloat16, 64, 2)
BACKWARD(backward_bf16_128_16, __nv_bfloat16, 128, 2)
