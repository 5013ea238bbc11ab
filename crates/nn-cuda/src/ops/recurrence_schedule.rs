#![forbid(unsafe_code)]

//! Candidates for the schedule of the recurrence over a list's windows on a GPU, and their kernels.

use super::operand::Operand;
use super::recurrent_weights::{is_of_a_block, persistent_units};
use super::work_list::{RecurrenceSchedule, TileWindows};
use super::{cell, recurrence, recurrence_backward, recurrence_f32, recurrence_of_rows};

impl RecurrenceSchedule {
    /// Candidate schedules for so many windows of H units, the rule's first; where sums
    /// `may_differ`, also in another order.
    pub fn candidates<T: Operand>(hidden: usize, windows: usize, may_differ: bool) -> Vec<(&'static str, Self)> {
        let by_rule = RecurrenceSchedule::for_windows(windows);
        match persistent_units::<T>(hidden) {
            Some(units) if is_of_a_block(units) => {
                let (rule, other) = ("tiles of the rule", "tiles of the other size");
                let tile = match by_rule.tile {
                    TileWindows::Eight => TileWindows::Sixteen,
                    TileWindows::Sixteen => TileWindows::Eight,
                };
                vec![(rule, by_rule), (other, RecurrenceSchedule { tile, ..by_rule })]
            }
            Some(_) if may_differ => {
                vec![
                    ("groups of blocks", by_rule),
                    ("step by step", RecurrenceSchedule { step_by_step: true, ..by_rule }),
                ]
            }
            _ => vec![("the only way", by_rule)],
        }
    }

    /// The kernels that all of this is about.
    pub const PTX: &[&str] = &[
        recurrence::PTX,
        recurrence::PTX_OF_GROUPS,
        recurrence_of_rows::PTX,
        recurrence_f32::PTX,
        recurrence_backward::PTX,
        recurrence_backward::PTX_OF_GROUPS,
        cell::PTX,
        super::matmul::PTX,
    ];
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::tuning::bucket;

    #[test]
    fn what_has_the_same_bits_is_always_among_the_candidates() {
        let choices = |hidden, windows, may_differ| {
            let candidates = RecurrenceSchedule::candidates::<bf16>(hidden, windows, may_differ);
            candidates
                .into_iter()
                .map(|(_, RecurrenceSchedule { tile, step_by_step })| (tile, step_by_step))
                .collect::<Vec<_>>()
        };
        let (eight, sixteen) = ((TileWindows::Eight, false), (TileWindows::Sixteen, false));
        assert_eq!(choices(128, 1024, false), [eight, sixteen]);
        assert_eq!(choices(5, 1025, true), [sixteen, eight]);
        assert_eq!(choices(129, 10, false), [eight]);
        assert_eq!(choices(512, 10, true), [eight, (TileWindows::Eight, true)]);
        assert_eq!(choices(513, 10, true), [eight]);
        assert_eq!(RecurrenceSchedule::candidates::<f32>(5, 10, true).len(), 2);
        assert_eq!(RecurrenceSchedule::candidates::<f32>(129, 10, true).len(), 1);
        for windows in 0..3000 {
            assert_eq!(choices(128, windows, true), choices(128, bucket(windows), true), "{windows} windows");
        }
    }
}
