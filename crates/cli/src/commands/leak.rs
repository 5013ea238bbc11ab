//! `megabatch leak`: proof that no sample sees a bar that had not closed.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::ingest::ContextFile;
use megabatch_run::leak::{Options, prove};

use super::settings;
use crate::answer::Answer;
use crate::host::host;

/// Prove that no sample sees an open bar
///
/// The series is made again from its bars and compared with the file, byte for byte. Then, for
/// samples at random and at every change of the clocks, every bar that had not closed by the
/// sample's time is replaced: by other prices, and also by bars at other times. What the sample
/// sees must stay the same to the last bit. Last, the file is split as `train` would split it, and
/// no sample of a later part may look back to before the end of a label of an earlier one.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch leak eurusd.h5
  megabatch leak eurusd.h5 --source DAT_ASCII_EURUSD_M1_2018.csv.gz --samples 200
  megabatch leak eurusd.h5 --set data.split=[0.8,0.1,0.1] --set data.walk_forward=4")]
pub(crate) struct Args {
    /// A series file, as `ingest` writes it
    file: PathBuf,
    /// New location of the files of bars, or of their folders, if they were moved
    #[arg(long, num_args = 1..)]
    source: Vec<PathBuf>,
    /// New location of the bars of an instrument of the context, as SYMBOL=FILE; may be repeated
    #[arg(long, value_name = "SYMBOL=FILE")]
    context: Vec<ContextFile>,
    /// Samples drawn at random
    #[arg(long, default_value = "32")]
    samples: NonZeroUsize,
    /// Seed of the random samples and of the replacement bars
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Configuration in YAML; its split is checked
    #[arg(long)]
    config: Option<PathBuf>,
    /// Set a configuration key; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let options = Options {
        source: args.source.clone(),
        context: args.context.clone(),
        leaves_functions: true,
        samples: args.samples.get(),
        seed: args.seed,
        settings: settings(args.config.as_deref(), &args.set),
    };
    Ok(prove(&args.file, &options, &host())?.into())
}
