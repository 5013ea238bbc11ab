// The recurrence of LSTM layers that are too wide for one block backwards, all steps in one cooperative launch. Source of recurrence_group_backward.ptx; launched by group.rs.
//
//   group of HP / 32 blocks: takes a span of windows of a sequence; each block holds 32 units' rows of W_hhᵀ in its registers          (1)
//   for each step, from the last:  for each 8 windows:  parts of dh = W_hhᵀ · dgates of the step after, to shared memory           (2)
//                                                         dgates from dh = their sum, dc;  to global memory
//                                  dgates are announced, and waited for                                                              (3)
//
// 1. Warp w has the columns of the gates of units 32 w … 32 w + 31, which block w computes.
// 2. As in recurrence_group.cu: read from where they are kept, the four gates of a unit as one lane's fragment; added in order.
// 3. A warp waits for the one block whose gradients it reads.
#include "mma.cuh"
#include "cell.cuh"
#include "group.cuh"

// Arrays as in recurrence_backward.cu; the rest as in recurrence_group.cu.
template <class T, int PARTS>
__device__ inline void backward(Spans spans, unsigned H, const uint4* fragments,
                                const float* cell, const Narrow<__half>* gates, const float* d_outputs, float* d_hidden, float* d_cell,
                                Narrow<T>* d_gates, unsigned* arrived) {
  constexpr unsigned WARPS = 4 * PARTS, BLOCKS = WARPS;
  __shared__ float sums[WARPS][8][UNITS_OF_A_BLOCK + 4];  // four more than a row has: what lanes write at once lies in different banks

  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, quad = lane % 4;
  unsigned group = blockIdx.x / BLOCKS, member = blockIdx.x % BLOCKS, round = 0;
  unsigned unit = member * UNITS_OF_A_BLOCK + lane;  // whose gradients are this lane's
  arrived += group * BLOCKS;

  Span span;
  for (unsigned number = group; find_span(span, spans, number); number += gridDim.x / BLOCKS) {
    unsigned weight[2][8][4];
    const uint4* fragment = fragments + (((u64)span.weight * BLOCKS + member) * WARPS + warp) * 16 * 32 + lane;
#pragma unroll
    for (int k = 0; k < 16; k++) take(fragment[k * 32], weight[k / 8][k % 8]);

    // One time more than there are steps: the last gives the gradients of the first states.
    for (unsigned left = span.steps + 1; left-- > 0;) {
      bool is_last_step = left == span.steps;
      // Rows of the first window's gates: of step `left`, whose gradients are there, and of the one before, whose come now.
      unsigned after = span.step_row + left * span.windows, step = after - span.windows;
      for (unsigned tile = span.begin; tile < span.end; tile += 8) {
        // On their way while others are waited for and during the product.
        unsigned window = tile + warp;
        bool has = warp < 8 && window < span.end && unit < H;
        unsigned edge = (span.window + window) * H + unit;  // in arrays [windows, H]
        u64 number = (u64)(step + window) * H + unit;
        Narrow<__half> kept;
        float c_before, c, dc, dh = 0.0f;
        if (has && left > 0) {
          kept = gates[number];
          c_before = cell[number + span.window * H];
          c = cell[number + (span.window + span.windows) * H];
          if (d_outputs) dh = d_outputs[number];
          dc = d_cell[edge];
        }
        if (has && is_last_step) dh += d_hidden[edge];

        if (!is_last_step) {
          if (tile == span.begin) wait_for(arrived + warp, 1, round);
          // A window past the last one reads the gradients of the last one, and writes nothing.
          const Narrow<T>* row = d_gates + (u64)(after + min(tile + line, span.windows - 1)) * H;
          float own[2][4] = {};
#pragma unroll
          for (int k = 0; k < 8; k++) {
            unsigned from = UNITS_OF_A_BLOCK * warp + 4 * k + quad;
            uint2 four = from < H ? *(const uint2*)(row + from) : make_uint2(0, 0);
            multiply_add(own[0], weight[0][k], four.x, four.y, T());
            multiply_add(own[1], weight[1][k], four.x, four.y, T());
          }
#pragma unroll
          for (int i = 0; i < 8; i++) sums[warp][2 * quad + i % 2][8 * (i / 2) + line] = own[i / 4][i % 4];
          __syncthreads();
          if (has) {
#pragma unroll
            for (int w = 0; w < WARPS; w++) dh += sums[w][warp][lane];
          }
        }

        if (has && left > 0) {
          d_gates[number] = narrow_gates<T>(cell_backward<T>(widen_gates(kept), c_before, c, dh, dc));
          d_cell[edge] = dc;
        } else if (has) {
          d_hidden[edge] = dh;
        }
        __syncthreads();
      }
      round++;
      if (threadIdx.x == 0) announce(arrived + member, round);
    }
  }
}

#define BACKWARD(name, T, PARTS)                                                                                                        \
  extern "C" __global__ void __launch_bounds__(128 * PARTS, PARTS == 2 ? 2 : 1)                                                         \
      name(const Sequence* sequences, const Tile* tiles, unsigned tile_count, unsigned tiles_each, unsigned width, unsigned H, const uint4* fragments,        \
           const float* cell, const Narrow<__half>* gates, const float* d_outputs, float* d_hidden, float* d_cell, Narrow<T>* d_gates,  \
           unsigned* arrived) {                                                                                                         \
    backward<T, PARTS>({sequences, tiles, tile_count, tiles_each, width}, H, fragments, cell, gates, d_outputs, d_hidden, d_cell, d_gates, arrived);  \
  }

BACKWARD(backward_f16_256, __half, 2)
BACKWARD(backward_f16_384, __half, 3)
BACKWARD(backward_f16_512, __half, 4)
BACKWARD(backward_bf16_256, __nv_bfloat16, 2)
BACKWARD(backward_bf16_384, __nv_bfloat16, 3)
BACKWARD(backward_bf16_512, __nv_bfloat16, 4)
