//! Chains of samples. Samples whose windows continue one another form a chain, whose bars are
//! stored once; an instrument's samples are one chain or, if its recording has holes that no window
//! spans, several.

use super::overlap::WindowForm;
use crate::timeframe::CloseGrid;

/// A timeframe as the tracker sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrackedTimeframe {
    pub(super) form: WindowForm,
    /// Close times of its bars, where the timeframe's name gives its duration and the samples have
    /// times.
    pub(super) grid: Option<CloseGrid>,
}

/// A sample to be placed.
#[derive(Clone, Debug)]
pub(super) struct SampleWindows<'a> {
    /// Its row in the file.
    pub(super) row: usize,
    /// Its time, or its position where the file has no times. No sample comes after a later one of
    /// its chain.
    pub(super) time: i64,
    /// Its instrument, where the file names it.
    pub(super) instrument: Option<i32>,
    /// Its window in each timeframe.
    pub(super) windows: Vec<&'a [u8]>,
}

/// Place of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) chain: u32,
    /// Earlier chain that this one may continue after a hole, if the sample begins a chain.
    pub(super) follows: Option<u32>,
    /// Bars that the sample adds to its chain in each timeframe; all T if it shares none.
    pub(super) new_bars: Vec<u32>,
}

/// Two windows that share most, but not all, of the rows that they should share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub(super) timeframe: usize,
    pub(super) step: usize,
    pub(super) earlier_row: usize,
    pub(super) earlier_step: usize,
}

/// Chains that may still continue, each with its last sample.
#[derive(Debug)]
pub(super) struct Tracker {
    timeframes: Vec<TrackedTimeframe>,
    /// Most recently continued first.
    open: Vec<OpenChain>,
    open_max: usize,
    chains: u32,
    /// True if the last two samples were of one chain, so that instruments do not alternate.
    steady: bool,
}

#[derive(Debug)]
struct OpenChain {
    chain: u32,
    row: usize,
    time: i64,
    instrument: Option<i32>,
    windows: Vec<Vec<u8>>,
    /// Bars that its last sample added.
    strides: Vec<usize>,
}

impl Tracker {
    /// A tracker that remembers at most `open_max` chains, and at least one.
    pub(super) fn new(timeframes: Vec<TrackedTimeframe>, open_max: usize) -> Self {
        Tracker { timeframes, open: Vec::new(), open_max: open_max.max(1), chains: 0, steady: true }
    }

    /// Most chains that it remembers.
    pub(super) fn open_max(&self) -> usize {
        self.open_max
    }

    /// Remembers `sample`, the last of `chain`, which an earlier run placed; called for chain after
    /// chain, the most recent last.
    pub(super) fn remember(&mut self, chain: u32, new_bars: &[u32], sample: &SampleWindows<'_>) {
        self.begin(chain, sample);
        self.open[0].strides = strides(new_bars);
    }

    /// Sets the number of chains so far, and if the last two samples were of one.
    pub(super) fn resume(&mut self, chains: usize, steady: bool) {
        (self.chains, self.steady) = (chains as u32, steady);
    }

    /// Finds the chain that `sample` continues, or begins one.
    ///
    /// # Errors
    /// The first step of the sample that contradicts the overlap of its other rows.
    pub(super) fn place(&mut self, sample: &SampleWindows<'_>) -> Result<Placement, Mismatch> {
        let found = (0..self.open.len()).find_map(|place| Some((place, self.continued(&self.open[place], sample)?)));
        if let Some((place, new_bars)) = found {
            let chain = self.open[place].chain;
            self.go_on(place, sample, &new_bars);
            return Ok(Placement { chain, follows: None, new_bars });
        }
        let before = self.open.iter().find(|open| open.instrument == sample.instrument && open.time <= sample.time);
        if let Some(mismatch) = before.and_then(|open| self.near_miss(open, sample)) {
            return Err(mismatch);
        }
        let last = self.open.first().map(|open| open.chain);
        let goes_on = |open: &&OpenChain| {
            let alone = sample.instrument.is_some() || self.steady && Some(open.chain) == last;
            alone && open.time < sample.time && self.may_share_nothing(open, sample)
        };
        let follows = before.filter(goes_on).map(|open| open.chain);
        let chain = self.chains;
        self.begin(chain, sample);
        let new_bars = self.timeframes.iter().map(|timeframe| timeframe.form.steps as u32).collect();
        Ok(Placement { chain, follows, new_bars })
    }

