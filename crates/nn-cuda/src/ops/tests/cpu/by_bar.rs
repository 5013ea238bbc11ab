//! Gradients of gates by bar on the CPU.

use super::{Operand, WorkList};

pub(super) fn sum_per_bar<T: Operand>(list: &WorkList, sequence: usize, d_gates: &[T], to: &mut [f32]) {
    let (place, width) = (list.places()[sequence], 4 * list.hidden());
    to[..list.projected_rows_of(sequence) * width].fill(0.0);
    for (window, &first) in list.first(&place).iter().enumerate() {
        for t in 0..place.steps as usize {
            let terms = &d_gates[(place.gates(t) + window) * width..][..width];
            let sums = &mut to[(first as usize + t) * width..][..width];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term.widen());
        }
    }
}
