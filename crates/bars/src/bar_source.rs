//! Bars that may lie in a file: read piece by piece, by place.

use std::ops::Range;
use std::sync::Arc;

use crate::bars::Bars;
use crate::context_reach::ContextReach;
use crate::error::Result;
use crate::time::timeframe::Timeframe;

/// Bars of one timeframe in order of time, read piece by piece.
pub trait BarSource: Sync {
    /// Time that each bar covers.
    fn timeframe(&self) -> Timeframe;

    /// Number of bars.
    fn len(&self) -> usize;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of further columns.
    fn columns(&self) -> usize;

    /// Replaces the content of `out` by the bars of `range`.
    ///
    /// # Errors
    /// [`Error::Spool`](crate::Error::Spool) where they cannot be read.
    ///
    /// # Panics
    /// When there are no such bars.
    fn read(&self, range: Range<usize>, out: &mut Bars) -> Result<()>;

    /// Replaces the content of `out` by the open times of the bars of `range`.
    ///
    /// # Errors
    /// As [`BarSource::read`].
    ///
    /// # Panics
    /// When there are no such bars.
    fn read_open_times(&self, range: Range<usize>, out: &mut Vec<i64>) -> Result<()>;

    /// Bars of a longer timeframe that stand in the place of those which these bars make: each
    /// opens with one of them. Most sources have none.
    fn own_bars(&self, _timeframe: Timeframe) -> Option<Arc<dyn BarSource + Send>> {
        None
    }

    /// Reach of other instruments, each of which has features among the columns of these bars in a
    /// timeframe. Most sources have none.
    fn context_reach(&self, _timeframe: Timeframe) -> &[ContextReach] {
        &[]
    }
}

impl BarSource for Bars {
    fn timeframe(&self) -> Timeframe {
        self.timeframe
    }

    fn len(&self) -> usize {
        Bars::len(self)
    }

    fn columns(&self) -> usize {
        self.columns.len()
    }

    fn read(&self, range: Range<usize>, out: &mut Bars) -> Result<()> {
        out.truncate(0);
        out.timeframe = self.timeframe;
        out.bins = self.bins.clone();
        out.open_time.extend_from_slice(&self.open_time[range.clone()]);
        out.open.extend_from_slice(&self.open[range.clone()]);
        out.high.extend_from_slice(&self.high[range.clone()]);
        out.low.extend_from_slice(&self.low[range.clone()]);
        out.close.extend_from_slice(&self.close[range.clone()]);
        out.volume.extend_from_slice(&self.volume[range.clone()]);
        if !self.spread.is_empty() {
            out.spread.extend_from_slice(&self.spread[range.clone()]);
        }
        out.columns.resize_with(self.columns.len(), Vec::new);
        for (column, own) in out.columns.iter_mut().zip(&self.columns) {
            column.extend_from_slice(&own[range.clone()]);
        }
        Ok(())
    }

    fn read_open_times(&self, range: Range<usize>, out: &mut Vec<i64>) -> Result<()> {
        out.clear();
        out.extend_from_slice(&self.open_time[range]);
        Ok(())
    }
}

impl Bars {
    /// A copy of some of the bars.
    pub(crate) fn part(&self, part: Range<usize>) -> Bars {
        let mut copy = Bars::with_capacity(self.timeframe, part.len());
        BarSource::read(self, part, &mut copy).expect("bars in memory are read");
        copy
    }
}

/// Number of the first bars whose open times meet a condition that holds up to one bar and for none
/// after it.
///
/// # Errors
/// As [`BarSource::read`].
pub fn partition_point(bars: &dyn BarSource, holds: impl Fn(i64) -> bool) -> Result<usize> {
    let (mut low, mut high) = (0, bars.len());
    let mut time = Vec::with_capacity(1);
    while low < high {
        let middle = low + (high - low) / 2;
        bars.read_open_times(middle..middle + 1, &mut time)?;
        match holds(time[0]) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

/// Bars of a source that are read at once: small enough for many threads, large enough that calls
/// cost nothing.
pub(crate) const PIECE_BARS: usize = 1 << 14;

/// A range of places in pieces of at most [`PIECE_BARS`].
pub(crate) fn pieces_of(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    pieces_of_len(range, PIECE_BARS)
}

/// A range of places in pieces of at most `len`.
pub(crate) fn pieces_of_len(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(len).map(move |first| first..end.min(first + len))
}
