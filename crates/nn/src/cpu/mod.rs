//! The CPU engine: LSTM, pooling, fusion, graph attention, head, and their kernels by instruction
//! set.

mod carried;
mod compute;
mod decoder;
mod flush;
pub(crate) mod fusion;
pub mod graph_attention;
mod head;
pub(crate) mod kernel;
pub mod matmul;
mod norm;
pub(crate) mod pooling;
mod profile;
mod readout;
mod schedule;
pub(crate) mod shard;
mod stateful_inference;
mod step;
mod streaming_predictor;
pub mod team;

pub use carried::{Carried, carried_len};
pub use compute::{Capacity, CheckpointPolicy, Compute, Purpose, SHARD_SAMPLES};
pub use profile::{LayerTimes, PassTimes, PoolingTimes, Profile};
pub use shard::{FinalGradients, FinalSink, instructions};
pub use stateful_inference::{StatefulInference, read_rows, streamed_len};
pub use step::{BatchTimes, BlockSinks, BlockSums, Changes, Engine, Totals};
pub use streaming_predictor::StreamingPredictor;
