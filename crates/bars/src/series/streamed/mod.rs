//! Series of instruments whose bars lie in files, in bounded memory: a piece of one instrument at a
//! time. The result is that of all bars at once, bit for bit.
//!
//! ```text
//! 1. count    segments, and bars of each timeframe in them       open times of each instrument
//! 2. place    common grid of samples, end of the training span   times of all, merged
//! 3. fit      features before that end; scalers by selection     bars of each instrument
//! 4. write    features once more, scaled; samples and targets    bars of each instrument
//! ```

mod columns;
pub(crate) mod cursor;
mod emit;
mod fit;
mod own_cursor;
pub(crate) mod segment_index;
mod times;

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::Path;

use rayon::prelude::*;

pub use self::emit::{SeriesPiece, TimeframePiece};
pub(crate) use self::fit::fit_until;
pub use self::fit::{SeriesHeader, TimeframeHeader};
pub use self::segment_index::bars_before;
use self::segment_index::{SegmentIndex, closed_with, too_short};
use self::times::{TimeStream, TimesFile};
pub(crate) use self::times::{TimesCursor, TimesWriter, merge};
use crate::bar_source::{BarSource, partition_point, pieces_of};
use crate::error::excluded::{Excluded, refused};
use crate::error::{Error, Result};
use crate::series::Segment;
use crate::series::binning::Binning;
use crate::series::instrument::{Instrument, checked_base};
use crate::series::scale::Scaling;
use crate::series::spec::{SeriesSpec, Window, in_range};
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::display_utc;

/// One instrument whose bars are read piece by piece.
#[derive(Clone, Copy)]
pub struct StreamedInstrument<'a> {
    /// The name, such as `EURUSD`; none is given twice.
    pub name: &'a str,
    /// Its bars, of the same timeframe as those of the others.
    pub bars: &'a dyn BarSource,
    /// The size of a pip in units of its price.
    pub pip_size: f64,
    /// Close of the last bar that it had when its scaler was fitted, for a scaler of before. Bars
    /// that came since are not fitted on, wherever the training span ends.
    pub fitted_until: Option<i64>,
}

impl<'a> StreamedInstrument<'a> {
    /// Its name, timeframe and pip size.
    pub(crate) fn without_bars(&self) -> Instrument<'a> {
        Instrument { name: self.name, base: self.bars.timeframe(), pip_size: self.pip_size }
    }

    /// Number of bars that its scaler is fitted on, where the training span ends at `fit_end_time`.
    fn bars_to_fit(&self, fit_end_time: i64) -> Result<usize> {
        let own_end = self.fitted_until.map_or(i64::MAX, |close_time| close_time.saturating_add(1));
        bars_before(self.bars, fit_end_time.min(own_end))
    }
}

impl fmt::Debug for StreamedInstrument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedInstrument").field("name", &self.name).field("pip_size", &self.pip_size).finish()
    }
}

/// Gets the number of base bars that a pass has read, and may end the work.
pub type Observe<'a> = &'a (dyn Fn(usize) -> ControlFlow<()> + Sync);

/// Segments, samples and training span of a series, before a value of it is computed.
#[derive(Debug)]
pub struct SeriesPlan<'a> {
    instruments: Vec<StreamedInstrument<'a>>,
    spec: &'a SeriesSpec,
    base: Timeframe,
    windows: Vec<Window>,
    segment_indices: Vec<SegmentIndex>,
    grid: Option<TimesFile>,
    /// Number of samples of each segment of each instrument.
    samples: Vec<Vec<usize>>,
    instants: SampleInstants,
    fit_end_time: i64,
    /// Folder of temporary files.
    folder: &'a Path,
}

/// Times at which there are samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleInstants {
    /// Number of different ones.
    pub count: usize,
    /// The first.
    pub first: i64,
    /// The last.
    pub last: i64,
    /// Number of instants at which one instrument alone has a sample: an entry an instrument.
    pub alone: Vec<usize>,
}

/// Bars of one instrument in one timeframe, of which the first of each segment have no row: a
/// feature reads bars before its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarmUp {
    /// Name of the instrument.
    pub instrument: String,
    /// The timeframe.
    pub timeframe: Timeframe,
    /// Number of bars.
    pub bars: usize,
    /// Number of those without a row.
    pub without_row: usize,
    /// Number of segments.
    pub segments: usize,
}

impl WarmUp {
    /// Share of the bars that have no row.
    pub fn share(&self) -> f64 {
        self.without_row as f64 / self.bars.max(1) as f64
    }
}

