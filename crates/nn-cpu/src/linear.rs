//! A linear map: y [N, out] = x [N, width] · Wᵀ + b, with W [out, width].

use megabatch_nn::model::TensorSet;
use megabatch_nn::model::fusion::Linear;

use crate::kernel::bf16::Bf16Isa;
use crate::matmul::{Matrix, Output, multiply_by};

/// `to` = y, or y added to it.
pub(crate) fn forward(
    linear: Linear,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    x: &[f32],
    to: &mut [f32],
    into: Output,
) {
    let (weight, bias) = (parameters.slot(linear.weight), parameters.slot(linear.bias));
    for row in to.chunks_exact_mut(bias.len()) {
        match into {
            Output::Overwrite => row.copy_from_slice(bias),
            Output::Add => row.iter_mut().zip(bias).for_each(|(sum, &bias)| *sum += bias),
        }
    }
    let width = weight.len() / bias.len();
    let weight = Matrix::new(weight, bias.len(), width).transposed();
    multiply_by(bf16_isa, Matrix::new(x, x.len() / width, width), weight, Output::Add, to);
}

/// The gradient of x in `d_x`, from that of y; adds the parameters' gradients to `gradients`.
pub(crate) fn backward(
    linear: Linear,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    x: &[f32],
    d_y: &[f32],
    d_x: &mut [f32],
    into: Output,
    gradients: &mut TensorSet,
) {
    let (weight, out) = (parameters.slot(linear.weight), parameters.slot(linear.bias).len());
    let (rows, width) = (d_y.len() / out, weight.len() / out);
    let d = Matrix::new(d_y, rows, out);
    multiply_by(bf16_isa, d.transposed(), Matrix::new(x, rows, width), Output::Add, gradients.slot_mut(linear.weight));
    for row in d_y.chunks_exact(out) {
        gradients.slot_mut(linear.bias).iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
    }
    multiply_by(bf16_isa, d, Matrix::new(weight, out, width), into, d_x);
}
