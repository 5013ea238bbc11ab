//! Input weights of all sequences on the CPU.

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;

use super::InputWeights;
use crate::ops::operand::{Operand, TensorSlice};

/// Weights of each sequence `[4H, F]`, none on a GPU.
pub(super) fn rows<T: Operand>(scope: &Scope, hidden: usize, features: &[usize]) -> Result<Vec<Buffer<T>>> {
    let features = features.iter().filter(|_| matches!(scope.device(), Device::Cpu(_)));
    Ok(features.map(|features| Buffer::zeros(scope, 4 * hidden * features)).collect::<Result<_, _>>()?)
}

pub(super) fn set<T: Operand>(
    weights: &mut InputWeights<T>,
    sequence: usize,
    weight: TensorSlice<'_, T>,
    bias: Option<TensorSlice<'_, f32>>,
) {
    let (gates, features) = (4 * weights.hidden, weights.features[sequence]);
    weights.rows[sequence].as_mut_slice().copy_from_slice(&weight.elements()[..gates * features]);
    let to = &mut weights.bias.as_mut_slice()[sequence * gates..][..gates];
    match bias {
        Some(bias) => to.copy_from_slice(&bias.elements()[..gates]),
        None => to.fill(0.0),
    }
}