    fn continued(&self, open: &OpenChain, sample: &SampleWindows<'_>) -> Option<Vec<u32>> {
        if open.instrument != sample.instrument || open.time > sample.time {
            return None;
        }
        let (mut new_bars, mut shared) = (Vec::new(), false);
        for (k, timeframe) in self.timeframes.iter().enumerate() {
            let due = timeframe.due(open.time, sample.time);
            let likely: Vec<usize> = due.into_iter().chain([open.strides[k]]).collect();
            let shift = timeframe.form.shift(&open.windows[k], sample.windows[k], &likely);
            if shift.is_none() && due.is_some_and(|due| due < timeframe.form.steps) {
                return None;
            }
            shared |= shift.is_some();
            new_bars.push(shift.unwrap_or(timeframe.form.steps) as u32);
        }
        shared.then_some(new_bars)
    }

    /// True if enough time has passed that windows of one instrument need not overlap.
    fn may_share_nothing(&self, open: &OpenChain, sample: &SampleWindows<'_>) -> bool {
        let steps = |timeframe: &TrackedTimeframe| timeframe.form.steps;
        let due = |timeframe: &TrackedTimeframe| timeframe.due(open.time, sample.time);
        self.timeframes.iter().all(|timeframe| due(timeframe).is_none_or(|due| due >= steps(timeframe)))
    }

    fn near_miss(&self, open: &OpenChain, sample: &SampleWindows<'_>) -> Option<Mismatch> {
        self.timeframes.iter().enumerate().find_map(|(k, timeframe)| {
            let (earlier, later) = (&open.windows[k][..], sample.windows[k]);
            if timeframe.form.shift(earlier, later, &[]).is_some() {
                return None;
            }
            let shifts = timeframe.due(open.time, sample.time).into_iter().chain([open.strides[k], 0, 1]);
            let miss = |shift| Some((shift, timeframe.form.near_miss(earlier, later, shift)?));
            let (shift, step) = shifts.into_iter().find_map(miss)?;
            Some(Mismatch { timeframe: k, step, earlier_row: open.row, earlier_step: step + shift })
        })
    }

    fn go_on(&mut self, place: usize, sample: &SampleWindows<'_>, new_bars: &[u32]) {
        self.steady = place == 0;
        let mut open = self.open.remove(place);
        (open.row, open.time) = (sample.row, sample.time);
        for (kept, window) in open.windows.iter_mut().zip(&sample.windows) {
            kept.copy_from_slice(window);
        }
        open.strides = strides(new_bars);
        self.open.insert(0, open);
    }

    fn begin(&mut self, chain: u32, sample: &SampleWindows<'_>) {
        self.steady = self.open.is_empty();
        self.chains = self.chains.max(chain + 1);
        self.open.truncate(self.open_max - 1);
        let windows = sample.windows.iter().map(|window| window.to_vec()).collect();
        let strides = self.timeframes.iter().map(|timeframe| timeframe.form.steps).collect();
        let SampleWindows { row, time, instrument, .. } = *sample;
        self.open.insert(0, OpenChain { chain, row, time, instrument, windows, strides });
    }
}

fn strides(new_bars: &[u32]) -> Vec<usize> {
    new_bars.iter().map(|&bars| bars as usize).collect()
}

