// The two units of a lane that lie side by side in arrays [.., H]: read and written at once where rows begin at even numbers.
#pragma once

#include <type_traits>

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

// Calls `load` with a function (at, first, second, reach) that reads a pair: units that there are not keep what they had. One branch for all pairs: a load that may or may not replace what another one brings
// would wait for that one.
template <class Load>
__device__ inline void take_pairs(const Units& units, Load load) {
  if (units.H % 2 == 0) {
    load([](const auto* at, auto& first, auto& second, unsigned reach) {
      if (!(reach & BOTH)) return;
      auto both = *(const Pair<std::remove_reference_t<decltype(first)>>*)at;
      first = both.first;
      second = both.second;
    });
  } else {
    load([](const auto* at, auto& first, auto& second, unsigned reach) {
      if (reach & FIRST) first = at[0];
      if (reach & SECOND) second = at[1];
    });
  }
}
