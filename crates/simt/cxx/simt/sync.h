// Barriers of the block and fences.
#pragma once

namespace simt {

// What the threads of a block learn of each other's predicates at a barrier.
struct Votes {
  unsigned nonzero, threads;
};

Votes sync_block(const char* what, bool predicate, Site site);
void fence();

}  // namespace simt

inline void __syncthreads(simt::Site site = simt::Site::here()) { simt::sync_block("__syncthreads", false, site); }

inline int __syncthreads_count(int predicate, simt::Site site = simt::Site::here()) {
  return (int)simt::sync_block("__syncthreads_count", predicate, site).nonzero;
}

inline int __syncthreads_or(int predicate, simt::Site site = simt::Site::here()) {
  return simt::sync_block("__syncthreads_or", predicate, site).nonzero != 0;
}

inline int __syncthreads_and(int predicate, simt::Site site = simt::Site::here()) {
  simt::Votes votes = simt::sync_block("__syncthreads_and", predicate, site);
  return votes.nonzero == votes.threads;
}

// Threads of a launch take turns on one host thread, and every store is seen by all at once: a fence does nothing but tell what it orders.
inline void __threadfence_block() { simt::fence(); }
inline void __threadfence() { simt::fence(); }
inline void __threadfence_system() { simt::fence(); }
