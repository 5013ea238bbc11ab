//! `megabatch synth`: made-up data of any shape, for trying things out and for tests.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use megabatch_chunk_io::{Compression, Storage, WriteOptions};
use megabatch_gpu_core::Device;
use megabatch_trainer::write_atomically;
use serde_json::json;

use crate::answer::{Answer, shown};
use crate::byte_sizes::bytes;
use crate::failure::Failure;
use crate::output;
use crate::recipe::windows::Windows;
use crate::synth::{bars, samples, shares};
use crate::training_setup::free_memory_bytes;

/// Make up bars (.csv) or samples (.h5) of any shape; the same seed gives the same file
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
    /// Number of shares, a file of daily bars each, in the folder that is named
    #[arg(long)]
    shares: Option<NonZeroUsize>,
    /// Calendar days of one-minute bars, or of daily ones with --shares
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
    /// Layout of the samples
    #[arg(long, value_enum, default_value_t = Layout::Series)]
    layout: Layout,
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
    /// How the file is compressed
    #[arg(long, value_enum, default_value_t = Filter::Gzip)]
    compression: Filter,
    /// Samples or bars in a chunk of the file; as many as make about 1 MiB if not given
    #[arg(long)]
    chunk_rows: Option<NonZeroUsize>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Layout {
    /// Bars once; a window is an index into them
    Series,
    /// Every window whole
    Windows,
}

#[derive(Clone, Copy, ValueEnum)]
enum Filter {
    /// One block, no chunks
    Contiguous,
    /// Chunks as they are
    None,
    /// Shuffle and deflate
    Gzip,
    /// Shuffle and LZF
    Lzf,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    if let Some(count) = args.shares {
        return make_shares(args, count.get());
    }
    output::check(&args.out, &[])?;
    match args.out.extension().and_then(|ending| ending.to_str()) {
        Some("csv") => make_bars(args),
        Some("h5" | "hdf5") => make_samples(args),
        _ => Err(Failure::usage(format!(
            "{}: the ending says what to make up: .csv for bars, .h5 for samples",
            args.out.display()
        ))),
    }
}

fn make_shares(args: &Args, count: usize) -> Result<Answer> {
    let folder = &args.out;
    let failed = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", folder.display()));
    if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(failed(&"is there already and not empty; name another folder"));
    }
    std::fs::create_dir_all(folder).map_err(|error| failed(&format!("cannot be made: {error}")))?;
    let files = shares::csv_files(count, args.days, args.seed);
    let bars = files.first().map_or(0, |(_, csv)| csv.lines().count() - 1);
    for (name, csv) in &files {
        write_atomically(&folder.join(format!("{name}.csv")), csv.as_bytes())?;
    }
    let text = format!("{}: {count} shares with {bars} daily bars each", folder.display());
    Ok(Answer::new(text, &json!({ "folder": shown(folder), "shares": count, "bars": bars })))
}

fn make_bars(args: &Args) -> Result<Answer> {
    let mut csv = Vec::new();
    let count = bars::write_csv(&mut csv, args.days, args.seed)?;
    write_atomically(&args.out, &csv)?;
    let text = format!("{}: {count} one-minute bars of {} days", args.out.display(), args.days);
    Ok(Answer::new(text, &json!({ "file": shown(&args.out), "bars": count })))
}

fn make_samples(args: &Args) -> Result<Answer> {
    let spec = samples::Spec {
        samples: args.samples.get(),
        windows: match args.steps {
            Some(steps) => samples::SynthWindows::Unnamed(steps.get()),
            None => samples::SynthWindows::Named(args.timeframes.0.clone()),
        },
        features: args.features.get(),
        targets: args.targets.get(),
        seed: args.seed,
    };
    let (needed, available) = (spec.held_bytes(), free_memory_bytes(&Device::cpu()));
    if needed > available {
        return Err(Failure::capacity(format!(
            "making {} samples takes {} of memory and {} are free; ask for fewer",
            args.samples,
            bytes(needed),
            bytes(available)
        )));
    }
    let options = WriteOptions { storage: storage(args) };
    match args.layout {
        Layout::Series => samples::write_series_file(&args.out, &spec, &options)?,
        Layout::Windows => samples::write_windows_file(&args.out, &spec, &options)?,
    }
    let size = std::fs::metadata(&args.out)?.len();
    let text = format!("{}: {} samples, {}", args.out.display(), args.samples, bytes(size as usize));
    Ok(Answer::new(text, &json!({ "file": shown(&args.out), "samples": args.samples, "bytes": size })))
}

fn storage(args: &Args) -> Storage {
    let compression = match args.compression {
        Filter::Contiguous => return Storage::Contiguous,
        Filter::None => Compression::None,
        Filter::Gzip => Compression::Gzip { level: 4 },
        Filter::Lzf => Compression::Lzf,
    };
    Storage::Chunked { rows: args.chunk_rows, compression }
}
