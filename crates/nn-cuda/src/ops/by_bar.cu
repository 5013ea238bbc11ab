// Gradients of gates, summed over the windows that read the same bar. Source of by_bar.ptx; launched by by_bar.rs.
#include "mma.cuh"
#include "cell.cuh"
#include "work.cuh"

#define BATCH 8  // windows whose gradients are loaded at once

// d_gates: [Σ T·B, H, 4].  first: [windows], ascending in each sequence.  to: [rows, H, 4], rows of one sequence.  A thread takes a unit of a row, and adds window by window.
template <class T>
__device__ inline void sum_by_bar(const Sequence* sequences, unsigned sequence, unsigned H, const unsigned* first, const Narrow<T>* d_gates,
                                  float4* to, unsigned rows) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= (u64)rows * H) return;
  Sequence of = sequences[sequence];
  unsigned row = (unsigned)(k / H), unit = (unsigned)(k % H);
  first += of.window;
  // The first window that begins at `least` or later is among those from `low` to `high`.
  unsigned least = row + 1 < of.steps ? 0 : row + 1 - of.steps, low = 0, high = of.windows;
  while (low < high) {
    unsigned middle = (low + high) / 2;
    if (first[middle] < least) low = middle + 1;
    else high = middle;
  }
  Gates sum = {0.0f, 0.0f, 0.0f, 0.0f};
  auto step = [&](unsigned window) { return d_gates[(of.step_row + (u64)(row - first[window]) * of.windows + window) * H + unit]; };
  auto add = [&](Narrow<T> gradients) {
    Gates d = widen_gates(gradients);
    sum = {__fadd_rn(sum.i, d.i), __fadd_rn(sum.f, d.f), __fadd_rn(sum.g, d.g), __fadd_rn(sum.o, d.o)};
  };
  unsigned window = low;
  // A batch is on its way together: one by one, each would wait for memory.
  while (window + BATCH <= of.windows && first[window + BATCH - 1] <= row) {
    Narrow<T> batch[BATCH];
#pragma unroll
    for (unsigned i = 0; i < BATCH; i++) batch[i] = step(window + i);
#pragma unroll
    for (unsigned i = 0; i < BATCH; i++) add(batch[i]);
    window += BATCH;
  }
  for (; window < of.windows && first[window] <= row; window++) add(step(window));
  to[k] = make_float4(sum.i, sum.f, sum.g, sum.o);
}

#define BY_BAR(name, T)                                                                                                            \
  extern "C" __global__ void name(const Sequence* sequences, unsigned sequence, unsigned H, const unsigned* first,                 \
                                  const Narrow<T>* d_gates, float4* to, unsigned rows) {                                           \
    sum_by_bar(sequences, sequence, H, first, d_gates, to, rows);                                                                  \
  }

BY_BAR(by_bar_f32, float)
BY_BAR(by_bar_f16, __half)
BY_BAR(by_bar_bf16, __nv_bfloat16)
