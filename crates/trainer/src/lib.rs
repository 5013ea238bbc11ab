#![doc = include_str!("../README.md")]

// Ranks as threads, which tests of several crates share, name it so.
#[cfg(test)]
extern crate self as megabatch_trainer;

mod config;
mod data;
mod error;
mod evaluate;
mod peers;
mod plan;
mod train;

pub use config::divergence::{Divergence, DivergenceState};
pub use config::early_stopping::{EarlyStopping, EarlyStoppingState};
pub use config::learning_rate::{LrSchedule, LrScheduleKind, OneCycle};
pub use config::optimizer::{OptimizerConfig, OptimizerKind};
pub use config::{Config, SampleWeighting, TargetScaling};
pub use data::device_chunks::LOCKED_BYTES_MAX;
pub use data::evenly_spaced::DrawnSamples;
pub use data::kept_windows::{can_keep_graphs, can_keep_windows, windows_in_chunk};
pub use data::prefetching::{BatchLists, BorrowedBatch, Chunking, LoadedBatches, PrefetchingSource, Waits};
pub use data::sample_ranges::SampleRanges;
pub use data::sample_weights::TrainingWeights;
pub use data::samples::{Batch, InMemory, Samples, StreamedSeries};
pub use data::series_in_memory::SeriesInMemory;
pub use data::split::{
    Purge, PurgeRule, SampleTimes, Split, SplitFractions, TimeColumn, TrainingWindow, WalkForward, count_overlaps,
    reckoning, split, split_in_pieces, walk_forward,
};
pub use data::target_scales::TargetScales;
pub use error::{Error, Result};
pub use evaluate::baseline::Baselines;
pub use evaluate::evaluation::{Evaluation, InstrumentEvaluation, TaskEvaluation};
pub use evaluate::metrics::{
    ClassErrors, GraphCorrelations, InformationCoefficients, Metrics, MetricsSum, QuantileErrors, t_statistic,
};
pub use evaluate::predictor::Predictor;
pub use evaluate::selection::{EvaluationProgress, Selection};
pub use evaluate::{StandardErrors, cross_sectional_deviation, uninformed_loss};
pub use megabatch_order::LastBatch;
pub use peers::exchange::{Difference, first_difference, first_failure, gather_texts};
pub use peers::relay::{Relay, bytes_in_a_row_a_step, bytes_sent_a_step};
pub use peers::{PeerLost, Peers};
pub use plan::{CarriedStates, Footprint, GpuFootprint, reduction_blocks};
pub use train::checkpoint::{Arithmetic, Best, ChangedSetting, Checkpoints, Resumed, RunSettings, State};
pub use train::distributed::IdleRanks;
pub use train::events::{
    EpochEvent, Event, Observer, RollbackEvent, ShortageEvent, StepEvent, ValidatingEvent, ValidationEvent,
};
pub use train::optimizer::Optimizer;
pub use train::{End, Outcome, Run, Trainer};
