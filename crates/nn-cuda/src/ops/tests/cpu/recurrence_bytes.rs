//! The recurrence with W_hh in eight bits on the CPU.

use megabatch_gpu_core::Buffer;

use super::{Operand, RecurrentInt8, States, WeightsForm, WorkList};
use crate::ops::bytes::cpu::{product_of, quantize_row};
use crate::ops::bytes::padded;
use crate::ops::recurrence::cpu::recurrence_by;

pub(super) fn recurrence_int8<T: Operand>(
    list: &WorkList,
    weights: &RecurrentInt8,
    projected: &Buffer<f32>,
    states: &mut States<T>,
) {
    let WeightsForm::StepByStep(matrices, _) = &weights.form else { unreachable!("persistent kernels are a GPU's") };

    recurrence_by(list, projected, states, |place, h, sums| {
        let mut bytes = vec![0; 2 * padded(h.len())];
        let scale = quantize_row(h, &mut bytes);
        let matrix = &matrices[place.weight as usize];
        for (n, sum) in sums.iter_mut().enumerate() {
            let (weights, weights_scale) = matrix.row(n);
            *sum += product_of(&bytes, scale, weights, weights_scale);
        }
    });
}
