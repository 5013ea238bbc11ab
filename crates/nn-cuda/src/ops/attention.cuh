// Attention over the edges of graphs; ../graph/attention has the definition, attention.rs the names. Forward and backward share this.
#pragma once

#include "graphs.cuh"

// `AttentionSizes` of attention.rs: N, H, C, the numbers that score an edge for a head, A, whether heads are averaged, LeakyReLU's slope below zero.
struct Attention {
  unsigned nodes, heads, units, score_units, attributes, averaged;
  float slope;
};

// The column of the output that a unit of a head goes to, the width of a row, and the share of the output that a head makes.
__device__ inline unsigned column_of(Attention of, unsigned head, unsigned unit) { return of.averaged ? unit : head * of.units + unit; }
__device__ inline unsigned output_width(Attention of) { return of.averaged ? of.units : of.heads * of.units; }
__device__ inline float share_of(Attention of) { return of.averaged ? __fdiv_rn(1.0f, (float)of.heads) : 1.0f; }

__device__ inline float leaky(Attention of, float x) { return x > 0.0f ? x : __fmul_rn(of.slope, x); }
__device__ inline float leaky_slope(Attention of, float x) { return x > 0.0f ? 1.0f : of.slope; }

// What a coefficient is multiplied by: it has its sign set where it is dropped.
__device__ inline float factor_of(const Mask* mask, float coefficient) {
  return __float_as_uint(coefficient) >> 31 ? 0.0f : mask ? mask->scale : 1.0f;
}

// What edges are scored from.  giving, receiving: [N, H · U].  vector: [H · U], or none for ones.  edge_weight: [H · U, A].  attributes: [P, A].
struct Scores {
  const float *giving, *receiving, *vector, *edge_weight, *attributes;

  // What LeakyReLU is applied to in column k, for the edge at `place` from node j to node i.
  __device__ float joined(Attention of, unsigned i, unsigned j, u64 place, unsigned k) const {
    u64 width = (u64)of.heads * of.score_units;
    float z = __fadd_rn(giving[j * width + k], receiving[i * width + k]);
    for (unsigned a = 0; a < of.attributes; a++) {
      z = __fadd_rn(z, __fmul_rn(edge_weight[(u64)k * of.attributes + a], attributes[place * of.attributes + a]));
    }
    return z;
  }

  __device__ float weight(unsigned k) const { return vector ? vector[k] : 1.0f; }
};

// Lanes of a warp that add one edge's sum of `len` terms: a power of two.
__device__ inline unsigned lanes_for(unsigned len) {
  unsigned lanes = 1;
  while (lanes < len && lanes < 32) lanes *= 2;
  return lanes;
}

// The sum over 0 … len - 1 by `lanes` lanes, each of which gets it; zero where the edge is none. The whole warp comes here.
template <class Term>
__device__ inline float sum_by_lanes(unsigned lanes, unsigned len, bool is_edge, Term term) {
  float sum = 0.0f;
  if (is_edge) {
    for (unsigned k = threadIdx.x % lanes; k < len; k += lanes) sum = __fadd_rn(sum, term(k));
  }
  for (unsigned half = lanes / 2; half > 0; half /= 2) sum = __fadd_rn(sum, __shfl_xor_sync(ALL_LANES, sum, (int)half));
  return sum;
}

// The edges that a node receives, dealt to the groups of `lanes` lanes of a warp; the first lane of a group writes what is of its edges, and reads it again.
struct Dealt {
  u64 start, end;
  unsigned lanes;

  __device__ unsigned groups() const { return 32 / lanes; }
  __device__ u64 first() const { return start + threadIdx.x % 32 / lanes; }
  __device__ bool writes() const { return threadIdx.x % lanes == 0; }
};
