// The recurrence of LSTM layers in f32, all steps in one launch, forward and backward. Source of recurrence_f32.ptx; launched by recurrence_f32.rs.
//
//   block: takes W windows of a sequence; holds all of W_hh, in registers as far as they go, the rest in shared memory       (1)
//   forward, for each step:   sums = W_hh · h;  gates = projected row + sums;  c, h;  h to shared memory                     (2)
//   backward, for each step:  dgates from dh, dc;  dgates to shared memory;  dh = W_hhᵀ · dgates
//
// 1. W_hh of 128 units is as large as a multiprocessor's registers. A thread has 8 rows by HP / 4 columns of the matrix: forward the gates of two units by a quarter of h; backward eight units of W_hhᵀ by
//    a sixteenth of the gates. Four columns lie in a float4, which meets the four numbers of h that one load brings.
// 2. The lanes that share rows halve their sums: each gives away those of the other's windows and units and adds what it gets to its own, until it has those of its own unit and window. The
//    order of these additions does not depend on W. With one window two lanes have the same in the end, of which one writes. One barrier a step is enough, as shared memory has the numbers before the step and those after it.
#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"

// float4 of a thread in registers, of 64 for 128 units: what sums of W windows leave room for.
constexpr int quads_in_registers(int W) { return W == 1 ? 40 : 42; }

// A thread's part of the matrix: [rows of a thread, by 4 columns] float4, of HP / 2 in all.
template <int HP, int W>
struct Weights {
  static constexpr int THREADS = 2 * HP, QUADS = HP / 2, MOST = quads_in_registers(W), HELD = QUADS < MOST ? QUADS : MOST, REST = QUADS - HELD;

  float4 held[HELD];
  const float4* rest;  // [REST, THREADS], in shared memory

  // packed: [sequences, QUADS, THREADS].
  __device__ void take(const float4* packed, unsigned sequence, float4* shared) {
    packed += (u64)sequence * QUADS * THREADS + threadIdx.x;
#pragma unroll
    for (int k = 0; k < HELD; k++) held[k] = packed[k * THREADS];
    for (int k = 0; k < REST; k++) shared[k * THREADS + threadIdx.x] = packed[(HELD + k) * THREADS];
    rest = shared + threadIdx.x;
  }

  // Of row `row`, columns 4 · `column` …
  __device__ float4 quad(int column, int row) const {
    int k = 8 * column + row;
    return k < HELD ? held[k < HELD ? k : 0] : rest[(k - HELD) * THREADS];
  }
};

// The number in `sums` of a window and a row: windows that halve() parts first lie apart.
template <int W>
__device__ constexpr int number(int window, int row) { return (window % 2 * (W / 2) + window / 2) * 8 + row; }

// sums += rows of the matrix · the windows' numbers, which begin `stride` apart in `numbers` and of which this thread meets every `apart`-th four.
template <int HP, int W>
__device__ inline void multiply(const Weights<HP, W>& weights, const float* numbers, int stride, int apart, float (&sums)[8 * W]) {
#pragma unroll
  for (int i = 0; i < 8 * W; i++) sums[i] = 0.0f;
#pragma unroll
  for (int column = 0; column < HP / 16; column++) {
    float4 x[W];
#pragma unroll
    for (int w = 0; w < W; w++) x[w] = *(const float4*)(numbers + w * stride + column * apart);
#pragma unroll
    for (int row = 0; row < 8; row++) {
      float4 weight = weights.quad(column, row);
#pragma unroll
      for (int w = 0; w < W; w++) {
        float& sum = sums[number<W>(w, row)];
        sum = fmaf(weight.w, x[w].w, fmaf(weight.z, x[w].z, fmaf(weight.y, x[w].y, fmaf(weight.x, x[w].x, sum))));
      }
    }
  }
}

// Of 2·N sums the half that this lane goes on with, the second one if it has the bit `mask`, with the other lane's added.
template <int N, int LEN>
__device__ inline void halve(float (&sums)[LEN], unsigned mask) {
  bool is_second = threadIdx.x & mask;
#pragma unroll
  for (int i = 0; i < N; i++) {
    float own = is_second ? sums[N + i] : sums[i], given = is_second ? sums[i] : sums[N + i];
    sums[i] = own + __shfl_xor_sync(ALL_LANES, given, mask);
  }
}

// Sums of which this lane and another have the same: those of both.
template <int N, int LEN>
__device__ inline void add_other(float (&sums)[LEN], unsigned mask) {
#pragma unroll
  for (int i = 0; i < N; i++) sums[i] += __shfl_xor_sync(ALL_LANES, sums[i], mask);
}

// What a block takes: W of a tile's windows, from `begin` on; of a window past the last one it reads what the last one does, and writes nothing.
struct Share {
  Sequence sequence;
  unsigned begin;

