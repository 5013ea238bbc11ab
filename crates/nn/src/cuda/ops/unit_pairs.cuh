// The two units of a lane that lie side by side in arrays [.., H]: read and written at once where rows begin at even numbers.
#pragma once

struct Units {
  unsigned first, H;
  bool is_even;  // H: both units or none, and aligned

  __device__ bool has(int u) const { return first + u < H; }
};

__device__ inline Units units_of_lane(unsigned H) { return {threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 * 2, H, H % 2 == 0}; }

// Two elements of `T` as one of the memory's.
template <class T>
struct __align__(2 * sizeof(T)) Pair {
  T first, second;
};

template <class T>
__device__ inline void put_pair(T* at, T first, T second, const Units& units) {
  if (units.is_even) {
    if (units.has(0)) *(Pair<T>*)at = {first, second};
    return;
  }
  if (units.has(0)) at[0] = first;
  if (units.has(1)) at[1] = second;
}

// Units that there are not keep what they had.
template <class T>
__device__ inline void take_pair(const T* at, T& first, T& second, const Units& units) {
  if (units.is_even) {
    if (!units.has(0)) return;
    Pair<T> both = *(const Pair<T>*)at;
    first = both.first;
    second = both.second;
    return;
  }
  if (units.has(0)) first = at[0];
  if (units.has(1)) second = at[1];
}
