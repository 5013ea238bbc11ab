//! The CUDA device on a fake driver.
#![cfg(target_os = "linux")]

mod gpu_check;
mod kernels;
mod memory;
mod ops;
mod select;
mod source;
mod streams;