impl<'a> SeriesPlan<'a> {
    /// Plans a series of several timeframes from the bars of one, for one instrument or several.
    /// Temporary files lie in `folder`.
    ///
    /// A sample stands at the close of a base bar that has a full window in every timeframe and a
    /// full horizon; with a stride s, at every s-th of a segment, or, for several instruments, at
    /// the bars of every s-th instant at which one of them has a bar. Windows and horizons are
    /// counted in bars that exist, across holes that the spec's [`GapPolicy`](crate::GapPolicy)
    /// allows. No sample reaches out of its segment. The bars of each timeframe before the longest
    /// warm-up of its features are excluded, and so are segments without a sample. A bar that the
    /// instrument has of its own ([`BarSource::own_bars`]) takes the place of the one that is made.
    ///
    /// Scalers are fitted for each instrument on its bars before one time that all share. That time
    /// is `fit_end_time` where it is given: bars that are added to a series then change no scaler.
    /// Otherwise it is the end of the first `train_fraction` of all samples, rounded down to whole
    /// samples, or of the instants at which there are samples, whichever is earlier. Samples of one
    /// time are never separated. A split by the same fraction, of samples or of instants, never
    /// ends its training part earlier.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a value out of range, or instruments that do not go together;
    /// [`Error::NotAMultiple`] and [`Error::Straddles`] for a timeframe that cannot be made of the
    /// bars; [`Error::TooShort`] for an instrument without a sample; [`Error::TooFewToFit`] for one
    /// with too few bars before the time up to which scalers are fitted; [`Error::Several`] for
    /// several such instruments, all of which it names; [`Error::Spool`] and
    /// [`Error::Interrupted`].
    pub fn new(
        instruments: &[StreamedInstrument<'a>],
        spec: &'a SeriesSpec,
        fit_end_time: Option<i64>,
        folder: &'a Path,
        observe: Observe<'_>,
    ) -> Result<Self> {
        let (plan, excluded) = SeriesPlan::from_usable(instruments, spec, fit_end_time, folder, observe)?;
        if excluded.is_empty() { Ok(plan) } else { Err(refused(instruments.len() - excluded.len(), excluded)) }
    }

    /// Plans as [`SeriesPlan::new`] does, but excludes and names the instruments that have no
    /// sample or too few bars to fit their scalers on.
    ///
    /// With fewer samples the training span may end at another time, so that excluding one
    /// instrument can exclude another.
    ///
    /// # Errors
    /// As [`SeriesPlan::new`], where no instrument is left.
    pub fn from_usable(
        instruments: &[StreamedInstrument<'a>],
        spec: &'a SeriesSpec,
        fit_end_time: Option<i64>,
        folder: &'a Path,
        observe: Observe<'_>,
    ) -> Result<(Self, Vec<Excluded>)> {
        let windows = spec.checked_windows()?;
        checked_base(&instruments.iter().map(StreamedInstrument::without_bars).collect::<Vec<_>>())?;
        let columns = spec.all_columns();
        for one in instruments {
            let found = format!("{} columns for {}", one.bars.columns(), one.name);
            let has_these = one.bars.columns() == columns;
            in_range("columns", &found, "bars with a column for each that is a feature or a target", has_these)?;
        }
        let segment_indices = segment_indices(instruments, spec, &windows, observe)?;
        let (mut usable, mut segment_indices, mut excluded) = (instruments.to_vec(), segment_indices, Vec::new());
        loop {
            let mut plan = SeriesPlan::without_samples(usable, spec, windows.clone(), segment_indices, folder);
            let lacking = plan.place(fit_end_time)?;
            if lacking.is_empty() {
                return Ok((plan, excluded));
            }
            let is_kept: Vec<bool> =
                plan.instruments.iter().map(|one| lacking.iter().all(|lacking| lacking.symbol != one.name)).collect();
            excluded.extend(lacking);
            usable = kept(plan.instruments, &is_kept);
            segment_indices = kept(plan.segment_indices, &is_kept);
            if usable.is_empty() {
                return Err(refused(0, excluded));
            }
        }
    }

    /// A plan whose samples are not placed yet.
    fn without_samples(
        instruments: Vec<StreamedInstrument<'a>>,
        spec: &'a SeriesSpec,
        windows: Vec<Window>,
        segment_indices: Vec<SegmentIndex>,
        folder: &'a Path,
    ) -> Self {
        SeriesPlan {
            base: instruments[0].bars.timeframe(),
            instruments,
            spec,
            windows,
            segment_indices,
            grid: None,
            samples: Vec::new(),
            instants: SampleInstants { count: 0, first: 0, last: 0, alone: Vec::new() },
            fit_end_time: 0,
            folder,
        }
    }

    /// Number of samples.
    pub fn samples(&self) -> usize {
        self.samples.iter().flatten().sum()
    }

    /// Number of base bars, those of segments without samples included.
    pub fn bars(&self) -> usize {
        self.segment_indices.iter().map(SegmentIndex::bars).sum()
    }

    /// Number of base bars that the scalers are fitted on.
    ///
    /// # Errors
    /// [`Error::Spool`].
    pub fn bars_to_fit(&self) -> Result<usize> {
        self.instruments.iter().map(|one| one.bars_to_fit(self.fit_end_time)).sum()
    }

    /// Bytes of the series as arrays: values, times, indices and targets.
    pub fn array_bytes(&self) -> usize {
        let width = self.spec.features.len();
        let rows: usize = (0..self.windows.len()).map(|timeframe| self.rows(timeframe)).sum();
        let sample_bytes = 3 * 8 + 4 + self.windows.len() * 8 + self.spec.targets() * 4;
        rows * (4 * width + 8) + self.samples() * sample_bytes
    }

    /// Bars without a row of each instrument, in the timeframe where they are the largest share.
    pub fn warm_ups(&self) -> Vec<WarmUp> {
        let look_back = self.spec.look_back();
        let longest = |(one, index): (&StreamedInstrument<'_>, &SegmentIndex)| {
            let in_timeframe = |(place, window): (usize, &Window)| {
                let bars: usize = index.segments.iter().map(|segment| segment.bins[place]).sum();
                let rows: usize = index.segments.iter().map(|segment| segment.rows(place, look_back)).sum();
                WarmUp {
                    instrument: one.name.to_owned(),
                    timeframe: window.timeframe,
                    bars,
                    without_row: bars - rows,
                    segments: index.segments.len(),
                }
            };
            let all = self.windows.iter().enumerate().map(in_timeframe);
            all.max_by(|one, other| one.share().total_cmp(&other.share()))
        };
        self.instruments.iter().zip(&self.segment_indices).filter_map(longest).collect()
    }

    /// True if there are fewer instruments than threads. The timeframes of one are then computed in
    /// parallel. Otherwise each thread has an instrument, and memory for one.
    fn is_spread(&self) -> bool {
        self.instruments.len() < rayon::current_num_threads()
    }

    fn rows(&self, timeframe: usize) -> usize {
        let look_back = self.spec.look_back();
        let instrument_rows = |index: &SegmentIndex, samples: &[usize]| -> usize {
            let segments = index.segments.iter().zip(samples).filter(|(_, samples)| **samples > 0);
            segments.map(|(segment, _)| segment.rows(timeframe, look_back)).sum()
        };
        self.segment_indices.iter().zip(&self.samples).map(|(index, samples)| instrument_rows(index, samples)).sum()
    }

    /// Places the samples and finds the end of the training span, or names the instruments that
    /// cannot be in the series.
    fn place(&mut self, fit_end_time: Option<i64>) -> Result<Vec<Excluded>> {
        self.grid = self.common_grid()?;
        self.samples = (0..self.instruments.len())
            .into_par_iter()
            .map(|place| self.samples_of(place))
            .collect::<Result<Vec<_>>>()?;
        let has_none = |place: &usize| self.samples[*place].iter().all(|&samples| samples == 0);
        let lacking: Vec<Excluded> = (0..self.instruments.len())
            .filter(has_none)
            .map(|place| {
                let (one, index) = (self.instruments[place], &self.segment_indices[place]);
                let reason = too_short(one.name, one.bars, index, self.spec, &self.windows)?;
                Ok(Excluded { symbol: one.name.to_owned(), reason })
            })
            .collect::<Result<_>>()?;
        if !lacking.is_empty() {
            return Ok(lacking);
        }
        self.end_training(fit_end_time)?;
        if self.spec.scaling == Scaling::None {
            return Ok(Vec::new());
        }
        let too_few = (0..self.instruments.len()).into_par_iter().map(|place| self.too_few_to_fit(place));
        Ok(too_few.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// Times of bars that hold samples, where several instruments have a stride: every stride-th of
    /// the times at which a bar of any opens, from the first after which the windows of one are
    /// full.
    fn common_grid(&self) -> Result<Option<TimesFile>> {
        if self.spec.stride == 1 || self.instruments.len() == 1 {
            return Ok(None);
        }
        let mut first: Option<i64> = None;
        let mut time = Vec::new();
        for (one, index) in self.instruments.iter().zip(&self.segment_indices) {
            for bar in index.segments.iter().filter_map(segment_index::CountedSegment::first_full) {
                one.bars.read_open_times(bar..bar + 1, &mut time)?;
                first = Some(first.map_or(time[0], |first| first.min(time[0])));
            }
        }
        let Some(first) = first else { return Ok(None) };
        let streams = self.instruments.iter().map(|one| open_times_from(one.bars, first));
        let mut grid = TimesWriter::create(self.folder)?;
        let (mut place, stride) = (0, self.spec.stride);
        merge(streams.collect::<Result<_>>()?, |time, _| {
            place += 1;
            if (place - 1) % stride == 0 { grid.push(time) } else { Ok(()) }
        })?;
        grid.finish().map(Some)
    }

    fn selector(&self, place: usize) -> SampleSelector<'_> {
        let grid = self.grid.as_ref().map(TimesCursor::new);
        SampleSelector { index: &self.segment_indices[place], stride: self.spec.stride, grid }
    }

    /// Number of samples of each segment of an instrument.
    fn samples_of(&self, place: usize) -> Result<Vec<usize>> {
        let (bars, index) = (self.instruments[place].bars, &self.segment_indices[place]);
        let mut selector = self.selector(place);
        let (mut times, mut chosen) = (Vec::new(), Vec::new());
        let count = |(segment, found): (usize, &segment_index::CountedSegment)| {
            let range = found.sample_range();
            if self.grid.is_none() {
                return Ok(range.len().div_ceil(self.spec.stride));
            }
            let mut count = 0;
            for piece in pieces_of(range) {
                bars.read_open_times(piece.clone(), &mut times)?;
                chosen.clear();
                selector.choose(segment, &piece, &times, &mut chosen)?;
                count += chosen.len();
            }
            Ok(count)
        };
        index.segments.iter().enumerate().map(count).collect()
    }

    /// Times of an instrument's samples, in order.
    fn sample_times(&self, place: usize) -> TimeStream<'_> {
        let (bars, index) = (self.instruments[place].bars, &self.segment_indices[place]);
        let base_ns = self.base.duration_ns();
        let mut selector = self.selector(place);
        let mut pieces = index
            .segments
            .iter()
            .enumerate()
            .flat_map(|(segment, found)| pieces_of(found.sample_range()).map(move |piece| (segment, piece)));
        let (mut times, mut chosen) = (Vec::new(), Vec::new());
        Box::new(move |out| {
            let before = out.len();
            while out.len() == before
                && let Some((segment, piece)) = pieces.next()
            {
                bars.read_open_times(piece.clone(), &mut times)?;
                chosen.clear();
                selector.choose(segment, &piece, &times, &mut chosen)?;
                out.extend(chosen.iter().map(|&index| times[index] + base_ns));
            }
            Ok(())
        })
    }

    /// Finds the instants of samples and, unless it is given, the end of the training span: one
    /// nanosecond after the last of the first `train_fraction` of samples or of instants, whichever
    /// ends earlier.
    fn end_training(&mut self, fit_end_time: Option<i64>) -> Result<()> {
        let samples = self.samples();
        let trained = |count: usize| ((count as f64 * self.spec.train_fraction) as usize).max(1);
        let mut alone = vec![0; self.instruments.len()];
        let mut instants = TimesWriter::create(self.folder)?;
        let (mut first, mut last, mut before) = (None, 0, 0);
        // The last sample before the first one after training; samples of one time are not
        // separated.
        let mut by_samples: Option<i64> = None;
        let streams = (0..self.instruments.len()).map(|place| self.sample_times(place)).collect();
        merge(streams, |time, group| {
            if let [(_, only)] = group {
                alone[*only as usize] += 1;
            }
            before += group.len();
            if by_samples.is_none() && before > trained(samples) {
                by_samples = Some(if first.is_some() { last } else { time });
            }
            first.get_or_insert(time);
            last = time;
            instants.push(time)
        })?;
        let instants = instants.finish()?;
        let by_instants = instants.at(trained(instants.len()) - 1)?;
        let found = by_samples.unwrap_or(last).min(by_instants) + 1;
        self.fit_end_time = fit_end_time.unwrap_or(found);
        let first = first.expect("every instrument has samples");
        self.instants = SampleInstants { count: instants.len(), first, last, alone };
        Ok(())
    }

    fn too_few_to_fit(&self, place: usize) -> Result<Option<Excluded>> {
        let (one, look_back) = (self.instruments[place], self.spec.look_back());
        let end = one.bars_to_fit(self.fit_end_time)?;
        let mut rows = vec![0; self.windows.len()];
        for segment in &self.segment_indices[place].segments {
            if segment.bars.end <= end {
                rows.iter_mut().enumerate().for_each(|(k, rows)| *rows += segment.rows(k, look_back));
            } else if segment.bars.start < end {
                let closed = closed_with(one.bars, segment.bars.start..end, self.spec, &self.windows)?;
                rows.iter_mut().zip(closed).for_each(|(rows, closed)| *rows += closed.saturating_sub(look_back));
            }
        }
        let short = self.windows.iter().zip(rows).find(|(window, rows)| *rows < window.seq_len);
        Ok(short.map(|(window, bars)| {
            let reason = Error::TooFewToFit {
                instrument: one.name.to_owned(),
                timeframe: window.timeframe,
                bars,
                needed: window.seq_len,
                trained_until: display_utc(self.fit_end_time.saturating_sub(1)),
            };
            Excluded { symbol: one.name.to_owned(), reason }
        }))
    }

    /// The segments with samples, and those without.
    fn segments(&self) -> (Vec<Segment>, Vec<Segment>) {
        let mut start = 0;
        let (mut with_samples, mut without_samples) = (Vec::new(), Vec::new());
        for (place, (index, samples)) in self.segment_indices.iter().zip(&self.samples).enumerate() {
            for (found, &count) in index.segments.iter().zip(samples) {
                let segment = Segment {
                    instrument: place as i32,
                    bars: found.bars.len(),
                    open_time: found.open_time,
                    close_time: found.close_time,
                    samples: start..start + count,
                };
                start += count;
                if count > 0 { with_samples.push(segment) } else { without_samples.push(segment) }
            }
        }
        (with_samples, without_samples)
    }
}

/// Chooses the base bars of one instrument at which samples stand, in one go through them.
struct SampleSelector<'a> {
    index: &'a SegmentIndex,
    stride: usize,
    grid: Option<TimesCursor<'a>>,
}

impl SampleSelector<'_> {
    /// Adds those of the bars `piece` of a segment, which open at `times`, counted from the
    /// piece's first.
    fn choose(&mut self, segment: usize, piece: &Range<usize>, times: &[i64], chosen: &mut Vec<usize>) -> Result<()> {
        let range = self.index.segments[segment].sample_range();
        let own = range.start.max(piece.start)..range.end.min(piece.end);
        match &mut self.grid {
            None => {
                let first = range.start + (own.start - range.start).next_multiple_of(self.stride);
                chosen.extend((first..own.end).step_by(self.stride).map(|bar| bar - piece.start));
            }
            Some(grid) => {
                for bar in own {
                    let index = bar - piece.start;
                    if grid.contains(times[index])? {
                        chosen.push(index);
                    }
                }
            }
        }
        Ok(())
    }
}

