// The recurrence of LSTM layers, all steps in one launch: recurrence.cu and recurrence_of_rows.cu, which differ in where a step's gates begin.
//
//   block: takes 8·N windows of a sequence; holds all of W_hh in its registers                               (1)
//   for each step:  gates = what they begin with + W_hh · h;  c, h;  h to shared memory, all to global memory  (2)
//
// 1. Warp w has the four gates of units 8 w … 8 w + 7, as rows of two tiles [16, HP]: i above f, and g above o. A product by the windows' states, [HP, 8],
//    leaves the gates of unit 8 w + lane / 4 and windows 2 (lane % 4), + 1 in one lane, which therefore keeps the cell state in a register, too.
// 2. Shared memory has the states before the step and those after it, so that one barrier a step is enough. No block waits for another.
#pragma once

#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"

// fragments: of W_hh as recurrent_weights.cu lays them.  hidden, cell: [Σ (T + 1)·B, H], the states before the first step given.  gates: [Σ T·B, H, 4] after
// their functions, or null.  HP: H rounded up to what the kernel is made for; the threads of a block are 4·HP.  From: what gates begin with; it begins before the first barrier, starts the sums of a
// step, and ends the step before the barrier at its end.
template <class T, int HP, int N, class From>
__device__ inline void forward(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, From& from, T* hidden, float* cell,
                               Narrow<__half>* gates) {
  constexpr int INNER = HP / 16;
  __shared__ __align__(16) T states[2][8 * N][HP + 8];  // 16 bytes more than a row has: rows begin in different banks

  Tile tile = tiles[blockIdx.x];
  Sequence of = sequences[tile.sequence];
  unsigned lane = threadIdx.x % 32, unit = threadIdx.x / 32 * 8 + lane / 4, quad = lane % 4;
  bool has_unit = unit < H;

  unsigned weight[INNER][2][4];
  take_weights(fragments + ((u64)of.weight * HP / 8 + threadIdx.x / 32) * INNER * 2 * 32 + lane, weight);

  unsigned own = tile.window + 2 * quad, at = own * H + unit;  // in arrays [B, H]
  Lane here = {of, tile, H, unit, own, has_unit};
  from.begin(here);
  float c[N][2];
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u64 before = (of.step_row + of.window + here.window(8 * n + j)) * H + unit;
      T zero;
      narrow(0.0f, zero);
      c[n][j] = has_unit ? cell[before] : 0.0f;
      states[0][8 * n + 2 * quad + j][unit] = has_unit ? hidden[before] : zero;
    }
  }
  u64 step = of.step_row * H + at;
  unsigned after = (of.window + of.windows) * H;  // from a number of a step to that of the state after it
  __syncthreads();

  for (unsigned t = 0; t < of.steps; t++) {
    float sums[N][2][4];
    from.start(sums, here, t);
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
    from.end(here, t);
    step += of.windows * H;
    __syncthreads();
  }
}
