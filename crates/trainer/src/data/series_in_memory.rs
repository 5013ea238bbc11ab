use std::error::Error as StdError;

use megabatch_nn::batch::{Series, SeriesView};
use megabatch_nn::model::{SampleShape, Timeframe};

use crate::data::samples::{Batch, Samples};
use crate::error::{Error, Result};

/// Samples held in memory as series.
#[derive(Clone, Debug)]
pub struct SeriesInMemory {
    shape: SampleShape,
    series: Vec<(Vec<f32>, Vec<i64>)>,
    /// A list a timeframe.
    segment_starts: Vec<Vec<i64>>,
    targets: Vec<f32>,
}

impl SeriesInMemory {
    /// Samples from bars `[bars, F]` and the last bars `[N]` of the windows, a timeframe each, and
    /// targets `[N, K]`.
    ///
    /// # Errors
    /// [`Error::SamplesShape`] when the lengths do not fit the shape and one N;
    /// [`WindowOutOfRange`](megabatch_nn::Error::WindowOutOfRange) for a window that is not inside
    /// its series.
    pub fn new(shape: SampleShape, series: Vec<(Vec<f32>, Vec<i64>)>, targets: Vec<f32>) -> Result<Self> {
        let samples = targets.len() / shape.outputs.max(1);
        let timeframe_fits = |((values, ends), timeframe): (&(Vec<f32>, Vec<i64>), &Timeframe)| {
            ends.len() == samples && values.len().is_multiple_of(timeframe.features.max(1))
        };
        let fits = targets.len() == samples * shape.outputs
            && series.len() == shape.timeframes.len()
            && series.iter().zip(&shape.timeframes).all(timeframe_fits);
        if !fits {
            let lengths: Vec<_> = series.iter().map(|(values, ends)| (values.len(), ends.len())).collect();
            let samples = format!("series of {lengths:?} values and ends and {} target values", targets.len());
            return Err(Error::SamplesShape { model: shape.to_string(), samples });
        }
        let segment_starts = vec![Vec::new(); series.len()];
        SeriesInMemory { shape, series, segment_starts, targets }.checked()
    }

    /// The same samples with segments that begin at the bars `segment_starts` of each timeframe;
    /// see [`Series::segment_starts`].
    ///
    /// # Errors
    /// From `megabatch_nn`: [`SamplesShape`](megabatch_nn::Error::SamplesShape) for other
    /// timeframes, [`SegmentStart`](megabatch_nn::Error::SegmentStart) for segments out of order
    /// and [`WindowAcrossSegments`](megabatch_nn::Error::WindowAcrossSegments) for a window that is
    /// not inside one.
    #[cfg(any(test, feature = "conformance"))]
    pub fn with_segments(self, segment_starts: Vec<Vec<i64>>) -> Result<Self> {
        SeriesInMemory { segment_starts, ..self }.checked()
    }

    fn checked(self) -> Result<Self> {
        let view = self.view();
        view.check(&self.shape)?;
        for k in 0..view.timeframes.len() {
            for sample in 0..self.len() {
                view.window_start(&self.shape, k, sample)?;
            }
        }
        Ok(self)
    }

    fn view(&self) -> SeriesView<'_> {
        let timeframes = self.series.iter().zip(&self.segment_starts);
        let timeframes = timeframes.map(|((values, ends), segment_starts)| Series { values, ends, segment_starts });
        SeriesView { timeframes: timeframes.collect(), targets: &self.targets }
    }
}

impl Samples for SeriesInMemory {
    fn shape(&self) -> &SampleShape {
        &self.shape
    }

    fn len(&self) -> usize {
        self.targets.len() / self.shape.outputs
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        let (features, targets) = batch.slices_mut();
        for (k, windows) in features.into_iter().enumerate() {
            let (len, width) = (self.shape.window_len(k), self.shape.timeframes[k].features);
            for (&sample, window) in samples.iter().zip(windows.chunks_exact_mut(len)) {
                let start = self.view().window_start(&self.shape, k, sample)?;
                window.copy_from_slice(&self.series[k].0[start * width..][..len]);
            }
        }
        for (&sample, row) in samples.iter().zip(targets.chunks_exact_mut(self.shape.outputs)) {
            row.copy_from_slice(&self.targets[sample * self.shape.outputs..][..self.shape.outputs]);
        }
        Ok(())
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        Some(self.view())
    }
}
