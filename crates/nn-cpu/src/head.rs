//! The linear head: y [B, K] = joined [B, D] · Wᵀ + b, with W [K, D].

use megabatch_nn::model::TensorSet;
use megabatch_nn::model::head::Head;

use crate::kernel::bf16::Bf16Isa;
use crate::matmul::{Matrix, Output, multiply_by};

pub(crate) fn forward(
    head: &Head,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    joined: &[f32],
    outputs: &mut [f32],
) {
    let bias = parameters.slot(head.bias);
    outputs.chunks_exact_mut(head.outputs).for_each(|row| row.copy_from_slice(bias));
    let weight = Matrix::new(parameters.slot(head.weight), head.outputs, head.width).transposed();
    multiply_by(bf16_isa, joined_matrix(head, joined), weight, Output::Add, outputs);
}

/// Adds the parameters' gradients and writes that of `joined` to `d_joined`, both [B, D].
pub(crate) fn backward(
    head: &Head,
    bf16_isa: Option<Bf16Isa>,
    parameters: &TensorSet,
    joined: &[f32],
    d_outputs: &[f32],
    d_joined: &mut [f32],
    gradients: &mut TensorSet,
) {
    let rows = d_outputs.len() / head.outputs;
    let d_y = Matrix::new(d_outputs, rows, head.outputs);
    multiply_by(bf16_isa, d_y.transposed(), joined_matrix(head, joined), Output::Add, gradients.slot_mut(head.weight));
    for row in d_outputs.chunks_exact(head.outputs) {
        gradients.slot_mut(head.bias).iter_mut().zip(row).for_each(|(sum, &term)| *sum += term);
    }
    let weight = Matrix::new(parameters.slot(head.weight), head.outputs, head.width);
    multiply_by(bf16_isa, d_y, weight, Output::Overwrite, d_joined);
}

fn joined_matrix<'a>(head: &Head, joined: &'a [f32]) -> Matrix<'a, f32> {
    Matrix::new(joined, joined.len() / head.width, head.width)
}
