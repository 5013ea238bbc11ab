// The recurrence of LSTM layers over rows that were projected before. Source of recurrence.ptx; launched by recurrence.rs.
#include "recurrence.cuh"
#include "projected.cuh"

#define FORWARD(name, T, HP, N)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(4 * HP, 1)                                                                                \
      name(const Sequence* sequences, const Tile* tiles, unsigned H, const uint4* fragments, const float4* projected, const unsigned* first,  \
           T* hidden, float* cell, Narrow<__half>* gates) {                                                                             \
    Projected<N> from = {projected, first};                                                                                              \
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
