//! Batches as the engines read them: views of windows, series, runs of dense training.

mod dense;
mod series;
mod view;

pub use dense::{Grain, LossOn, Runs};
pub use series::{Series, SeriesView};
pub use view::{BatchStorage, BatchView, WindowOffsets};
