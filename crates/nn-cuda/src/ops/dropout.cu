// Outputs of a layer of which some are dropped. Source of dropout.ptx; launched by dropout.rs; ../dropout.rs has the definition.
#include "mask.cuh"

// Calls `each` with the place in [T, B, H] and the factor of every step of this thread's four, of one unit of one window.
template <class Each>
__device__ inline void draw(const Mask* of, const u64* ends, unsigned steps, unsigned windows, unsigned H, Each each) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x, rows = (u64)windows * H;
  unsigned quad = (unsigned)(k / rows), at = (unsigned)(k % rows);
  if (quad * WORDS >= steps) return;
  Mask mask = *of;
  u64 end = ends[at / H];
  uint4 words = draw_words(mask, end, quad, at % H);
  unsigned word[WORDS] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (unsigned t = 0; t < WORDS; t++) {
    unsigned step = quad * WORDS + t;
    if (step < steps) each(step * rows + at, word[t] < mask.dropped_below ? 0.0f : mask.scale);
  }
}

// ends: [B].  from, to: [T, B, H].
#define DROP(name, From, To)                                                                                                              \
  extern "C" __global__ void name(const Mask* mask, const u64* ends, const From* from, To* to, unsigned steps, unsigned windows,           \
                                  unsigned H) {                                                                                            \
    draw(mask, ends, steps, windows, H, [=](u64 at, float factor) { narrow(__fmul_rn(widen(from[at]), factor), to[at]); });               \
  }

DROP(drop_f32_f32, float, float)
DROP(drop_f32_f16, float, __half)
DROP(drop_f32_bf16, float, __nv_bfloat16)
DROP(drop_f16_f16, __half, __half)
DROP(drop_bf16_bf16, __nv_bfloat16, __nv_bfloat16)

// d: [T, B, H], multiplied by the same factors.
extern "C" __global__ void drop_gradients(const Mask* mask, const u64* ends, float* d, unsigned steps, unsigned windows, unsigned H) {
  draw(mask, ends, steps, windows, H, [=](u64 at, float factor) { d[at] = __fmul_rn(d[at], factor); });
}
