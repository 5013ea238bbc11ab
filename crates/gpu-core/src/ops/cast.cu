// Converts between element types, rounding to nearest even. Source of cast.ptx; launched by cast.rs.
//
// A thread takes four elements, so that a 16-bit type moves 8 bytes at a time and f32 16. Buffers are aligned to more than that.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Four elements as they lie in memory.
template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Four {
  T element[4];
};

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
// The one conversion of f64 rounds here, so that it must be to f32.
__device__ inline float widen(double value) { return __double2float_rn(value); }

__device__ inline void narrow(float value, float& to) { to = value; }
__device__ inline void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ inline void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

// from, to: `len` elements.
template <class From, class To>
__device__ inline void cast(const From* __restrict__ from, To* __restrict__ to, unsigned long long len) {
  unsigned long long start = 4 * (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x);
  if (start + 4 <= len) {
    Four<From> input = *reinterpret_cast<const Four<From>*>(from + start);
    Four<To> output;
    for (int k = 0; k < 4; k++) narrow(widen(input.element[k]), output.element[k]);
    *reinterpret_cast<Four<To>*>(to + start) = output;
    return;
  }
  for (; start < len; start++) narrow(widen(from[start]), to[start]);
}

#define CAST(name, From, To)                                                                  \
  extern "C" __global__ void name(const From* from, To* to, unsigned long long len) {         \
    cast(from, to, len);                                                                      \
  }

CAST(cast_f32_f16, float, __half)
CAST(cast_f16_f32, __half, float)
CAST(cast_f32_bf16, float, __nv_bfloat16)
CAST(cast_bf16_f32, __nv_bfloat16, float)
CAST(cast_f16_bf16, __half, __nv_bfloat16)
CAST(cast_bf16_f16, __nv_bfloat16, __half)
CAST(cast_f64_f32, double, float)
