// The first pass: norm and finiteness of all gradients. Source of unscale_and_check.ptx; launched by unscale_and_check.rs.
//
//   squares: a warp adds the squares of a chunk, as the CPU orders them      judge: one block adds the chunks, and decides what becomes of the step
#include "state.cuh"

#define ALL_LANES 0xffffffffu
#define THREADS 256
#define BATCH 32  // numbers that a lane of `squares` loads at once

// Terms of the losses, 1 where there is none to divide by.
__device__ inline double terms_of(const double* losses) { return losses[1] > 1.0 ? losses[1] : 1.0; }

// What takes out of gradients the loss scale, and the count of terms that stood for the right one.
__device__ inline float inverse_of(const Step* step, const double* losses, float scale) {
  return __double2float_rn(step->count / terms_of(losses) / (double)scale);
}

// gradients: as the chunks say.  losses: [2], their sum and the number of its terms.  sums, firsts: [chunks], the squares' sum and the first element that is not finite once it is unscaled. A block is a warp.
extern "C" __global__ void __launch_bounds__(32) squares(const Chunk* chunks, const float* gradients, const double* losses,
                                                         const float* scale, const Step* step, double* sums, unsigned* firsts) {
  Chunk of = chunks[blockIdx.x];
  unsigned lane = threadIdx.x, first = NONE;
  float inverse = inverse_of(step, losses, *scale);
  double sum = 0.0;
  auto add = [&](float g, unsigned k) {
    // The square is exact: it matters not whether one rounding or two stand here.
    sum += (double)g * (double)g;
    if (!isfinite(__fmul_rn(g, inverse))) first = min(first, k);
  };
  gradients += of.start;
  unsigned k = lane;
  // A batch is on its way together: one by one, each would wait for memory.
  for (; k + 32 * (BATCH - 1) < of.len; k += 32 * BATCH) {
    float batch[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) batch[i] = gradients[k + 32 * i];
#pragma unroll
    for (int i = 0; i < BATCH; i++) add(batch[i], k + 32 * i);
  }
  for (; k < of.len; k += 32) add(gradients[k], k);
  for (unsigned half = 16; half > 0; half /= 2) first = min(first, __shfl_down_sync(ALL_LANES, first, half));
  double all = __shfl_sync(ALL_LANES, sum, 0);
  for (int other = 1; other < 32; other++) all = __dadd_rn(all, __shfl_sync(ALL_LANES, sum, other));
  if (lane > 0) return;
  sums[blockIdx.x] = all;
  firsts[blockIdx.x] = first;
}

// As LossScaler::update does it; one that would fall below its floor stays as it is.
__device__ inline void change_scale(const Rules& rules, bool overflows, float* scale, State* state) {
  if (rules.growth_interval == 0) return;
  if (overflows) {
    unsigned count = state->overflows == NONE ? NONE : state->overflows + 1;
    bool falls = count >= rules.hysteresis;
    if (falls && *scale <= rules.min_scale) {
      state->change = COLLAPSE;
      return;
    }
    state->overflows = count;
    state->clean_steps = 0;
    if (falls) {
      float lowered = __double2float_rn((double)*scale * rules.backoff_factor);
      *scale = lowered > rules.min_scale ? lowered : rules.min_scale;
      state->change = BACKOFF;
    }
    return;
  }
  state->overflows = 0;
  unsigned clean = state->clean_steps == NONE ? NONE : state->clean_steps + 1;
  state->clean_steps = clean < rules.growth_interval ? clean : 0;
  if (clean < rules.growth_interval) return;
  float grown = __double2float_rn((double)*scale * rules.growth_factor);
  if (grown > rules.max_scale) return;
  *scale = grown;
  state->change = GROWTH;
}

// One block.
extern "C" __global__ void __launch_bounds__(THREADS) judge(const double* sums, const unsigned* firsts, unsigned chunks,
                                                            const double* losses, const Step* step, Rules rules, float* scale,
                                                            State* state) {
  __shared__ double part[THREADS];
  __shared__ unsigned bad[THREADS];
  unsigned thread = threadIdx.x, own = NONE;
  double sum = 0.0;
  for (unsigned start = 0; start < chunks; start += THREADS) {
    unsigned chunk = start + thread;
    if (chunk < chunks) {
      part[thread] = sums[chunk];
      if (firsts[chunk] != NONE) own = min(own, chunk);
    }
    __syncthreads();
    if (thread == 0) {
      for (unsigned k = 0; k < min((unsigned)THREADS, chunks - start); k++) sum = __dadd_rn(sum, part[k]);
    }
    __syncthreads();
  }
  bad[thread] = own;
  __syncthreads();
  if (thread > 0) return;
  for (unsigned k = 1; k < THREADS; k++) own = min(own, bad[k]);
  float before = *scale, inverse = inverse_of(step, losses, before);
  double norm = __dmul_rn(sqrt(sum), (double)inverse);
  double coefficient = step->clip_norm / __dadd_rn(norm, 1e-6);
  state->norm = norm;
  state->scale_before = before;
  state->inverse_scale = inverse;
  state->clip = __double2float_rn(coefficient < 1.0 ? coefficient : 1.0);
  state->bad_chunk = own;
  state->bad_index = own == NONE ? NONE : firsts[own];
  state->loss = losses[0];
  state->terms = losses[1];
  state->change = NO_CHANGE;
  // Of a loss that is refused nothing follows, the scale included.
  bool stands = isfinite(losses[0]) && !(losses[0] / terms_of(losses) > step->loss_max);
  if (stands) change_scale(rules, own != NONE, scale, state);
  state->scale_after = *scale;
  state->follows = stands && own == NONE && losses[1] > 0.0;
}
