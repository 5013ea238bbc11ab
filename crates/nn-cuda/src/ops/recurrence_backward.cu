// The recurrence of LSTM layers backwards, all steps in one launch. Source of recurrence_backward.ptx; launched by recurrence_backward.rs.
//
//   block: takes W windows of a sequence; holds all of W_hhᵀ in its registers                                  (1)
//   for each step, from the last:  dgates from dh, dc;  dgates to shared and to global memory                     (2)
//                                  dh = W_hhᵀ · dgates, each half of the sum in another warp
//
// 1. Warps 2 p and 2 p + 1 have rows 32 p … 32 p + 31 of W_hhᵀ [HP, 4·HP] as two tiles, one the first half of the columns and the other the second: a warp reads half of dgates. Each gives away the sums of the other's
//    tile, so that warp w goes on with units 16 w … 16 w + 15, whose gradients stay in its lanes' registers. Rows of a tile are laid as in recurrence.cuh: a lane has two units side by side.
// 2. In 16 bits, as the products that follow read them.
#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"
#include "unit_pairs.cuh"

// Arrays as in recurrence.cu, but that `fragments` are those of W_hhᵀ.  d_outputs: [Σ T·B, H], what comes from above after each step, or null.  d_hidden, d_cell: [windows, H], the gradients of the last
// states; they become those of the first ones.  d_gates: [Σ T·B, H, 4], before the gates' functions.
template <class T, int HP, int W>
__device__ inline void backward(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float* cell,
                                const Narrow<__half>* gates, const float* d_outputs, float* d_hidden, float* d_cell, Narrow<T>* d_gates) {
  constexpr int INNER = HP / 8;  // tiles of 16 gates in half of them
  constexpr int N = Columns<W>::TILES, J = Columns<W>::OF_LANE;
  __shared__ __align__(16) T gradients[8 * N][4 * HP + 8];
  __shared__ float4 given[HP / 16][N][32];

  Tile tile = tiles[blockIdx.x];
  Sequence sequence = sequences[tile.sequence];
  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, quad = lane % 4;
  Units units = units_of_lane(H);
  unsigned half = warp % 2 * 2 * HP;  // first gate of this warp's half of the sums

  unsigned weight[INNER][2][4];
  const uint4* fragment = fragments + ((u64)sequence.weight * (HP / 16) + warp) * INNER * 2 * 32 + lane;
#pragma unroll
  for (int k = 0; k < 2 * INNER; k++) take(fragment[k * 32], weight[k / 2][k % 2]);

  if (J == 1) clear(gradients, sizeof(gradients));
  unsigned own = tile.window + J * quad;
  u64 edge = (u64)(sequence.window + own) * H + units.first, end = (sequence.step_row + (u64)sequence.steps * sequence.windows + own) * H + units.first;
  unsigned further = sequence.windows * H;  // from a step to the next
  // Of the lane's first window, behind the last step; the state before a step.
  cell += end + sequence.window * H;
  gates += end;
  bool has_outputs = d_outputs;
  d_outputs += end;
  d_gates += end;
  d_hidden += edge;
  d_cell += edge;
  float c[N][J][2], dh[N][J][2], dc[N][J][2];
  bool reach[N][J];
#pragma unroll
  for (int i = 0; i < J * N; i++) {
    int n = i / J, j = i % J;
    reach[n][j] = units.are_there && own + 8 * n + j < sequence.windows;
    c[n][j][0] = c[n][j][1] = dh[n][j][0] = dh[n][j][1] = dc[n][j][0] = dc[n][j][1] = 0.0f;
  }
#pragma unroll
  for (int i = 0; i < J * N; i++) {
    int n = i / J, j = i % J;
    unsigned window = (8 * n + j) * H;
    take_pair(cell + window, c[n][j][0], c[n][j][1], reach[n][j]);
    take_pair(d_hidden + window, dh[n][j][0], dh[n][j][1], reach[n][j]);
    take_pair(d_cell + window, dc[n][j][0], dc[n][j][1], reach[n][j]);
  }

  // What the next step back reads, as it lies in memory: on its way during a product, and unpacked where it is used.
  uint2 kept[N][J][2] = {};
  float cell_before[N][J][2] = {}, d_output[N][J][2] = {};
  auto load = [&]() {
    gates -= further;
    cell -= further;
    d_outputs -= further;
#pragma unroll
    for (int i = 0; i < J * N; i++) {
      int n = i / J, j = i % J;
      unsigned window = (8 * n + j) * H;
      take_pair((const uint2*)gates + window, kept[n][j][0], kept[n][j][1], reach[n][j]);
      take_pair(cell + window, cell_before[n][j][0], cell_before[n][j][1], reach[n][j]);
      take_pair(d_outputs + window, d_output[n][j][0], d_output[n][j][1], reach[n][j] && has_outputs);
    }
  };
  // A lane of each window: its warp's units lie in one line or two.
  auto announce = [&]() {
    if (lane >= 4) return;
#pragma unroll
    for (int i = 0; i < J * N; i++) {
      int n = i / J, j = i % J;
      if (!reach[n][j]) continue;
      unsigned window = (8 * n + j) * H;
      prefetch(gates + window - (u64)STEPS_AHEAD * further);
      prefetch(cell + window - (u64)STEPS_AHEAD * further);
      if (has_outputs) prefetch(d_outputs + window - (u64)STEPS_AHEAD * further);
    }
  };
  load();
  for (unsigned t = sequence.steps; t-- > 0;) {
    d_gates -= further;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < J; j++) {
        Narrow<T> rounded[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
          Narrow<__half> now = *(Narrow<__half>*)&kept[n][j][u];
          // Of a unit or a window that there is not all is zero, and stays so.
          Gates d = cell_backward<T>(widen_gates(now), cell_before[n][j][u], c[n][j][u], dh[n][j][u] + d_output[n][j][u], dc[n][j][u]);
          c[n][j][u] = cell_before[n][j][u];
          rounded[u] = narrow_gates<T>(d);
        }
        *(Pair<Narrow<T>>*)&gradients[8 * n + 2 * quad + j][4 * units.first] = {rounded[0], rounded[1]};
        put_pair(d_gates + (8 * n + j) * H, rounded[0], rounded[1], reach[n][j]);
      }
    }
    if (t > 0) load();
    if (t > STEPS_AHEAD) announce();
    __syncthreads();

    // Two sums of each tile, so that twice as many products are under way.
    float sums[N][2][4], others[N][2][4];
