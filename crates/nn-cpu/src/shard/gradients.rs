//! A block's gradients while threads add to them.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;

use megabatch_nn::model::TensorSet;
use megabatch_nn::model::recurrent::LayerSlots;

/// Gradients of a block to which nothing more is added.
#[derive(Clone, Debug)]
pub struct FinalGradients<'a> {
    /// Place of the block among those of its batch.
    pub block: usize,
    /// Place among the gradients of all parameters, one of
    /// [`Model::gradient_groups`](megabatch_nn::model::Model::gradient_groups).
    pub range: Range<usize>,
    /// The gradients there.
    pub values: &'a [f32],
}

/// Receiver of gradients, which the threads call that compute them.
pub type FinalSink<'a> = &'a (dyn Fn(FinalGradients<'_>) + Sync);

/// Receiver of the gradients of one block.
#[derive(Clone, Copy)]
pub(crate) struct BlockFinals<'a> {
    pub(crate) block: usize,
    pub(crate) sink: FinalSink<'a>,
}

impl fmt::Debug for BlockFinals<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockFinals {{ block: {} }}", self.block)
    }
}

/// A shard's gradients, to which several tasks add.
///
/// They add to different numbers, or one waits for the other, so that the order of a sum does not
/// depend on threads.
pub(crate) struct SharedGradients<'a> {
    set: Mutex<&'a mut TensorSet>,
    finals: Option<BlockFinals<'a>>,
}

const LOCK: &str = "nobody panics with the lock held";

impl<'a> SharedGradients<'a> {
    pub(crate) fn new(gradients: &'a mut TensorSet, finals: Option<BlockFinals<'a>>) -> Self {
        SharedGradients { set: Mutex::new(gradients), finals }
    }

    pub(crate) fn add(&self, add: impl FnOnce(&mut TensorSet)) {
        add(&mut self.set.lock().expect(LOCK));
    }

    /// Gives the gradients at `range`, to which nothing more is added, to their receiver.
    pub(crate) fn complete(&self, range: Range<usize>) {
        let Some(BlockFinals { block, sink }) = self.finals else { return };
        if !range.is_empty() {
            let set = self.set.lock().expect(LOCK);
            sink(FinalGradients { block, values: &set.values()[range.clone()], range });
        }
    }

    /// Gives the gradients of all parameters of a layer likewise.
    pub(crate) fn complete_layer(&self, slots: &LayerSlots) {
        if self.finals.is_some() {
            let range = slots.range(self.set.lock().expect(LOCK).layout());
            self.complete(range);
        }
    }
}
