// Products of small tiles by the tensor cores, a warp together. Where there are none, each instruction has a twin that moves the same fragments
// between the same lanes (PTX ISA, "Matrix Fragments for mma.m16n8k16", "… m16n8k8" and "… m16n8k32", "ldmatrix").
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned long long u64;

#define ALL_LANES 0xffffffffu

__device__ inline float widen(float value) { return value; }
__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

__device__ inline void narrow(float value, float& to) { to = value; }
__device__ inline void narrow(float value, __half& to) { to = __float2half_rn(value); }
__device__ inline void narrow(float value, __nv_bfloat16& to) { to = __float2bfloat16_rn(value); }

__device__ inline unsigned bits(float value) { return __float_as_uint(value); }
__device__ inline unsigned bits(__half value) { return __half_as_ushort(value); }
__device__ inline unsigned bits(__nv_bfloat16 value) { return __bfloat16_as_ushort(value); }

// Two elements of a fragment, the one of the lower index in the lower half.
template <class T>
__device__ inline unsigned pair(T low, T high) {
  return bits(low) | bits(high) << 16;
}

// The four numbers of a fragment a as they lie in memory.
__device__ inline void take(uint4 four, unsigned(&a)[4]) {
  a[0] = four.x;
  a[1] = four.y;
  a[2] = four.z;
  a[3] = four.w;
}

// Both pairs of gates for all of an inner dimension, as a lane finds them from its first one on.
template <int INNER>
__device__ inline void take_weights(const uint4* first, unsigned (&weights)[INNER][2][4]) {
#pragma unroll
  for (int k = 0; k < INNER; k++) {
#pragma unroll
    for (int pairs = 0; pairs < 2; pairs++) take(first[(2 * k + pairs) * 32], weights[k][pairs]);
  }
}

#ifndef __CUDA_ARCH__
// What a lane hands in to multiply_add.
struct Operands {
  unsigned a[4], b[2];
};

__device__ inline u64 join(unsigned low, unsigned high) { return (u64)high << 32 | low; }

__device__ inline float element(unsigned short bits, __half) { return __half2float(__ushort_as_half(bits)); }
__device__ inline float element(unsigned short bits, __nv_bfloat16) { return __bfloat162float(__ushort_as_bfloat16(bits)); }

// What a lane's parts of a row of a and of a column of b add to `sum`: four elements of 16 bits, two f32, or eight bytes.
template <class T>
__device__ inline float dot(u64 a, u64 b, float sum, T type) {
  for (int i = 0; i < 64; i += 16) sum += element((unsigned short)(a >> i), type) * element((unsigned short)(b >> i), type);
  return sum;
}

__device__ inline float low_float(u64 two) { return __uint_as_float((unsigned)two); }
__device__ inline float high_float(u64 two) { return __uint_as_float((unsigned)(two >> 32)); }

__device__ inline float dot(u64 a, u64 b, float sum, float) { return sum + (low_float(a) * low_float(b) + high_float(a) * high_float(b)); }

__device__ inline int dot(u64 a, u64 b, int sum, signed char) {
  for (int i = 0; i < 64; i += 8) sum += (signed char)(a >> i) * (signed char)(b >> i);
  return sum;
}

// The twin of every multiply_add: fragments of `T` lie in the same bytes whatever `T` is.
template <class T, class S>
__device__ inline void multiply_add_by_lanes(S (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, T type) {
  unsigned lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
  auto lanes = simt::gather("mma.sync", ALL_LANES, Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  for (unsigned quad = 0; quad < 4; quad++) {
    Operands rows = lanes[4 * row + quad], first = lanes[4 * column + quad], second = lanes[4 * column + 4 + quad];
    u64 upper = join(rows.a[0], rows.a[2]), lower = join(rows.a[1], rows.a[3]);
    u64 left = join(first.b[0], first.b[1]), right = join(second.b[0], second.b[1]);
    d[0] = dot(upper, left, d[0], type);
    d[1] = dot(upper, right, d[1], type);
    d[2] = dot(lower, left, d[2], type);
    d[3] = dot(lower, right, d[3], type);
  }
}
#endif

#ifdef __CUDA_ARCH__
#define TENSOR_CORE_OR_TWIN(instruction, kind)                                                                                         \
  (void)type;                                                                                                                          \
  asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                          \
               : "+" kind(d[0]), "+" kind(d[1]), "+" kind(d[2]), "+" kind(d[3])                                                        \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
#define TENSOR_CORE_OR_TWIN(instruction, kind) multiply_add_by_lanes(d, a, b0, b1, type);
#endif

// d [16, 8] += a [16, K] · b [K, 8] of elements of `T`, with sums of `S`, in registers of `kind`.
#define MULTIPLY_ADD(T, S, kind, instruction)                                                                                          \
  __device__ inline void multiply_add(S(&d)[4], const unsigned(&a)[4], unsigned b0, unsigned b1, T type) {                             \
    TENSOR_CORE_OR_TWIN(instruction, kind)                                                                                             \
  }

// K = 16. Lane 4 r + q holds rows r and r + 8 of a and d, column r of b; of a and b the indices 2 q, 2 q + 1 and those plus 8 of the inner dimension; of d the columns 2 q and 2 q + 1.
MULTIPLY_ADD(__half, float, "f", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
MULTIPLY_ADD(__nv_bfloat16, float, "f", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
// K = 8, in TF32: of the inner dimension the indices q and q + 4.
MULTIPLY_ADD(float, float, "f", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
// K = 32: of the inner dimension the indices 4 q … 4 q + 3 and those plus 16.
MULTIPLY_ADD(signed char, int, "r", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")

// The bits of `value` rounded to the 11 significant bits of TF32, ties away from zero.
__device__ inline unsigned tf32(float value) {
#ifdef __CUDA_ARCH__
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(value));
  return rounded;
#else
  unsigned own = __float_as_uint(value);
  return (own & 0x7f800000) == 0x7f800000 ? own : (own + 0x1000) & 0xffffe000;
#endif
}

// Four matrices [8, 8] of 16-bit elements from shared memory. Lane 8 j + i has the address of row i of matrix j, a multiple of 16 bytes; to[j] of lane
// 4 r + q becomes elements 2 q and 2 q + 1 of row r of matrix j.
__device__ inline void load_matrices(unsigned (&to)[4], const void* row) {
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
#else
  unsigned lane = threadIdx.x % 32;
  auto rows = simt::gather("ldmatrix", ALL_LANES, row);
  for (unsigned j = 0; j < 4; j++) to[j] = ((const unsigned*)rows[8 * j + lane / 4])[lane % 4];
#endif
}

// The same, each matrix turned: to[j] of lane 4 r + q becomes the elements of column r in rows 2 q and 2 q + 1.
__device__ inline void load_turned(unsigned (&to)[4], const void* row) {
#ifdef __CUDA_ARCH__
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"((unsigned)__cvta_generic_to_shared(row))
               : "memory");
#else
  unsigned lane = threadIdx.x % 32;
  auto rows = simt::gather("ldmatrix", ALL_LANES, row);
  for (unsigned j = 0; j < 4; j++) {
    unsigned first = 8 * j + lane % 4 * 2;
    const unsigned short *even = (const unsigned short*)rows[first], *odd = (const unsigned short*)rows[first + 1];
    to[j] = even[lane / 4] | (unsigned)odd[lane / 4] << 16;
  }
#endif
}
