// W_hh as the recurrence's warps hold it. Source of recurrent_weights.ptx; launched by recurrent_weights.rs.
//
// A fragment is what multiply_add of mma.cuh takes as its `a`: 4 registers of each lane, with two elements each. A thread makes one register.
#include "mma.cuh"

// Element of a weight as the rows lie, [H, 4, width]: zero out of range.
template <class T>
__device__ inline T weight_element(const T* rows, unsigned H, unsigned width, unsigned gate_row, unsigned column) {
  T zero;
  narrow(0.0f, zero);
  return gate_row < 4 * H && column < width ? rows[(u64)gate_row * width + column] : zero;
}

// Element of W_hh, [H, 4, H].
template <class T>
__device__ inline T weight_element(const T* rows, unsigned H, unsigned gate_row, unsigned column) {
  return weight_element(rows, H, H, gate_row, column);
}

// rows: [sequences, H, 4, H], unit by unit its rows of the gates i, f, g, o.  forward: [sequences, HP / 16 warps, HP / 16, 4, 32 lanes, 4], where warp w has the
// units 16 w … 16 w + 15, gate by gate, 16 columns at a time.  backward: [sequences, HP / 16 warps, HP / 8, 2, 32 lanes, 4], of the transpose, where warps 2 p and 2 p + 1 have the units
// 32 p … 32 p + 31 as two tiles, the one with the first half of the gates' rows, the other with the second, 16 at a time. Rows of a tile: the even units, then the odd ones.
template <class T>
__device__ inline void lay(const T* rows, unsigned* forward, unsigned* backward, unsigned H, unsigned HP, unsigned len) {
  unsigned k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= len) return;
  unsigned each = 2 * HP * HP, in = k % each;  // registers of a sequence
  rows += (u64)(k / each) * 4 * H * H;
  unsigned part = in % 4, line = in / 4 % 32 / 4, quad = in / 4 % 4, tile = in / 128 % (HP / 4), warp = in / 128 / (HP / 4);
  unsigned across = 2 * quad + part / 2 * 8, unit_of_tile = 2 * line + part % 2;
  {
    unsigned gate_row = (16 * warp + unit_of_tile) * 4 + tile % 4, column = tile / 4 * 16 + across;
    forward[k] = pair(weight_element(rows, H, gate_row, column), weight_element(rows, H, gate_row, column + 1));
  }
  unsigned unit = warp / 2 * 32 + tile % 2 * 16 + unit_of_tile, gate_row = warp % 2 * 2 * HP + tile / 2 * 16 + across;
  backward[k] = pair(weight_element(rows, H, gate_row, unit), weight_element(rows, H, gate_row + 1, unit));
}

// The same for layers that a group of HP / 32 blocks shares, [sequences, HP / 32 blocks, HP / 32 warps, 16, 32 lanes, 4] each. Columns, and gates' rows backward, lie in the order in
// which a lane reads states and gradients.  forward: warp w has the gates of units 8 (w % 4) … of its block's 32, and 128 (w / 4) … of the columns; a lane has eight
// of 32 in a row for two fragments.  backward: warp w has the rows of units 32 w …, of which a lane has the four of one unit for a fragment; [2, 8] of them, by 16 of its block's units.
template <class T>
__device__ inline void lay_for_groups(const T* rows, unsigned* forward, unsigned* backward, unsigned H, unsigned HP, unsigned len) {
  unsigned k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= len) return;
  unsigned each = 2 * HP * HP, in = k % each, warps = HP / 32;
  rows += (u64)(k / each) * 4 * H * H;
  unsigned part = in % 4, line = in / 4 % 32 / 4, quad = in / 4 % 4, tile = in / 128 % 16, warp = in / 2048 % warps, block = in / 2048 / warps;
  {
    unsigned unit = 32 * block + 8 * (warp % 4) + line, gate_row = 4 * unit + tile % 2 * 2 + part % 2;
    unsigned column = 128 * (warp / 4) + tile / 4 * 32 + 8 * quad + tile / 2 % 2 * 4 + part / 2 * 2;
    forward[k] = pair(weight_element(rows, H, gate_row, column), weight_element(rows, H, gate_row, column + 1));
  }
  unsigned unit = 32 * block + tile / 8 * 16 + line + part % 2 * 8, gate_row = 4 * (32 * warp + tile % 8 * 4 + quad) + part / 2 * 2;
  backward[k] = pair(weight_element(rows, H, gate_row, unit), weight_element(rows, H, gate_row + 1, unit));
}

