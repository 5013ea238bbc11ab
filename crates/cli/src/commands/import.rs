//! `megabatch import`: weights from elsewhere become a run that can be evaluated, used and trained
//! on.

use std::path::PathBuf;

use anyhow::Result;
use megabatch_trainer::Trainer;
use serde_json::json;

use crate::answer::{Answer, shown};
use crate::config::Config;
use crate::plan::Plan;
use crate::run::RunFolder;
use crate::training_setup::{Intent, Request, TrainingSetup, data_path};

/// Make a run of weights from elsewhere: PyTorch's names, shapes and gate order
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch import model.safetensors --data series.h5 --out runs/imported")]
pub(crate) struct Args {
    /// The weights, in safetensors
    weights: PathBuf,
    /// Configuration whose model.* fits the weights
    #[arg(long)]
    config: Option<PathBuf>,
    /// Data of the model's shape
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
    let mut config = Config::load(args.config.as_deref(), &args.set)?;
    let data = data_path(&config, args.data.as_deref())?;
    config.set_path("data.path", &std::path::absolute(data)?)?;
    config.set_path("output.dir", &args.out)?;
    let folder = RunFolder::new(&args.out)?;
    let job = TrainingSetup::open(Request {
        config,
        data: None,
        device: "cpu",
        max_steps: None,
        memory_bytes: None,
        intent: Intent::Plan,
    })?;
    let plan = Plan::of(&job)?;
    let mut trainer = Trainer::new(&job.device, job.training.clone(), plan.shape.clone())?;
    trainer.load_weights(&args.weights)?;

    let _taken = folder.take()?;
    folder.begin(&job.config, &plan)?;
    let checkpoints = folder.keep_checkpoints(&job.config);
    let checkpoint = trainer.save_checkpoint(&job.run(&checkpoints))?;
    let text = format!("{}: {} weights as step 0", folder.root().display(), plan.parameters);
    Ok(Answer::new(
        text,
        &json!({ "run": shown(folder.root()), "checkpoint": checkpoint.as_deref().map(shown), "parameters": plan.parameters }),
    ))
}
