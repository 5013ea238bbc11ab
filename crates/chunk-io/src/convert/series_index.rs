#![forbid(unsafe_code)]

//! Index arrays of a series, from the placements of all samples.

use super::calendar::{Contradiction, SampleClock, close_times};
use super::placed_samples::{JournalExtent, PlacedSamples};
use super::windows_input::WindowsInput;
use crate::error::{Error, LayoutFault, Result};
use crate::series::Instruments;
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
pub(super) struct SeriesIndex {
    pub(super) time_kind: TimeKind,
    /// By row of the windows file, as all that is about samples.
    pub(super) sample_time: Vec<i64>,
    pub(super) instruments: Option<Instruments>,
    /// True if the instruments have no names and are numbered.
    pub(super) numbered: bool,
    pub(super) timeframes: Vec<TimeframeSection>,
    /// Why the times are ordinal, where the file has times.
    pub(super) contradiction: Option<String>,
}

/// One timeframe of a [`SeriesIndex`].
#[derive(Debug)]
pub(super) struct TimeframeSection {
    pub(super) bars: usize,
    pub(super) close_time: Vec<i64>,
    pub(super) sample_end: Vec<i64>,
    pub(super) instrument_start: Vec<i64>,
    /// Empty where every instrument is one segment.
    pub(super) segment_start: Vec<i64>,
    /// Places of the bars in the journal, each piece with its first bar.
    pub(super) extents: Vec<(usize, JournalExtent)>,
}

/// Puts the chains of all samples in order.
///
/// # Errors
/// [`Error::Invalid`] if samples of one named instrument cannot be those of one.
pub(super) fn index(placed: &PlacedSamples, windows_input: &WindowsInput) -> Result<SeriesIndex> {
    let groups = groups(placed, windows_input);
    let offsets: Vec<Vec<usize>> = (0..windows_input.forms.len()).map(|k| offsets(placed, &groups, k)).collect();
    let mut after = vec![None; placed.chains.len()];
    groups.iter().flat_map(|group| group.windows(2)).for_each(|pair| after[pair[1]] = Some(pair[0]));

    let times: Vec<i64> = (0..placed.samples()).map(|position| windows_input.time(position)).collect();
    let all_close_times = |times: &[i64], grids: &[Option<CloseGrid>]| -> Result<Vec<Vec<i64>>, Contradiction> {
        let clock = SampleClock { times, grids, after: &after };
        (0..windows_input.forms.len()).map(|k| close_times(placed, k, &offsets, &clock)).collect()
    };
    let timed = windows_input.file.sample_times().map(|_| all_close_times(&times, &windows_input.close_grids()));
    let (time_kind, times, close, contradiction) = match timed {
        Some(Ok(close)) => (TimeKind::Reconstructed, times, close, None),
        failed => {
            let times = ordinals(placed.samples(), windows_input);
            let close = all_close_times(&times, &vec![Some(CloseGrid::of_length(1)); windows_input.forms.len()]);
            let close = close.map_err(|contradiction| impossible(windows_input, &contradiction))?;
            let contradiction =
                failed.and_then(Result::err).map(|contradiction| describe(windows_input, &contradiction));
            (TimeKind::Ordinal, times, close, contradiction)
        }
    };
    let timeframe = |(k, close_time): (usize, Vec<i64>)| {
        timeframe_index(k, placed, &groups[..], &offsets[k][..], windows_input, close_time)
    };
    Ok(SeriesIndex {
        time_kind,
        sample_time: by_row(windows_input, &times),
        instruments: instruments(placed, windows_input, &groups),
        numbered: windows_input.instruments.is_none(),
        timeframes: close.into_iter().enumerate().map(timeframe).collect(),
        contradiction,
    })
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

/// Times that encode the order of the samples only, far enough apart that the bars of a window fit
/// between two.
fn ordinals(samples: usize, windows_input: &WindowsInput) -> Vec<i64> {
    let apart = windows_input.forms.iter().map(|form| form.steps as i64).max().unwrap_or(0) + 1;
    (1..=samples as i64).map(|position| position * apart).collect()
}

fn timeframe_index(
    k: usize,
    placed: &PlacedSamples,
    groups: &[Vec<usize>],
    offsets: &[usize],
    windows_input: &WindowsInput,
    close_time: Vec<i64>,
) -> TimeframeSection {
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
    let in_order = placed.chain_of.iter().zip(&placed.ends[k]);
    let ends: Vec<i64> = in_order.map(|(&chain, &end)| end + offsets[chain as usize] as i64).collect();
    TimeframeSection {
        bars: close_time.len(),
        close_time,
        sample_end: by_row(windows_input, &ends),
        instrument_start: if groups.len() > 1 || windows_input.instruments.is_some() {
            instrument_start
        } else {
            Vec::new()
        },
        segment_start: if one_segment_each { Vec::new() } else { segment_start },
        extents,
    }
}

fn instruments(placed: &PlacedSamples, windows_input: &WindowsInput, groups: &[Vec<usize>]) -> Option<Instruments> {
    if let Some(windows_input) = &windows_input.instruments {
        return Some(Instruments {
            names: windows_input.names.clone(),
            sample_instrument: windows_input.of_sample.clone(),
        });
    }
    if groups.len() < 2 {
        return None;
    }
    let mut of_chain = vec![0; placed.chains.len()];
    for (instrument, group) in groups.iter().enumerate() {
        group.iter().for_each(|&chain| of_chain[chain] = instrument as i32);
    }
    let in_order: Vec<i32> = placed.chain_of.iter().map(|&chain| of_chain[chain as usize]).collect();
    let names = (0..groups.len()).map(|instrument| format!("instrument_{instrument}")).collect();
    Some(Instruments { names, sample_instrument: by_row(windows_input, &in_order) })
}

/// Values given by position, in the order of the file's rows.
fn by_row<T: Copy + Default>(windows_input: &WindowsInput, by_position: &[T]) -> Vec<T> {
    let mut rows = vec![T::default(); by_position.len()];
    by_position.iter().enumerate().for_each(|(position, &value)| rows[windows_input.row(position)] = value);
    rows
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
