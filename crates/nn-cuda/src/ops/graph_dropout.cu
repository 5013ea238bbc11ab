// Numbers of graphs' nodes of which some are dropped. Source of graph_dropout.ptx; launched by graph_dropout.rs; ../graph/attention/dropout.rs has the definition.
#include "graphs.cuh"

// What the number `k` of rows of `width` of all nodes is multiplied by.
__device__ inline float factor_at(const Mask* mask, const Graph* graphs, const unsigned* graph_of, u64 k, unsigned width) {
  unsigned node = (unsigned)(k / width);
  Graph graph = graphs[graph_of[node]];
  return is_dropped(*mask, graph.index, node - graph.node, (unsigned)(k % width)) ? 0.0f : mask->scale;
}

// x, to: [N, width].
extern "C" __global__ void drop_nodes(const Mask* mask, const Graph* graphs, const unsigned* graph_of, const float* x, float* to, u64 len, unsigned width) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k < len) to[k] = __fmul_rn(x[k], factor_at(mask, graphs, graph_of, k, width));
}

// d: [N, width], multiplied by the same factors.
extern "C" __global__ void drop_node_gradients(const Mask* mask, const Graph* graphs, const unsigned* graph_of, float* d, u64 len, unsigned width) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k < len) d[k] = __fmul_rn(d[k], factor_at(mask, graphs, graph_of, k, width));
}
