//! Close times of bars, inferred from the times of the samples that contain them.
//!
//! A bar closed after the last sample without it, and not after the first sample with it. Its close
//! time is the last of the timeframe's close times in that span, or, if there is none, the end of
//! the span, which is the time of the sample. Bars that one sample adds together are one length
//! apart.

use std::ops::Range;

use super::journal::Journal;
use super::placed_samples::{PlacedCursor, PlacedSamples};
use super::windows_input::WindowsInput;
use crate::error::Result;
use crate::timeframe::CloseGrid;

/// Times of samples.
#[derive(Clone, Copy, Debug)]
pub(super) enum SampleTimes<'a> {
    /// Times in the file.
    OfFile(&'a WindowsInput),
    /// Times that encode the order of the samples only: far enough apart that the bars of a window
    /// fit between two.
    Ordinal {
        /// From a sample to the next.
        apart: i64,
    },
}

impl SampleTimes<'_> {
    /// Time of the sample at a position.
    pub(super) fn at(&self, position: usize) -> i64 {
        match self {
            SampleTimes::OfFile(windows_input) => windows_input.time(position),
            SampleTimes::Ordinal { apart } => (position as i64 + 1) * apart,
        }
    }
}

/// Times from which the close times of a timeframe's bars are inferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleClock<'a> {
    pub(super) placed: &'a PlacedSamples,
    pub(super) timeframe: usize,
    pub(super) times: SampleTimes<'a>,
    /// The preceding chain of each chain in its instrument.
    pub(super) after: &'a [Option<usize>],
}

/// Contradiction between the samples' times and the order in which bars appear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contradiction {
    pub(super) timeframe: usize,
    pub(super) position: usize,
    /// Why the bars do not fit between the samples.
    pub(super) reason: String,
}

/// Bars that a sample adds to its chain.
struct Arrival {
    position: usize,
    chain: usize,
    /// First and number of them, counted from the chain's first bar.
    first: usize,
    bars: usize,
    time: i64,
    /// Time of the instrument's last sample without them.
    before: Option<i64>,
}

/// Grid, or grids, that fit the samples' times; or the contradiction where none does.
pub(super) type Fit<T> = Result<T, Contradiction>;

impl SampleClock<'_> {
    /// The grid on which the bars close: `known`, or else that of the length that the samples show.
    ///
    /// # Errors
    /// Errors of the journal.
    pub(super) fn fit(&self, known: Option<CloseGrid>, journal: &mut Journal) -> Result<Fit<CloseGrid>> {
        let Some(grid) = known.map_or_else(|| self.measured(journal), |known| Ok(Some(known)))? else {
            let reason = "nothing tells how long a bar is: no two samples of one instrument are a bar apart";
            return Ok(Err(Contradiction { timeframe: self.timeframe, position: 0, reason: reason.to_owned() }));
        };
        let (mut fits, mut close) = (Ok(grid), Vec::new());
        self.arrivals(journal, |arrival| {
            close.resize(arrival.bars, 0);
            if fits.is_err() || fill(&mut close, &arrival, grid).is_some() {
                return;
            }
            let Arrival { position, bars, time, before, .. } = arrival;
            let before = before.map_or("the beginning of time".to_owned(), |before| before.to_string());
            let reason = format!("{bars} bars of {} ns cannot have closed after {before} and by {time}", grid.bar_ns);
            fits = Err(Contradiction { timeframe: self.timeframe, position, reason });
        })?;
        Ok(fits)
    }

    /// The shortest time between samples for each bar added; the first samples of chains do not
    /// count.
    fn measured(&self, journal: &mut Journal) -> Result<Option<CloseGrid>> {
        let mut shortest = None;
        self.arrivals(journal, |arrival| {
            let bars = arrival.bars as i64;
            let elapsed =
                arrival.before.and_then(|before| arrival.time.checked_sub(before)).filter(|_| arrival.first > 0);
            if let Some(each) = elapsed.map(|elapsed| elapsed / bars).filter(|&each| each > 0) {
                shortest = Some(shortest.map_or(each, |shortest: i64| shortest.min(each)));
            }
        })?;
        Ok(shortest.map(CloseGrid::from_length))
    }

    /// Writes the close times of `bars` to `out`. The first bar of each chain is at `offsets`, and
    /// nothing contradicts the grid.
    pub(super) fn close_times(
        &self,
        grid: CloseGrid,
        offsets: &[usize],
        bars: &Range<usize>,
        out: &mut [i64],
        journal: &mut Journal,
    ) -> Result<()> {
        let mut close = Vec::new();
        self.arrivals(journal, |arrival| {
            let first = offsets[arrival.chain] + arrival.first;
            let wanted = first.max(bars.start)..(first + arrival.bars).min(bars.end);
            if !wanted.is_empty() {
                close.resize(arrival.bars, 0);
                fill(&mut close, &arrival, grid).expect("nothing contradicts the grid");
                let part = &close[wanted.start - first..wanted.end - first];
                out[wanted.start - bars.start..wanted.end - bars.start].copy_from_slice(part);
            }
        })
    }

    /// Calls `visit` for every sample that adds bars, in the order of placement.
    fn arrivals(&self, journal: &mut Journal, mut visit: impl FnMut(Arrival)) -> Result<()> {
        let mut last: Vec<Option<i64>> = vec![None; self.placed.chains.len()];
        let mut cursor = PlacedCursor::new(self.placed);
        while let Some(sample) = cursor.next(journal)? {
            let (position, chain, time) = (sample.position, sample.chain, self.times.at(sample.position));
            let bars = sample.new_bars[self.timeframe] as usize;
            if bars > 0 {
                let before = last[chain].or_else(|| self.after[chain].and_then(|after| last[after]));
                let first = sample.bars[self.timeframe] - bars;
                visit(Arrival { position, chain, first, bars, time, before });
            }
            last[chain] = Some(time);
        }
        Ok(())
    }
}

fn fill(close: &mut [i64], arrival: &Arrival, grid: CloseGrid) -> Option<()> {
    let Arrival { time, before, .. } = *arrival;
    let free = |closed: i64| before.is_none_or(|before| closed > before);
    let on_grid = grid.last_close(time)?;
    let mut closed = if free(on_grid) { on_grid } else { time };
    for (k, slot) in close.iter_mut().rev().enumerate() {
        closed = if k == 0 { closed } else { closed.checked_sub(grid.bar_ns)? };
        *slot = Some(closed).filter(|&closed| free(closed))?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_close_at_full_lengths_between_the_samples_that_tell() {
        type Case<'a> = (i64, Option<i64>, usize, Option<&'a [i64]>);
        let cases: [Case<'_>; 9] = [
            (60, None, 3, Some(&[40, 50, 60])),
            (63, None, 3, Some(&[40, 50, 60])),
            (-3, None, 2, Some(&[-20, -10])),
            (63, Some(53), 1, Some(&[60])),
            // No full length lies between the two samples: the bar closed by the second.
            (67, Some(62), 1, Some(&[67])),
            (60, Some(30), 3, Some(&[40, 50, 60])),
            (60, Some(40), 3, None),
            (60, Some(60), 1, None),
            (i64::MIN + 5, None, 2, None),
        ];
        for (time, before, bars, expected) in cases {
            let mut close = vec![0; bars];
            let arrival = Arrival { position: 0, chain: 0, first: 0, bars, time, before };
            let filled = fill(&mut close, &arrival, CloseGrid::from_length(10)).map(|()| &close[..]);
            assert_eq!(filled, expected, "{time} {before:?} {bars}");
        }
    }
}
