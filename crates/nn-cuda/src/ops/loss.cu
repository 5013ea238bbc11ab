// The loss of a batch and its gradient. Source of loss.ptx; launched by loss.rs. The definitions are in ../../loss/mod.rs: slopes in f32 where they are f32 there, all else in f64.
#include "mma.cuh"

#define THREADS 256

// How the outputs of one target are held against it: `TargetLoss` of loss.rs.
struct TargetLoss {
  double numbers[16];  // delta; levels; thresholds
  unsigned kind, len;  // len: of the numbers
  unsigned outputs;    // M
  unsigned first;      // of them in a row
  unsigned group, none;
};

#define MSE 0
#define HUBER 1
#define QUANTILE 2
#define LABELS 3
#define THRESHOLDS 4

// What terms are divided by, and multiplied by: `Terms` of loss.rs.
struct Terms {
  double count;
  double factors[8];  // of the groups
};

// What a slope goes through: the factor of its group, the weight of its row, the loss scale, and rounding.
template <class T>
struct Slopes {
  T* to;
  float factor, weight, scale;
  __device__ void put(unsigned k, float slope) const { narrow(__fmul_rn(__fmul_rn(__fmul_rn(slope, factor), weight), scale), to[k]); }
};

// The class that a target names, or -1.
__device__ inline int class_of(const TargetLoss& of, double target) {
  if (of.kind == LABELS) return target >= 0.0 && target < (double)of.outputs && target == floor(target) ? (int)target : -1;
  if (!isfinite(target)) return -1;
  int count = 0;
  while (count < (int)of.len && of.numbers[count] < target) count++;
  return count;
}

// The cross entropy of a class, and its slopes.
template <class T>
__device__ inline double of_classes(const TargetLoss& of, const float* y, double target, double count, Slopes<T> slopes) {
  double most = -INFINITY, sum = 0.0;
  for (unsigned c = 0; c < of.outputs; c++) most = fmax(most, (double)y[c]);
  for (unsigned c = 0; c < of.outputs; c++) sum += exp((double)y[c] - most);
  int own = class_of(of, target);
  for (unsigned c = 0; c < of.outputs; c++) {
    double wanted = own < 0 ? NAN : (int)c == own ? 1.0 : 0.0;
    slopes.put(c, (float)((exp((double)y[c] - most) / sum - wanted) / count));
  }
  return own < 0 ? NAN : most + log(sum) - (double)y[own];
}

// The loss of a target's outputs `y`, and its slopes over `count`.
template <class T>
__device__ inline double of_target(const TargetLoss& of, const float* y, float target, double count, Slopes<T> slopes) {
  if (of.kind >= LABELS) return of_classes(of, y, target, count, slopes);
  double sum = 0.0;
  for (unsigned k = 0; k < of.outputs; k++) {
    float error = __fsub_rn(y[k], target);
    double wide = (double)y[k] - (double)target;
    if (of.kind == MSE) {
      slopes.put(k, __fmul_rn((float)(2.0 / count), error));
      sum = wide * wide;
    } else if (of.kind == HUBER) {
      double delta = of.numbers[0], size = fabs(wide);
      float limit = (float)delta, limited = error > limit ? limit : error < -limit ? -limit : error;
      slopes.put(k, __fmul_rn((float)(1.0 / count), limited));
      sum = size > delta ? delta * (size - 0.5 * delta) : 0.5 * (wide * wide);
    } else {
      double level = of.numbers[k];
      float slope = error > 0.0f ? (float)((1.0 - level) / count) : (float)(-level / count);
      slopes.put(k, error > 0.0f || error < 0.0f ? slope : error);
      sum += wide > 0.0 ? (1.0 - level) * wide : -level * wide;
    }
  }
  return sum;
}

// outputs: [rows, width].  targets: [rows, K], NaN where one is not known.  weights: [rows], or null where all are 1.  d_outputs: [rows, width].  parts: [blocks, 2], loss and terms. A thread takes a target of a row.
template <class T>
__device__ inline void loss(const TargetLoss* table, unsigned K, const float* outputs, unsigned width, const float* targets,
                            const float* weights, u64 len, const Terms* terms_of, const float* scale, T* d_outputs, double* parts) {
  __shared__ double sums[THREADS][2];
  u64 k = blockIdx.x * (u64)THREADS + threadIdx.x;
  double sum = 0.0, terms = 0.0;
  if (k < len) {
    const TargetLoss& of = table[k % K];
    u64 first = k / K * width + of.first;
    float target = targets[k];
    double factor = terms_of->factors[of.group];
    float weight = weights ? weights[k / K] : 1.0f;
    Slopes<T> slopes = {d_outputs + first, (float)factor, weight, *scale};
    if (isnan(target)) {
      for (unsigned c = 0; c < of.outputs; c++) narrow(0.0f, slopes.to[c]);
    } else {
      sum = factor * (double)weight * of_target(of, outputs + first, target, terms_of->count, slopes);
      terms = of.kind == QUANTILE ? (double)of.outputs : 1.0;
    }
  }
  sums[threadIdx.x][0] = sum;
  sums[threadIdx.x][1] = terms;
  for (unsigned half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    for (int i = 0; i < 2; i++) sums[threadIdx.x][i] = __dadd_rn(sums[threadIdx.x][i], sums[threadIdx.x + half][i]);
  }
  if (threadIdx.x > 0) return;
  for (int i = 0; i < 2; i++) parts[2 * (u64)blockIdx.x + i] = sums[0][i];
}

#define LOSS(name, T)                                                                                                                     \
  extern "C" __global__ void __launch_bounds__(THREADS) name(const TargetLoss* table, unsigned K, const float* outputs, unsigned width,     \
                                                             const float* targets, const float* weights, u64 len, const Terms* terms,    \
                                                             const float* scale, T* d_outputs, double* parts) {                          \
    loss(table, K, outputs, width, targets, weights, len, terms, scale, d_outputs, parts);                                                \
  }

LOSS(loss_f32, float)
LOSS(loss_f16, __half)
LOSS(loss_bf16, __nv_bfloat16)

// Adds the parts to `totals` [2], in order. A block of two threads.
extern "C" __global__ void add_totals(const double* parts, unsigned blocks, double* totals) {
  double sum = totals[threadIdx.x];
  for (unsigned block = 0; block < blocks; block++) sum = __dadd_rn(sum, parts[2 * block + threadIdx.x]);
  totals[threadIdx.x] = sum;
}
