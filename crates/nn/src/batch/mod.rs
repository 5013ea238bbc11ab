//! Batches as the engines read them: views of windows, series, distinct windows, runs of dense
//! training, bars whose states are carried.

mod carried_bars;
mod dense;
mod series;
#[cfg(test)]
#[path = "tests/series_batch.rs"]
mod series_batch;
mod view;
mod windows;

pub use carried_bars::{CarriedBars, NotedState};
pub use dense::{Grain, LossOn, Runs};
pub use series::{SegmentBars, Series, SeriesSpan, SeriesView, WindowEnd};
#[cfg(test)]
pub(crate) use series_batch::SeriesBatch;
pub use view::{BatchStorage, BatchView, WindowOffsets};
pub use windows::Windows;
