#![doc = include_str!("../README.md")]

mod batch;
pub mod build;
mod builder;
mod cache;
mod error;
pub mod export;
mod file;
mod graph;
pub mod import;
mod schema;

pub use batch::BlockDiagonal;
pub use builder::{Builder, Identity};
pub use cache::{BuildOptions, BuildProgress, Collected, Fetched, GraphCache, Stale, Watch, build_cached, unwatched};
pub use error::{CollectionChange, Error, Result};
pub use file::{
    FloatArray, FloatWidth, Floats, GraphFile, IndexWidth, PrivateGraph, PrivateGraphs, StoredGraph, Widths,
};
pub use graph::{Graph, Targets};
pub use schema::{Schema, TargetLevel};
