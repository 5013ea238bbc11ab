// Losses that compare the outputs of a row, or the rows of a graph, with each other. Source of graph_loss.ptx; launched by graph_loss.rs; crates/nn/src/loss/graph.rs has the definitions.
// Everything is in f64 but the terms of pairs, which are as many as the square of a graph's rows; sums are in a fixed order. A row whose targets are not all known has NaN for all of them.
#include "graphs.cuh"

#define THREADS 256

// `Terms` of loss.rs.
struct Terms {
  double count;
  double factors[8];
};

// What `join` makes of the numbers of all threads, for each of them.
template <class Join>
__device__ inline double of_block(double value, Join join) {
  __shared__ double values[THREADS];
  __syncthreads();
  values[threadIdx.x] = value;
  for (unsigned half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] = join(values[threadIdx.x], values[threadIdx.x + half]);
  }
  __syncthreads();
  return values[0];
}

__device__ inline double sum_of_block(double value) {
  return of_block(value, [](double a, double b) { return __dadd_rn(a, b); });
}

__device__ inline double most_of_block(double value) {
  return of_block(value, [](double a, double b) { return fmax(a, b); });
}

// What a slope goes through: the terms of a step, the loss scale.
__device__ inline float scaled(double slope, double count, float scale) { return __fmul_rn((float)(slope / count), scale); }

__device__ inline void put_part(double* parts, double loss, double terms) {
  if (threadIdx.x > 0) return;
  parts[2 * (u64)blockIdx.x] = loss;
  parts[2 * (u64)blockIdx.x + 1] = terms;
}

// outputs, targets, d_outputs: [rows, K].  parts: [blocks, 2], loss and terms. A thread takes a row.
extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy(const float* outputs, const float* targets, u64 rows, unsigned K, const Terms* terms,
                                                                    const float* scale, float* d_outputs, double* parts) {
  u64 row = blockIdx.x * (u64)THREADS + threadIdx.x;
  double loss = 0.0, labelled = 0.0;
  if (row < rows) {
    const float *y = outputs + row * K, *p = targets + row * K;
    float* d = d_outputs + row * K;
    bool is_labelled = !isnan(p[0]);
    double most = -INFINITY, sum = 0.0, wanted = 0.0;
    for (unsigned k = 0; k < K; k++) most = fmax(most, (double)y[k]);
    for (unsigned k = 0; k < K; k++) sum += exp((double)y[k] - most), wanted += (double)p[k];
    double log_sum = most + log(sum);
    for (unsigned k = 0; k < K; k++) {
      double slope = exp((double)y[k] - most) / sum * wanted - (double)p[k];
      d[k] = is_labelled ? scaled(slope, terms->count, *scale) : 0.0f;
      if (is_labelled && p[k] != 0.0f) loss += (double)p[k] * (log_sum - (double)y[k]);
    }
    labelled = is_labelled ? 1.0 : 0.0;
  }
  loss = sum_of_block(loss);
  put_part(parts, loss, sum_of_block(labelled));
}

// One horizon of a graph, which a block takes.
struct Column {
  const float *outputs, *targets;
  unsigned first, end, width, k;

  __device__ u64 at(unsigned row) const { return (u64)row * width + k; }
  __device__ double y(unsigned row) const { return outputs[at(row)]; }
  __device__ double target(unsigned row) const { return targets[at(row)]; }
  __device__ bool is_labelled(unsigned row) const { return !isnan(targets[at(row)]); }

  // Labelled rows.
  __device__ double labelled() const {
    double count = 0.0;
    for (unsigned row = first + threadIdx.x; row < end; row += THREADS) count += is_labelled(row) ? 1.0 : 0.0;
    return sum_of_block(count);
  }
};

__device__ inline Column column_of_block(const Graph* graphs, const float* outputs, const float* targets, unsigned width) {
  unsigned graph = blockIdx.x / width;
  return {outputs, targets, graphs[graph].node, graphs[graph + 1].node, width, blockIdx.x % width};
}

