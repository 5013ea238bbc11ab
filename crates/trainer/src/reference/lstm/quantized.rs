#![forbid(unsafe_code)]

use megabatch_amp::QuantizedMatrix;

use super::LayerSlots;
use crate::error::{Error, Result};
use crate::model::tensor::TensorSet;

impl LayerSlots {
    /// W_ih [4H, F] and W_hh [4H, H] of H = `hidden` units in eight bits.
    ///
    /// # Errors
    /// [`Error::Quantize`] for weights that are not finite.
    pub(crate) fn quantized(&self, hidden: usize, parameters: &TensorSet<f32>) -> Result<[QuantizedMatrix; 2]> {
        let quantized = |slot| {
            let weight = parameters.slot(slot);
            let shape = [4 * hidden, weight.len() / (4 * hidden)];
            let tensor = || parameters.layout().name(slot).to_owned();
            QuantizedMatrix::quantize(weight, shape[0], shape[1])
                .map_err(|source| Error::Quantize { tensor: tensor(), source })
        };
        Ok([quantized(self.weight_ih)?, quantized(self.weight_hh)?])
    }
}
