// bf16 by chance. Source of round.ptx; launched by round.rs; stochastic.rs one folder up has the definition.
#include "philox.cuh"

typedef unsigned long long u64;

#define LANES 16
#define PIECES 8

// from, to: [len], of which the first is number `skipped` of the 128 that share the counters 16·block … 16·block + 15. A thread takes one counter, which gives
// 16 bits to every 16th of eight elements.
extern "C" __global__ void round_stochastic(const unsigned* from, unsigned short* to, u64 len, u64 seed, u64 step, u64 block, unsigned skipped) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x, element = k / LANES * (LANES * PIECES) + k % LANES;
  if (element >= skipped + len) return;
  u64 counter = block * LANES + k;
  uint4 words = philox(make_uint2((unsigned)seed, (unsigned)(seed >> 32)),
                       make_uint4((unsigned)counter, (unsigned)(counter >> 32), (unsigned)step, (unsigned)(step >> 32)));
  unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int piece = 0; piece < PIECES; piece++) {
    u64 number = element + piece * LANES;
    if (number < skipped || number >= skipped + len) continue;
    unsigned bits = from[number - skipped], random = piece % 2 == 0 ? word[piece / 2] & 0xffff : word[piece / 2] >> 16;
    bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    to[number - skipped] = (unsigned short)(is_nan ? bits >> 16 | 0x0040 : (bits + random) >> 16);
  }
}
