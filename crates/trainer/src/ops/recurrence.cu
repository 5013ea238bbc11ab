// The recurrence of LSTM layers over rows that were projected before. Source of recurrence.ptx; launched by recurrence.rs.
#include "recurrence.cuh"

// Gates that begin with a row that was projected before.
//
// projected: [rows, H, 4] with biases.  first: [windows], the row of a window's first step, counted from the sequence's first row.
template <int N>
struct Projected {
  const float4* projected;  // from the first row of the step on that was loaded last
  const unsigned* first;
  unsigned stride;
  unsigned row[N][2];  // in arrays [rows, H], from a step's first row on
  float4 next[N][2];

  __device__ void begin(const Lane& here) {
    const Sequence& of = here.of;
    projected += of.projected_row * here.H;
    stride = (unsigned)of.row_step * here.H;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < 2; j++) {
        row[n][j] = first[of.window + here.window(8 * n + j)] * here.H + here.unit;
        next[n][j] = here.has_unit ? projected[row[n][j]] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
  }

  __device__ void start(float (&sums)[N][2][4], const Lane& here, unsigned t) {
    projected += stride;
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
        if (here.has_unit && t + 1 < here.of.steps) next[n][j] = projected[row[n][j]];
      }
    }
  }

  __device__ void end(const Lane&, unsigned) {}
};

#define FORWARD(name, T, HP, N)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(4 * HP, 1)                                                                                \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* projected, const unsigned* first,  \
           T* hidden, float* cell, Narrow<__half>* gates) {                                                                             \
    Projected<N> from = {projected, first, 0};                                                                                           \
    forward<T, HP, N>(sequences, tiles, H, fragments, from, hidden, cell, gates);                                                         \
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
