//! Batches as the engines read them: views of windows, series in memory, runs of dense training.

pub(crate) mod dense;
pub(crate) mod series;
pub(crate) mod view;
