//! `megabatch inspect`: contents and faults of a file, and what the model will see.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use megabatch_run::ingest::SampleRange;
use megabatch_run::inspect::{dump, inspect};
use megabatch_run::{Error, Result};

use crate::answer::Answer;

/// Describe a data file, its problems and the inputs of the model
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch inspect series.h5
  megabatch inspect series.h5 --all
  megabatch inspect EURUSD.csv
  megabatch inspect series.h5 --dump 0..64 samples.safetensors")]
pub(crate) struct Args {
    /// An HDF5 file of either layout, a file of bars as text, or a folder of such files
    file: PathBuf,
    /// Print all attributes, instruments and datasets, and the features of each timeframe, in place
    /// of what fits on a screen
    #[arg(long, conflicts_with = "dump")]
    all: bool,
    /// Write the model's inputs for samples A..B (half-open, from 0) to a safetensors file
    #[arg(long, num_args = 2, value_names = ["A..B", "OUT"])]
    dump: Option<Vec<OsString>>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let report = match args.dump.as_deref() {
        Some([range, out]) => {
            let range = range.to_string_lossy().parse::<SampleRange>().map_err(Error::usage)?;
            let SampleRange(range) = range;
            dump(&args.file, range, Path::new(out))?
        }
        _ => inspect(&args.file, args.all)?,
    };
    Ok(report.into())
}
