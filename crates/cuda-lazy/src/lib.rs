#![doc = include_str!("../README.md")]
#![allow(unsafe_code, reason = "the driver is a library of C")]

pub mod cublaslt;
mod description;
mod driver;
mod forward;

pub use description::{Description, describe};
pub use driver::{DriverAbsent, driver};
pub use forward::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN, last_code};
