//! `megabatch synth`: synthetic data of any shape, for trying things out and for tests.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_run::ingest::Windows;
use megabatch_run::synth::{Filter, Layout, SampleOptions, SampleWindows, make_bars, make_samples, make_shares};
use megabatch_run::{Error, Result};

use crate::answer::Answer;
use crate::commands::choice;

/// Write synthetic bars (.csv) or samples (.h5) of any shape; equal seeds give equal files
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch synth bars.csv --days 30
  megabatch synth shares --shares 12 --days 300
  megabatch synth windows.h5 --layout windows --samples 1000 --steps 360 --features 167
  megabatch synth series.h5 --layout series --samples 5000 --timeframes M1:480,H1:96")]
pub(crate) struct Args {
    /// The file to write: bars if it ends in .csv, samples if it ends in .h5 or .hdf5; with
    /// --shares a folder
    out: PathBuf,
    /// Number of shares; writes a folder with a file of daily bars for each
    #[arg(long)]
    shares: Option<NonZeroUsize>,
    /// Calendar days of one-minute bars, or of daily ones with --shares
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// Layout of the samples
    #[arg(long, value_enum, default_value_t = LayoutArg::Series)]
    layout: LayoutArg,
    /// Number of samples, N
    #[arg(long, default_value = "1000")]
    samples: NonZeroUsize,
    /// Window of each timeframe in bars
    #[arg(long, default_value = "M1:480,M5:288,M15:192,H1:96,H4:48", conflicts_with = "steps")]
    timeframes: Windows,
    /// Window of a single timeframe without a name, in bars (windows layout)
    #[arg(long)]
    steps: Option<NonZeroUsize>,
    /// Features of a bar, F
    #[arg(long, default_value = "16")]
    features: NonZeroUsize,
    /// Targets of a sample, K
    #[arg(long, default_value = "36")]
    targets: NonZeroUsize,
    /// Compression of the file
    #[arg(long, value_enum, default_value_t = FilterArg::Gzip)]
    compression: FilterArg,
    /// Samples or bars in a chunk of the file [default: about 1 MiB]
    #[arg(long)]
    chunk_rows: Option<NonZeroUsize>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

choice! {
    enum LayoutArg => Layout {
        /// Bars once; a window is an index into them
        Series => Series,
        /// Every window whole
        Windows => Windows,
    }
}

choice! {
    enum FilterArg => Filter {
        /// One block, no chunks
        Contiguous => Contiguous,
        /// Chunks without filters
        None => None,
        /// Shuffle and deflate
        Gzip => Gzip,
        /// Shuffle and LZF
        Lzf => Lzf,
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let report = match (args.shares, args.out.extension().and_then(|ending| ending.to_str())) {
        (Some(count), _) => make_shares(&args.out, count, args.days, args.seed)?,
        (None, Some("csv")) => make_bars(&args.out, args.days, args.seed)?,
        (None, Some("h5" | "hdf5")) => make_samples(&args.out, &samples(args))?,
        _ => {
            return Err(Error::usage(format!(
                "{}: the ending says what to make up: .csv for bars, .h5 for samples",
                args.out.display()
            )));
        }
    };
    Ok(report.into())
}

fn samples(args: &Args) -> SampleOptions {
    SampleOptions {
        layout: args.layout.into(),
        samples: args.samples,
        windows: match args.steps {
            Some(steps) => SampleWindows::Unnamed(steps),
            None => SampleWindows::Named(args.timeframes.clone()),
        },
        features: args.features,
        targets: args.targets,
        compression: args.compression.into(),
        chunk_rows: args.chunk_rows,
        seed: args.seed,
    }
}
