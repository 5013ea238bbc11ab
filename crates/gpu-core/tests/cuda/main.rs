//! The CUDA device on a fake driver.

mod kernels;
mod memory;
mod select;
mod source;
mod streams;
