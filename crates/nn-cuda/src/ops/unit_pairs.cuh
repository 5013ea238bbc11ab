// The two units of a lane, which lie side by side in arrays [.., H] and are read and written at once: H is even.
#pragma once

struct Units {
  unsigned first;
  bool are_there;
};

__device__ inline Units units_of_lane(unsigned H) {
  unsigned first = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 * 2;
  return {first, first < H};
}

// Columns of the tensor cores' tiles [.., 8] for a block's W windows. A lane has two columns of each tile, which are two windows or, of four windows, one and a column of zeros: twice as many blocks then compute
// half as many windows each, and a product takes as long as before.
template <int W>
struct Columns {
  static constexpr int TILES = W < 8 ? 1 : W / 8;
  static constexpr int OF_LANE = W < 8 ? 1 : 2;
};

// Defines a kernel for each type, number of units and number of windows of a block, by KERNEL(name, T, HP, W).
#define EACH_KERNEL(KERNEL, name) \
  KERNEL(name##_f16_32_4, __half, 32, 4) \
  KERNEL(name##_f16_64_4, __half, 64, 4) \
  KERNEL(name##_f16_128_4, __half, 128, 4) \
  KERNEL(name##_f16_32_8, __half, 32, 8) \
  KERNEL(name##_f16_64_8, __half, 64, 8) \
  KERNEL(name##_f16_128_8, __half, 128, 8) \
  KERNEL(name##_f16_32_16, __half, 32, 16) \
  KERNEL(name##_f16_64_16, __half, 64, 16) \
  KERNEL(name##_f16_128_16, __half, 128, 16) \
  KERNEL(name##_bf16_32_4, __nv_bfloat16, 32, 4) \
  KERNEL(name##_bf16_64_4, __nv_bfloat16, 64, 4) \
  KERNEL(name##_bf16_128_4, __nv_bfloat16, 128, 4) \
  KERNEL(name##_bf16_32_8, __nv_bfloat16, 32, 8) \
  KERNEL(name##_bf16_64_8, __nv_bfloat16, 64, 8) \
  KERNEL(name##_bf16_128_8, __nv_bfloat16, 128, 8) \
  KERNEL(name##_bf16_32_16, __nv_bfloat16, 32, 16) \
  KERNEL(name##_bf16_64_16, __nv_bfloat16, 64, 16) \
  KERNEL(name##_bf16_128_16, __nv_bfloat16, 128, 16)

// Two elements of `T` as one of the memory's.
template <class T>
struct __align__(2 * sizeof(T)) Pair {
  T first, second;
};

template <class T>
__device__ inline void put_pair(T* at, T first, T second, bool is_there) {
  if (is_there) *(Pair<T>*)at = {first, second};
}

// A pair that there is not keeps what it had.
template <class T>
__device__ inline void take_pair(const T* at, T& first, T& second, bool is_there) {
  if (!is_there) return;
  Pair<T> both = *(const Pair<T>*)at;
  first = both.first;
  second = both.second;
}

// Fills shared memory with zeros, by all threads of a block.
__device__ inline void clear(void* shared, unsigned bytes) {
  for (unsigned i = threadIdx.x; i < bytes / sizeof(unsigned); i += blockDim.x) ((unsigned*)shared)[i] = 0;
  __syncthreads();
}
