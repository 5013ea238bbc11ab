//! Candidates for the schedule of the recurrence over a list's windows on a GPU, and their kernels.

use super::operand::Operand;
use super::recurrent_weights::{is_of_a_block, persistent_units};
use super::work_list::{RecurrenceSchedule, TileWindows};
use super::{cell, recurrence, recurrence_backward, recurrence_f32, recurrence_of_rows};

/// Windows of a batch up to which a block takes four of them, and up to which eight: as many as
/// fill a large GPU.
const WINDOWS_BY_FOURS: usize = 512;
const WINDOWS_BY_EIGHTS: usize = 1024;

impl TileWindows {
    /// Sizes that the recurrence of H units can be cut into, with names.
    fn sizes<T: Operand>(hidden: usize) -> &'static [(&'static str, Self)] {
        let all = &[
            ("tiles of 4", TileWindows::Four),
            ("tiles of 8", TileWindows::Eight),
            ("tiles of 16", TileWindows::Sixteen),
        ];
        let has_fours = T::IS_NARROW && persistent_units::<T>(hidden).is_some_and(is_of_a_block);
        if has_fours { all } else { &all[1..] }
    }

    /// The smallest size for H units.
    pub(crate) fn smallest<T: Operand>(hidden: usize) -> Self {
        TileWindows::sizes::<T>(hidden)[0].1
    }

    /// The size that suits so many windows of H units, those of all sequences together.
    fn by_rule<T: Operand>(hidden: usize, windows: usize) -> Self {
        if windows <= WINDOWS_BY_FOURS {
            TileWindows::smallest::<T>(hidden)
        } else if windows <= WINDOWS_BY_EIGHTS {
            TileWindows::Eight
        } else {
            TileWindows::Sixteen
        }
    }
}

impl RecurrenceSchedule {
    /// Schedule for so many windows of H units, those of all sequences together, as far as their
    /// number tells.
    pub fn by_rule<T: Operand>(hidden: usize, windows: usize) -> Self {
        RecurrenceSchedule { tile: TileWindows::by_rule::<T>(hidden, windows), step_by_step: false }
    }

    /// Candidate schedules for so many windows of H units, the rule's first; where sums
    /// `may_differ`, also in another order.
    pub fn candidates<T: Operand>(hidden: usize, windows: usize, may_differ: bool) -> Vec<(&'static str, Self)> {
        let by_rule = RecurrenceSchedule::by_rule::<T>(hidden, windows);
        match persistent_units::<T>(hidden) {
            Some(units) if is_of_a_block(units) => {
                let sizes = TileWindows::sizes::<T>(hidden).iter();
                let mut all: Vec<_> =
                    sizes.map(|&(name, tile)| (name, RecurrenceSchedule { tile, ..by_rule })).collect();
                all.sort_by_key(|(_, schedule)| schedule.tile != by_rule.tile);
                all
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
        let [four, eight, sixteen] =
            [TileWindows::Four, TileWindows::Eight, TileWindows::Sixteen].map(|tile| (tile, false));
        assert_eq!(choices(128, 512, false), [four, eight, sixteen]);
        assert_eq!(choices(128, 1024, false), [eight, four, sixteen]);
        assert_eq!(choices(6, 1025, true), [sixteen, four, eight]);
        // Pairs of units do not lie side by side.
        assert_eq!(choices(5, 10, true), [eight]);
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
