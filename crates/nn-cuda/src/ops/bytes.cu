// Products with weights in eight bits. Source of bytes.ptx; launched by bytes.rs.
#include "bytes.cuh"

#define SIDE 64      // rows and columns of a tile of the output
#define DEPTH 32     // inner indices of a tile of an operand
#define THREADS 128
#define STRIDE (DEPTH + 16)  // bytes from a row of a tile to the next one: rows begin in different banks

// x: [rows, depth].  bytes: [rows, 2, padded], high ones before low ones, zeros from `depth` on.  scales: [rows].  A warp takes a row, and a lane four numbers at a time.
extern "C" __global__ void quantize(const float* x, unsigned* bytes, float* scales, u64 rows, unsigned depth, unsigned padded) {
  u64 row = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32;
  unsigned lane = threadIdx.x % 32, greatest = 0;
  if (row >= rows) return;
  x += row * depth;
  for (unsigned k = lane; k < depth; k += 32) greatest = max(greatest, magnitude(x[k]));
  for (int half = 16; half > 0; half /= 2) greatest = max(greatest, __shfl_xor_sync(ALL_LANES, greatest, half));
  RowScale of = row_scale(greatest);
  if (lane == 0) scales[row] = of.scale;
  bytes += row * padded / 2;
  for (unsigned first = 4 * lane; first < padded; first += 128) {
    unsigned high = 0, low = 0;
    for (unsigned k = 0; k < 4; k++) {
      int number = first + k < depth ? quantized(x[first + k], of.factor) : 0;
      high |= (unsigned)(unsigned char)high_byte(number) << 8 * k;
      low |= (unsigned)low_byte(number) << 8 * k;
    }
    bytes[first / 4] = high;
    bytes[padded / 4 + first / 4] = low;
  }
}

// Sixteen bytes of each of ROWS rows from `outer`, `inner` on, by the threads of a block: [ROWS, DEPTH] to shared memory. Rows past the last one are zero.
template <int ROWS>
struct Chunks {
  static constexpr int EACH = ROWS * DEPTH / 16 / THREADS;
  uint4 chunks[EACH];

  __device__ void fetch(const signed char* from, u64 outer, u64 outer_end, u64 inner, u64 padded) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      unsigned number = threadIdx.x + i * THREADS;
      u64 row = outer + number / 2;
      chunks[i] = row < outer_end ? *(const uint4*)(from + row * padded + inner + number % 2 * 16) : make_uint4(0, 0, 0, 0);
    }
  }

  __device__ void put(signed char* tile) const {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      unsigned number = threadIdx.x + i * THREADS;
      *(uint4*)&tile[number / 2 * STRIDE + number % 2 * 16] = chunks[i];
    }
  }
};

// x: [M, 2, padded] bytes of rows with `x_scales` [M].  weights: [N, padded] with `scales` [N].  start: [N], or null.  out: [M, N] f32.  A block takes a tile [64, 64], a warp a
// quarter of it; tiles of columns come first.  Rows of x, each of which is two in memory, lie in shared memory as they do there.
extern "C" __global__ void __launch_bounds__(THREADS) product_of_bytes(const signed char* x, const float* x_scales, const signed char* weights,
                                                                       const float* scales, const float* start, float* out, u64 M, u64 N, u64 padded) {
  __shared__ __align__(16) signed char x_tile[2 * SIDE * STRIDE];
  __shared__ __align__(16) signed char w_tile[SIDE * STRIDE];
  u64 column_tiles = (N + SIDE - 1) / SIDE;
  u64 first_column = blockIdx.x % column_tiles * SIDE, first_row = blockIdx.x / column_tiles * SIDE;
  unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 2 * 32, column = warp % 2 * 32;
  unsigned matrix = lane / 8, line = lane % 8;

  int sums[2][2][4][4];  // of high and low bytes
#pragma unroll
  for (int i = 0; i < 64; i++) sums[i / 32][i / 16 % 2][i / 4 % 4][i % 4] = 0;
  Chunks<2 * SIDE> x_next;
  Chunks<SIDE> w_next;
#pragma unroll 1
  for (u64 next = 0;; next += DEPTH) {
    if (next > 0) {
      __syncthreads();
      x_next.put(x_tile);
      w_next.put(w_tile);
      __syncthreads();
    }
    if (next < padded) {
      x_next.fetch(x, 2 * first_row, 2 * M, next, padded);
      w_next.fetch(weights, first_column, N, next, padded);
    }
    if (next > 0) {
      unsigned right[2][4];
#pragma unroll
      for (int n = 0; n < 2; n++) load_matrices(right[n], &w_tile[(column + 16 * n + matrix / 2 * 8 + line) * STRIDE + matrix % 2 * 16]);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int m = i / 2, half = i % 2;
        unsigned left[4];
        load_matrices(left, &x_tile[(2 * (row + 16 * m + matrix % 2 * 8 + line) + half) * STRIDE + matrix / 2 * 16]);
#pragma unroll
        for (int n = 0; n < 4; n++) multiply_add(sums[half][m][n], left, right[n / 2][n % 2 * 2], right[n / 2][n % 2 * 2 + 1], (signed char)0);
      }
    }
    if (next >= padded) break;
  }

#pragma unroll
  for (int i = 0; i < 32; i++) {
    u64 at_row = first_row + row + i / 16 * 16 + i / 2 % 2 * 8 + lane / 4, at_column = first_column + column + i / 4 % 4 * 8 + i % 2 + lane % 4 * 2;
    if (at_row >= M || at_column >= N) continue;
    int m = i / 16, n = i / 4 % 4, part = i % 4;
    float sum = product_of(sums[0][m][n][part], sums[1][m][n][part], __fmul_rn(x_scales[at_row], scales[at_column]));
    out[at_row * N + at_column] = start ? __fadd_rn(sum, start[at_column]) : sum;
  }
}