fn segment_indices(
    instruments: &[StreamedInstrument<'_>],
    spec: &SeriesSpec,
    windows: &[Window],
    observe: Observe<'_>,
) -> Result<Vec<SegmentIndex>> {
    for window in windows {
        Binning::new(window.timeframe, instruments[0].bars.timeframe(), &spec.bins, spec.column_rules())?;
    }
    let counted = instruments.par_iter().map(|one| {
        let mut index = SegmentIndex::count(one.bars, spec, windows)?;
        if let Ok(index) = &mut index {
            index.add_labelled(one.bars, spec)?;
        }
        match observe(one.bars.len()) {
            ControlFlow::Continue(()) => Ok(index),
            ControlFlow::Break(()) => Err(Error::Interrupted),
        }
    });
    let counted = counted.collect::<Result<Vec<_>>>()?;
    // As timeframes are made one after the other of all instruments.
    let first_bad =
        counted.iter().enumerate().filter_map(|(place, found)| Some((found.as_ref().err()?.timeframe, place)));
    let Some((_, place)) = first_bad.min() else { return Ok(counted.into_iter().filter_map(Result::ok).collect()) };
    match counted.into_iter().nth(place) {
        Some(Err(bad)) => Err(bad.error),
        _ => unreachable!("the instrument has a bad bin"),
    }
}

/// Open times of `bars` from `first` on.
pub(crate) fn open_times_from<'b>(bars: &'b dyn BarSource, first: i64) -> Result<TimeStream<'b>> {
    let start = partition_point(bars, |open_time| open_time < first)?;
    let mut pieces = pieces_of(start..bars.len());
    let mut times = Vec::new();
    Ok(Box::new(move |out| {
        if let Some(piece) = pieces.next() {
            bars.read_open_times(piece, &mut times)?;
            out.extend_from_slice(&times);
        }
        Ok(())
    }))
}

fn kept<T>(items: Vec<T>, is_kept: &[bool]) -> Vec<T> {
    items.into_iter().zip(is_kept).filter(|(_, is_kept)| **is_kept).map(|(item, _)| item).collect()
}
