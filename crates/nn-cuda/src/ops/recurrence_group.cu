// The recurrence of LSTM layers that are too wide for one block, all steps in one cooperative launch. Source of recurrence_group.ptx; launched by group.rs.
//
//   group of HP / 32 blocks: takes a span of windows of a sequence; each block holds 32 units' rows of W_hh in its registers       (1)
//   for each step:  for each 8 windows:  parts of W_hh · h to shared memory, each warp's by 128 columns                          (2)
//                                          gates = projected row + parts;  c, h to global memory                                   (3)
//                   h is announced, and waited for                                                                                 (4)
//
// 1. Warp w has 8 of the units and the columns from 128 (w / 4) on: as many registers as a block of recurrence.cu has at 128 units.
// 2. h is read from where it is kept, as fragments: the columns lie in the order in which a lane finds them in memory (recurrent_weights.cu). No lane needs shared memory for them.
// 3. A warp takes a window, a lane a unit, so that all that is read and written lies in rows of 32. Cell states are read back by the lanes that wrote them. The parts are
//    added in order: a window's numbers depend on no other window, and not on the tile.
// 4. A round for each block, not one for the grid: a warp waits for the four blocks whose units are its columns. Nothing is written twice, so that nobody waits to write.
#include "mma.cuh"
#include "cell.cuh"
#include "group.cuh"

// The elements of eight columns of a row from `column` on, zero past its end. In the first two numbers there is a fragment b of multiply_add, in the others the next.
template <class T>
__device__ inline uint4 eight(const T* row, unsigned column, unsigned H) {
  if (H % 8 == 0) return column < H ? *(const uint4*)(row + column) : make_uint4(0, 0, 0, 0);
  // Rows begin anywhere. Not unrolled: as many elements on their way would take registers that the weight has.
  u64 low = 0, high = 0;
#pragma unroll 1
  for (unsigned k = 0; k < 8 && column + k < H; k++) {
    u64 element = (u64)bits(row[column + k]) << 16 * (k % 4);
    if (k < 4) low |= element;
    else high |= element;
  }
  return make_uint4((unsigned)low, (unsigned)(low >> 32), (unsigned)high, (unsigned)(high >> 32));
}

// Arrays as in recurrence.cu. fragments: as recurrent_weights.cu lays them for groups.  tile_count, each: as find_span takes them.  arrived: [groups, HP / 32], zero.
// PARTS: HP / 128; the threads of a block are 128·PARTS.
template <class T, int PARTS>
__device__ inline void forward(Spans spans, unsigned H, const uint4* fragments,
                               const float4* projected, const unsigned* first, T* hidden, float* cell, Narrow<__half>* gates, unsigned* arrived) {
  constexpr unsigned WARPS = 4 * PARTS, BLOCKS = WARPS;
  __shared__ float4 sums[PARTS][8][UNITS_OF_A_BLOCK + 1];  // one more than a row has: what lanes write at once lies in different banks

  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, quad = lane % 4, part = warp / 4;
  unsigned group = blockIdx.x / BLOCKS, member = blockIdx.x % BLOCKS, round = 0;
  unsigned unit = member * UNITS_OF_A_BLOCK + lane;  // whose cells are this lane's
  arrived += group * BLOCKS;

  Span span;
  for (unsigned number = group; find_span(span, spans, number); number += gridDim.x / BLOCKS) {
    unsigned weight[8][2][4];
    const uint4* fragment = fragments + (((u64)span.weight * BLOCKS + member) * WARPS + warp) * 16 * 32 + lane;
#pragma unroll
    for (int k = 0; k < 16; k++) take(fragment[k * 32], weight[k / 2][k % 2]);

    for (unsigned t = 0; t < span.steps; t++) {
      unsigned step = span.step_row + t * span.windows, before = step + span.window, after = before + span.windows;  // rows of the first window
      for (unsigned tile = span.begin; tile < span.end; tile += 8) {
        // On their way while others are waited for and during the product.
        unsigned window = tile + warp;
        bool has = warp < 8 && window < span.end && unit < H;
        float4 start;
        float c;
        if (has) {
          start = projected[(span.projected_row + first[span.window + window] + t * span.row_step) * H + unit];
          c = cell[(u64)(before + window) * H + unit];
        }

        if (t > 0 && tile == span.begin) wait_for(arrived + 4 * part, 4, round);
        // A window past the last one reads the states of the last one, and writes nothing.
        const T* row = hidden + (u64)(before + min(tile + line, span.windows - 1)) * H;
        float own[2][4] = {};
#pragma unroll
        for (int k = 0; k < 4; k++) {
          uint4 states = eight(row, 128 * part + 32 * k + 8 * quad, H);
#pragma unroll
          for (int pairs = 0; pairs < 2; pairs++) {
            multiply_add(own[pairs], weight[2 * k][pairs], states.x, states.y, T());
            multiply_add(own[pairs], weight[2 * k + 1][pairs], states.z, states.w, T());
          }
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
          sums[part][2 * quad + j][8 * (warp % 4) + line] = make_float4(own[0][j], own[0][2 + j], own[1][j], own[1][2 + j]);
        }
        __syncthreads();

        if (has) {
          Gates now = {start.x, start.y, start.z, start.w};
#pragma unroll
          for (int p = 0; p < PARTS; p++) {
            float4 more = sums[p][warp][lane];
            now = {now.i + more.x, now.f + more.y, now.g + more.z, now.o + more.w};
          }
          u64 number = (u64)(step + window) * H + unit, state = (u64)(after + window) * H + unit;
          T h;
          narrow(advance<T>(now, c), h);
          hidden[state] = h;
          cell[state] = c;
          if (gates) gates[number] = narrow_gates<__half>(now);
        }
        __syncthreads();
      }
      round++;
      if (threadIdx.x == 0) announce(arrived + member, round);
    }
  }
}

#define FORWARD(name, T, PARTS)                                                                                                         \
  extern "C" __global__ void __launch_bounds__(128 * PARTS, PARTS == 2 ? 2 : 1)                                                         \
      name(const Sequence* sequences, const Tile* tiles, unsigned tile_count, unsigned tiles_each, unsigned width, unsigned H, const uint4* fragments,        \
           const float4* projected, const unsigned* first, T* hidden, float* cell, Narrow<__half>* gates, unsigned* arrived) {          \
    forward<T, PARTS>({sequences, tiles, tile_count, tiles_each, width}, H, fragments, projected, first, hidden, cell, gates, arrived);             \
  }

FORWARD(forward_f16_256, __half, 2)
FORWARD(forward_f16_384, __half, 3)
FORWARD(forward_f16_512, __half, 4)
FORWARD(forward_bf16_256, __nv_bfloat16, 2)
FORWARD(forward_bf16_384, __nv_bfloat16, 3)
FORWARD(forward_bf16_512, __nv_bfloat16, 4)
