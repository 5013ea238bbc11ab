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
