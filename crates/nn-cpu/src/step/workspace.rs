#![forbid(unsafe_code)]

//! The weights as products read them.

use megabatch_amp::{Operation, Precision, round_to};
use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::model::{Model, TensorSet};

use crate::shard::{PackedWeights, Weights};

/// Weights as products in 16 bits read them: matrices rounded, biases as they are.
#[derive(Debug)]
pub(super) struct WorkingCopy {
    pub(super) precision: Precision,
    pub(super) parameters: TensorSet,
}

impl WorkingCopy {
    /// Working copy of a model in `precision`, booked on `scope`; `None` in single precision.
    pub(super) fn new(scope: &Scope, model: &Model, precision: Precision) -> Result<Option<Self>> {
        let working_copy = |parameters| WorkingCopy { precision, parameters };
        (precision != Precision::Fp32).then(|| TensorSet::zeros(scope, model.layout()).map(working_copy)).transpose()
    }

    pub(super) fn take(&mut self, parameters: &TensorSet) {
        self.parameters.values_mut().copy_from_slice(parameters.values());
        let precision = self.precision.arithmetic(Operation::MatrixProduct).operands;
        for (_, _, values) in self.parameters.tensors_mut().filter(|(_, shape, _)| shape.len() > 1) {
            round_to(precision, values);
        }
    }
}

/// Weights of a shard: `parameters`, or the working copy of them.
pub(super) fn weights<'a>(
    model: &'a Model,
    parameters: &'a TensorSet,
    packed: &'a PackedWeights,
    working: &'a Option<WorkingCopy>,
) -> Weights<'a> {
    let (parameters, precision) = match working {
        Some(working) => (&working.parameters, working.precision),
        None => (parameters, Precision::Fp32),
    };
    Weights { model, parameters, packed, precision }
}
