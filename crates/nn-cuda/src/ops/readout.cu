// What is read out of graphs, and back. Source of readout.ptx; launched by readout.rs; ../graph/readout.rs has the definition.
#include "graphs.cuh"

#define MEAN 1
#define SUM 2
#define MAX 3

// graphs: [G + 1].  nodes: [N, W].  read: [G, W].  arguments: [G, W], the nodes that maxima are from. A thread takes a unit of a graph.
extern "C" __global__ void read_graphs(unsigned kind, const Graph* graphs, const float* nodes, float* read, unsigned* arguments, u64 len, unsigned width) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  unsigned first = graphs[k / width].node, end = graphs[k / width + 1].node, most_of = first;
  float value = nodes[(u64)first * width + k % width];
  for (unsigned node = first + 1; node < end; node++) {
    float next = nodes[(u64)node * width + k % width];
    if (kind != MAX) {
      value = __fadd_rn(value, next);
    } else if (next > value || (isnan(next) && !isnan(value))) {
      value = next;
      most_of = node;
    }
  }
  if (kind == MEAN) value = __fmul_rn(value, (float)(1.0 / (double)(end - first)));
  read[k] = value;
  if (kind == MAX) arguments[k] = most_of;
}

// d_read: [G, W].  d_nodes: [N, W]. A thread takes a unit of a node.
extern "C" __global__ void read_graphs_backward(unsigned kind, const Graph* graphs, const unsigned* graph_of, const float* d_read,
                                                const unsigned* arguments, float* d_nodes, u64 len, unsigned width) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  if (k >= len) return;
  unsigned node = (unsigned)(k / width), graph = graph_of[node];
  u64 at = (u64)graph * width + k % width;
  float share = kind == MEAN ? (float)(1.0 / (double)(graphs[graph + 1].node - graphs[graph].node)) : 1.0f;
  d_nodes[k] = kind == MAX && arguments[at] != node ? 0.0f : __fmul_rn(d_read[at], share);
}