  __device__ bool has(unsigned window) const { return begin + window < sequence.windows; }
  __device__ unsigned window(unsigned window) const { return min(begin + window, sequence.windows - 1); }
};

template <int W>
__device__ inline Share share_of_block(const Sequence* sequences, const Tile* tiles, unsigned tile_windows) {
  unsigned each = tile_windows / W;
  Tile tile = tiles[blockIdx.x / each];
  return {sequences[tile.sequence], tile.window + blockIdx.x % each * W};
}

// tiles: of `tile_windows` windows each.  packed: as recurrent_weights.cu lays W_hh.  projected: [rows, H, 4] with biases.  first: as in projected.cuh.  hidden, cell: [Σ (T + 1)·B, H], the states before the first step
// given.  gates: [Σ T·B, H, 4] after their functions, or null.
template <int HP, int W>
__device__ inline void forward(const Sequence* sequences, const Tile* tiles, unsigned tile_windows, unsigned H, const float4* packed, const float4* projected,
                               const unsigned* first, float* hidden, float* cell, float4* gates) {
  constexpr int UNITS = W == 4 ? 2 : 1;  // of one window, a lane's own
  extern __shared__ float4 memory[];

  Share share = share_of_block<W>(sequences, tiles, tile_windows);
  const Sequence& of = share.sequence;
  if (share.begin >= of.windows) return;
  Weights<HP, W> weights;
  weights.take(packed, of.weight, memory);
  float* states = (float*)(memory + weights.REST * weights.THREADS);  // [2, W, HP]

  // Lanes 4 p … 4 p + 3 have the units 2 p and 2 p + 1, each a quarter of h: four numbers of every 16.
  unsigned part = threadIdx.x % 4, window = part % W, unit = threadIdx.x / 4 * 2 + (W == 4 ? 0 : part / W % 2);
  unsigned own = share.window(window);
  bool is_first = W > 1 || part < 2, writes = is_first && share.has(window);
  projected += (of.projected_row + first[of.window + own]) * H + unit;
  u64 before = (of.step_row + of.window + own) * H + unit, step = (of.step_row + own) * H + unit;
  float c[UNITS];
  float4 next[UNITS];
  bool has[UNITS];
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    has[u] = unit + u < H;
    c[u] = has[u] ? cell[before + u] : 0.0f;
    next[u] = has[u] ? projected[u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (is_first) states[window * HP + unit + u] = has[u] ? hidden[before + u] : 0.0f;
  }
  u64 after = (u64)(of.window + of.windows) * H;  // from a number of a step to that of the state after it
  __syncthreads();

  for (unsigned t = 0; t < of.steps; t++) {
    float4 start[UNITS];
    projected += of.row_step * H;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
      start[u] = next[u];
      if (has[u] && t + 1 < of.steps) next[u] = projected[u];
    }
    float sums[8 * W];
    multiply<HP, W>(weights, states + t % 2 * W * HP + 4 * part, HP, 16, sums);
    halve<4 * W>(sums, 1);
    if (W == 1) add_other<4>(sums, 2);
    else halve<2 * W>(sums, 2);
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
      Gates now = {start[u].x + sums[4 * u], start[u].y + sums[4 * u + 1], start[u].z + sums[4 * u + 2], start[u].w + sums[4 * u + 3]};
      float h = advance<float>(now, c[u]);
      if (is_first) states[((t + 1) % 2 * W + window) * HP + unit + u] = has[u] ? h : 0.0f;
      if (has[u] && writes) {
        hidden[step + after + u] = h;
        cell[step + after + u] = c[u];
        if (gates) gates[step + u] = make_float4(now.i, now.f, now.g, now.o);
      }
    }
    step += (u64)of.windows * H;
    __syncthreads();
  }
}

