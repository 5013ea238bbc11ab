//! Series that windows are slices of.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::model::{SampleShape, Timeframe};

/// The series of one timeframe and the windows in it.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// The bars, `[bars, F]`, row-major.
    pub values: &'a [f32],
    /// The last bar of each sample's window, `[N]`; the window is that bar and the T - 1 before it.
    pub ends: &'a [i64],
    /// The bars at which segments begin, ascending from 0; none for a single segment. Nothing is
    /// carried from one segment to another: they are as independent recordings, and no window
    /// reaches over an end.
    pub segment_starts: &'a [i64],
}

/// Bars of one timeframe without their values.
#[derive(Clone, Copy, Debug)]
pub struct SeriesSpan<'a> {
    /// Number of bars.
    pub bars: usize,
    /// As [`Series::segment_starts`].
    pub segment_starts: &'a [i64],
}

/// Last bar of the window of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowEnd {
    /// Index of the sample, for errors.
    pub sample: usize,
    /// Row of the bar.
    pub end: i64,
}

impl SeriesSpan<'_> {
    /// The first bar of the segment that the bar at `row` lies in.
    pub fn segment_start(&self, row: usize) -> usize {
        let after = self.segment_starts.partition_point(|&start| start <= row as i64);
        after.checked_sub(1).map_or(0, |segment| self.segment_starts[segment] as usize)
    }

    /// Row of the first bar of a window of `timeframe`.
    ///
    /// # Errors
    /// [`Error::WindowOutOfRange`] when the window is not inside the series,
    /// [`Error::WindowAcrossSegments`] when it is not inside one segment.
    pub fn window_start(&self, timeframe: &Timeframe, window: WindowEnd) -> Result<usize> {
        let (WindowEnd { sample, end }, bars) = (window, self.bars);
        let (name, steps) = (|| timeframe.name.clone(), timeframe.steps);
        let inside = usize::try_from(end).ok().filter(|&end| end < bars);
        let start = inside.and_then(|end| (end + 1).checked_sub(steps)).ok_or_else(|| Error::WindowOutOfRange {
            sample,
            timeframe: name(),
            end,
            steps,
            bars,
        })?;
        let segment_start = self.segment_start(start + steps - 1);
        if start < segment_start {
            return Err(Error::WindowAcrossSegments { sample, timeframe: name(), end, steps, segment_start });
        }
        Ok(start)
    }
}

impl Series<'_> {
    /// The first bar of the segment that the bar at `row` lies in.
    pub fn segment_start(&self, row: usize) -> usize {
        SeriesSpan { bars: 0, segment_starts: self.segment_starts }.segment_start(row)
    }

    fn check_segments(&self, timeframe: &Timeframe) -> Result<()> {
        let bars = self.values.len() / timeframe.features;
        let refused = |segment: usize, expected| {
            let (timeframe, start) = (timeframe.name.clone(), self.segment_starts[segment]);
            Err(Error::SegmentStart { timeframe, segment, start, expected })
        };
        if self.segment_starts.first().is_some_and(|&first| first != 0) {
            return refused(0, "the first one begins at bar 0");
        }
        if let Some(segment) = self.segment_starts.windows(2).position(|pair| pair[0] >= pair[1]) {
            return refused(segment + 1, "each begins after the one before it");
        }
        match self.segment_starts.last() {
            Some(&last) if last as usize >= bars => {
                refused(self.segment_starts.len() - 1, "each begins at a bar that exists")
            }
            _ => Ok(()),
        }
    }
}

/// Bars of series, in memory or read from where they are, for states that are computed along
/// segments. Several threads read at once.
pub trait SegmentBars: Sync {
    /// Failure of reading.
    type Error: Send;

    /// The first bar of the segment that the bar at `row` of timeframe `k` lies in.
    fn segment_start(&self, k: usize, row: usize) -> usize;

    /// The bars `rows` of timeframe `k`, `[rows, F]`: in place, or read into `buffer`, which is as
    /// long.
    ///
    /// # Errors
    /// Bars that cannot be read.
    fn bars<'a>(&'a self, k: usize, rows: Range<usize>, buffer: &'a mut [f32]) -> Result<&'a [f32], Self::Error>;
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
    /// True if there is a series of each timeframe of `shape`, with segments in order.
    ///
    /// # Errors
    /// [`Error::SamplesShape`] and [`Error::SegmentStart`] where there is not.
    pub fn check(&self, shape: &SampleShape) -> Result<()> {
        if self.timeframes.len() != shape.timeframes.len() {
            let found = format!("{} series", self.timeframes.len());
            return Err(Error::SamplesShape { model: shape.to_string(), samples: found });
        }
        self.timeframes
            .iter()
            .zip(&shape.timeframes)
            .try_for_each(|(series, timeframe)| series.check_segments(timeframe))
    }

    /// End of a sample's window in timeframe `k`.
    ///
    /// # Errors
    /// [`Error::SampleOutOfRange`] for a sample without an end.
    pub fn window_end(&self, k: usize, sample: usize) -> Result<WindowEnd> {
        let ends = self.timeframes[k].ends;
        let &end = ends.get(sample).ok_or(Error::SampleOutOfRange { sample, len: ends.len() })?;
        Ok(WindowEnd { sample, end })
    }

    /// Row of the first bar of a sample's window in timeframe `k`.
    ///
    /// # Errors
    /// [`Error::WindowOutOfRange`] when the window is not inside the series,
    /// [`Error::WindowAcrossSegments`] when it is not inside one segment,
    /// [`Error::SampleOutOfRange`] for a sample without an end.
    pub fn window_start(&self, shape: &SampleShape, k: usize, sample: usize) -> Result<usize> {
        let (timeframe, series) = (&shape.timeframes[k], &self.timeframes[k]);
        let window = self.window_end(k, sample)?;
        let span = SeriesSpan { bars: series.values.len() / timeframe.features, segment_starts: series.segment_starts };
        span.window_start(timeframe, window)
    }
}
