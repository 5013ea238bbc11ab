// Attention over the edges of graphs, forward. Source of attention.ptx; launched by attention.rs.
#include "attention.cuh"
#include "warp.cuh"

#define KEEP 0  // functions between layers
#define ELU 1
#define RELU 2

// values: [N, H · C].  vectors: [H · C] for nodes that give, and for those that receive.  sources, targets: [N, H]. A warp takes a head of a node.
extern "C" __global__ void node_dots(Attention of, const float* values, const float* source, const float* target, float* sources, float* targets) {
  u64 at = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32;
  if (at >= (u64)of.nodes * of.heads) return;
  const float* own = values + at * of.units;
  u64 head = at % of.heads * of.units;
  float of_source = sum_by_warp(of.units, [=](unsigned c) { return __fmul_rn(source[head + c], own[c]); });
  float of_target = sum_by_warp(of.units, [=](unsigned c) { return __fmul_rn(target[head + c], own[c]); });
  if (threadIdx.x % 32 == 0) sources[at] = of_source, targets[at] = of_target;
}

// starts: [N + 1], first places of nodes that receive.  from: [P], nodes that give.  coefficients: [P, H], with their sign set where they are dropped. A warp takes a
// head of a node that receives.
extern "C" __global__ void coefficients(Attention of, const unsigned* starts, const unsigned* from, const float* giving, const float* receiving,
                                        const float* vector, const float* edge_weight, const float* attributes, const Mask* mask,
                                        const Graph* graphs, const unsigned* graph_of, float* coefficients) {
  u64 at = (blockIdx.x * (u64)blockDim.x + threadIdx.x) / 32;
  if (at >= (u64)of.nodes * of.heads) return;
  unsigned node = (unsigned)(at / of.heads), head = (unsigned)(at % of.heads), U = of.score_units;
  Scores scores = {giving, receiving, vector, edge_weight, attributes};
  Dealt dealt = {starts[node], starts[node + 1], lanes_for(U)};
  float most = -INFINITY;
  for (u64 place = dealt.first(), base = dealt.start; base < dealt.end; place += dealt.groups(), base += dealt.groups()) {
    unsigned j = place < dealt.end ? from[place] : NO_EDGE;
    float score = sum_by_lanes(dealt.lanes, U, j != NO_EDGE, [=](unsigned u) {
      return __fmul_rn(scores.weight(head * U + u), leaky(of, scores.joined(of, node, j, place, head * U + u)));
    });
    if (j == NO_EDGE) score = -INFINITY;
    most = score > most ? score : most;
    if (place < dealt.end && dealt.writes()) coefficients[place * of.heads + head] = score;
  }
  for (int half = 16; half > 0; half /= 2) {
    float other = __shfl_xor_sync(ALL_LANES, most, half);
    most = other > most ? other : most;
  }
  float sum = 0.0f;
  for (u64 place = dealt.first(); place < dealt.end && dealt.writes(); place += dealt.groups()) {
    float& own = coefficients[place * of.heads + head];
    own = expf(__fsub_rn(own, most));
    sum = __fadd_rn(sum, own);
  }
  sum = sum_of_lanes(sum);
  Graph graph = graphs[graph_of[node]];
  for (u64 place = dealt.first(); place < dealt.end && dealt.writes(); place += dealt.groups()) {
    float& own = coefficients[place * of.heads + head];
    float coefficient = __fdiv_rn(own, sum);
    bool drops = mask && is_dropped(*mask, graph.index, head, (unsigned)(place - graph.place));
    own = drops ? -coefficient : coefficient;
  }
}

// values: [N, H · C].  start: the bias [D], or with `adds` what y holds.  y: [N, D]. A thread takes an element.
extern "C" __global__ void gather_heads(Attention of, const unsigned* starts, const unsigned* from, const float* coefficients, const Mask* mask,
                                        const float* values, const float* bias, unsigned adds, unsigned activation, float* y) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x, width = output_width(of), projected = (u64)of.heads * of.units;
  if (k >= of.nodes * width) return;
  unsigned node = (unsigned)(k / width), column = (unsigned)(k % width);
  unsigned first = of.averaged ? 0 : column / of.units, end = of.averaged ? of.heads : first + 1, unit = column % of.units;
  float sum = adds ? y[k] : bias[column], share = share_of(of);
  for (unsigned head = first; head < end; head++) {
    float of_head = 0.0f;
    for (u64 place = starts[node]; place < starts[node + 1]; place++) {
      unsigned j = from[place];
      if (j == NO_EDGE) continue;
      float coefficient = coefficients[place * of.heads + head];
      float kept = __fmul_rn(coefficient, factor_of(mask, coefficient));
      of_head = __fadd_rn(of_head, __fmul_rn(kept, values[j * projected + head * of.units + unit]));
    }
    sum = __fadd_rn(sum, __fmul_rn(share, of_head));
  }
  if (activation == ELU && sum < 0.0f) sum = __fsub_rn(expf(sum), 1.0f);
  if (activation == RELU && sum < 0.0f) sum = 0.0f;
  y[k] = sum;
}
