//! Import of weights as a run that can be evaluated, used and trained further.

use std::path::PathBuf;

use megabatch_trainer::Trainer;
use serde_json::json;

use crate::command_report::CommandReport;

use crate::config::{self, SettingSources};
use crate::error::Result;
use crate::host::Host;
use crate::plan::Plan;
use crate::run_folder::RunFolder;
use crate::setup::{Intent, Request, TrainingSetup, data_path, make_graph_absolute};
use crate::text::shown;

/// Weights to import.
#[derive(Clone, Debug)]
pub struct ImportRequest {
    /// The weights, in safetensors, with PyTorch's names, shapes and gate order.
    pub weights: PathBuf,
    /// Settings, whose `model.*` fits the weights.
    pub settings: SettingSources,
    /// Data with the shape of the model; goes over `data.path`.
    pub data: Option<PathBuf>,
    /// Folder of the run to make.
    pub out: PathBuf,
}

/// Makes a run of weights from elsewhere.
///
/// # Errors
/// A data error for weights that do not fit the model, a usage error for a folder that holds a run.
pub fn import(request: &ImportRequest, host: &Host<'_>) -> Result<CommandReport> {
    let mut config = request.settings.load(&host.environment)?;
    let data = data_path(&config, request.data.as_deref())?;
    config.set_path(&config::data::PATH, &std::path::absolute(data)?)?;
    make_graph_absolute(&mut config)?;
    config.set_path(&config::output::DIR, &request.out)?;
    // The weights are for the targets as they are.
    config.set_word(&config::training::TARGET_SCALING, "none");
    let folder = RunFolder::new(&request.out)?;
    let setup = TrainingSetup::open(Request::new(config, Intent::Plan, host))?;
    let plan = Plan::new(&setup)?;
    let mut trainer = Trainer::new(&setup.device, setup.training.clone(), plan.shape.clone())?;
    trainer.load_weights(&request.weights)?;

    let _run_lock = folder.take()?;
    folder.begin(&setup.config, &plan)?;
    let checkpoints = folder.keep_checkpoints(&setup.config);
    let checkpoint = trainer.save_checkpoint(&setup.run(&checkpoints))?;
    let text = format!("{}: {} weights as step 0", folder.root().display(), plan.parameters);
    Ok(CommandReport::new(
        text,
        &json!({ "run": shown(folder.root()), "checkpoint": checkpoint.as_deref().map(shown), "parameters": plan.parameters }),
    ))
}
