// The types of numbers in tensors, and the types that they are reduced in: as in tensor/element.rs, to the bit.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef long long i64;

template <class E>
struct Reduced {
  typedef E type;
};
template <>
struct Reduced<__half> {
  typedef float type;
};
template <>
struct Reduced<__nv_bfloat16> {
  typedef float type;
};
// The type that numbers of type E are reduced in.
template <class E>
using Wide = typename Reduced<E>::type;

template <class E>
__device__ inline E widen(E value) {
  return value;
}
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class E>
__device__ inline void narrow(E value, E& to) {
  to = value;
}
__device__ inline void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ inline void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

// Sums and products are not contracted; those of integers wrap around.
__device__ inline float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ inline int plus(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
__device__ inline i64 plus(i64 a, i64 b) { return (i64)((unsigned long long)a + (unsigned long long)b); }

__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline int times(int a, int b) { return (int)((unsigned)a * (unsigned)b); }
__device__ inline i64 times(i64 a, i64 b) { return (i64)((unsigned long long)a * (unsigned long long)b); }

__device__ inline float minus(float a, float b) { return __fsub_rn(a, b); }
__device__ inline double minus(double a, double b) { return __dadd_rn(a, -b); }

__device__ inline float over(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline double over(double a, double b) { return a / b; }

// Quotient by a count, which is not 0; that of integers is rounded down.
__device__ inline float over_count(float a, unsigned count) { return __fdiv_rn(a, (float)count); }
__device__ inline double over_count(double a, unsigned count) { return a / (double)count; }
__device__ inline i64 over_count(i64 a, unsigned count) {
  i64 quotient = a / (i64)count;
  return a % (i64)count < 0 ? quotient - 1 : quotient;
}
__device__ inline int over_count(int a, unsigned count) { return (int)over_count((i64)a, count); }

__device__ inline bool is_none(float value) { return isnan(value); }
__device__ inline bool is_none(double value) { return isnan(value); }
__device__ inline bool is_none(int) { return false; }
__device__ inline bool is_none(i64) { return false; }

// MACRO(suffix of a kernel's name, type) for each type of floats, and of numbers.
#define EACH_FLOAT(MACRO)    \
  MACRO(f16, __half)         \
  MACRO(bf16, __nv_bfloat16) \
  MACRO(f32, float)          \
  MACRO(f64, double)
#define EACH_NUMBER(MACRO) \
  EACH_FLOAT(MACRO)        \
  MACRO(i32, int)          \
  MACRO(i64, long long)
