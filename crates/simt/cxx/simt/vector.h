// Built-in vector types, with CUDA's alignments.
#pragma once

#define SIMT_VECTOR2(name, type)                     \
  struct alignas(2 * sizeof(type)) name##2 {         \
    type x, y;                                       \
  };                                                 \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }

#define SIMT_VECTOR4(name, type)                                     \
  struct alignas(sizeof(type) < 8 ? 4 * sizeof(type) : 16) name##4 { \
    type x, y, z, w;                                                 \
  };                                                                 \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

#define SIMT_VECTORS(name, type) SIMT_VECTOR2(name, type) SIMT_VECTOR4(name, type)

SIMT_VECTORS(char, signed char)
SIMT_VECTORS(uchar, unsigned char)
SIMT_VECTORS(short, short)
SIMT_VECTORS(ushort, unsigned short)
SIMT_VECTORS(int, int)
SIMT_VECTORS(uint, unsigned)
SIMT_VECTORS(longlong, long long)
SIMT_VECTORS(ulonglong, unsigned long long)
SIMT_VECTORS(float, float)
SIMT_VECTORS(double, double)

#undef SIMT_VECTORS
#undef SIMT_VECTOR4
#undef SIMT_VECTOR2
