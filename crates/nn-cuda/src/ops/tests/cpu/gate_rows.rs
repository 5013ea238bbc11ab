//! Orders of gates on the CPU.

use super::{GateEntry, GateRows, NONE};
use crate::ops::operand::Operand;

impl GateRows {
    /// Calls `each` with every element's tensor, its place unit by unit and its number gate by
    /// gate.
    fn each(&self, mut each: impl FnMut(&GateEntry, usize, usize)) {
        for entry in &self.tensors {
            let width = entry.width as usize;
            for k in 0..self.len(entry) {
                let (row, column) = (k / width, k % width);
                let place = (entry.place + row as u64 * entry.stride) as usize + column;
                each(entry, place, (row % 4 * self.hidden + row / 4) * width + column);
            }
        }
    }
}

pub(super) fn interleave<T: Operand>(rows: &GateRows, from: &[f32], to: &mut [T]) {
    rows.each(|entry, place, separated| {
        let x = from[entry.start as usize + separated];
        let x = if entry.other == NONE { x } else { x + from[entry.other as usize + separated] };
        to[place] = T::narrow(x);
    });
}

pub(super) fn add_separated(rows: &GateRows, from: &[f32], to: &mut [f32]) {
    rows.each(|entry, place, separated| {
        for start in [entry.start, entry.other].into_iter().filter(|&start| start != NONE) {
            to[start as usize + separated] += from[place];
        }
    });
}
