// Sums of columns, such as the gradient of a bias. Source of column_sums.ptx; launched by column_sums.rs, which has the order.
#include "mma.cuh"

#define ROWS 256    // of a block
#define COLUMNS 32  // of a block
#define LANES 8     // of a column

// x: [rows, columns].  parts: [chunks, columns], chunks = ceil(rows / ROWS). Blocks: tiles of columns fastest.
template <class T>
__device__ inline void column_sums(const T* x, float* parts, u64 rows, unsigned columns) {
  __shared__ float lanes[LANES][COLUMNS];
  unsigned tiles = (columns + COLUMNS - 1) / COLUMNS, column = blockIdx.x % tiles * COLUMNS + threadIdx.x % COLUMNS;
  unsigned chunk = blockIdx.x / tiles, lane = threadIdx.x / COLUMNS;
  u64 start = (u64)chunk * ROWS, end = start + ROWS < rows ? start + ROWS : rows;
  float sum = 0.0f;
  if (column < columns) {
    for (u64 row = start + lane; row < end; row += LANES) sum = __fadd_rn(sum, widen(x[row * columns + column]));
  }
  lanes[lane][threadIdx.x % COLUMNS] = sum;
  __syncthreads();
  if (lane > 0 || column >= columns) return;
  for (unsigned other = 1; other < LANES; other++) sum = __fadd_rn(sum, lanes[other][threadIdx.x % COLUMNS]);
  parts[(u64)chunk * columns + column] = sum;
}

#define COLUMN_SUMS(name, T)                                                                                              \
  extern "C" __global__ void __launch_bounds__(COLUMNS * LANES) name(const T* x, float* parts, u64 rows, unsigned columns) { \
    column_sums(x, parts, rows, columns);                                                                          \
  }

COLUMN_SUMS(column_sums_f32, float)
COLUMN_SUMS(column_sums_f16, __half)
COLUMN_SUMS(column_sums_bf16, __nv_bfloat16)
