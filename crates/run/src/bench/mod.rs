//! Measurements of this machine: training, predictions, delivery of data, following bars, graphs.

mod follow;
mod graph;
mod load;
mod predict;
mod rings;
mod series;
mod train;

pub use follow::{FollowOptions, follow};
pub use graph::{GraphOptions, graph};
pub use load::{LoadOptions, load};
pub use megabatch_amp::Precision;
pub use predict::{PredictOptions, predict};
pub use rings::GraphSize;
pub use series::{ModelKind, Work};
pub use train::{TrainOptions, train};

/// Order of samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleOrder {
    /// The file's order.
    #[default]
    Consecutive,
    /// By chance.
    Shuffled,
}
