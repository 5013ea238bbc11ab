//! One timeframe of one instrument, computed as its base bars come.

use std::sync::Arc;

use super::own_cursor::OwnCursor;
use crate::bar_source::BarSource;
use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::series::binning::Binning;
use crate::series::feature_chunks::FeatureChunks;
use crate::series::spec::{SeriesSpec, Window};
use crate::time::timeframe::Timeframe;

/// One timeframe of a segment, a piece of base bars at a time.
#[derive(Clone, Debug)]
pub(crate) struct TrackCursor {
    window: Window,
    look_back: usize,
    is_base: bool,
    binning: Binning,
    /// Bars in the place of those that the bins make.
    own: Option<OwnCursor>,
    /// The base bar that goes into a bin.
    bar: Bar,
    features: FeatureChunks,
    /// Bars of the timeframe that closed with the last piece.
    bins: Bars,
    /// For each base bar of the last piece, the bars of the timeframe that have closed with it,
    /// counted from the beginning of the segment.
    closed: Vec<usize>,
    /// Open times of the last bars, which windows and look-backs of the next piece reach.
    opens: Vec<i64>,
    /// Bars of the segment before the first of `opens`.
    opens_first: usize,
}

/// Depth of one sample in one timeframe.
pub(crate) struct SampleReach {
    /// Rows of the segment that have closed.
    pub(crate) rows: usize,
    /// When the earliest bar opens that its window or a look-back reads.
    pub(crate) open_time: i64,
}

impl TrackCursor {
    pub(crate) fn new(window: Window, base: Timeframe, spec: &SeriesSpec, pip_size: f64) -> Result<Self> {
        let binning = Binning::new(window.timeframe, base, &spec.bins, spec.column_rules())?;
        Ok(TrackCursor {
            window,
            look_back: spec.look_back(),
            is_base: window.timeframe == base,
            bar: Bar::default(),
            features: FeatureChunks::new(binning.no_bars(), spec, pip_size),
            bins: binning.no_bars(),
            binning,
            own: None,
            closed: Vec::new(),
            opens: Vec::new(),
            opens_first: 0,
        })
    }

    /// The same, with bars in the place of those that base bars make.
    pub(crate) fn with_own_bars(self, own: Option<Arc<dyn BarSource + Send>>) -> Self {
        TrackCursor { own: own.map(OwnCursor::new), ..self }
    }

    /// True if bars stand in the place of those that base bars make. They may reach before the
    /// first base bar of a bin.
    pub(crate) fn has_own_bars(&self) -> bool {
        self.own.is_some()
    }

    /// Forgets all bars: a segment begins.
    pub(crate) fn restart(&mut self) {
        self.binning.restart();
        self.features.restart();
        self.closed.clear();
        self.opens.clear();
        self.opens_first = 0;
    }

    /// Takes the first `count` of `bars`, the next base bars of the segment. Adds the rows that
    /// have closed with them to `values`, and their close times to `close_time`.
    pub(crate) fn push(
        &mut self,
        bars: &Bars,
        count: usize,
        values: &mut Vec<f32>,
        close_time: &mut Vec<i64>,
    ) -> Result<()> {
        self.close_bins(bars, count)?;
        let without_row = self.features.push(&self.bins, values);
        close_time.extend((without_row..self.bins.len()).map(|bar| self.bins.close_time(bar)));
        Ok(())
    }

    /// Takes `bars`, the next base bars of the segment, without their rows, and forgets the bars
    /// that no later sample reaches.
    pub(crate) fn skip(&mut self, bars: &Bars) -> Result<()> {
        self.close_bins(bars, bars.len())?;
        self.features.skip(&self.bins);
        self.forget();
        Ok(())
    }

    /// Collects the bars of the timeframe that close with the first `count` of `bars`.
    fn close_bins(&mut self, bars: &Bars, count: usize) -> Result<()> {
        let before = self.opens_first + self.opens.len();
        self.bins.truncate(0);
        self.closed.clear();
        if self.is_base {
            BarSource::read(bars, 0..count, &mut self.bins)?;
            self.closed.extend(before + 1..=before + count);
        } else {
            for index in 0..count {
                bars.copy_into(index, &mut self.bar);
                self.binning.push(&self.bar, |bin| self.bins.push(bin))?;
                self.closed.push(before + self.bins.len());
            }
        }
        if let Some(own) = &mut self.own {
            own.replace_in(&mut self.bins)?;
        }
        self.opens.extend_from_slice(&self.bins.open_time);
        Ok(())
    }

    /// Rows of the segment so far.
    pub(crate) fn rows(&self) -> usize {
        (self.opens_first + self.opens.len()).saturating_sub(self.look_back)
    }

    /// True if the window is full at base bar `index` of the last piece.
    pub(crate) fn is_full(&self, index: usize) -> bool {
        self.closed[index] >= self.look_back + self.window.seq_len
    }

    /// Reach of the sample at base bar `index` of the last piece, whose window is full.
    pub(crate) fn reach(&self, index: usize) -> SampleReach {
        let first = self.closed[index] - self.look_back - self.window.seq_len;
        SampleReach { rows: self.closed[index] - self.look_back, open_time: self.opens[first - self.opens_first] }
    }

    /// When the first bar of the window closes at base bar `index` of the last piece, where it is
    /// full.
    pub(crate) fn first_close(&self, index: usize) -> i64 {
        let first = self.closed[index] - self.window.seq_len;
        self.bins.close_after(self.opens[first - self.opens_first])
    }

    /// Drops the bars that no sample of the next pieces reaches.
    pub(crate) fn forget(&mut self) {
        let reach = self.look_back + self.window.seq_len;
        let dropped = self.opens.len().saturating_sub(reach);
        self.opens.drain(..dropped);
        self.opens_first += dropped;
    }
}
