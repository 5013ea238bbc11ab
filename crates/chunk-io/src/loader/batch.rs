use std::ops::Range;

use super::chunk::SampleChunk;
use super::rows::{BatchRows, SeriesWindows};
use crate::shape::Shape;
use crate::source::{SeriesSource, Source};

/// A batch in memory, borrowed from a [`Loader`](super::Loader).
#[derive(Clone, Debug)]
pub struct LoadedBatch<'a> {
    shape: &'a Shape,
    samples: &'a [usize],
    place: BatchPlace<'a>,
}

#[derive(Clone, Debug)]
enum BatchPlace<'a> {
    Chunk { chunk: &'a SampleChunk, places: Range<usize> },
    Source(&'a Source),
}

impl<'a> LoadedBatch<'a> {
    /// The batch at `places` among the samples of a chunk.
    pub(super) fn from_chunk(shape: &'a Shape, chunk: &'a SampleChunk, places: Range<usize>) -> Self {
        LoadedBatch { shape, samples: &chunk.samples()[places.clone()], place: BatchPlace::Chunk { chunk, places } }
    }

    /// The batch of `samples`, which `source` holds in memory.
    pub(super) fn from_source(source: &'a Source, samples: &'a [usize]) -> Self {
        LoadedBatch { shape: source.shape(), samples, place: BatchPlace::Source(source) }
    }

    /// Number of samples, B.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Dimensions of the file's samples.
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The samples' indices in the file, `[B]`.
    pub fn samples(&self) -> &'a [usize] {
        self.samples
    }

    /// The windows of the k-th timeframe, `[B, T, F]`: a row is a window `[T, F]`.
    ///
    /// # Panics
    /// If there are not so many timeframes.
    pub fn features(&self, k: usize) -> BatchRows<'a> {
        assert!(k < self.shape.timeframes.len(), "timeframe {k} of {}", self.shape.timeframes.len());
        match self.series(k) {
            Some(windows) => BatchRows::windows(windows),
            None => self.table(k, self.shape.timeframes[k].window_len()),
        }
    }

    /// The targets, `[B, K]`.
    pub fn targets(&self) -> BatchRows<'a> {
        let width = self.shape.horizons;
        match &self.place {
            BatchPlace::Source(source) if let Some(series) = source.series().and_then(SeriesSource::resident) => {
                BatchRows::among(series.targets(), self.samples, width)
            }
            _ => self.table(self.shape.timeframes.len(), width),
        }
    }

    /// The bars of the k-th timeframe and the ends of the batch's windows in them; `None` for
    /// samples of a windows file.
    ///
    /// # Panics
    /// If there are not so many timeframes.
    pub fn series(&self, k: usize) -> Option<SeriesWindows<'a>> {
        let BatchPlace::Source(source) = self.place else { return None };
        let series = source.series()?;
        let timeframe = &series.file().timeframes()[k];
        Some(SeriesWindows {
            values: series.resident()?.values(k),
            steps: timeframe.steps(),
            features: timeframe.feature_names().len(),
            sample_ends: timeframe.sample_ends(),
            samples: self.samples,
        })
    }

    /// The batch's rows of the `i`-th table of a windows file, in which a row has `width` values.
    fn table(&self, i: usize, width: usize) -> BatchRows<'a> {
        match &self.place {
            BatchPlace::Chunk { chunk, places } => {
                BatchRows::consecutive(chunk.rows(i, width, places), places.len(), width)
            }
            BatchPlace::Source(source) => {
                let all = source.resident_table(i).expect("what is not read ahead is held");
                BatchRows::among(all, self.samples, width)
            }
        }
    }
}
