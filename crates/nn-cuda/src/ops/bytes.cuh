// Numbers of a row as fourteen bits in two bytes, with a scale of the row: the arithmetic of bytes.rs, bit by bit.
#pragma once

#include "mma.cuh"

// By what a row's numbers are multiplied to be integers, and integers to be the row's numbers. `greatest`: the bits of the row's largest magnitude.
struct RowScale {
  float factor, scale;
};

__device__ inline RowScale row_scale(unsigned greatest) {
  float inverse = __fdiv_rn(8191.0f, __uint_as_float(greatest));
  if (greatest >= 0x7f800000) return {0.0f, __uint_as_float(0x7fc00000)};
  if (__float_as_uint(inverse) >= 0x7f800000) return {0.0f, 0.0f};
  return {inverse, __fdiv_rn(__uint_as_float(greatest), 8191.0f)};
}

__device__ inline unsigned magnitude(float value) { return __float_as_uint(value) & 0x7fffffff; }

// The nearest integer in fourteen bits of two's complement: adding 3 · 2^22 leaves it in the lowest bits.
__device__ inline int quantized(float value, float factor) {
  return (int)(__float_as_uint(__fadd_rn(__fmul_rn(value, factor), 12582912.0f)) << 18) >> 18;
}

__device__ inline signed char high_byte(int number) { return (signed char)(number >> 7); }
__device__ inline signed char low_byte(int number) { return (signed char)(number & 127); }

// What the sums of high and of low bytes stand for, `scale` being that of the row times that of the weights.
__device__ inline float product_of(int high, int low, float scale) {
  return __fmul_rn(__fadd_rn(__fmul_rn((float)high, 128.0f), (float)low), scale);
}
