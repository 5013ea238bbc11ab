// The second pass: gradients unscaled, clipped and followed. Source of update.ptx; launched by update.rs. Its arithmetic is that of update.rs one folder up,
// operation by operation and each rounded once.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "state.cuh"

#define PIECES 4  // blocks of a chunk

// Counts the step, and makes of its number what corrects the moments. A single thread.
extern "C" __global__ void advance(State* state, const Step* step) {
  if (!state->follows) return;
  u64 number = state->steps + 1;
  state->steps = number;
  state->step_size = __double2float_rn(step->lr / __dadd_rn(1.0, -pow(step->beta1, (double)number)));
  state->root_correction2 = __double2float_rn(sqrt(__dadd_rn(1.0, -pow(step->beta2, (double)number))));
}

struct NoCopy {};

__device__ inline void narrow(float, NoCopy*, u64) {}
__device__ inline void narrow(float value, __half* to, u64 k) { to[k] = __float2half_rn(value); }
__device__ inline void narrow(float value, __nv_bfloat16* to, u64 k) { to[k] = __float2bfloat16_rn(value); }

// Calls `each` for the elements of this block's piece of a chunk; for none where the weights are not to follow.
template <class Each>
__device__ inline void each_element(const Chunk* chunks, const State* state, Each each) {
  if (!state->follows) return;
  Chunk of = chunks[blockIdx.x / PIECES];
  unsigned length = (of.len + PIECES - 1) / PIECES, start = blockIdx.x % PIECES * length, end = min(start + length, of.len);
#pragma unroll 4
  for (unsigned k = start + threadIdx.x; k < end; k += blockDim.x) each(of.start + k);
}

// values, gradients: as the chunks say.  copy: beside the values, or null.
template <class Copy>
__device__ inline void sgd(const Chunk* chunks, const State* state, const Step* step, float* values, const float* gradients, Copy* copy) {
  Rates rates = step->rates;
  float inverse = state->inverse_scale, clip = state->clip;
  each_element(chunks, state, [=](u64 k) {
    float p = values[k], g = __fmul_rn(__fmul_rn(gradients[k], inverse), clip);
    p = __fsub_rn(p, __fmul_rn(rates.lr, __fadd_rn(g, __fmul_rn(rates.coupled_decay, p))));
    values[k] = p;
    narrow(p, copy, k);
  });
}

// means, squares: beside the values, exp_avg and exp_avg_sq.
template <class Copy>
__device__ inline void adam(const Chunk* chunks, const State* state, const Step* step, float* values, const float* gradients, float* means,
                            float* squares, Copy* copy) {
  Rates rates = step->rates;
  float inverse = state->inverse_scale, clip = state->clip, step_size = state->step_size, root_correction2 = state->root_correction2;
  each_element(chunks, state, [=](u64 k) {
    float p = values[k], m = means[k], v = squares[k];
    float g = __fmul_rn(__fmul_rn(gradients[k], inverse), clip);
    g = __fadd_rn(g, __fmul_rn(rates.coupled_decay, p));
    p = __fmul_rn(p, rates.shrink);
    m = __fadd_rn(m, __fmul_rn(rates.one_minus_beta1, __fsub_rn(g, m)));
    v = __fadd_rn(__fmul_rn(rates.beta2, v), __fmul_rn(__fmul_rn(rates.one_minus_beta2, g), g));
    float spread = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), root_correction2), rates.epsilon);
    p = __fsub_rn(p, __fdiv_rn(__fmul_rn(step_size, m), spread));
    values[k] = p;
    means[k] = m;
    squares[k] = v;
    narrow(p, copy, k);
  });
}

#define RULES(suffix, Copy)                                                                                                             \
  extern "C" __global__ void sgd_##suffix(const Chunk* chunks, const State* state, const Step* step, float* values, const float* gradients,  \
                                          Copy* copy) {                                                                                 \
    sgd(chunks, state, step, values, gradients, copy);                                                                                 \
  }                                                                                                                                     \
  extern "C" __global__ void adam_##suffix(const Chunk* chunks, const State* state, const Step* step, float* values, const float* gradients, \
                                           float* means, float* squares, Copy* copy) {                                                  \
    adam(chunks, state, step, values, gradients, means, squares, copy);                                                                \
  }

RULES(f32, NoCopy)
RULES(f16, __half)
RULES(bf16, __nv_bfloat16)
