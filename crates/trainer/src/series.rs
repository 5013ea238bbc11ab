#![forbid(unsafe_code)]

//! Samples whose windows are slices of series.

use std::error::Error as StdError;

use crate::error::{Error, Result};
use crate::model::SampleShape;
use crate::samples::{Batch, Samples};

/// The series of one timeframe and the windows in it.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// The bars, `[bars, F]`, row-major.
    pub values: &'a [f32],
    /// The last bar of each sample's window, `[N]`; the window is that bar and the T - 1 before it.
    pub ends: &'a [i64],
}

/// Samples as slices of series: what lets training share what windows have in common.
#[derive(Clone, Debug)]
pub struct SeriesView<'a> {
    /// One series a timeframe, in the order of the samples' shape.
    pub timeframes: Vec<Series<'a>>,
    /// `[N, K]`, row-major.
    pub targets: &'a [f32],
}

impl SeriesView<'_> {
    /// Row of the first bar of a sample's window in timeframe `k`.
    ///
    /// # Errors
    /// [`Error::WindowOutOfRange`] when the window is not inside the series, [`Error::SampleOutOfRange`] for a sample without an end.
    pub(crate) fn window_start(&self, shape: &SampleShape, k: usize, sample: usize) -> Result<usize> {
        let (timeframe, series) = (&shape.timeframes[k], &self.timeframes[k]);
        let bars = series.values.len() / timeframe.features;
        let &end = series.ends.get(sample).ok_or(Error::SampleOutOfRange { sample, len: series.ends.len() })?;
        let inside = usize::try_from(end).ok().filter(|&end| end < bars);
        inside.and_then(|end| (end + 1).checked_sub(timeframe.steps)).ok_or_else(|| Error::WindowOutOfRange {
            sample,
            timeframe: timeframe.name.clone(),
            end,
            steps: timeframe.steps,
            bars,
        })
    }
}

/// Samples held in memory as series.
#[derive(Clone, Debug)]
pub struct SeriesInMemory {
    shape: SampleShape,
    series: Vec<(Vec<f32>, Vec<i64>)>,
    targets: Vec<f32>,
}

impl SeriesInMemory {
    /// Samples from bars `[bars, F]` and the last bars `[N]` of the windows, a timeframe each, and targets `[N, K]`.
    ///
    /// # Errors
    /// [`Error::SamplesShape`] when the lengths do not fit the shape and one N; [`Error::WindowOutOfRange`] for a window that
    /// is not inside its series.
    pub fn new(shape: SampleShape, series: Vec<(Vec<f32>, Vec<i64>)>, targets: Vec<f32>) -> Result<Self> {
        let samples = targets.len() / shape.outputs.max(1);
        let of_timeframe = |((values, ends), timeframe): (&(Vec<f32>, Vec<i64>), &crate::Timeframe)| {
            ends.len() == samples && values.len().is_multiple_of(timeframe.features.max(1))
        };
        let fits = targets.len() == samples * shape.outputs
            && series.len() == shape.timeframes.len()
            && series.iter().zip(&shape.timeframes).all(of_timeframe);
        if !fits {
            let lengths: Vec<_> = series.iter().map(|(values, ends)| (values.len(), ends.len())).collect();
            let samples = format!("series of {lengths:?} values and ends and {} target values", targets.len());
            return Err(Error::SamplesShape { model: shape.to_string(), samples });
        }
        let samples_in_memory = SeriesInMemory { shape, series, targets };
        let view = samples_in_memory.view();
        for k in 0..view.timeframes.len() {
            for sample in 0..samples {
                view.window_start(&samples_in_memory.shape, k, sample)?;
            }
        }
        Ok(samples_in_memory)
    }

    fn view(&self) -> SeriesView<'_> {
        let timeframes = self.series.iter().map(|(values, ends)| Series { values, ends });
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
