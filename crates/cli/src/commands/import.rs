//! `megabatch import`: weights from elsewhere become a run that can be evaluated, used and trained
//! on.

use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::import::{ImportRequest, import};

use super::settings;
use crate::answer::Answer;
use crate::host::host;

/// Make a run from external weights with PyTorch's names, shapes and gate order
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch import model.safetensors --data series.h5 --out runs/imported")]
pub(crate) struct Args {
    /// The weights, in safetensors
    weights: PathBuf,
    /// Configuration whose model.* fits the weights; cell, hidden units, layers, bias and layer
    /// norm are those of the weights where it does not say
    #[arg(long)]
    config: Option<PathBuf>,
    /// Data with the shape of the model
    #[arg(long)]
    data: Option<PathBuf>,
    /// Folder of the run to make
    #[arg(long)]
    out: PathBuf,
    /// Set a configuration key; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let request = ImportRequest {
        weights: args.weights.clone(),
        settings: settings(args.config.as_deref(), &args.set),
        data: args.data.clone(),
        out: args.out.clone(),
    };
    Ok(import(&request, &host())?.into())
}