// ln(1 + e^x), and its slope, without overflow.
struct Softplus {
  float value, slope;
};

__device__ inline Softplus softplus(float x) {
  float e = expf(-fabsf(x)), part = 1.0f / (1.0f + e);
  return {fmaxf(x, 0.0f) + log1pf(e), x > 0.0f ? part : e * part};
}

// outputs, targets, d_outputs: [N, K].  parts: [G · K, 2]. A block takes a horizon of a graph, and all of its pairs.
extern "C" __global__ void __launch_bounds__(THREADS) rank_pairwise(const Graph* graphs, const float* outputs, const float* targets, unsigned K,
                                                                    const Terms* terms, const float* scale, float* d_outputs, double* parts) {
  Column of = column_of_block(graphs, outputs, targets, K);
  double pairs = 0.0, loss = 0.0;
  for (unsigned row = of.first + threadIdx.x; row < of.end; row += THREADS) {
    for (unsigned other = of.first; other < of.end; other++) pairs += of.target(other) < of.target(row) ? 1.0 : 0.0;
  }
  double count = fmax(sum_of_block(pairs), 1.0), labelled = of.labelled();
  for (unsigned row = of.first + threadIdx.x; row < of.end; row += THREADS) {
    double slope = 0.0;
    float own = outputs[of.at(row)], target = targets[of.at(row)];
    for (unsigned other = of.first; other < of.end; other++) {
      float y = outputs[of.at(other)], its_target = targets[of.at(other)];
      if (its_target < target) {
        Softplus pair = softplus(y - own);
        slope -= pair.slope;
        loss += pair.value;
      } else if (its_target > target) {
        slope += softplus(own - y).slope;
      }
    }
    d_outputs[of.at(row)] = scaled(slope / count, K * terms->count, *scale);
  }
  loss = sum_of_block(loss) / count / K;
  put_part(parts, loss, of.k == 0 && labelled >= 2.0 ? 1.0 : 0.0);
}

// The same of ListNet's loss; `temperature` is what targets are divided by.
extern "C" __global__ void __launch_bounds__(THREADS) rank_listwise(const Graph* graphs, const float* outputs, const float* targets, unsigned K,
                                                                    double temperature, const Terms* terms, const float* scale, float* d_outputs,
                                                                    double* parts) {
  Column of = column_of_block(graphs, outputs, targets, K);
  double labelled = of.labelled(), most = -INFINITY, most_target = -INFINITY, sum = 0.0, sum_of_targets = 0.0, loss = 0.0;
  for (unsigned row = of.first + threadIdx.x; row < of.end; row += THREADS) {
    if (!of.is_labelled(row)) continue;
    most = fmax(most, of.y(row));
    most_target = fmax(most_target, of.target(row) / temperature);
  }
  most = most_of_block(most);
  most_target = most_of_block(most_target);
  for (unsigned row = of.first + threadIdx.x; row < of.end; row += THREADS) {
    if (!of.is_labelled(row)) continue;
    sum += exp(of.y(row) - most);
    sum_of_targets += exp(of.target(row) / temperature - most_target);
  }
  sum = sum_of_block(sum);
  sum_of_targets = sum_of_block(sum_of_targets);
  for (unsigned row = of.first + threadIdx.x; row < of.end; row += THREADS) {
    double slope = 0.0;
    if (of.is_labelled(row) && labelled >= 2.0) {
      double wanted = exp(of.target(row) / temperature - most_target) / sum_of_targets;
      slope = exp(of.y(row) - most) / sum - wanted;
      loss += wanted * (most + log(sum) - of.y(row));
    }
    d_outputs[of.at(row)] = scaled(slope, K * terms->count, *scale);
  }
  loss = sum_of_block(loss) / K;
  put_part(parts, loss, of.k == 0 && labelled >= 2.0 ? 1.0 : 0.0);
}
