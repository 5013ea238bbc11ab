#![forbid(unsafe_code)]

//! Models that the CUDA engine does not compute yet.

use crate::error::{Error, Result};
use crate::model::{Encoder, ModelConfig};

/// Refuses a model that the CUDA engine does not compute, trained or not.
///
/// # Errors
/// [`Error::NotOnGpu`].
pub fn check_encoder(model: &ModelConfig) -> Result<()> {
    if model.encoder == Encoder::LastBar && !model.is_over_graphs() {
        return Err(Error::NotOnGpu {
            setting: "model.encoder",
            value: "none".to_owned(),
            together_with: "samples that are not nodes of graphs",
        });
    }
    Ok(())
}
