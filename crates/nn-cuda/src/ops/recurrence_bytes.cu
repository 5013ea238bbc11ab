// The recurrence of LSTM layers with W_hh in eight bits, all steps in one launch. Source of recurrence_bytes.ptx; launched by recurrence_bytes.rs.
//
//   block: takes 8·N windows of a sequence; holds all of W_hh in its registers, as that of recurrence.cu does
//   for each step:  the largest of each window's states                                                     (1)
//                   states as fourteen bits in two bytes, to shared memory                                  (2)
//                   gates = projected row + W_hh · h;  c, h;  all to global memory
//
// 1. Magnitudes are compared as integers, so that their order does not matter: warps put theirs into one number of shared memory. After a barrier all have it.
// 2. A second barrier, after which warps multiply. Nobody writes the next states before the first barrier of the next step.
#include "bytes.cuh"
#include "cell.cuh"
#include "projected.cuh"

// fragments: of W_hh as recurrence_bytes.rs lays them.  scales: [sequences, H, 4], those of its rows.  All else as in recurrence.cu.
template <int HP, int N>
__device__ inline void forward(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* scales,
                               Projected<N> from, float* hidden, float* cell) {
  constexpr int INNER = HP / 32;
  __shared__ __align__(16) signed char states[2][8 * N][HP + 16];  // 16 bytes more than a row has: rows begin in different banks
  __shared__ unsigned greatest[2][8 * N];

  Tile tile = tiles[blockIdx.x];
  Sequence of = sequences[tile.sequence];
  unsigned lane = threadIdx.x % 32, unit = threadIdx.x / 32 * 8 + lane / 4, quad = lane % 4;
  bool has_unit = unit < H;

  unsigned weight[INNER][2][4];
  take_weights(fragments + ((u64)of.weight * HP / 8 + threadIdx.x / 32) * INNER * 2 * 32 + lane, weight);
  float4 scale = has_unit ? scales[of.weight * H + unit] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);

  unsigned own = tile.window + 2 * quad;
  Lane here = {of, tile, H, unit, own, has_unit};
  from.begin(here);
  float c[N][2], h[N][2];
#pragma unroll
  for (int n = 0; n < N; n++) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
      u64 before = (of.step_row + of.window + here.window(8 * n + j)) * H + unit;
      c[n][j] = has_unit ? cell[before] : 0.0f;
      h[n][j] = has_unit ? hidden[before] : 0.0f;
    }
  }
  u64 after = (of.step_row + of.window + of.windows + own) * H + unit;  // number of the state after the step
  if (threadIdx.x < 16 * N) greatest[threadIdx.x / (8 * N)][threadIdx.x % (8 * N)] = 0;
  __syncthreads();

  for (unsigned t = 0; t < of.steps; t++) {
    from.go_on();
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        unsigned most = magnitude(h[n][j]);
        for (int half = 16; half > 2; half /= 2) most = max(most, __shfl_xor_sync(ALL_LANES, most, half));
        if (lane < 4) atomicMax(&greatest[t % 2][8 * n + 2 * quad + j], most);
      }
    }
    __syncthreads();
    float window_scale[N][2];
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        unsigned window = 8 * n + 2 * quad + j;
        RowScale of_window = row_scale(greatest[t % 2][window]);
        window_scale[n][j] = of_window.scale;
        int number = quantized(h[n][j], of_window.factor);
        states[0][window][unit] = high_byte(number);
        states[1][window][unit] = low_byte(number);
      }
    }
    // Read for the last time a step ago, before its second barrier.
    if (threadIdx.x < 8 * N) greatest[(t + 1) % 2][threadIdx.x] = 0;
    __syncthreads();

#pragma unroll
    for (int n = 0; n < N; n++) {
      int sums[2][2][4] = {};  // of high and low bytes
#pragma unroll
      for (int k = 0; k < INNER; k++) {
        unsigned state[4];
        load_matrices(state, &states[lane / 16][8 * n + lane % 8][32 * k + lane / 8 % 2 * 16]);
#pragma unroll
        for (int pairs = 0; pairs < 2; pairs++) {
          multiply_add(sums[0][pairs], weight[k][pairs], state[0], state[1], (signed char)0);
          multiply_add(sums[1][pairs], weight[k][pairs], state[2], state[3], (signed char)0);
        }
      }
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float4 start = from.take(here, t, n, j);
        auto gate = [&](int pairs, int place, float of_gate, float from) {
          return __fadd_rn(product_of(sums[0][pairs][place], sums[1][pairs][place], __fmul_rn(window_scale[n][j], of_gate)), from);
        };
        Gates now = {gate(0, j, scale.x, start.x), gate(0, 2 + j, scale.y, start.y), gate(1, j, scale.z, start.z), gate(1, 2 + j, scale.w, start.w)};
        float state = advance<float>(now, c[n][j]);
        h[n][j] = has_unit ? state : 0.0f;
        if (has_unit && own + 8 * n + j < of.windows) {
          u64 number = after + (8 * n + j) * H;
          hidden[number] = state;
          cell[number] = c[n][j];
        }
      }
    }
    after += of.windows * H;
  }
}

#define FORWARD(HP, WINDOWS)                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(4 * HP, 1) forward_bytes_##HP##_##WINDOWS(                                                        \
      const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* scales, const float4* projected,           \
      const unsigned* first, float* hidden, float* cell) {                                                                                      \
    forward<HP, WINDOWS / 8>(sequences, tiles, H, fragments, scales, Projected<WINDOWS / 8>{projected, first}, hidden, cell);                                            \
  }

FORWARD(32, 8)
FORWARD(64, 8)
FORWARD(128, 8)
FORWARD(32, 16)
FORWARD(64, 16)
FORWARD(128, 16)
