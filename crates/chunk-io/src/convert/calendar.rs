#![forbid(unsafe_code)]

//! Close times of bars, inferred from the times of the samples that contain them.
//!
//! A bar closed after the last sample without it, and not after the first sample with it. Its close
//! time is the last of the timeframe's close times in that span, or, if there is none, the end of
//! the span, which is the time of the sample. Bars that one sample adds together are one length
//! apart.

use super::placed_samples::PlacedSamples;
use crate::timeframe::CloseGrid;

/// First bar of each chain in a timeframe's bars.
pub(super) type Offsets = [Vec<usize>];

/// Times and lengths from which close times are inferred.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleClock<'a> {
    /// Time of each sample, by position.
    pub(super) times: &'a [i64],
    /// Close times of the bars of each timeframe; `None` if the length of a bar must be measured by
    /// the samples.
    pub(super) grids: &'a [Option<CloseGrid>],
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

/// The close time of each bar of a timeframe.
pub(super) fn close_times(
    placed: &PlacedSamples,
    timeframe: usize,
    offsets: &Offsets,
    clock: &SampleClock<'_>,
) -> Result<Vec<i64>, Contradiction> {
    let measured = || measure(placed, timeframe, clock).map(CloseGrid::of_length);
    let Some(grid) = clock.grids[timeframe].or_else(measured) else {
        let reason = "nothing tells how long a bar is: no two samples of one instrument are a bar apart".to_owned();
        return Err(Contradiction { timeframe, position: 0, reason });
    };
    let mut close = vec![0; placed.bars(timeframe)];
    let mut contradiction = None;
    arrivals(placed, timeframe, clock, |arrival| {
        let first = offsets[timeframe][arrival.chain] + arrival.first;
        let filled = fill(&mut close[first..first + arrival.bars], &arrival, grid);
        let reason = || {
            let Arrival { bars, time, before, .. } = arrival;
            let before = before.map_or("the beginning of time".to_owned(), |before| before.to_string());
            format!("{bars} bars of {} ns cannot have closed after {before} and by {time}", grid.bar_ns)
        };
        if filled.is_none() && contradiction.is_none() {
            contradiction = Some(Contradiction { timeframe, position: arrival.position, reason: reason() });
        }
    });
    contradiction.map_or(Ok(close), Err)
}

/// Shortest time between samples for each bar added; the first samples of chains do not count.
fn measure(placed: &PlacedSamples, timeframe: usize, clock: &SampleClock<'_>) -> Option<i64> {
    let mut shortest = None;
    arrivals(placed, timeframe, clock, |arrival| {
        let bars = arrival.bars as i64;
        let elapsed = arrival.before.and_then(|before| arrival.time.checked_sub(before)).filter(|_| arrival.first > 0);
        if let Some(each) = elapsed.map(|elapsed| elapsed / bars).filter(|&each| each > 0) {
            shortest = Some(shortest.map_or(each, |shortest: i64| shortest.min(each)));
        }
    });
    shortest
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

/// Calls `visit` for every sample that adds bars, in the order of placement.
fn arrivals(placed: &PlacedSamples, timeframe: usize, clock: &SampleClock<'_>, mut visit: impl FnMut(Arrival)) {
    let mut bars = vec![0; placed.chains.len()];
    let mut last: Vec<Option<i64>> = vec![None; placed.chains.len()];
    for (position, (&chain, &end)) in placed.chain_of.iter().zip(&placed.ends[timeframe]).enumerate() {
        let (chain, end, time) = (chain as usize, end as usize + 1, clock.times[position]);
        if end > bars[chain] {
            let before = last[chain].or_else(|| clock.after[chain].and_then(|after| last[after]));
            visit(Arrival { position, chain, first: bars[chain], bars: end - bars[chain], time, before });
            bars[chain] = end;
        }
        last[chain] = Some(time);
    }
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
            let filled = fill(&mut close, &arrival, CloseGrid::of_length(10)).map(|()| &close[..]);
            assert_eq!(filled, expected, "{time} {before:?} {bars}");
        }
    }
}
