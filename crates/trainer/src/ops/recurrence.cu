// The recurrence of LSTM layers, all steps in one launch. Source of recurrence.ptx; launched by recurrence.rs.
//
//   block: takes 8·N windows of a sequence; holds all of W_hh in its registers                               (1)
//   for each step:  gates = projected row + W_hh · h;  c, h;  h to shared memory, all to global memory       (2)
//
// 1. Warp w has the four gates of units 8 w … 8 w + 7, as rows of two tiles [16, HP]: i above f, and g above o. A product by the windows' states, [HP, 8],
//    leaves the gates of unit 8 w + lane / 4 and windows 2 (lane % 4), + 1 in one lane, which therefore keeps the cell state in a register, too.
// 2. Shared memory has the states before the step and those after it, so that one barrier a step is enough. No block waits for another.
#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"

// fragments: of W_hh as recurrent_weights.cu lays them.  projected: [rows, H, 4] with biases.  first: [windows], the row of a window's
// first step, counted from the sequence's first row.  hidden, cell: [Σ (T + 1)·B, H], the states before the first step given.  gates: [Σ T·B, H, 4] after
// their functions, or null.  HP: H rounded up to what the kernel is made for; the threads of a block are 4·HP.
template <class T, int HP, int N>
__device__ inline void forward(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* projected,
                               const unsigned* first, T* hidden, float* cell, Narrow<__half>* gates) {
  constexpr int INNER = HP / 16;
  __shared__ __align__(16) T states[2][8 * N][HP + 8];  // 16 bytes more than a row has: rows begin in different banks

  Tile tile = tiles[blockIdx.x];
  Sequence of = sequences[tile.sequence];
  unsigned lane = threadIdx.x % 32, unit = threadIdx.x / 32 * 8 + lane / 4, quad = lane % 4;
  bool has_unit = unit < H;

  unsigned weight[INNER][2][4];
  const uint4* fragment = fragments + ((u64)of.weight * HP / 8 + threadIdx.x / 32) * INNER * 2 * 32 + lane;
#pragma unroll
  for (int k = 0; k < INNER; k++) {
#pragma unroll
    for (int pairs = 0; pairs < 2; pairs++) take(fragment[(2 * k + pairs) * 32], weight[k][pairs]);
  }

  // A window past the last one reads the projected inputs of the last one, and writes nothing.
  unsigned own = tile.window + 2 * quad, at = own * H + unit, row[N][2];  // in arrays [B, H] and, from a step's first row on, [rows, H]
  float c[N][2];
  float4 next[N][2];
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      unsigned window = min(own + 8 * n + j, of.windows - 1);
      u64 before = (of.step_row + of.window + window) * H + unit;
      row[n][j] = first[of.window + window] * H + unit;
      T zero;
      narrow(0.0f, zero);
      c[n][j] = has_unit ? cell[before] : 0.0f;
      states[0][8 * n + 2 * quad + j][unit] = has_unit ? hidden[before] : zero;
      next[n][j] = has_unit ? projected[of.projected_row * H + row[n][j]] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  u64 step = of.step_row * H + at;
  unsigned after = (of.window + of.windows) * H;  // from a number of a step to that of the state after it
  __syncthreads();

  for (unsigned t = 0; t < of.steps; t++) {
    float sums[N][2][4];
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float4 start = next[n][j];
        sums[n][0][j] = start.x;
        sums[n][0][2 + j] = start.y;
        sums[n][1][j] = start.z;
        sums[n][1][2 + j] = start.w;
        // On its way during the product.
        if (has_unit && t + 1 < of.steps) next[n][j] = projected[(of.projected_row + (t + 1) * of.row_step) * H + row[n][j]];
      }
    }
#pragma unroll
    for (int k = 0; k < INNER; k += 2) {
#pragma unroll
      for (int n = 0; n < N; n++) {
        unsigned state[4];
        load_matrices(state, &states[t % 2][8 * n + lane % 8][16 * k + lane / 8 * 8]);
#pragma unroll
        for (int pairs = 0; pairs < 2; pairs++) {
          multiply_add(sums[n][pairs], weight[k][pairs], state[0], state[1], T());
          multiply_add(sums[n][pairs], weight[k + 1][pairs], state[2], state[3], T());
        }
      }
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        Gates now = {sums[n][0][j], sums[n][0][2 + j], sums[n][1][j], sums[n][1][2 + j]};
        T h;
        narrow(advance(now, c[n][j]), h);
        states[(t + 1) % 2][8 * n + 2 * quad + j][unit] = h;
        if (has_unit && own + 8 * n + j < of.windows) {
          u64 number = step + (8 * n + j) * H;
          hidden[number + after] = h;
          cell[number + after] = c[n][j];
          if (gates) gates[number] = narrow_gates<__half>(now);
        }
      }
    }
    step += of.windows * H;
    __syncthreads();
  }
}

#define FORWARD(name, T, HP, N)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(4 * HP, 1)                                                                                \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* projected, const unsigned* first,  \
           T* hidden, float* cell, Narrow<__half>* gates) {                                                                             \
    forward<T, HP, N>(sequences, tiles, H, fragments, projected, first, hidden, cell, gates);                                             \
  }

FORWARD(forward_f16_32_8, __half, 32, 1)
FORWARD(forward_f16_64_8, __half, 64, 1)
FORWARD(forward_f16_128_8, __half, 128, 1)
FORWARD(forward_f16_32_16, __half, 32, 2)
FORWARD(forward_f16_64_16, __half, 64, 2)
FORWARD(forward_f16_128_16, __half, 128, 2)
FORWARD(forward_bf16_32_8, __nv_bfloat16, 32, 1)
FORWARD(forward_bf16_64_8, __nv_bfloat16, 64, 1)
FORWARD(forward_bf16_128_8, __nv_bfloat16, 128, 1)
FORWARD(forward_bf16_32_16, __nv_bfloat16, 32, 2)
FORWARD(forward_bf16_64_16, __nv_bfloat16, 64, 2)
FORWARD(forward_bf16_128_16, __nv_bfloat16, 128, 2)
