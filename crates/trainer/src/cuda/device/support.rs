#![forbid(unsafe_code)]

//! Settings that a device does not support yet.

use std::fmt::Display;

use crate::batch::dense::LossOn;
use crate::cpu::form::Form;
use crate::cpu::pooling::Pooling;
use crate::error::{Error, Result};
use crate::model::{Encoder, ModelConfig};
use crate::train::config::Config;

/// Refuses settings that a device's step does not cover, by their names.
///
/// # Errors
/// [`Error::NotOnGpu`] for the first of them.
pub(crate) fn check(config: &Config) -> Result<()> {
    check_model(&config.model, config.form)?;
    if config.loss_on == LossOn::EveryStep && config.model.pooling != Pooling::Last {
        return refuse("training.loss_on", &"every_step", "attention pooling");
    }
    if config.carry_state {
        return refuse("training.carry_state", &true, "");
    }
    if config.gradient_checkpointing {
        return refuse("training.gradient_checkpointing", &true, "");
    }
    if config.profile {
        return refuse("training.profile", &true, "");
    }
    Ok(())
}

/// Refuses a model that a device does not compute, trained or not, by the name of the setting that
/// makes it one.
///
/// # Errors
/// [`Error::NotOnGpu`].
pub(crate) fn check_model(model: &ModelConfig, form: Form) -> Result<()> {
    if model.encoder == Encoder::LastBar && !model.is_over_graphs() {
        return refuse("model.encoder", &"none", "samples that are not nodes of graphs");
    }
    if form == Form::Plain {
        return refuse("training.form", &"plain", "");
    }
    Ok(())
}

/// The error for `setting`, which is supported without `together_with`, if that is not empty.
pub(crate) fn refuse(setting: &'static str, value: &dyn Display, together_with: &'static str) -> Result<()> {
    Err(Error::NotOnGpu { setting, value: value.to_string(), together_with })
}
