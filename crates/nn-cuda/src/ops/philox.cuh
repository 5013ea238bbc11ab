// Philox4x32-10, as megabatch_order::random has it.
#pragma once

__device__ inline uint4 philox(uint2 key, uint4 counter) {
  for (int round = 0; round < 10; round++) {
    unsigned high0 = __umulhi(counter.x, 0xD2511F53u), high1 = __umulhi(counter.z, 0xCD9E8D57u);
    counter = make_uint4(high1 ^ counter.y ^ key.x, counter.z * 0xCD9E8D57u, high0 ^ counter.w ^ key.y, counter.x * 0xD2511F53u);
    key = make_uint2(key.x + 0x9E3779B9u, key.y + 0xBB67AE85u);
  }
  return counter;
}
