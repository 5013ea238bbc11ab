// The recurrence of LSTM layers, all steps in one launch: recurrence.cu and recurrence_of_rows.cu, which differ in where a step's gates begin.
//
//   block: takes W windows of a sequence; holds all of W_hh in its registers                               (1)
//   for each step:  gates = what they begin with + W_hh · h;  c, h;  h to shared memory, all to global memory  (2)
//
// 1. Warp w has units 16 w … 16 w + 15, whose four gates are four tiles [16, HP]. Rows of a tile are laid so that a product by the windows' states, [HP, 8], leaves the gates of units 16 w + 2 (lane / 4), + 1
//    and columns 2 (lane % 4), + 1 in one lane, which therefore keeps the cell states in registers, too, and reads and writes two units that lie side by side at once.
// 2. Shared memory has the states before the step and those after it, so that one barrier a step is enough. No block waits for another.
#pragma once

#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"
#include "unit_pairs.cuh"

// fragments: of W_hh as recurrent_weights.cu lays them.  hidden, cell: [Σ (T + 1)·B, H], the states before the first step given.  gates: [Σ T·B, H, 4] after
// their functions, or null.  HP: H rounded up to what the kernel is made for; the threads of a block are 2·HP.  From: what gates begin with; it begins before the first barrier, starts the sums of a
// step, loads those of the next one, and ends the step before the barrier at its end.
template <class T, int HP, int W, class From>
__device__ inline void forward(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, From& from, T* hidden, float* cell,
                               Narrow<__half>* gates) {
  constexpr int INNER = HP / 16, N = Columns<W>::TILES, J = Columns<W>::OF_LANE;
  __shared__ __align__(16) T states[2][8 * N][HP + 8];  // 16 bytes more than a row has: rows begin in different banks

  Tile tile = tiles[blockIdx.x];
  Sequence sequence = sequences[tile.sequence];
  unsigned lane = threadIdx.x % 32, quad = lane % 4;
  Units units = units_of_lane(H);

  unsigned weight[INNER][4][4];
  const uint4* fragment = fragments + ((u64)sequence.weight * (HP / 16) + threadIdx.x / 32) * INNER * 4 * 32 + lane;
#pragma unroll
  for (int k = 0; k < 4 * INNER; k++) take(fragment[k * 32], weight[k / 4][k % 4]);

  if (J == 1) clear(states, sizeof(states));
  Lane here = {sequence, tile, H, units.first, tile.window + J * quad, units.are_there};
  from.begin(here, units);
  float c[N][J][2];
  bool reach[N][J];
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < J; j++) {
      reach[n][j] = units.are_there && here.own + 8 * n + j < sequence.windows;
      u64 before = (sequence.step_row + sequence.window + here.window(8 * n + j)) * H + units.first;
#pragma unroll
      for (int u = 0; u < 2; u++) {
        T zero;
        narrow(0.0f, zero);
        c[n][j][u] = units.are_there ? cell[before + u] : 0.0f;
        states[0][8 * n + 2 * quad + j][units.first + u] = units.are_there ? hidden[before + u] : zero;
      }
    }
  }
  // Of the lane's first window, at the step under way; the state after it.
  u64 step = sequence.step_row * H + here.own * H + units.first, after = step + (sequence.window + sequence.windows) * H;
  hidden += after;
  cell += after;
  bool keeps = gates;
  gates += step;
  unsigned further = sequence.windows * H;  // from a step to the next
  __syncthreads();

  for (unsigned t = 0; t < sequence.steps; t++) {
    float sums[N][4][4];
    from.start(sums);
#pragma unroll
    for (int k = 0; k < INNER; k += 2) {
#pragma unroll
      for (int n = 0; n < N; n++) {
        unsigned state[4];
        load_matrices(state, &states[t % 2][8 * n + lane % 8][16 * k + lane / 8 * 8]);
#pragma unroll
        for (int gate = 0; gate < 4; gate++) multiply_add(sums[n][gate], weight[k][gate], state[0], state[1], T());
#pragma unroll
        for (int gate = 0; gate < 4; gate++) multiply_add(sums[n][gate], weight[k + 1][gate], state[2], state[3], T());
      }
      // When what the sums began with is in them, so that it need not be copied.
      if (k == 0) from.load(units, t + 2 < sequence.steps);
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < J; j++) {
        Gates now[2];
        T h[2];
#pragma unroll
        for (int u = 0; u < 2; u++) {
          int at = 2 * u + j;
          now[u] = {sums[n][0][at], sums[n][1][at], sums[n][2][at], sums[n][3][at]};
          narrow(advance<T>(now[u], c[n][j][u]), h[u]);
        }
        *(unsigned*)&states[(t + 1) % 2][8 * n + 2 * quad + j][units.first] = pair(h[0], h[1]);
        unsigned window = (8 * n + j) * H;
        put_pair(hidden + window, h[0], h[1], reach[n][j]);
        put_pair(cell + window, c[n][j][0], c[n][j][1], reach[n][j]);
        put_pair(gates + window, narrow_gates<__half>(now[0]), narrow_gates<__half>(now[1]), reach[n][j] && keeps);
      }
    }
    from.end(here, t);
    hidden += further;
    cell += further;
    gates += further;
    __syncthreads();
  }
}
