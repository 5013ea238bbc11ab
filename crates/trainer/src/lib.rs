#![doc = include_str!("../README.md")]

mod batch;
mod cpu;
mod cuda;
mod data;
mod error;
mod evaluate;
mod graph;
mod loss;
mod model;
mod plan;
mod reference;
mod train;

pub use batch::dense::LossOn;
pub use batch::series::{Series, SeriesInMemory, SeriesView};
pub use batch::view::BatchView;
pub use cpu::form::Form;
pub use cpu::fusion::Fusion;
pub use cpu::pooling::Pooling;
pub use cpu::profile::{LayerTimes, PassTimes, PoolingTimes, Profile};
pub use cpu::step::Compute;
pub use cuda::ops;
pub use cuda::tuning::{Tuner, Tuning};
pub use data::prefetching::{BatchLists, BorrowedBatch, Chunking, LoadedBatches, PrefetchingSource, Waits};
pub use data::samples::{Batch, InMemory, Samples};
pub use data::split::{Purge, Split, SplitFractions, TrainingWindow, WalkForward, reckoning, split, walk_forward};
pub use error::{Error, Result};
pub use evaluate::baseline::Baselines;
pub use evaluate::metrics::{
    ClassErrors, GraphCorrelations, InformationCoefficients, Metrics, MetricsSum, QuantileErrors, t_statistic,
};
pub use evaluate::predict::{Predictor, Selection};
pub use evaluate::streaming_predictor::StreamingPredictor;
pub use evaluate::{Evaluation, InstrumentEvaluation, TaskEvaluation, cross_sectional_deviation, uninformed_loss};
pub use graph::{
    AttentionKind, AttentionMemory, AttentionPass, GraphActivation, GraphAttention, GraphConfig, GraphDropout,
    GraphOutput, GraphTargets, GraphView, Graphs, LabelSpan, NodeGradients, Nodes, PackedAttention, Passes, Readout,
};
pub use loss::{Ascending, Classes, Group, Loss, TargetNeeds, Task, TaskLoss, Tasks};
pub use megabatch_order::LastBatch;
pub use model::dropout::{Dropout, Mask};
pub use model::scalar::Scalar;
pub use model::tensor::{Layout, TensorSet};
pub use model::weights::{load_weights, save_weights};
pub use model::{Encoder, Model, ModelConfig, SampleShape, Timeframe};
pub use plan::footprint::{CarriedStates, Footprint, GpuFootprint, PlannedTensor, StepPhase};
pub use reference::lstm::InputGradients;
pub use reference::pass::Pass;
pub use train::checkpoint::{Arithmetic, Best, ChangedSetting, Checkpoints, Resumed, RunSettings, State};
pub use train::clip::{clip_by_norm, global_norm};
pub use train::config::Config;
pub use train::divergence::{Divergence, DivergenceState};
pub use train::early_stopping::{EarlyStopping, EarlyStoppingState};
pub use train::events::{EpochEvent, Event, Observer, RollbackEvent, ShortageEvent, StepEvent, ValidationEvent};
pub use train::file::write_atomically;
pub use train::learning_rate::{LrSchedule, LrScheduleKind, OneCycle};
pub use train::optimizer::{Moments, Optimizer, OptimizerConfig, OptimizerKind};
pub use train::{End, Outcome, Run, Trainer};
