// What gates begin with in recurrence_bytes.cu, where a lane has one unit.
#pragma once

#include "work.cuh"

// Of a lane's unit and windows.
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

  // To the rows of the step after the one that begins.
  __device__ void go_on() { projected += stride; }

  // The row of step t, which began; in its place that of the next one sets out.
  __device__ float4 take(const Lane& here, unsigned t, int n, int j) {
    float4 row_now = next[n][j];
    if (here.has_unit && t + 1 < here.of.steps) next[n][j] = projected[row[n][j]];
    return row_now;
  }
};
