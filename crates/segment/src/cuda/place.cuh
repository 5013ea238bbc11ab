// Where a thread works: number k of an array [rows, columns].
#pragma once

typedef unsigned long long u64;

struct Place {
  u64 row, column;
};

__device__ inline u64 thread_number() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }

// Division of 32 bits is several times as fast, and nearly always enough.
__device__ inline Place place(u64 k, u64 columns) {
  if ((k | columns) >> 32 == 0) return {(unsigned)k / (unsigned)columns, (unsigned)k % (unsigned)columns};
  return {k / columns, k % columns};
}
