// The 16-bit floats as storage: conversions and bit casts, rounded to nearest even, NaN to the one NaN that the hardware
// gives (0x7fff). Arithmetic on them is left out: kernels widen to f32 first, and one that forgets does not compile.
#pragma once

struct alignas(2) __half {
  unsigned short bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(2) __nv_bfloat16 {
  unsigned short bits;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) { return h.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

inline float __half2float(__half h) {
  unsigned sign = (unsigned)(h.bits & 0x8000) << 16;
  unsigned rest = h.bits & 0x7fff;
  if (rest > 0x7c00) return __uint_as_float(0x7fffffff);
  if (rest == 0x7c00) return __uint_as_float(sign | 0x7f800000);
  // The exponents differ by 112. Scaling by 2^112 as a float also normalises subnormal halves.
  float scaled = __uint_as_float(rest << 13) * __uint_as_float((127u + 112) << 23);
  return __uint_as_float(sign | __float_as_uint(scaled));
}

inline __half __float2half_rn(float f) {
  unsigned sign = __float_as_uint(f) >> 16 & 0x8000;
  unsigned rest = __float_as_uint(f) & 0x7fffffff;
  if (rest > 0x7f800000) return {0x7fff};
  if (rest >= 0x477ff000) return {(unsigned short)(sign | 0x7c00)};  // 65520, halfway from the largest half to the next
  if (rest < 0x38800000) {                                           // below 2^-14: a subnormal half, a multiple of 2^-24
    float units = __uint_as_float(rest) * 16777216.0f;
    return {(unsigned short)(sign | (unsigned)rintf(units))};
  }
  unsigned odd = rest >> 13 & 1;
  return {(unsigned short)(sign | ((rest - (112u << 23) + 0xfff + odd) >> 13))};
}
inline __half __float2half(float f) { return __float2half_rn(f); }

inline float __bfloat162float(__nv_bfloat16 h) { return __uint_as_float((unsigned)h.bits << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  unsigned bits = __float_as_uint(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fff};
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }

inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline __half2 __float22half2_rn(float2 v) { return __floats2half2_rn(v.x, v.y); }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
inline float2 __bfloat1622float2(__nv_bfloat162 h) { return {__bfloat162float(h.x), __bfloat162float(h.y)}; }
inline float __low2float(__nv_bfloat162 h) { return __bfloat162float(h.x); }
inline float __high2float(__nv_bfloat162 h) { return __bfloat162float(h.y); }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
