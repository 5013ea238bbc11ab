#![doc = include_str!("../README.md")]

mod async_download;
mod buffer;
mod captures;
pub mod convert;
mod cublaslt;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "cuda_absent.rs"]
mod cuda;
mod device;
mod double_buffered_upload;
mod error;
mod free_memory;
mod host;
mod host_words;
pub mod isa;
pub mod kernel;
pub mod leak;
mod matrix_product;
pub mod pool;
pub mod recording;
pub mod snapshot;
pub mod source;
mod staging;
#[cfg(feature = "cuda")]
mod stream_block;
mod tables;
mod timing;

pub use async_download::AsyncDownload;
pub use buffer::Buffer;
pub use captures::Captures;
pub use cublaslt::CublasLt;
pub use device::{Cpu, Cuda, Device, Planning, Scope, Usage};
pub use double_buffered_upload::DoubleBufferedUpload;
pub use error::{Error, Result};
pub use host::reserved_bytes;
pub use host_words::HostWords;
pub use matrix_product::{FactorType, MatrixAddresses, MatrixProduct};
pub use staging::Staging;
#[cfg(feature = "cuda")]
pub use stream_block::StreamBlock;
pub use tables::{FilledTables, VacantTables};
