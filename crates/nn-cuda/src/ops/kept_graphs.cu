// The lists of a batch's graphs, of those of all graphs. Source of kept_graphs.ptx; launched by kept_graphs.rs; graph_lists.rs has the layout.
#include "graphs.cuh"

// `Origin` of kept_graphs.rs: where a graph of the batch lies in the lists of all, and its first edge in `places` and `to` of the batch.
struct Origin {
  unsigned node, place, edge, to_edge;
};

// The last graph whose start is not behind `k`.
template <class Start>
__device__ inline unsigned graph_with(u64 k, unsigned graphs, Start start) {
  unsigned first = 0, end = graphs;
  while (end - first > 1) {
    unsigned middle = first + (end - first) / 2;
    if (start(middle) <= k) {
      first = middle;
    } else {
      end = middle;
    }
  }
  return first;
}

// all_*: lists of all graphs.  graphs: [G + 1].  origins: [G].  The rest: lists of the batch, of N nodes, P places and E edges. A thread takes the node, the place and the edge of its number.
extern "C" __global__ void take_graphs(const unsigned* all_starts, const unsigned* all_from, const unsigned* all_src_starts, const unsigned* all_places,
                                       const unsigned* all_to, const float* all_attributes, const Graph* graphs, const Origin* origins, unsigned* starts,
                                       unsigned* from, unsigned* src_starts, unsigned* places, unsigned* to, float* attributes, unsigned* graph_of,
                                       unsigned count, unsigned edges, unsigned width) {
  u64 k = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  Graph end = graphs[count];
  if (k < end.node) {
    unsigned g = graph_with(k, count, [&](unsigned graph) { return graphs[graph].node; });
    Graph graph = graphs[g];
    Origin origin = origins[g];
    u64 node = origin.node + (k - graph.node);
    starts[k] = all_starts[node] - origin.place + graph.place;
    src_starts[k] = all_src_starts[node] - origin.edge + origin.to_edge;
    graph_of[k] = g;
  }
  if (k == end.node) {
    starts[k] = end.place;
    src_starts[k] = edges;
  }
  if (k < end.place) {
    unsigned g = graph_with(k, count, [&](unsigned graph) { return graphs[graph].place; });
    Graph graph = graphs[g];
    Origin origin = origins[g];
    u64 place = origin.place + (k - graph.place);
    unsigned node = all_from[place];
    from[k] = node == NO_EDGE ? NO_EDGE : node - origin.node + graph.node;
    for (unsigned a = 0; a < width; a++) attributes[k * width + a] = all_attributes[place * width + a];
  }
  if (k < edges) {
    unsigned g = graph_with(k, count, [&](unsigned graph) { return origins[graph].to_edge; });
    Graph graph = graphs[g];
    Origin origin = origins[g];
    u64 edge = origin.edge + (k - origin.to_edge);
    places[k] = all_places[edge] - origin.place + graph.place;
    to[k] = all_to[edge] - origin.node + graph.node;
  }
}
