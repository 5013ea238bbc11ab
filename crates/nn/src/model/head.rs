//! Parameters of the linear head.

use crate::model::tensor::{Layout, Slot};

/// Offsets of the head's parameters.
#[derive(Debug)]
pub struct Head {
    /// D.
    pub width: usize,
    /// K.
    pub outputs: usize,
    /// W, `[K, D]`.
    pub weight: Slot,
    /// b, `[K]`.
    pub bias: Slot,
}

impl Head {
    /// Appends `head.weight` and `head.bias` to `layout`, for D = `width` inputs and K = `outputs`.
    pub(crate) fn new(width: usize, outputs: usize, layout: &mut Layout) -> Self {
        let weight = layout.push("head.weight".to_owned(), &[outputs, width]);
        Head { width, outputs, weight, bias: layout.push("head.bias".to_owned(), &[outputs]) }
    }

    /// Offsets of the weight `[K, D]` and the bias `[K]`.
    pub fn slots(&self) -> [Slot; 2] {
        [self.weight, self.bias]
    }
}
