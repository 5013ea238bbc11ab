//! Series that are given out as if they were read from a file.

use std::error::Error as StdError;
use std::ops::Range;

use megabatch_nn::model::SampleShape;
use megabatch_trainer::{Batch, Samples, SeriesInMemory, StreamedSeries, Waits};

type SourceError = Box<dyn StdError + Send + Sync>;

/// The series of what it has in memory.
pub(crate) struct InFile(pub(crate) SeriesInMemory);

impl Samples for InFile {
    fn shape(&self) -> &SampleShape {
        self.0.shape()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn gather(&self, _: &[usize], _: &mut Batch) -> Result<(), SourceError> {
        panic!("series are not gathered");
    }

    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        Some(self)
    }

    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), SourceError> {
        self.0.read_targets(samples, targets)
    }
}

impl StreamedSeries for InFile {
    fn bars(&self, k: usize) -> usize {
        self.0.series().unwrap().timeframes[k].values.len() / self.shape().timeframes[k].features
    }

    fn segment_starts(&self, k: usize) -> &[i64] {
        self.0.series().unwrap().timeframes[k].segment_starts
    }

    fn read_window_ends(&self, k: usize, samples: &[usize], ends: &mut [i64]) -> Result<(), SourceError> {
        let all = self.0.series().unwrap().timeframes[k].ends;
        ends.iter_mut().zip(samples).for_each(|(end, &sample)| *end = all[sample]);
        Ok(())
    }

    fn read_bars(&self, k: usize, rows: &[Range<usize>], bars: &mut [f32]) -> Result<(), SourceError> {
        let (all, width) = (self.0.series().unwrap().timeframes[k].values, self.shape().timeframes[k].features);
        let read: Vec<f32> = rows.iter().flat_map(|rows| &all[rows.start * width..rows.end * width]).copied().collect();
        bars.copy_from_slice(&read);
        Ok(())
    }

    fn read_times(&self) -> Waits {
        Waits::default()
    }
}
