#![doc = include_str!("../README.md")]

mod arithmetic;
mod carried;
mod compute;
#[cfg(feature = "conformance")]
#[path = "tests/conformance.rs"]
pub mod conformance;
mod decoder;
mod flush;
mod fusion;
pub mod graph_attention;
mod kernel;
mod linear;
pub mod matmul;
mod norm;
mod pooling;
mod profile;
mod readout;
mod schedule;
mod shard;
mod stateful_inference;
mod step;
mod streaming_predictor;
pub mod team;

pub use carried::Carried;
pub use compute::{Capacity, CheckpointPolicy, Compute, Purpose, SHARD_SAMPLES};
pub use profile::{LayerTimes, PassTimes, PoolingTimes, Profile};
pub use shard::{FinalGradients, FinalSink, instructions};
pub use stateful_inference::{StatefulInference, StreamedLens, read_rows};
pub use step::{BatchTimes, BlockSinks, BlockSums, Changes, Engine, Totals};
pub use streaming_predictor::StreamingPredictor;
