//! Bars of a series from whose states windows start, or whose states are outputs.

use std::ops::Range;

use megabatch_nn::batch::{SegmentBars, SeriesSpan, SeriesView, WindowEnd};
use megabatch_nn::model::SampleShape;

use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Samples, StreamedSeries};
use crate::error::{Error, Result};

/// Samples whose window ends are read at once.
const ENDS_AT_ONCE: usize = 1 << 16;

/// Samples of an evaluation whose states are held at once, if states begin with their segment.
pub(crate) const HELD_SAMPLES: usize = 1 << 17;

/// Number of samples in whole batches, about `held_samples`.
pub(crate) fn piece_of_batches(held_samples: usize, batch_size: usize) -> usize {
    (held_samples / batch_size.max(1)).max(1) * batch_size
}

/// Series that samples are slices of, in memory or in a file.
pub(crate) struct SlicedSeries<'a> {
    shape: &'a SampleShape,
    storage: BarStorage<'a>,
}

/// Bars in memory or in a file.
enum BarStorage<'a> {
    Memory(SeriesView<'a>),
    File(&'a dyn StreamedSeries),
}

impl<'a> SlicedSeries<'a> {
    /// The series of samples whose states are to be carried from bar to bar.
    ///
    /// # Errors
    /// [`Error::NeedsSeries`] for samples that are not slices of series; as [`SeriesView::check`].
    pub(crate) fn new(samples: &'a dyn Samples) -> Result<Self> {
        let shape = samples.shape();
        let storage = match (samples.series(), samples.streamed_series()) {
            (Some(series), _) => {
                series.check(shape)?;
                BarStorage::Memory(series)
            }
            (None, Some(series)) => BarStorage::File(series),
            (None, None) => {
                let expected = "false for samples that are stored as windows, which do not tell what bar came before";
                return Err(Error::NeedsSeries { setting: "carry_state", value: "true", expected });
            }
        };
        Ok(SlicedSeries { shape, storage })
    }

    /// The bars of timeframe `k`, without their values.
    pub(crate) fn span(&self, k: usize) -> SeriesSpan<'_> {
        match &self.storage {
            BarStorage::Memory(series) => SeriesSpan {
                bars: series.timeframes[k].values.len() / self.shape.timeframes[k].features,
                segment_starts: series.timeframes[k].segment_starts,
            },
            BarStorage::File(series) => SeriesSpan { bars: series.bars(k), segment_starts: series.segment_starts(k) },
        }
    }

    /// Calls `each` with the end of each sample's window in timeframe `k`.
    ///
    /// # Errors
    /// As [`SeriesView::window_end`]; [`Error::Gather`]; the first of `each`.
    pub(crate) fn each_end(
        &self,
        k: usize,
        indices: &SampleRanges,
        mut each: impl FnMut(WindowEnd) -> Result<()>,
    ) -> Result<()> {
        match &self.storage {
            BarStorage::Memory(series) => {
                for sample in indices.iter() {
                    each(series.window_end(k, sample)?)?;
                }
            }
            BarStorage::File(series) => {
                let mut ends = vec![0; ENDS_AT_ONCE.min(indices.len())];
                for part in indices.chunks(ENDS_AT_ONCE) {
                    let part: Vec<usize> = part.iter().collect();
                    let (ends, count) = (&mut ends[..part.len()], part.len());
                    let (first, last) = (part.iter().copied().min(), part.iter().copied().max());
                    let (first, last) = first.zip(last).expect("chunks are not empty");
                    let failed = |source| Error::Gather { first, last, count, source };
                    series.read_window_ends(k, &part, ends).map_err(failed)?;
                    for (&sample, &end) in part.iter().zip(&*ends) {
                        each(WindowEnd { sample, end })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with the row of the first bar of each sample's window in timeframe `k`.
    ///
    /// # Errors
    /// As [`SeriesView::window_start`]; [`Error::Gather`].
    fn each_start(&self, k: usize, indices: &SampleRanges, mut each: impl FnMut(usize)) -> Result<()> {
        let (span, timeframe) = (self.span(k), &self.shape.timeframes[k]);
        self.each_end(k, indices, |window| {
            each(span.window_start(timeframe, window)?);
            Ok(())
        })
    }

    /// The bars whose states are carried to windows of `indices`, by timeframe, ascending.
    ///
    /// # Errors
    /// As [`SeriesView::window_start`]; [`Error::Gather`].
    pub(crate) fn carried_rows(&self, indices: &SampleRanges) -> Result<Vec<Vec<usize>>> {
        self.rows(indices, |k, start| (start > self.segment_start(k, start)).then(|| start - 1))
    }

    /// The rows of the last bars of the windows of `indices`, by timeframe, ascending.
    ///
    /// # Errors
    /// As [`SlicedSeries::carried_rows`].
    pub(crate) fn distinct_ends(&self, indices: &SampleRanges) -> Result<Vec<Vec<usize>>> {
        self.rows(indices, |k, start| Some(start + self.shape.timeframes[k].steps - 1))
    }

    /// The distinct rows that `row` maps the first bars of windows to, by timeframe, ascending.
    fn rows(&self, indices: &SampleRanges, row: impl Fn(usize, usize) -> Option<usize>) -> Result<Vec<Vec<usize>>> {
        let timeframe_rows = |k: usize| {
            let mut rows = Vec::new();
            self.each_start(k, indices, |start| rows.extend(row(k, start)))?;
            rows.sort_unstable();
            rows.dedup();
            Ok(rows)
        };
        (0..self.shape.timeframes.len()).map(timeframe_rows).collect()
    }
}

impl SegmentBars for SlicedSeries<'_> {
    type Error = Error;

    fn segment_start(&self, k: usize, row: usize) -> usize {
        self.span(k).segment_start(row)
    }

    fn bars<'b>(&'b self, k: usize, rows: Range<usize>, buffer: &'b mut [f32]) -> Result<&'b [f32]> {
        match &self.storage {
            BarStorage::Memory(series) => {
                let width = self.shape.timeframes[k].features;
                Ok(&series.timeframes[k].values[rows.start * width..rows.end * width])
            }
            BarStorage::File(series) => {
                let timeframe = &self.shape.timeframes[k].name;
                let read = series.read_bars(k, std::slice::from_ref(&rows), buffer);
                read.map_err(|source| Error::Bars { timeframe: timeframe.clone(), rows, source })?;
                Ok(buffer)
            }
        }
    }
}
