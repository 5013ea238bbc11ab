// What a step does to one unit of one window, forward and backward.
#pragma once

// Absolute errors of a few 1e-7: two operations of the special function unit each.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }
__device__ inline float hyperbolic_tangent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }

// The functions of a step whose hidden states are of type T. In bf16 one operation each, with relative errors of 2^-11, as gates are kept to 11 bits and states to 8.
template <class T>
struct Functions {
  __device__ static float sigmoid(float x) { return ::sigmoid(x); }
  __device__ static float tanh(float x) { return hyperbolic_tangent(x); }
};

template <>
struct Functions<__nv_bfloat16> {
  __device__ static float tanh(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return tanhf(x);
#endif
  }
  __device__ static float sigmoid(float x) { return fmaf(0.5f, tanh(0.5f * x), 0.5f); }
};

// The gates of a unit in the order i, f, g, o, before their functions or after.
struct Gates {
  float i, f, g, o;
};

// c' = f·c + i·g and h' = o·tanh(c'); applies the gates' functions. What is rounded once is said, here and below: the compiler may choose otherwise in each kernel, and those for tiles of
// any size are to give the same bits.
template <class T>
__device__ inline float advance(Gates& gates, float& cell) {
  using F = Functions<T>;
  gates = {F::sigmoid(gates.i), F::sigmoid(gates.f), F::tanh(gates.g), F::sigmoid(gates.o)};
  cell = fmaf(gates.i, gates.g, __fmul_rn(gates.f, cell));
  return gates.o * F::tanh(cell);
}

// tanh' = 1 - tanh², of a value of tanh.
__device__ inline float slope_at(float tangent) { return fmaf(-tangent, tangent, 1.0f); }

// The reverse, with s' = s·(1 - s): the gates' gradients before their functions. `d_cell` goes from the cell after the step, apart from
// what comes through `d_hidden`, to the cell before.
template <class T>
__device__ inline Gates cell_backward(Gates gates, float cell_before, float cell, float d_hidden, float& d_cell) {
  float tangent = Functions<T>::tanh(cell);
  float d = fmaf(__fmul_rn(d_hidden, gates.o), slope_at(tangent), d_cell);
  d_cell = __fmul_rn(d, gates.f);
  return {d * gates.g * gates.i * (1.0f - gates.i), d * cell_before * gates.f * (1.0f - gates.f), d * gates.i * slope_at(gates.g),
          d_hidden * tangent * gates.o * (1.0f - gates.o)};
}

// Four gates as they lie in memory.
template <class T>
struct __align__(4 * sizeof(T)) Narrow {
  T i, f, g, o;
};

template <class T>
__device__ inline Narrow<T> narrow_gates(Gates gates) {
  Narrow<T> to;
  narrow(gates.i, to.i);
  narrow(gates.f, to.f);
  narrow(gates.g, to.g);
  narrow(gates.o, to.o);
  return to;
}

template <class T>
__device__ inline Gates widen_gates(Narrow<T> gates) {
  return {widen(gates.i), widen(gates.f), widen(gates.g), widen(gates.o)};
}
