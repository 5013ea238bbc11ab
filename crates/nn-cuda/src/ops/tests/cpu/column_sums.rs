//! Sums of columns on the CPU.

use super::{LANES, Operand, ROWS};

pub(super) fn add_column_sums<T: Operand>(x: &[T], rows: usize, columns: usize, to: &mut [f32]) {
    for (column, to) in to.iter_mut().enumerate() {
        for start in (0..rows).step_by(ROWS) {
            let lane = |lane: usize| {
                let own = (start + lane..rows.min(start + ROWS)).step_by(LANES);
                own.fold(0.0, |sum, row| sum + x[row * columns + column].widen())
            };
            *to += (1..LANES).fold(lane(0), |sum, other| sum + lane(other));
        }
    }
}
