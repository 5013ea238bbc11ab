//! The CUDA device on a fake driver.
#![cfg(target_os = "linux")]

mod captures;
mod gpu_check;
mod intake;
mod kernels;
mod memory;
mod select;
mod source;
mod streams;

#[path = "../source_suite/mod.rs"]
mod source_suite;
#[path = "../../examples/gpu_check/watch.rs"]
mod watch;