// W_ih [H, 4, F] as `forward` of W_hh, by columns padded to `width`, [HP / 16 warps, width / 16, 4, 32 lanes, 4]; and the biases [H, 4], zero for null.  `len` registers, more than there are biases.
template <class T>
__device__ inline void lay_input(const T* rows, const float* bias, unsigned* fragments, float* bias_to, unsigned H, unsigned F, unsigned width, unsigned len) {
  unsigned k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= len) return;
  unsigned part = k % 4, line = k / 4 % 32 / 4, quad = k / 4 % 4, tile = k / 128 % (width / 4), warp = k / 128 / (width / 4);
  unsigned gate_row = (16 * warp + 2 * line + part % 2) * 4 + tile % 4, column = tile / 4 * 16 + 2 * quad + part / 2 * 8;
  fragments[k] = pair(weight_element(rows, H, F, gate_row, column), weight_element(rows, H, F, gate_row, column + 1));
  if (k < 4 * H) bias_to[k] = bias ? bias[k] : 0.0f;
}

#define INPUT_FRAGMENTS(suffix, T)                                                                                                                  \
  extern "C" __global__ void input_fragments_##suffix(const T* rows, const float* bias, unsigned* fragments, float* bias_to, unsigned H, unsigned F, \
                                                      unsigned width, unsigned len) {                                                               \
    lay_input(rows, bias, fragments, bias_to, H, F, width, len);                                                                                    \
  }

INPUT_FRAGMENTS(f16, __half)
INPUT_FRAGMENTS(bf16, __nv_bfloat16)

#define FRAGMENTS(suffix, T)                                                                                                                        \
  extern "C" __global__ void fragments_##suffix(const T* rows, unsigned* forward, unsigned* backward, unsigned H, unsigned HP, unsigned len) {       \
    lay(rows, forward, backward, H, HP, len);                                                                                                       \
  }                                                                                                                                                 \
  extern "C" __global__ void group_fragments_##suffix(const T* rows, unsigned* forward, unsigned* backward, unsigned H, unsigned HP, unsigned len) { \
    lay_for_groups(rows, forward, backward, H, HP, len);                                                                                            \
  }

FRAGMENTS(f16, __half)
FRAGMENTS(bf16, __nv_bfloat16)

// W_hh in f32 as the threads of recurrence_f32.cu hold it, [sequences, HP / 16, 8, 2·HP threads, 4] each: by four columns at a time eight rows.  forward: thread 4 p + q has the gates of units 2 p and 2 p + 1, and
// columns 16 c + 4 q …  backward, of the transpose: thread 16 p + q has the units 8 p …, and the gates of units 16 c + q.  A thread makes a number of each.
extern "C" __global__ void fragments_f32(const float* rows, float* forward, float* backward, unsigned H, unsigned HP, unsigned len) {
  unsigned k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= len) return;
  unsigned each = 4 * HP * HP, in = k % each;
  rows += (u64)(k / each) * 4 * H * H;
  unsigned number = in % 4, thread = in / 4 % (2 * HP), row = in / (8 * HP) % 8, column = in / (64 * HP);
  forward[k] = weight_element(rows, H, thread / 4 * 8 + row, 16 * column + thread % 4 * 4 + number);
  backward[k] = weight_element(rows, H, 64 * column + thread % 16 * 4 + number, thread / 16 * 8 + row);
}
