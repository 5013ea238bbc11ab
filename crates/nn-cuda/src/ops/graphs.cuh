// Graphs of a batch one behind the other, as graph_lists.rs lays them out.
#pragma once

#include "mask.cuh"

#define NO_EDGE 0xffffffffu  // the node that a place is from which no edge has

// `GraphPlace` of nn/src/graph: its number in the source, its first node, and the first place of its edges. One more behind the last has the ends.
struct Graph {
  u64 index;
  unsigned node, place;
};
