//! The CPU engine: LSTM, pooling, fusion, head and their kernels by instruction set.

pub(crate) mod carried;
pub(crate) mod decoder;
pub(crate) mod fast;
pub(crate) mod form;
pub(crate) mod fusion;
pub(crate) mod head;
pub(crate) mod kernel;
pub(crate) mod norm;
pub(crate) mod pooling;
pub(crate) mod profile;
pub(crate) mod stateful_inference;
pub(crate) mod step;
