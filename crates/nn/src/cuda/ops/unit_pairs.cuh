// The two units of a lane that lie side by side in arrays [.., H]: read and written at once where rows begin at even numbers.
#pragma once

// How a pair is reached: at once, or each by itself. Bits, so that nothing in a loop branches.
#define BOTH 1u
#define FIRST 2u
#define SECOND 4u

struct Units {
  unsigned first, H;

  __device__ bool has(int u) const { return first + u < H; }
  // In a window, if there is that.
  __device__ unsigned reach(bool has_window) const {
    unsigned here = H % 2 == 0 ? (has(0) ? BOTH : 0) : (has(0) ? FIRST : 0) | (has(1) ? SECOND : 0);
    return has_window ? here : 0;
  }
};

__device__ inline Units units_of_lane(unsigned H) { return {threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 * 2, H}; }

// Two elements of `T` as one of the memory's.
template <class T>
struct __align__(2 * sizeof(T)) Pair {
  T first, second;
};

template <class T>
__device__ inline void put_pair(T* at, T first, T second, unsigned reach) {
  if (reach & BOTH) *(Pair<T>*)at = {first, second};
  if (reach & FIRST) at[0] = first;
  if (reach & SECOND) at[1] = second;
}

// Units that there are not keep what they had.
template <class T>
__device__ inline void take_pair(const T* at, T& first, T& second, unsigned reach) {
  if (reach & BOTH) {
    Pair<T> both = *(const Pair<T>*)at;
    first = both.first;
    second = both.second;
  }
  if (reach & FIRST) first = at[0];
  if (reach & SECOND) second = at[1];
}
