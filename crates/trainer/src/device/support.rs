#![forbid(unsafe_code)]

//! What a device does not compute yet.

use std::fmt::Display;

use crate::config::Config;
use crate::dense::LossOn;
use crate::error::{Error, Result};
use crate::form::Form;
use crate::model::{Encoder, ModelConfig};
use crate::pooling::Pooling;

/// Refuses settings that a device's step does not cover, by their names.
///
/// # Errors
/// [`Error::Setting`] for the first of them.
pub(crate) fn check(config: &Config) -> Result<()> {
    check_model(&config.model, config.form)?;
    if config.loss_on == LossOn::EveryStep && config.model.pooling != Pooling::Last {
        let expected = "last_step, for attention pooling on a GPU so far; or compute on the CPU, with --device cpu";
        return refuse("training.loss_on", &"every_step", expected);
    }
    if config.carry_state {
        return refuse(
            "training.carry_state",
            &true,
            "false on a GPU so far; or compute on the CPU, with --device cpu",
        );
    }
    if config.gradient_checkpointing {
        let expected = "false on a GPU so far, with a smaller batch and gradient accumulation; or train on the CPU, with --device cpu";
        return refuse("training.gradient_checkpointing", &true, expected);
    }
    if config.profile {
        return refuse("training.profile", &true, "false on a GPU so far; or train on the CPU, with --device cpu");
    }
    Ok(())
}

/// Refuses a model that a device does not compute, trained or not, by the name of the setting that
/// makes it one.
///
/// # Errors
/// [`Error::Setting`].
pub(crate) fn check_model(model: &ModelConfig, form: Form) -> Result<()> {
    if model.encoder == Encoder::LastBar && !model.is_over_graphs() {
        let expected =
            "lstm for samples that are not nodes of graphs, on a GPU so far; or compute on the CPU, with --device cpu";
        return refuse("model.encoder", &"none", expected);
    }
    if form == Form::Plain {
        return refuse("training.form", &"plain", "fast on a GPU; the reference runs on the CPU, with --device cpu");
    }
    Ok(())
}

fn refuse(setting: &'static str, value: &dyn Display, expected: &'static str) -> Result<()> {
    Err(Error::setting(setting, value, expected))
}
