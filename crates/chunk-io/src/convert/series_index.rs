//! Index arrays of a series, from the placements of all samples. What is of each sample or bar is
//! computed in pieces, as it is written.

use std::ops::Range;

use super::calendar::{Contradiction, Fit, SampleClock, SampleTimes};
use super::journal::Journal;
use super::placed_samples::{JournalExtent, PlacedCursor, PlacedSample, PlacedSamples};
use super::windows_input::WindowsInput;
use crate::error::{Error, LayoutFault, Result};
use crate::timeframe::CloseGrid;

/// Origin of the times of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeKind {
    /// From the samples' times and the length of the bars.
    Reconstructed,
    /// The order of the samples only.
    Ordinal,
}

/// Everything about a series but its values and targets.
#[derive(Debug)]
pub(super) struct SeriesIndex<'a> {
    pub(super) placed: &'a PlacedSamples,
    pub(super) windows_input: &'a WindowsInput,
    pub(super) time_kind: TimeKind,
    /// Names of the instruments; `None` where there is one without a name.
    pub(super) instruments: Option<Vec<String>>,
    pub(super) timeframes: Vec<TimeframeSection>,
    /// Why the times are ordinal, where the file has times.
    pub(super) contradiction: Option<String>,
    times: SampleTimes<'a>,
    /// The preceding chain of each chain in its instrument.
    after: Vec<Option<usize>>,
    /// Instrument of each chain.
    chain_instruments: Vec<i32>,
}

/// One timeframe of a [`SeriesIndex`].
#[derive(Debug)]
pub(super) struct TimeframeSection {
    pub(super) bars: usize,
    pub(super) instrument_start: Vec<i64>,
    /// Empty where every instrument is one segment.
    pub(super) segment_start: Vec<i64>,
    /// Places of the bars in the journal, each piece with its first bar.
    pub(super) extents: Vec<(usize, JournalExtent)>,
    grid: CloseGrid,
    /// First bar of each chain.
    offsets: Vec<usize>,
}

/// Puts the chains of all samples in order.
///
/// # Errors
/// [`Error::Invalid`] if samples of one named instrument cannot be those of one.
pub(super) fn index<'a>(
    placed: &'a PlacedSamples,
    windows_input: &'a WindowsInput,
    journal: &mut Journal,
) -> Result<SeriesIndex<'a>> {
    let groups = groups(placed, windows_input);
    let mut after = vec![None; placed.chains.len()];
    groups.iter().flat_map(|group| group.windows(2)).for_each(|pair| after[pair[1]] = Some(pair[0]));

    let mut fit = |times: SampleTimes<'_>, grids: &[Option<CloseGrid>]| -> Result<Fit<Vec<CloseGrid>>> {
        let fit_timeframe = |(timeframe, &grid): (usize, &Option<CloseGrid>)| {
            SampleClock { placed, timeframe, times, after: &after }.fit(grid, journal)
        };
        grids.iter().enumerate().map(fit_timeframe).collect()
    };
    let file_times = SampleTimes::OfFile(windows_input);
    let timed = windows_input.file.sample_times().map(|_| fit(file_times, &windows_input.close_grids())).transpose()?;
    let (time_kind, times, grids, contradiction) = match timed {
        Some(Ok(grids)) => (TimeKind::Reconstructed, file_times, grids, None),
        failed => {
            let apart = windows_input.forms.iter().map(|form| form.steps as i64).max().unwrap_or(0) + 1;
            let times = SampleTimes::Ordinal { apart };
            let grids = fit(times, &vec![Some(CloseGrid::from_length(1)); windows_input.forms.len()])?;
            let grids = grids.map_err(|contradiction| impossible(windows_input, &contradiction))?;
            let contradiction =
                failed.and_then(Result::err).map(|contradiction| describe(windows_input, &contradiction));
            (TimeKind::Ordinal, times, grids, contradiction)
        }
    };
    let timeframe = |(k, grid)| timeframe_index(k, placed, &groups, windows_input, grid);
    let mut chain_instruments = vec![0; placed.chains.len()];
    for (instrument, group) in groups.iter().enumerate() {
        group.iter().for_each(|&chain| chain_instruments[chain] = instrument as i32);
    }
    let numbered = || (0..groups.len()).map(|instrument| format!("instrument_{instrument}")).collect();
    Ok(SeriesIndex {
        placed,
        windows_input,
        time_kind,
        instruments: match &windows_input.instruments {
            Some(named) => Some(named.names.clone()),
            None => (groups.len() > 1).then(numbered),
        },
        timeframes: grids.into_iter().enumerate().map(timeframe).collect(),
        contradiction,
        times,
        after,
        chain_instruments,
    })
}

