//! The bars of one timeframe whose states are carried from step to step, and which of them the step
//! under way has computed.

use std::ops::Range;

/// Bars whose states are carried, ascending: each has the slot of its number. The states that a
/// step computes have places, in the order in which they come.
#[derive(Debug)]
pub struct CarriedBars {
    /// T.
    steps: usize,
    bars: Vec<CarriedBar>,
    /// Slots of the states that the step has computed so far, by place.
    pending: Vec<usize>,
    /// Number of groups of samples noted since the run began.
    groups: u64,
}

#[derive(Clone, Copy, Debug)]
struct CarriedBar {
    /// Row in the series.
    row: usize,
    /// Place of its state among those that the step has computed.
    place: Option<usize>,
    /// The last group that it was noted from.
    group: u64,
}

/// A state that a group of samples computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotedState {
    /// Place of the sample in its group.
    pub sample: usize,
    /// Number of bars from the state's to the last of the sample's window.
    pub bars_to_end: usize,
    /// Slot of the state's bar.
    pub slot: usize,
    /// Place among the states that the step has computed.
    pub place: usize,
}

impl CarriedBars {
    /// The bars `rows`, for windows of `steps` bars.
    pub fn new(steps: usize, rows: &[usize]) -> Self {
        let bars = rows.iter().map(|&row| CarriedBar { row, place: None, group: 0 }).collect();
        CarriedBars { steps, bars, pending: Vec::new(), groups: 0 }
    }

    /// Most places of a step of up to `step_samples` samples, whose windows have `steps` bars, out
    /// of `bars` bars.
    pub fn places(bars: usize, steps: usize, step_samples: usize) -> usize {
        bars.min(step_samples.saturating_mul(steps))
    }

    /// Rows of the bars.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = usize> {
        self.bars.iter().map(|bar| bar.row)
    }

    /// Slot of the bar in `row`, if its state is carried.
    pub fn slot(&self, row: usize) -> Option<usize> {
        self.bars.binary_search_by_key(&row, |bar| bar.row).ok()
    }

    /// Notes the states of a group of samples whose windows end at the rows `ends`, from the last
    /// sample on, each bar's once. `take` gets each of them.
    pub fn note(&mut self, ends: &[usize], mut take: impl FnMut(NotedState)) {
        self.groups += 1;
        for (sample, &end) in ends.iter().enumerate().rev() {
            for slot in self.slots_within(end) {
                let CarriedBar { row, place, group } = &mut self.bars[slot];
                if std::mem::replace(group, self.groups) == self.groups {
                    continue;
                }
                let place = *place.get_or_insert_with(|| {
                    self.pending.push(slot);
                    self.pending.len() - 1
                });
                take(NotedState { sample, bars_to_end: end - *row, slot, place });
            }
        }
    }

    /// Slots of the states that the step has computed so far, by place.
    pub fn pending(&self) -> &[usize] {
        &self.pending
    }

    /// Forgets the states that the step has computed.
    pub fn discard(&mut self) {
        for slot in self.pending.drain(..) {
            self.bars[slot].place = None;
        }
    }

    /// The slots whose bars are in the window that ends at row `end`.
    fn slots_within(&self, end: usize) -> Range<usize> {
        let slot = |row: usize| self.bars.partition_point(|bar| bar.row < row);
        slot((end + 1).saturating_sub(self.steps))..slot(end + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_at_a_bar_is_noted_and_places_are_those_of_the_step() {
        let mut bars = CarriedBars::new(3, &[4, 5, 6, 20]);
        let noted = |bars: &mut CarriedBars, ends: &[usize]| {
            let mut noted = Vec::new();
            bars.note(ends, |NotedState { sample, bars_to_end, slot, place }| {
                noted.push([sample, bars_to_end, slot, place]);
            });
            noted
        };
        assert_eq!(noted(&mut bars, &[7, 9, 7]), [[2, 2, 1, 0], [2, 1, 2, 1]]);
        // Another group of the step.
        assert_eq!(noted(&mut bars, &[4, 6]), [[1, 2, 0, 2], [1, 1, 1, 0], [1, 0, 2, 1]]);
        assert_eq!(bars.pending(), [1, 2, 0]);
        bars.discard();
        assert_eq!(noted(&mut bars, &[6]), [[0, 2, 0, 0], [0, 1, 1, 1], [0, 0, 2, 2]]);
        assert_eq!((bars.slot(20), bars.slot(7)), (Some(3), None));
        assert!(bars.rows().eq([4, 5, 6, 20]));
    }
}
