//! Segments of one instrument and the number of their bars in each timeframe, counted from open
//! times alone.

use std::ops::Range;

use crate::bar_source::{BarSource, partition_point, pieces_of};
use crate::bars::Bars;
use crate::clean::gaps::Gap;
use crate::error::message::BarShortage;
use crate::error::{Error, Result};
use crate::series::binning::straddles;
use crate::series::spec::{SeriesSpec, Window};
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;

/// The segments of one instrument.
#[derive(Debug)]
pub(crate) struct SegmentIndex {
    pub(crate) segments: Vec<CountedSegment>,
}

/// One segment, counted.
#[derive(Clone, Debug)]
pub(crate) struct CountedSegment {
    /// Places of its base bars.
    pub(crate) bars: Range<usize>,
    pub(crate) open_time: i64,
    pub(crate) close_time: i64,
    /// Bars of each timeframe, those of the warm-up included.
    pub(crate) bins: Vec<usize>,
    /// The first base bar by whose close all windows are full.
    first_full: Option<usize>,
    /// Place after the last base bar at which a sample may stand.
    samples_end: usize,
}

/// A bar that cannot be put into the bins of a timeframe.
pub(crate) struct BadBin {
    /// Place of the timeframe.
    pub(crate) timeframe: usize,
    pub(crate) error: Error,
}

impl SegmentIndex {
    /// Counts the bars of `source`. The inner error is the first of the shortest timeframe that has
    /// one.
    pub(crate) fn count(source: &dyn BarSource, spec: &SeriesSpec, windows: &[Window]) -> Result<Result<Self, BadBin>> {
        let mut counter = SegmentCounter::new(source.timeframe(), spec, windows);
        let mut segments = Vec::new();
        let mut bad: Option<BadBin> = None;
        let mut last_close: Option<i64> = None;
        let mut times = Vec::new();
        let base_ns = source.timeframe().duration_ns();
        for piece in pieces_of(0..source.len()) {
            source.read_open_times(piece.clone(), &mut times)?;
            for (index, &open_time) in piece.zip(&times) {
                let ends = last_close.is_some_and(|from| spec.holes.forbids(Gap { from, to: open_time }));
                if ends {
                    segments.push(counter.finish(index, last_close.unwrap_or(open_time)));
                }
                if ends || last_close.is_none() {
                    counter.begin(index, open_time);
                }
                if let Err(found) = counter.push(index, open_time)
                    && bad.as_ref().is_none_or(|bad| found.timeframe < bad.timeframe)
                {
                    bad = Some(found);
                }
                last_close = Some(open_time + base_ns);
            }
        }
        if let Some(close_time) = last_close {
            segments.push(counter.finish(source.len(), close_time));
        }
        Ok(bad.map_or(Ok(SegmentIndex { segments }), Err))
    }

