//! Batches of windows of series, for unit tests.

use super::{BatchStorage, BatchView, WindowOffsets};
use crate::model::SampleShape;

/// Series of every timeframe, the windows of samples in them, and targets of 0.
pub(crate) struct SeriesBatch<'a> {
    shape: &'a SampleShape,
    series: &'a [Vec<f32>],
    offsets: WindowOffsets,
    targets: Vec<f32>,
}

impl<'a> SeriesBatch<'a> {
    /// Samples whose windows end at these rows of the series, a list a timeframe.
    pub(crate) fn new(shape: &'a SampleShape, series: &'a [Vec<f32>], ends: Vec<Vec<usize>>) -> Self {
        let starts = ends
            .iter()
            .zip(&shape.timeframes)
            .map(|(ends, timeframe)| ends.iter().map(|end| end + 1 - timeframe.steps));
        let starts = starts.map(Iterator::collect).collect();
        let targets = vec![0.0; ends[0].len() * shape.outputs];
        SeriesBatch { shape, series, offsets: WindowOffsets { starts, ends }, targets }
    }

    pub(crate) fn view(&self) -> BatchView<'_> {
        let series = self.series.iter().map(Vec::as_slice).collect();
        BatchView::new(self.shape, series, &self.offsets, BatchStorage::Series, &self.targets)
    }
}
