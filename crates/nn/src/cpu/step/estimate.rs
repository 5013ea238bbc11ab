#![forbid(unsafe_code)]

//! Memory of an engine, from shapes.

use super::{Capacity, Engine, Purpose};
use crate::cpu::shard::{PackedWeights, ShardWorkspace};
use crate::memory::Parts;
use crate::model::Model;

impl Engine {
    /// Numbers in the weights as the kernels read them.
    pub fn weights_len(model: &Model, purpose: Purpose) -> usize {
        PackedWeights::len(model, purpose)
    }

    /// The same by tensor.
    pub fn weights_parts(model: &Model, purpose: Purpose) -> Parts {
        PackedWeights::parts(model, purpose)
    }

    /// Numbers in the workspace of one shard of up to `capacity`.
    pub fn workspace_len(model: &Model, capacity: Capacity, purpose: Purpose) -> usize {
        ShardWorkspace::len(model, capacity, purpose)
    }

    /// The same by tensor.
    pub fn workspace_parts(model: &Model, capacity: Capacity, purpose: Purpose) -> Parts {
        ShardWorkspace::parts(model, capacity, purpose)
    }
}
