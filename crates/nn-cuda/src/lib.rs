#![doc = include_str!("../README.md")]

mod config;
mod device;
pub mod ops;
mod tuning;

pub use config::ComputeConfig;
pub use device::{
    Accelerator, Host, InferenceHandle, Trained, bucket_steps, check_encoder, round_windows, tensors, window_bytes,
};
pub use tuning::{Tuner, Tuning};
