// The recurrence of LSTM layers that projects what it reads itself: no projected row is written or read. Source of recurrence_of_rows.ptx; launched by recurrence_of_rows.rs.
//
// Rows are as narrow as 64 numbers at most. What gates begin with does not depend on h: a warp multiplies it for the next step when it has its states, before it waits for the others, whose special functions
// leave tensor cores and L1 idle. Shared memory has the rows of the next step and of that after it, which were loaded during the step before. W_ih is in the order of W_hh, and is loaded from L1
// for every step: registers have W_hh.
#include "recurrence.cuh"

#define WIDEST 64  // numbers of a row

// rows: of each sequence [rows, F] from element number `input` on.  first: as for rows that are projected.  fragments: of W_ih, as recurrent_weights.cu lays it, [sequences, HP / 16 warps, inner, 4, 32 lanes]
// for rows of up to 16 · inner numbers, zero behind a row's own.  bias: [sequences, H, 4].
template <class T, int HP, int W>
struct Rows {
  static constexpr int N = Columns<W>::TILES, J = Columns<W>::OF_LANE;
  static constexpr int MOST = W * WIDEST / (2 * HP);  // numbers of a step that a thread loads

  const T* rows;
  const unsigned* first;
  const uint4* fragments;
  const float4* bias;
  unsigned doublings;
  T (*tiles)[8 * N][WIDEST + 8];  // of two steps, in shared memory
  float4 start_of_unit[2];
  float ahead[N][4][4];  // what the gates of a step begin with
  T next[MOST];
  unsigned place[MOST];  // of these, from a step's first row on

  __device__ void begin(const Lane& here, const Units& units) {
    const Sequence& of = here.of;
    fragments += ((u64)of.weight * (HP / 16) + threadIdx.x / 32) * (128 << doublings) + threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < 2; u++) start_of_unit[u] = units.are_there ? bias[of.weight * here.H + here.unit + u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    rows += of.input;
#pragma unroll
    for (int i = 0; i < MOST; i++) {
      unsigned window = min(here.tile.window + tile_row(i), of.windows - 1);
      place[i] = first[of.window + window] * of.features + column(i);
      // What lies behind a row stays zero.
      narrow(0.0f, next[i]);
    }
    if (J == 1) clear(tiles, 2 * sizeof(*tiles));
    for (unsigned t = 0; t < 2; t++) {
      fetch(here, t);
      put(t);
    }
    fetch(here, 2);
    __syncthreads();
    multiply(0);
  }

  __device__ void load(const Units&, bool) {}

  __device__ void start(float (&sums)[N][4][4]) {
#pragma unroll
    for (int i = 0; i < 16 * N; i++) sums[i / 16][i / 4 % 4][i % 4] = ahead[i / 16][i / 4 % 4][i % 4];
  }

  // Everybody has multiplied the rows of this step before the last barrier, so that those of the step after the next one can take their place.
  __device__ void end(const Lane& here, unsigned t) {
    multiply(t + 1);
    put(t + 2);
    fetch(here, t + 3);
  }

  // b + W_ih · x of step t.
  __device__ void multiply(unsigned t) {
    unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int at = 0; at < 4; at++) {
        ahead[n][0][at] = start_of_unit[at / 2].x;
        ahead[n][1][at] = start_of_unit[at / 2].y;
        ahead[n][2][at] = start_of_unit[at / 2].z;
        ahead[n][3][at] = start_of_unit[at / 2].w;
      }
    }
#pragma unroll 1
    for (unsigned k = 0; k < 1u << doublings; k++) {
      unsigned weight[4][4], row[4];
#pragma unroll
      for (int gate = 0; gate < 4; gate++) take(fragments[(4 * k + gate) * 32], weight[gate]);
      // Of both halves of a tile of 16 windows at once; those of 8 windows are there twice.
      load_matrices(row, &tiles[t % 2][lane / 16 % N * 8 + lane % 8][16 * k + lane / 8 % 2 * 8]);
#pragma unroll
      for (int n = 0; n < N; n++) {
#pragma unroll
        for (int gate = 0; gate < 4; gate++) multiply_add(ahead[n][gate], weight[gate], row[2 * n], row[2 * n + 1], T());
      }
    }
  }

  // Which number of a tile is this thread's number i: its row, and its place in the row.
  __device__ unsigned tile_row(int i) const { return (threadIdx.x + i * 2 * HP) >> (4 + doublings); }
  __device__ unsigned column(int i) const { return (threadIdx.x + i * 2 * HP) & ((16 << doublings) - 1); }
  __device__ bool is_in_tile(int i) const { return tile_row(i) < W; }

  // The numbers of step t, on their way; past the last step those before.
  __device__ void fetch(const Lane& here, unsigned t) {
    if (t >= here.of.steps) return;
    const T* step = rows + t * here.of.row_step * here.of.features;
#pragma unroll
    for (int i = 0; i < MOST; i++) {
      if (is_in_tile(i) && column(i) < here.of.features) next[i] = step[place[i]];
    }
  }

  __device__ void put(unsigned t) {
#pragma unroll
    for (int i = 0; i < MOST; i++) {
      if (is_in_tile(i)) tiles[t % 2][2 / J * tile_row(i)][column(i)] = next[i];
    }
  }
};

#define FORWARD_OF_ROWS(name, T, HP, W)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(2 * HP, 1)                                                                                      \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const T* rows, const uint4* input_fragments,      \
           const float4* bias, unsigned doublings, const unsigned* first, T* hidden, float* cell, Narrow<__half>* gates) {                         \
    __shared__ __align__(16) T of_steps[2][8 * Columns<W>::TILES][WIDEST + 8];                                                                                 \
    Rows<T, HP, W> from = {rows, first, input_fragments, bias, doublings, of_steps};                                                               \
    forward<T, HP, W>(sequences, tiles, H, fragments, from, hidden, cell, gates);                                                              \
  }

EACH_KERNEL(FORWARD_OF_ROWS, rows)
