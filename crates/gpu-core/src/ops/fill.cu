// Sets every element of a buffer to one value. Source of fill.ptx; launched by fill.rs.

// to: `bytes` bytes, aligned to 16.  pattern: the element's bytes, repeated over 16.
// A thread writes 16 bytes; the last one, of what is left, byte by byte.
extern "C" __global__ void fill(unsigned char* __restrict__ to, uint4 pattern, unsigned long long bytes) {
  unsigned long long start = 16 * (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x);
  if (start + 16 <= bytes) {
    *reinterpret_cast<uint4*>(to + start) = pattern;
    return;
  }
  const unsigned words[4] = {pattern.x, pattern.y, pattern.z, pattern.w};
#pragma unroll  // so that the words stay in registers
  for (unsigned k = 0; k < 16; k++)
    if (start + k < bytes) to[start + k] = (unsigned char)(words[k / 4] >> 8 * (k % 4));
}
