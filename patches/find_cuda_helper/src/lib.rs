//! Stands in for the crate of this name on crates.io, which `cust` and `cust_raw` call from their build scripts.
//!
//! The original looks for a CUDA toolkit, panics where there is none, and links libcuda. Here megabatch-cuda-lazy supplies the
//! driver's symbols, so that neither is wanted.

#![forbid(unsafe_code)]

/// Asks the linker for nothing.
pub fn include_cuda() {}