    /// Lets samples stand at the bars of the horizon that ends each segment, up to the first whose
    /// label has not ended there, if a column of `source` tells the ends of labels. Bars that are
    /// added later may decide the labels from that one on.
    ///
    /// # Errors
    /// As reading `source`.
    pub(crate) fn add_labelled(&mut self, source: &dyn BarSource, spec: &SeriesSpec) -> Result<()> {
        if spec.target_kind.label_end().is_none() {
            return Ok(());
        }
        let first = spec.first_target_column();
        let end = first + spec.target_kind.columns().len();
        let mut bars = Bars::with_capacity(source.timeframe(), 0);
        for segment in &mut self.segments {
            let close_time = segment.close_time;
            for piece in pieces_of(segment.samples_end..segment.bars.end) {
                let count = piece.len();
                source.read(piece, &mut bars)?;
                let has_targets = |bar: usize| bars.columns[first..end].iter().all(|column| !column[bar].is_nan());
                let has_ended = |bar: usize| bars.columns[end][bar] <= close_time as f64;
                let labelled = (0..count).take_while(|&bar| has_ended(bar) && has_targets(bar)).count();
                segment.samples_end += labelled;
                if labelled < count {
                    break;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn bars(&self) -> usize {
        self.segments.last().map_or(0, |segment| segment.bars.end)
    }
}

impl CountedSegment {
    /// The base bars at which samples may stand. A window that is full stays full, so that they are
    /// one run.
    pub(crate) fn sample_range(&self) -> Range<usize> {
        let end = self.samples_end;
        self.first_full.map_or(end, |first| first.min(end))..end
    }

    pub(crate) fn first_full(&self) -> Option<usize> {
        self.first_full
    }

    /// Rows of timeframe `timeframe`: its bars after the warm-up.
    pub(crate) fn rows(&self, timeframe: usize, look_back: usize) -> usize {
        self.bins[timeframe].saturating_sub(look_back)
    }
}

/// Number of bars of each timeframe that have closed with the last of the base bars `bars`, which
/// begin a segment.
pub(crate) fn closed_with(
    source: &dyn BarSource,
    bars: Range<usize>,
    spec: &SeriesSpec,
    windows: &[Window],
) -> Result<Vec<usize>> {
    let base_ns = source.timeframe().duration_ns();
    let bins = |window: &Window| TimeBins::new(window.timeframe, source.timeframe(), &spec.bins, usize::MAX);
    let mut bins: Vec<TimeBins> = windows.iter().map(bins).collect();
    let mut times = Vec::new();
    for piece in pieces_of(bars) {
        source.read_open_times(piece, &mut times)?;
        for &open_time in &times {
            for bins in &mut bins {
                bins.close_before(open_time);
                bins.push(open_time, open_time + base_ns)?;
            }
        }
    }
    Ok(bins.iter().map(|bins| bins.count).collect())
}

/// Number of base bars of `source` that close before `time`.
///
/// # Errors
/// As reading the open times of `source`.
pub fn bars_before(source: &dyn BarSource, time: i64) -> Result<usize> {
    let base_ns = source.timeframe().duration_ns();
    partition_point(source, |open_time| open_time + base_ns < time)
}

/// Error of an instrument whose longest segment is too short for one sample.
pub(crate) fn too_short(
    name: &str,
    source: &dyn BarSource,
    index: &SegmentIndex,
    spec: &SeriesSpec,
    windows: &[Window],
) -> Result<Error> {
    let longest = index.segments.iter().max_by_key(|segment| segment.bars.len());
    let range = longest.map_or(0..0, |segment| segment.bars.clone());
    let with_label = longest.map_or(0..0, |segment| segment.bars.start..segment.samples_end);
    let closed = closed_with(source, with_label, spec, windows)?;
    let shortage = |(window, bars): (&Window, usize)| BarShortage {
        timeframe: window.timeframe,
        bars,
        needed: spec.look_back() + window.seq_len,
    };
    Ok(Error::TooShort {
        instrument: name.to_owned(),
        horizon: spec.horizon,
        segments: index.segments.len(),
        longest: range.len(),
        shortages: windows.iter().zip(closed).map(shortage).collect(),
    })
}

/// Counter of one segment at a time.
struct SegmentCounter {
    base_ns: i64,
    horizon: usize,
    start: usize,
    open_time: i64,
    bins: Vec<TimeBins>,
    first_full: Option<usize>,
}

impl SegmentCounter {
    fn new(base: Timeframe, spec: &SeriesSpec, windows: &[Window]) -> Self {
        let needed = |window: &Window| spec.look_back() + window.seq_len;
        let bins = |window: &Window| TimeBins::new(window.timeframe, base, &spec.bins, needed(window));
        SegmentCounter {
            base_ns: base.duration_ns(),
            horizon: spec.horizon,
            start: 0,
            open_time: 0,
            bins: windows.iter().map(bins).collect(),
            first_full: None,
        }
    }

    fn begin(&mut self, index: usize, open_time: i64) {
        (self.start, self.open_time, self.first_full) = (index, open_time, None);
        self.bins.iter_mut().for_each(TimeBins::restart);
    }

    fn push(&mut self, index: usize, open_time: i64) -> Result<(), BadBin> {
        let close_time = open_time + self.base_ns;
        let mut bad = Ok(());
        for (timeframe, bins) in self.bins.iter_mut().enumerate() {
            bins.close_before(open_time);
            if let Err(error) = bins.push(open_time, close_time)
                && bad.is_ok()
            {
                bad = Err(BadBin { timeframe, error });
            }
        }
        if self.first_full.is_none()
            && self.bins.iter().all(|bins| bins.full_at.is_some_and(|full_at| full_at <= close_time))
        {
            self.first_full = Some(index);
        }
        bad
    }

    fn finish(&mut self, end: usize, close_time: i64) -> CountedSegment {
        CountedSegment {
            bars: self.start..end,
            open_time: self.open_time,
            close_time,
            bins: self.bins.iter().map(|bins| bins.count).collect(),
            first_full: self.first_full,
            samples_end: end.saturating_sub(self.horizon).max(self.start),
        }
    }
}

/// Bins of one timeframe as base bars come, without their prices: see
/// [`Binning`](crate::series::binning::Binning).
struct TimeBins {
    timeframe: Timeframe,
    base: Timeframe,
    clock: BinClock,
    /// The bin that has not closed yet.
    open: Option<Range<i64>>,
    /// Bins that have closed.
    count: usize,
    /// Bins of the warm-up and one window.
    needed: usize,
    /// When the last of the needed bins closes, once it has opened.
    full_at: Option<i64>,
}

impl TimeBins {
    fn new(timeframe: Timeframe, base: Timeframe, clock: &BinClock, needed: usize) -> Self {
        TimeBins { timeframe, base, clock: clock.clone(), open: None, count: 0, needed, full_at: None }
    }

    fn restart(&mut self) {
        (self.open, self.count, self.full_at) = (None, 0, None);
    }

    fn close(&mut self) {
        self.open = None;
        self.count += 1;
    }

    /// Closes the bin that ends before a bar opens at `open_time`.
    fn close_before(&mut self, open_time: i64) {
        if self.open.as_ref().is_some_and(|bin| open_time >= bin.end) {
            self.close();
        }
    }

    fn push(&mut self, open_time: i64, close_time: i64) -> Result<()> {
        let bin = match self.open.take() {
            Some(open) => open,
            None => {
                let bin = match self.timeframe == self.base {
                    true => open_time..close_time,
                    false => self.clock.bin(self.timeframe, open_time),
                };
                if self.count + 1 == self.needed {
                    self.full_at = Some(bin.end);
                }
                bin
            }
        };
        let end = bin.end;
        self.open = Some(bin);
        if close_time > end {
            return Err(straddles(self.timeframe, self.base, &self.clock, open_time));
        }
        if close_time == end {
            self.close();
        }
        Ok(())
    }
}
