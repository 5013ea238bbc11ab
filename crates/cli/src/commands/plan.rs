//! `megabatch plan`: what a run will take, before it starts.

use std::path::PathBuf;

use megabatch_run::plan::{PlanRequest, plan};
use megabatch_run::{Error, Result};

use super::{settings, step_count};
use crate::answer::Answer;
use crate::host::host;

/// Compute memory and steps of a run; refuse one that does not fit and name one that does
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch plan --data series.h5
  megabatch plan --data series.h5 --tensors
  megabatch plan --data series.h5 --ranks 4
  megabatch plan --data series.h5 --device cuda:0 --memory-gb 16
  megabatch plan --config config.yaml --data series.h5 --memory-gb 16")]
pub(crate) struct Args {
    /// Configuration in YAML; missing keys have their defaults
    #[arg(long)]
    config: Option<PathBuf>,
    /// Data file; overrides data.path
    #[arg(long)]
    data: Option<PathBuf>,
    /// cpu, auto, cuda or cuda:N; the GPU need not be present
    #[arg(long, default_value = "auto")]
    device: String,
    /// Memory of the planned device, in units of 10^9 bytes, instead of this machine's free memory;
    /// with --device cuda:N, of the GPU
    #[arg(long)]
    memory_gb: Option<f64>,
    /// Optimizer steps; overrides training.epochs
    #[arg(long, value_parser = step_count)]
    max_steps: Option<u64>,
    /// Processes that train together: memory of each, and what they send
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    ranks: u32,
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
        Some(gigabytes) => return Err(Error::usage(format!("--memory-gb {gigabytes}: expected a number above 0"))),
        None => None,
    };
    let request = PlanRequest {
        settings: settings(args.config.as_deref(), &args.set),
        data: args.data.clone(),
        device: args.device.clone(),
        memory_bytes,
        max_steps: args.max_steps,
        ranks: args.ranks as usize,
    };
    let plan = plan(&request, &host())?;
    let tensors = if args.tensors { format!("\n{}", plan.tensors_text()) } else { String::new() };
    Ok(Answer::new(plan.to_text() + &tensors, &plan))
}
