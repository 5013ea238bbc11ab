#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adapters;
pub mod bench;
mod command_report;
pub mod compare;
pub mod config;
pub mod convert;
pub mod dataset;
mod distributed;
pub mod doctor;
mod error;
pub mod evaluate;
pub mod export;
mod gpu;
pub mod graph;
mod host;
pub mod import;
pub mod ingest;
pub mod inspect;
pub mod leak;
pub mod memory;
pub mod monitor;
mod output;
pub mod plan;
pub mod predict;
mod protobuf;
mod report;
mod run_folder;
mod setup;
pub mod synth;
pub mod text;
pub mod ticks;
pub mod train;
mod trained;
mod unit_names;
mod usage;

pub use command_report::CommandReport;
pub use error::{Context, Error, Kind, Result};
pub use host::{Cancel, Host, Milestone, Observer, Progress, Silent, Work};
pub use megabatch_atomic_file::remove_unfinished;
pub use setup::cache::folder as cache_folder;
pub use trained::{ChangedData, CheckpointChoice, Instruments, Weights};
