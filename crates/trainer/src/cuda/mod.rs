//! The CUDA engine: layers on a GPU, their operations and kernels, and the choice among kernels.

pub(crate) mod device;
pub mod ops;
pub(crate) mod tuning;
