#![doc = include_str!("../README.md")]

mod csr;
pub mod cuda;
mod error;
mod index;
mod sort;
pub mod tensor;

pub use csr::{Compressed, Csc, Csr};
pub use error::{Error, Result};
pub use index::Index;