impl TrackedTimeframe {
    /// Bars that close between two samples if there are no holes.
    fn due(&self, from: i64, to: i64) -> Option<usize> {
        self.grid?.bars_between(from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chain, the chain that it follows and the new bars; or the step that contradicts.
    type Placed = Result<(u32, Option<u32>, u32), usize>;

    /// Places samples, each a window of four letters at a time, in a timeframe of bars of `bar_ns`.
    fn place(bar_ns: Option<i64>, open_max: usize, samples: &[(i64, &str)]) -> Vec<Placed> {
        let form = WindowForm { steps: 4, row_bytes: 1 };
        let mut tracker =
            Tracker::new(vec![TrackedTimeframe { form, grid: bar_ns.map(CloseGrid::from_length) }], open_max);
        let place = |(row, &(time, window)): (usize, &(i64, &str))| {
            let sample = SampleWindows { row, time, instrument: None, windows: vec![window.as_bytes()] };
            let placed = tracker.place(&sample);
            placed.map(|placed| (placed.chain, placed.follows, placed.new_bars[0])).map_err(|mismatch| mismatch.step)
        };
        samples.iter().enumerate().map(place).collect()
    }

    #[test]
    fn samples_continue_the_chain_that_they_overlap_with() {
        let strides = place(None, 9, &[(1, "abcd"), (2, "bcde"), (3, "bcde"), (4, "efgh"), (5, "ijkl")]);
        assert_eq!(
            strides,
            [Ok((0, None, 4)), Ok((0, None, 1)), Ok((0, None, 0)), Ok((0, None, 3)), Ok((1, Some(0), 4))]
        );
        let turns = [(1, "abcd"), (1, "ABCD"), (2, "bcde"), (2, "BCDE"), (9, "wxyz"), (9, "WXYZ")];
        let placed = place(Some(1), 9, &turns);
        assert_eq!(placed[2..4], [Ok((0, None, 1)), Ok((1, None, 1))]);
        // Which instrument goes on after the hole cannot be told where they take turns.
        assert_eq!(placed[4..], [Ok((2, None, 4)), Ok((3, None, 4))]);
        assert_eq!(place(Some(1), 1, &turns)[2], Ok((2, None, 4)), "one chain is remembered");
    }

    #[test]
    fn times_say_what_is_due() {
        // All bars are alike: as many are new as closed in between.
        assert_eq!(place(Some(10), 9, &[(10, "aaaa"), (35, "aaaa")])[1], Ok((0, None, 2)));
        // Nothing is shared though one bar closed: another instrument. After a hole it may be the
        // same.
        assert_eq!(place(Some(10), 9, &[(10, "abcd"), (20, "wxyz")])[1], Ok((1, None, 4)));
        assert_eq!(place(Some(10), 9, &[(10, "abcd"), (50, "wxyz")])[1], Ok((1, Some(0), 4)));
        assert_eq!(place(Some(10), 9, &[(10, "abcd"), (0, "bcde")])[1], Ok((1, None, 4)), "not back in time");
        assert_eq!(place(Some(10), 9, &[(10, "abcd"), (20, "bcXe")])[1], Err(2));
    }

    #[test]
    fn a_tracker_goes_on_as_one_that_never_stopped() {
        let form = WindowForm { steps: 4, row_bytes: 1 };
        let timeframe = TrackedTimeframe { form, grid: None };
        let windows = ["aaab", "aaba", "baaa", "aaaa", "aaaa", "aaac", "wxyz", "xyzw"];
        let sample = |row: usize| SampleWindows {
            row,
            time: row as i64,
            instrument: None,
            windows: vec![windows[row].as_bytes()],
        };
        let mut whole = Tracker::new(vec![timeframe], 3);
        let placed: Vec<Placement> = (0..windows.len()).map(|row| whole.place(&sample(row)).unwrap()).collect();
        for stop in 1..windows.len() {
            let chains = placed[stop - 1].chain + 1;
            let mut resumed = Tracker::new(vec![timeframe], 3);
            for chain in 0..chains {
                let last = (0..stop).rev().find(|&row| placed[row].chain == chain).unwrap();
                resumed.remember(chain, &placed[last].new_bars, &sample(last));
            }
            let steady = stop == 1 || placed[stop - 1].chain == placed[stop - 2].chain;
            resumed.resume(chains as usize, steady);
            let rest: Vec<Placement> = (stop..windows.len()).map(|row| resumed.place(&sample(row)).unwrap()).collect();
            assert_eq!(rest, placed[stop..], "stopped after {stop}");
        }
    }
}
