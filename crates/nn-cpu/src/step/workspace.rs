//! The weights as products read them.

use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::model::{Model, TensorSet};

use crate::arithmetic::CpuArithmetic;
use crate::shard::{PackedWeights, Weights};

/// Memory for the weights as products in 16 bits read them, booked on `scope`; `None` for products
/// in fp32.
pub(super) fn working_copy(scope: &Scope, model: &Model, arithmetic: CpuArithmetic) -> Result<Option<TensorSet>> {
    let is_fp32 = arithmetic == CpuArithmetic::Fp32;
    (!is_fp32).then(|| TensorSet::zeros(scope, model.layout())).transpose()
}

/// Copies `parameters` to `working` and rounds the matrices.
pub(super) fn round_weights(arithmetic: CpuArithmetic, parameters: &TensorSet, working: &mut TensorSet) {
    working.values_mut().copy_from_slice(parameters.values());
    let matrices = working.tensors_mut().filter(|(_, shape, _)| shape.len() > 1);
    matrices.for_each(|(_, _, values)| arithmetic.round(values));
}

/// Weights of a shard: `parameters`, or the working copy of them.
pub(super) fn weights<'a>(
    model: &'a Model,
    parameters: &'a TensorSet,
    packed: &'a PackedWeights,
    working: &'a Option<TensorSet>,
) -> Weights<'a> {
    Weights { model, parameters: working.as_ref().unwrap_or(parameters), packed }
}
