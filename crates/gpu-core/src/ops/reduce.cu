// Sums and maxima of rows, in an order that is fixed. Source of reduce.ptx; launched by reduce.rs, which says what the order is.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define LANES 256   // threads of a block
#define CHUNK 8192  // elements of a row that one block takes

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

struct Sum {
  __device__ static float identity() { return 0.0f; }
  __device__ static float combine(float a, float b) { return __fadd_rn(a, b); }
};

struct Max {
  __device__ static float identity() { return -INFINITY; }
  __device__ static float combine(float a, float b) { return b > a || isnan(b) ? b : a; }
};

// x: [rows, columns].  out: [rows, chunks], chunks = ceil(columns / CHUNK).  A block takes one chunk of one row.
template <class Operation, class T>
__device__ inline void reduce(const T* __restrict__ x, float* __restrict__ out, unsigned long long columns, unsigned chunks) {
  __shared__ float lanes[LANES];
  unsigned lane = threadIdx.x;
  unsigned long long row = blockIdx.x / chunks, start = (unsigned long long)(blockIdx.x % chunks) * CHUNK;
  unsigned long long end = start + CHUNK < columns ? start + CHUNK : columns;
  float value = Operation::identity();
  for (unsigned long long k = start + lane; k < end; k += LANES) value = Operation::combine(value, widen(x[row * columns + k]));
  lanes[lane] = value;
  __syncthreads();
  for (unsigned half = LANES / 2; half >= 32; half /= 2) {
    if (lane < half) lanes[lane] = Operation::combine(lanes[lane], lanes[lane + half]);
    __syncthreads();
  }
  if (lane >= 32) return;
  value = lanes[lane];
  for (unsigned half = 16; half > 0; half /= 2) {
    value = Operation::combine(value, __shfl_down_sync(0xffffffffu, value, half));
  }
  if (lane == 0) out[blockIdx.x] = value;
}

#define REDUCE(name, Operation, T)                                                                                    \
  extern "C" __global__ void __launch_bounds__(LANES) name(const T* x, float* out, unsigned long long columns, unsigned chunks) { \
    reduce<Operation>(x, out, columns, chunks);                                                                       \
  }

REDUCE(sum_f32, Sum, float)
REDUCE(sum_f16, Sum, __half)
REDUCE(sum_bf16, Sum, __nv_bfloat16)
REDUCE(max_f32, Max, float)
REDUCE(max_f16, Max, __half)
REDUCE(max_bf16, Max, __nv_bfloat16)
