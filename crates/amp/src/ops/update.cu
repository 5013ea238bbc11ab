// The second pass: gradients unscaled, clipped and followed. Source of update.ptx; launched by update.rs. Its arithmetic is that of update.rs one folder up,
// operation by operation and each rounded once.
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

// Calls `each` for the elements of this block's piece of a chunk; for none where the weights are not to follow.
template <class Each>
__device__ inline void each_element(const Chunk* chunks, const State* state, Each each) {
  if (!state->follows) return;
  Chunk of = chunks[blockIdx.x / PIECES];
  unsigned length = (of.len + PIECES - 1) / PIECES, start = blockIdx.x % PIECES * length, end = min(start + length, of.len);
#pragma unroll 4
  for (unsigned k = start + threadIdx.x; k < end; k += blockDim.x) each(of.start + k);
}

// values, gradients: as the chunks say.
extern "C" __global__ void sgd(const Chunk* chunks, const State* state, const Step* step, float* values, const float* gradients) {
  Rates rates = step->rates;
  float inverse = state->inverse_scale, clip = state->clip;
  each_element(chunks, state, [=](u64 k) {
    float p = values[k], g = __fmul_rn(__fmul_rn(gradients[k], inverse), clip);
    values[k] = __fsub_rn(p, __fmul_rn(rates.lr, __fadd_rn(g, __fmul_rn(rates.coupled_decay, p))));
  });
}

// means, squares: beside the values, exp_avg and exp_avg_sq.
extern "C" __global__ void adam(const Chunk* chunks, const State* state, const Step* step, float* values, const float* gradients, float* means,
                                float* squares) {
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
    values[k] = __fsub_rn(p, __fdiv_rn(__fmul_rn(step_size, m), spread));
    means[k] = m;
    squares[k] = v;
  });
}
