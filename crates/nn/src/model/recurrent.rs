//! Recurrent layers of one timeframe: sizes and parameters.

use megabatch_amp::QuantizedMatrix;

use crate::error::{Error, Result};
use crate::model::cell::Cell;
use crate::model::norm::LayerNorm;
use crate::model::tensor::{Layout, Slot, TensorSet};

/// Sizes of one timeframe's recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecurrentSizes {
    /// Cell of all layers.
    pub cell: Cell,
    /// T.
    pub steps: usize,
    /// F of the first layer; those above read H.
    pub features: usize,
    /// H.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// True if the layers have `bias_ih` and `bias_hh`.
    pub bias: bool,
    /// True if each layer's outputs go through a norm.
    pub norm: bool,
    /// Hidden states that are read.
    pub read: Read,
}

/// Hidden states of the top layer that are read, and give a gradient back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The one after the last step.
    LastStep,
    /// States after every step.
    EveryStep,
}

/// Offsets of the parameters of one timeframe's recurrent layers.
#[derive(Debug)]
pub struct RecurrentLayers {
    /// Sizes of all layers.
    pub sizes: RecurrentSizes,
    /// Parameters, layer by layer.
    pub layers: Vec<LayerSlots>,
}

/// Offsets of one layer's parameters.
#[derive(Clone, Copy, Debug)]
pub struct LayerSlots {
    /// W_ih, `[GH, F]` for G gates.
    pub weight_ih: Slot,
    /// W_hh, `[GH, H]`.
    pub weight_hh: Slot,
    /// b_ih and b_hh, `[GH]` each.
    pub bias: Option<[Slot; 2]>,
    /// Norm of the layer's outputs.
    pub norm: Option<LayerNorm>,
}

impl RecurrentLayers {
    /// Appends the parameters to `layout`, named `<prefix>.weight_ih_l0` and so on, in PyTorch's
    /// order, and the norms' `<norm>.l0.weight`.
    pub(crate) fn new(sizes: RecurrentSizes, prefix: &str, norm: &str, layout: &mut Layout) -> Self {
        let (hidden, rows) = (sizes.hidden, sizes.gate_rows());
        let layer = |l: usize| {
            let mut slot = |kind: &str, shape: &[usize]| layout.push(format!("{prefix}.{kind}_l{l}"), shape);
            LayerSlots {
                weight_ih: slot("weight_ih", &[rows, sizes.input(l)]),
                weight_hh: slot("weight_hh", &[rows, hidden]),
                bias: sizes.bias.then(|| ["bias_ih", "bias_hh"].map(|kind| slot(kind, &[rows]))),
                norm: sizes.norm.then(|| LayerNorm::new(hidden, &format!("{norm}.l{l}"), layout)),
            }
        };
        RecurrentLayers { sizes, layers: (0..sizes.layers).map(layer).collect() }
    }
}

impl RecurrentSizes {
    /// Rows of a layer's weights and biases.
    pub fn gate_rows(self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Width of what layer `l` reads at each step.
    pub fn input(self, l: usize) -> usize {
        if l == 0 { self.features } else { self.hidden }
    }

    /// True if some layer's outputs receive gradients at every step: from the layer above, or for
    /// the top one from what reads it.
    pub fn has_d_layer_output(self) -> bool {
        self.layers > 1 || self.read == Read::EveryStep
    }
}

impl LayerSlots {
    /// W_ih `[GH, F]` and W_hh `[GH, H]` of H = `hidden` units in eight bits.
    ///
    /// # Errors
    /// [`Error::Quantize`] for weights that are not finite.
    pub fn quantized(&self, hidden: usize, parameters: &TensorSet) -> Result<[QuantizedMatrix; 2]> {
        let rows = parameters.slot(self.weight_hh).len() / hidden;
        let quantized = |slot| {
            let weight = parameters.slot(slot);
            let tensor = || parameters.layout().name(slot).to_owned();
            QuantizedMatrix::quantize(weight, rows, weight.len() / rows)
                .map_err(|source| Error::Quantize { tensor: tensor(), source })
        };
        Ok([quantized(self.weight_ih)?, quantized(self.weight_hh)?])
    }
}
