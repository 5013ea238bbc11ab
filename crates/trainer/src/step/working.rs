#![forbid(unsafe_code)]

//! The weights as products read them.

use megabatch_amp::{Operation, Precision, round_to};

use crate::fast::PackedWeights;
use crate::form::Weights;
use crate::model::Model;
use crate::tensor::TensorSet;

/// Weights as products in 16 bits read them: matrices rounded, biases as they are.
#[derive(Debug)]
pub(super) struct WorkingCopy {
    pub(super) precision: Precision,
    pub(super) parameters: TensorSet<f32>,
}

impl WorkingCopy {
    pub(super) fn take(&mut self, parameters: &TensorSet<f32>) {
        self.parameters.values_mut().copy_from_slice(parameters.values());
        let precision = self.precision.arithmetic(Operation::MatrixProduct).operands;
        for (_, _, values) in self.parameters.tensors_mut().filter(|(_, shape, _)| shape.len() > 1) {
            round_to(precision, values);
        }
    }
}

/// What a shard is computed with: `parameters`, or the working copy of them.
pub(super) fn weights<'a>(
    model: &'a Model,
    parameters: &'a TensorSet<f32>,
    (packed, working): (&'a Option<PackedWeights>, &'a Option<WorkingCopy>),
) -> Weights<'a> {
    let (parameters, precision) = match working {
        Some(working) => (&working.parameters, working.precision),
        None => (parameters, Precision::Fp32),
    };
    Weights { model, parameters, packed: packed.as_ref(), precision }
}
