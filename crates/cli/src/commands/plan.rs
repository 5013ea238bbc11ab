//! `megabatch plan`: what a run will take, before it starts.

use std::path::PathBuf;

use anyhow::Result;

use crate::answer::Answer;
use crate::config::Config;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::training_setup::{Intent, Request, TrainingSetup, require_known_targets};

/// Compute what a run will take; refuse what would not fit and say what would
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch plan --data series.h5
  megabatch plan --data series.h5 --tensors
  megabatch plan --data series.h5 --device cuda:0 --memory-gb 16
  megabatch plan --config config.yaml --data series.h5 --memory-gb 16")]
pub(crate) struct Args {
    /// Configuration in YAML; defaults stand where it says nothing
    #[arg(long)]
    config: Option<PathBuf>,
    /// Data file; goes over data.path
    #[arg(long)]
    data: Option<PathBuf>,
    /// cpu, auto, cuda or cuda:N; a GPU need not be here
    #[arg(long, default_value = "auto")]
    device: String,
    /// Plan for a device with so much memory, in units of 10^9 bytes, instead of what is free here;
    /// with --device cuda:N, for a GPU with so much
    #[arg(long)]
    memory_gb: Option<f64>,
    /// Optimizer steps, whatever training.epochs says
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    max_steps: Option<u64>,
    /// Also list every tensor with its bytes and the phases of a step that use it; --json always
    /// does
    #[arg(long)]
    tensors: bool,
    /// Set a configuration key; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let memory_bytes = match args.memory_gb {
        Some(gigabytes) if gigabytes > 0.0 && gigabytes.is_finite() => Some((gigabytes * 1e9) as usize),
        Some(gigabytes) => return Err(Failure::usage(format!("--memory-gb {gigabytes}: expected a number above 0"))),
        None => None,
    };
    let job = TrainingSetup::open(Request {
        config: Config::load(args.config.as_deref(), &args.set)?,
        data: args.data.as_deref(),
        device: &args.device,
        max_steps: args.max_steps,
        memory_bytes,
        intent: Intent::Plan,
    })?;
    let plan = Plan::of(&job)?;
    plan.require_fit(&job)?;
    job.require_settings_of_its_data()?;
    require_known_targets(&job.data, &job.split)?;
    let tensors = if args.tensors { format!("\n{}", plan.tensors_text()) } else { String::new() };
    Ok(Answer::new(plan.to_text() + &tensors, &plan))
}
