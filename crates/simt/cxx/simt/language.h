// Keywords and built-in variables.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __ldg(pointer) (*(pointer))

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace simt {

// Where a kernel calls into the harness. Functions take it as a defaulted last parameter, which names the caller's line.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

// They return values, not references: a kernel's loads are checked, and these are not its memory.
uint3 thread_index();
uint3 block_index();
dim3 block_dim();
dim3 grid_dim();

// Memory of the block for the declaration number `id` of the source; every thread of the block gets the same.
void* shared(unsigned id, const char* name, size_t bytes);
void* dynamic_shared(const char* name);

template <class T>
T& shared(unsigned id, const char* name) {
  return *static_cast<T*>(shared(id, name, sizeof(T)));
}

// Lets other threads run, in a loop that waits for one of them. `changed` tells whether this thread did something since.
void yield(bool changed);

[[noreturn]] void trap(Site site);

}  // namespace simt

#define threadIdx (simt::thread_index())
#define blockIdx (simt::block_index())
#define blockDim (simt::block_dim())
#define gridDim (simt::grid_dim())
#define warpSize 32

inline void __trap(simt::Site site = simt::Site::here()) { simt::trap(site); }
inline void __nanosleep(unsigned) { simt::yield(false); }
