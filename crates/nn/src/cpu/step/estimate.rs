#![forbid(unsafe_code)]

//! Memory of an engine, from shapes.

use megabatch_amp::Precision;

use super::{Capacity, Engine, Purpose};
use crate::cpu::shard::{PackedWeights, ShardWorkspace, pair_isa};
use crate::memory::Parts;
use crate::model::Model;

impl Engine {
    /// Numbers in the weights as the kernels read them.
    pub fn weights_len(model: &Model, purpose: Purpose, precision: Precision) -> usize {
        PackedWeights::len(model, purpose, pair_isa(precision))
    }

    /// The same by tensor.
    pub fn weights_parts(model: &Model, purpose: Purpose, precision: Precision) -> Parts {
        PackedWeights::parts(model, purpose, pair_isa(precision))
    }

    /// Numbers in the workspace of one shard of up to `capacity`.
    pub fn workspace_len(model: &Model, capacity: Capacity, purpose: Purpose, precision: Precision) -> usize {
        ShardWorkspace::len(model, capacity, purpose, pair_isa(precision))
    }

    /// The same by tensor.
    pub fn workspace_parts(model: &Model, capacity: Capacity, purpose: Purpose, precision: Precision) -> Parts {
        ShardWorkspace::parts(model, capacity, purpose, pair_isa(precision))
    }
}
