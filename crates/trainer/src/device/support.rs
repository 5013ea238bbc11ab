#![forbid(unsafe_code)]

//! What a step on a device does not do yet.

use crate::config::Config;
use crate::dense::Mode;
use crate::error::{Error, Result};
use crate::form::Form;
use crate::model::Encoder;

/// Refuses settings that a device's step does not cover, by their names.
///
/// # Errors
/// [`Error::Setting`] for the first of them.
pub(crate) fn check(config: &Config) -> Result<()> {
    let model = &config.model;
    let refuse =
        |setting, value: &dyn ToString, expected| Err(Error::Setting { setting, value: value.to_string(), expected });
    if model.graph.is_some() || model.is_over_graphs() {
        return refuse("model.graph", &"set", "none on a GPU so far; or train on the CPU, with --device cpu");
    }
    if model.encoder == Encoder::LastBar {
        return refuse("model.encoder", &"last_bar", "lstm on a GPU; or train on the CPU, with --device cpu");
    }
    if config.mode == Mode::Dense {
        return refuse("training.mode", &"dense", "windows on a GPU so far; or train on the CPU, with --device cpu");
    }
    if config.carry_state {
        return refuse("training.carry_state", &true, "false on a GPU so far; or train on the CPU, with --device cpu");
    }
    if config.gradient_checkpointing {
        let expected = "false on a GPU so far, with a smaller batch and gradient accumulation; or train on the CPU, with --device cpu";
        return refuse("training.gradient_checkpointing", &true, expected);
    }
    if config.form == Form::Plain {
        return refuse("training.form", &"plain", "fast on a GPU; the reference runs on the CPU, with --device cpu");
    }
    if config.profile {
        return refuse("training.profile", &true, "false on a GPU so far; or train on the CPU, with --device cpu");
    }
    Ok(())
}