// Arrays as above, but that `packed` is W_hhᵀ.  d_outputs: [Σ T·B, H], what comes from above after each step, or null.  d_hidden, d_cell: [windows, H], the gradients of the last states; they become those of
// the first ones.  d_gates: [Σ T·B, H, 4], before the gates' functions.
template <int HP, int W>
__device__ inline void backward(const Sequence* sequences, const Tile* tiles, unsigned tile_windows, unsigned H, const float4* packed, const float* cell,
                                const float4* gates, const float* d_outputs, float* d_hidden, float* d_cell, float4* d_gates) {
  constexpr int UNITS = W == 4 ? 2 : 1;
  extern __shared__ float4 memory[];

  Share share = share_of_block<W>(sequences, tiles, tile_windows);
  const Sequence& of = share.sequence;
  if (share.begin >= of.windows) return;
  Weights<HP, W> weights;
  weights.take(packed, of.weight, memory);
  float4* gradients = memory + weights.REST * weights.THREADS;  // [W, HP]

  // Lanes 16 p … 16 p + 15 have the units 8 p … 8 p + 7, each a sixteenth of the gates: those of one unit of every 16.
  unsigned part = threadIdx.x % 16, window = part % W, halves = part / W;
  unsigned unit = threadIdx.x / 16 * 8 + (W == 4 ? halves % 2 * 4 + halves / 2 * 2 : halves % 2 * 4 + halves / 2 % 2 * 2 + halves / 4 % 2);
  unsigned own = share.window(window);
  bool is_first = W > 1 || part < 8, writes = is_first && share.has(window);
  u64 edge = (u64)(of.window + own) * H + unit, step = (of.step_row + (u64)of.steps * of.windows + own) * H + unit;
  u64 before = (u64)of.window * H;  // from a number of a step to that of the state before it
  float c[UNITS], dh[UNITS], dc[UNITS];
  bool has[UNITS];
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    has[u] = unit + u < H;
    c[u] = has[u] ? cell[step + before + u] : 0.0f;
    dh[u] = has[u] ? d_hidden[edge + u] : 0.0f;
    dc[u] = has[u] ? d_cell[edge + u] : 0.0f;
  }

  // What a step reads, on its way during the product of the one after it.
  float4 kept[UNITS];
  float cell_before[UNITS], d_output[UNITS];
  auto load = [&]() {
    step -= (u64)of.windows * H;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
      if (!has[u]) continue;
      kept[u] = gates[step + u];
      cell_before[u] = cell[step + before + u];
      d_output[u] = d_outputs ? d_outputs[step + u] : 0.0f;
    }
  };
  // A lane of each window: its warp's units lie in one line or two of each array.
  auto announce = [&]() {
    if (threadIdx.x % 32 >= W || !has[0]) return;
    u64 number = step - (u64)STEPS_AHEAD * of.windows * H;
    prefetch(gates + number);
    prefetch(gates + number + 8);
    prefetch(cell + number + before);
    if (d_outputs) prefetch(d_outputs + number);
  };
  load();
  for (unsigned t = of.steps; t-- > 0;) {
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
      Gates d = {0.0f, 0.0f, 0.0f, 0.0f};
      if (has[u]) {
        d = cell_backward<float>({kept[u].x, kept[u].y, kept[u].z, kept[u].w}, cell_before[u], c[u], dh[u] + d_output[u], dc[u]);
        c[u] = cell_before[u];
      }
      float4 four = make_float4(d.i, d.f, d.g, d.o);
      if (is_first) gradients[window * HP + unit + u] = four;
      if (has[u] && writes) d_gates[step + u] = four;
    }
    if (t > 0) load();
    if (t > STEPS_AHEAD) announce();
    __syncthreads();

    float sums[8 * W];
    multiply<HP, W>(weights, (const float*)(gradients + part), 4 * HP, 64, sums);
    halve<4 * W>(sums, 1);
    halve<2 * W>(sums, 2);
    halve<W>(sums, 4);
    if (W == 1) add_other<1>(sums, 8);
    else halve<W / 2>(sums, 8);
#pragma unroll
    for (int u = 0; u < UNITS; u++) dh[u] = sums[u];
    __syncthreads();
  }
#pragma unroll
  for (int u = 0; u < UNITS; u++) {
    if (!has[u] || !writes) continue;
    d_hidden[edge + u] = dh[u];
    d_cell[edge + u] = dc[u];
  }
}

#define RECURRENCE(HP, W)                                                                                                                       \
  extern "C" __global__ void __launch_bounds__(2 * HP, 1)                                                                                        \
      forward_f32_##HP##_##W(const Sequence* sequences, const Tile* tiles, unsigned tile_windows, unsigned H, const float4* packed,              \
                             const float4* projected, const unsigned* first, float* hidden, float* cell, float4* gates) {                        \
    forward<HP, W>(sequences, tiles, tile_windows, H, packed, projected, first, hidden, cell, gates);                                            \
  }                                                                                                                                              \
  extern "C" __global__ void __launch_bounds__(2 * HP, 1)                                                                                        \
      backward_f32_##HP##_##W(const Sequence* sequences, const Tile* tiles, unsigned tile_windows, unsigned H, const float4* packed,             \
                              const float* cell, const float4* gates, const float* d_outputs, float* d_hidden, float* d_cell, float4* d_gates) { \
    backward<HP, W>(sequences, tiles, tile_windows, H, packed, cell, gates, d_outputs, d_hidden, d_cell, d_gates);                               \
  }

RECURRENCE(32, 1)
RECURRENCE(64, 1)
RECURRENCE(128, 1)
RECURRENCE(32, 2)
RECURRENCE(64, 2)
RECURRENCE(128, 2)
RECURRENCE(32, 4)
RECURRENCE(64, 4)
RECURRENCE(128, 4)
