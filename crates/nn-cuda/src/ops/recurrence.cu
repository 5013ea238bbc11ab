// The recurrence of LSTM layers over rows that were projected before. Source of recurrence.ptx; launched by recurrence.rs.
#include "recurrence.cuh"

// What the gates of a lane's units and windows begin with.
//
// projected: [rows, H, 4] with biases.  first: [windows], the row of a window's first step, counted from the sequence's first row.
template <int W>
struct ProjectedRows {
  static constexpr int N = Columns<W>::TILES, J = Columns<W>::OF_LANE;

  const float4* projected;  // from the first row of the step on that is loaded next
  const unsigned* first;
  unsigned stride;
  unsigned row[N][J];  // in arrays [rows, H], from a step's first row on
  float4 next[N][J][2];

  __device__ void begin(const Lane& here, const Units& units) {
    const Sequence& sequence = here.of;
    projected += sequence.projected_row * here.H;
    stride = (unsigned)sequence.row_step * here.H;
#pragma unroll
    for (int n = 0; n < N; n++) {
#pragma unroll
      for (int j = 0; j < J; j++) {
        row[n][j] = first[sequence.window + here.window(8 * n + j)] * here.H + here.unit;
#pragma unroll
        for (int u = 0; u < 2; u++) next[n][j][u] = units.are_there ? projected[row[n][j] + u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
    }
    projected += sequence.steps > 1 ? stride : 0;
  }

  __device__ void start(float (&sums)[N][4][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
      int n = i / 4, j = i / 2 % 2, u = i % 2, at = 2 * u + j;
      float4 start = j < J ? next[n][j % J][u] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      sums[n][0][at] = start.x;
      sums[n][1][at] = start.y;
      sums[n][2][at] = start.z;
      sums[n][3][at] = start.w;
    }
  }

  // The rows of the next step; past the last one those of the last, as nothing branches then.
  __device__ void load(const Units& units, bool has_more) {
#pragma unroll
    for (int i = 0; i < 2 * J * N; i++) {
      int n = i / (2 * J), j = i / 2 % J, u = i % 2;
      if (units.are_there) next[n][j][u] = projected[row[n][j] + u];
    }
    projected += has_more ? stride : 0;
  }

  __device__ void end(const Lane&, unsigned) {}
};

#define FORWARD(name, T, HP, W)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(2 * HP, 1)                                                                                \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* projected, const unsigned* first,  \
           T* hidden, float* cell, Narrow<__half>* gates) {                                                                             \
    ProjectedRows<W> from = {projected, first};                                                                                          \
    forward<T, HP, W>(sequences, tiles, H, fragments, from, hidden, cell, gates);                                                         \
  }

EACH_KERNEL(FORWARD, forward)
