//! Gradient checkpointing: one layer at a time has cell states and gates.
//!
//! ```text
//! forward    layer 0, 1, …, top   each takes the buffers over from the layer below
//! backward   top                  still has its own
//!            top - 1, …, 1, 0     takes the buffers over from the layer above, and computes its
//!                                 states and gates again, from its inputs
//! ```
//!
//! The hidden states of all layers stay: the layers above read them, and the gradients of W_hh. The
//! same kernels compute the same numbers from them again, so gradients are equal bit for bit. One
//! layer alone has nothing to share.

use megabatch_nn::Result;

use super::Lstms;
use crate::ops::Operand;

impl<T: Operand> Lstms<T> {
    /// Gives the buffers of cell states and gates to layer `l`, if there is one set of them.
    pub(super) fn give_gates(&mut self, l: usize) {
        let Some(gates_layer) = &mut self.gates_layer else { return };
        let before = std::mem::replace(gates_layer, l);
        if before != l {
            let (lower, upper) = self.layers.split_at_mut(before.max(l));
            lower[before.min(l)].states.swap_cells_and_gates(&mut upper[0].states);
        }
    }

    /// Computes the cell states and gates of layer `l` again, if another layer has had their
    /// buffers since.
    pub(super) fn restore_gates(&mut self, l: usize) -> Result<()> {
        if self.gates_layer.is_some_and(|layer| layer != l) { self.states_forward(l) } else { Ok(()) }
    }
}