impl SeriesIndex<'_> {
    /// True if the instruments have no names and are numbered.
    pub(super) fn is_numbered(&self) -> bool {
        self.instruments.is_some() && self.windows_input.instruments.is_none()
    }

    /// Writes the times of the samples of `rows` to `out`.
    pub(super) fn sample_times(&self, rows: Range<usize>, out: &mut [i64]) {
        for (position, row) in self.windows_input.positions_of(rows.clone()) {
            out[row - rows.start] = self.times.at(position);
        }
    }

    /// Writes the close times of `bars` of the `k`-th timeframe to `out`.
    pub(super) fn close_times(
        &self,
        k: usize,
        bars: &Range<usize>,
        out: &mut [i64],
        journal: &mut Journal,
    ) -> Result<()> {
        let TimeframeSection { grid, offsets, .. } = &self.timeframes[k];
        let clock = SampleClock { placed: self.placed, timeframe: k, times: self.times, after: &self.after };
        clock.close_times(*grid, offsets, bars, out, journal)
    }

    /// Last bar of a sample's window in the `k`-th timeframe.
    pub(super) fn end_of(&self, k: usize, sample: &PlacedSample<'_>) -> i64 {
        (self.timeframes[k].offsets[sample.chain] + sample.bars[k]) as i64 - 1
    }

    /// Instrument of a sample.
    pub(super) fn instrument_of(&self, sample: &PlacedSample<'_>) -> i32 {
        self.chain_instruments[sample.chain]
    }

    pub(super) fn reader(&self) -> SampleReader<'_> {
        SampleReader { windows_input: self.windows_input, placed: self.placed, cursor: PlacedCursor::new(self.placed) }
    }
}

/// Reads samples from the journal by row of the windows file, in consecutive ranges.
pub(super) struct SampleReader<'a> {
    windows_input: &'a WindowsInput,
    placed: &'a PlacedSamples,
    cursor: PlacedCursor<'a>,
}

impl SampleReader<'_> {
    /// Writes `value` of each sample of `rows`, which follow those of the last call, to `out`.
    pub(super) fn read<T>(
        &mut self,
        rows: Range<usize>,
        out: &mut [T],
        journal: &mut Journal,
        value: impl Fn(&PlacedSample<'_>) -> T,
    ) -> Result<()> {
        if self.windows_input.order.is_some() {
            self.cursor = PlacedCursor::new(self.placed);
        }
        let mut left = rows.len();
        while left > 0 {
            let sample = self.cursor.next(journal)?.expect("every row has a sample");
            let row = self.windows_input.row(sample.position);
            if rows.contains(&row) {
                out[row - rows.start] = value(&sample);
                left -= 1;
            }
        }
        Ok(())
    }
}

/// The chains of each instrument, in the order of their times.
fn groups(placed: &PlacedSamples, windows_input: &WindowsInput) -> Vec<Vec<usize>> {
    let Some(instruments) = &windows_input.instruments else { return placed.instruments() };
    let mut groups = vec![Vec::new(); instruments.names.len()];
    for (c, chain) in placed.chains.iter().enumerate() {
        let instrument = windows_input.instrument(chain.positions.start).expect("the file names instruments");
        groups[instrument as usize].push(c);
    }
    groups
}

/// First bar of each chain.
fn offsets(placed: &PlacedSamples, groups: &[Vec<usize>], timeframe: usize) -> Vec<usize> {
    let mut offsets = vec![0; placed.chains.len()];
    let mut next = 0;
    for &chain in groups.iter().flatten() {
        offsets[chain] = next;
        next += placed.chains[chain].timeframes[timeframe].bars;
    }
    offsets
}

fn timeframe_index(
    k: usize,
    placed: &PlacedSamples,
    groups: &[Vec<usize>],
    windows_input: &WindowsInput,
    grid: CloseGrid,
) -> TimeframeSection {
    let offsets = offsets(placed, groups, k);
    let (mut segment_start, mut instrument_start, mut extents) = (Vec::new(), vec![0], Vec::new());
    for group in groups {
        let mut end = *instrument_start.last().expect("it begins with 0");
        for &chain in group {
            let bars = &placed.chains[chain].timeframes[k];
            segment_start.extend(bars.segments.iter().map(|segment| (offsets[chain] + segment) as i64));
            let mut first = offsets[chain];
            for &extent in &bars.extents {
                extents.push((first, extent));
                first += extent.bars;
            }
            end = first as i64;
        }
        instrument_start.push(end);
    }
    let with_bars = groups.iter().filter(|group| !group.is_empty()).count();
    let one_segment_each = segment_start.len() == with_bars;
    TimeframeSection {
        bars: placed.bars(k),
        instrument_start: if groups.len() > 1 || windows_input.instruments.is_some() {
            instrument_start
        } else {
            Vec::new()
        },
        segment_start: if one_segment_each { Vec::new() } else { segment_start },
        extents,
        grid,
        offsets,
    }
}

fn describe(windows_input: &WindowsInput, contradiction: &Contradiction) -> String {
    let Contradiction { timeframe, position, reason } = contradiction;
    format!("{} at sample {}: {reason}", windows_input.names[*timeframe], windows_input.row(*position))
}

fn impossible(windows_input: &WindowsInput, contradiction: &Contradiction) -> Error {
    let fault = LayoutFault {
        object: windows_input.object(contradiction.timeframe).to_owned(),
        index: Some(windows_input.row(contradiction.position)),
        expected: "the samples of one instrument, each continuing an earlier one or coming after all of them"
            .to_owned(),
        found: contradiction.reason.clone(),
        fix: "correct /samples/instrument".to_owned(),
    };
    Error::invalid(windows_input.file.path(), fault)
}