#pragma unroll
    for (int i = 0; i < 8 * N; i++) sums[i / 8][i / 4 % 2][i % 4] = others[i / 8][i / 4 % 2][i % 4] = 0.0f;
#pragma unroll
    for (int k = 0; k < INNER; k += 2) {
#pragma unroll
      for (int n = 0; n < N; n++) {
        unsigned gradient[4];
        load_matrices(gradient, &gradients[8 * n + lane % 8][half + 16 * k + lane / 8 * 8]);
#pragma unroll
        for (int part = 0; part < 2; part++) multiply_add(sums[n][part], weight[k][part], gradient[0], gradient[1], T());
#pragma unroll
        for (int part = 0; part < 2; part++) multiply_add(others[n][part], weight[k + 1][part], gradient[2], gradient[3], T());
      }
    }
#pragma unroll
    for (int i = 0; i < 8 * N; i++) sums[i / 8][i / 4 % 2][i % 4] += others[i / 8][i / 4 % 2][i % 4];
    bool is_second = warp % 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
      float(&first)[4] = sums[n][0], (&second)[4] = sums[n][1];
      given[warp][n][lane] = is_second ? make_float4(first[0], first[1], first[2], first[3]) : make_float4(second[0], second[1], second[2], second[3]);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
      float4 other = given[warp ^ 1][n][lane];
      float(&first)[4] = sums[n][0], (&second)[4] = sums[n][1];
      dh[n][0][0] = (is_second ? second[0] : first[0]) + other.x;
      dh[n][0][1] = (is_second ? second[2] : first[2]) + other.z;
      if (J == 1) continue;
      dh[n][J - 1][0] = (is_second ? second[1] : first[1]) + other.y;
      dh[n][J - 1][1] = (is_second ? second[3] : first[3]) + other.w;
    }
  }
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < J; j++) {
      unsigned window = (8 * n + j) * H;
      put_pair(d_hidden + window, dh[n][j][0], dh[n][j][1], reach[n][j]);
      put_pair(d_cell + window, dc[n][j][0], dc[n][j][1], reach[n][j]);
    }
  }
}

#define BACKWARD(name, T, HP, W)                                                                                                        \
  extern "C" __global__ void __launch_bounds__(2 * HP, 1)                                                                                \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float* cell, const Narrow<__half>* gates,  \
           const float* d_outputs, float* d_hidden, float* d_cell, Narrow<T>* d_gates) {                                                \
    backward<T, HP, W>(sequences, tiles, H, fragments, cell, gates, d_outputs, d_hidden, d_cell, d_gates);                                \
  }

EACH_KERNEL(BACKWARD, backward)
