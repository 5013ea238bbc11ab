//! Parameters of layer normalisation.

use crate::model::tensor::{Layout, Slot, TensorSet};

/// Epsilon, which keeps a row without variance from a division by zero.
pub const EPSILON: f64 = 1e-5;

/// Offsets of the parameters.
#[derive(Clone, Copy, Debug)]
pub struct LayerNorm {
    /// Numbers in a row.
    pub width: usize,
    /// γ, `[width]`.
    pub weight: Slot,
    /// β, `[width]`.
    pub bias: Slot,
}

impl LayerNorm {
    /// Appends `<prefix>.weight` and `<prefix>.bias` to `layout`.
    pub(crate) fn new(width: usize, prefix: &str, layout: &mut Layout) -> Self {
        let mut slot = |name: &str| layout.push(format!("{prefix}.{name}"), &[width]);
        LayerNorm { width, weight: slot("weight"), bias: slot("bias") }
    }

    /// Offsets of γ and β.
    pub fn slots(&self) -> [Slot; 2] {
        [self.weight, self.bias]
    }

    /// γ and β, `[width]` each.
    pub fn parameters<'a>(&self, parameters: &'a TensorSet) -> [&'a [f32]; 2] {
        self.slots().map(|slot| parameters.slot(slot))
    }
}
