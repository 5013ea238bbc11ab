// Attention over the edges of graphs, backward. Source of attention_backward.ptx; launched by attention/backward.rs. Every sum belongs to one node that receives or to one that
// gives, and is formed in the order of its edges.
#include "attention.cuh"
#include "warp.cuh"

// d: the gradients of what ELU or ReLU gave, y, become those of what it was given.
extern "C" __global__ void activation_gradients(const float* y, float* d, u64 len, unsigned is_elu) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  float slope = y[k] > 0.0f ? 1.0f : is_elu ? __fadd_rn(y[k], 1.0f) : 0.0f;
  d[k] = __fmul_rn(d[k], slope);
}

// d_y: [N, D].  d_scores: [P, H]. A warp takes a head of a node that receives.
extern "C" __global__ void score_gradients(Attention of, const unsigned* starts, const unsigned* from, const float* coefficients, const Mask* mask,
                                           const float* values, const float* d_y, float* d_scores) {
  u64 at = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32, projected = (u64)of.heads * of.units;
  if (at >= (u64)of.nodes * of.heads) return;
  unsigned node = (unsigned)(at / of.heads), head = (unsigned)(at % of.heads);
  Dealt dealt = {starts[node], starts[node + 1], lanes_for(of.units)};
  const float* d = d_y + node * (u64)output_width(of) + column_of(of, head, 0);
  float dot = 0.0f, share = share_of(of);
  for (u64 place = dealt.first(), base = dealt.start; base < dealt.end; place += dealt.groups(), base += dealt.groups()) {
    unsigned j = place < dealt.end ? from[place] : NO_EDGE;
    const float* value = values + j * projected + head * of.units;
    float sum = sum_by_lanes(dealt.lanes, of.units, j != NO_EDGE, [=](unsigned c) { return __fmul_rn(d[c], value[c]); });
    if (place >= dealt.end || !dealt.writes()) continue;
    float coefficient = coefficients[place * of.heads + head];
    float d_coefficient = __fmul_rn(__fmul_rn(share, factor_of(mask, coefficient)), sum);
    d_scores[place * of.heads + head] = d_coefficient;
    dot = __fadd_rn(dot, __fmul_rn(d_coefficient, fabsf(coefficient)));
  }
  dot = sum_of_lanes(dot);
  for (u64 place = dealt.first(); place < dealt.end && dealt.writes(); place += dealt.groups()) {
    float& own = d_scores[place * of.heads + head];
    own = __fmul_rn(fabsf(coefficients[place * of.heads + head]), __fsub_rn(own, dot));
  }
}

// d_receiving, vector_rows: [N, H · U], the second one of `vector` where there is one.  edge_rows: [N, H · U, A]. A thread takes a column of a node that receives.
extern "C" __global__ void receiver_gradients(Attention of, const unsigned* starts, const unsigned* from, const float* giving, const float* receiving,
                                              const float* vector, const float* edge_weight, const float* attributes, const float* d_scores,
                                              float* d_receiving, float* vector_rows, float* edge_rows) {
  u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x, width = (u64)of.heads * of.score_units;
  if (at >= of.nodes * width) return;
  unsigned node = (unsigned)(at / width), k = (unsigned)(at % width), head = k / of.score_units;
  Scores scores = {giving, receiving, vector, edge_weight, attributes};
  float d_joined = 0.0f, d_vector = 0.0f;
  for (u64 place = starts[node]; place < starts[node + 1]; place++) {
    if (from[place] == NO_EDGE) continue;
    float z = scores.joined(of, node, from[place], place, k), d = d_scores[place * of.heads + head];
    d_joined = __fadd_rn(d_joined, __fmul_rn(__fmul_rn(d, scores.weight(k)), leaky_slope(of, z)));
    d_vector = __fadd_rn(d_vector, __fmul_rn(d, leaky(of, z)));
  }
  d_receiving[at] = d_joined;
  if (vector) vector_rows[at] = d_vector;
  for (unsigned a = 0; a < of.attributes; a++) {
    float sum = 0.0f;
    for (u64 place = starts[node]; place < starts[node + 1]; place++) {
      if (from[place] == NO_EDGE) continue;
      float z = scores.joined(of, node, from[place], place, k), d = d_scores[place * of.heads + head];
      float d_edge = __fmul_rn(__fmul_rn(d, scores.weight(k)), leaky_slope(of, z));
      sum = __fadd_rn(sum, __fmul_rn(d_edge, attributes[place * of.attributes + a]));
    }
    edge_rows[at * of.attributes + a] = sum;
  }
}

// starts: [N + 1], first edges of nodes that give.  places, to: [P], the place of an edge and the node that receives it.  d_values: [N, H · C]. A thread takes an element.
extern "C" __global__ void value_gradients(Attention of, const unsigned* starts, const unsigned* places, const unsigned* to, const float* coefficients,
                                           const Mask* mask, const float* d_y, float* d_values) {
  u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x, projected = (u64)of.heads * of.units, width = output_width(of);
  if (at >= of.nodes * projected) return;
  unsigned node = (unsigned)(at / projected), head = (unsigned)(at % projected) / of.units, unit = (unsigned)(at % of.units);
  float sum = 0.0f;
  for (u64 edge = starts[node]; edge < starts[node + 1]; edge++) {
    float coefficient = coefficients[(u64)places[edge] * of.heads + head];
    float kept = __fmul_rn(coefficient, factor_of(mask, coefficient));
    sum = __fadd_rn(sum, __fmul_rn(kept, d_y[to[edge] * width + column_of(of, head, unit)]));
  }
  d_values[at] = __fmul_rn(share_of(of), sum);
}

// d_giving: [N, H · U], added to with `adds`. A thread takes a column of a node that gives.
extern "C" __global__ void giver_gradients(Attention of, const unsigned* starts, const unsigned* places, const unsigned* to, const float* giving,
                                           const float* receiving, const float* vector, const float* edge_weight, const float* attributes,
                                           const float* d_scores, unsigned adds, float* d_giving) {
  u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x, width = (u64)of.heads * of.score_units;
  if (at >= of.nodes * width) return;
  unsigned node = (unsigned)(at / width), k = (unsigned)(at % width), head = k / of.score_units;
  Scores scores = {giving, receiving, vector, edge_weight, attributes};
  float sum = adds ? d_giving[at] : 0.0f;
  for (u64 edge = starts[node]; edge < starts[node + 1]; edge++) {
    u64 place = places[edge];
    float z = scores.joined(of, to[edge], node, place, k), d = d_scores[place * of.heads + head];
    sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(d, scores.weight(k)), leaky_slope(of, z)));
  }
  d_giving[at] = sum;
}

// GAT's dots backward.  d_sources, d_targets: [N, H].  d_values: [N, H · C], added to.  source_rows, target_rows: [N, H · C], what each node gives to the gradients of the
// vectors. A thread takes an element.
extern "C" __global__ void node_dot_gradients(Attention of, const float* values, const float* source, const float* target, const float* d_sources,
                                              const float* d_targets, float* d_values, float* source_rows, float* target_rows) {
  u64 at = blockIdx.x * (u64)blockDim.x + threadIdx.x, projected = (u64)of.heads * of.units;
  if (at >= of.nodes * projected) return;
  u64 k = at % projected;
  float d_source = d_sources[at / of.units], d_target = d_targets[at / of.units];
  d_values[at] = __fadd_rn(d_values[at], __fadd_rn(__fmul_rn(d_source, source[k]), __fmul_rn(d_target, target[k])));
  source_rows[at] = __fmul_rn(d_source, values[at]);
  target_rows[at] = __fmul_rn(d_target, values[at]);
}
