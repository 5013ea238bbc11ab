//! `megabatch convert`: windows into a series and back, and files into other chunks or another
//! compression.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::ValueEnum;
use megabatch_run::Result;
use megabatch_run::convert::{Filter, Layout, Options, StorageForm, convert};
use megabatch_run::text::ByteSize;

use crate::answer::Answer;
use crate::host::host;

/// Turn windows into a series or a series into windows, or store a file in other chunks; checked
/// bit for bit
///
/// Windows that overlap become a series, which holds every bar once: hundreds of times smaller, and
/// the same samples. Without --to the layout becomes the other one, or stays where the storage is
/// chosen. Interrupted or killed, the same command goes on where it was; OUT appears whole or not
/// at all.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch convert windows.h5 series.h5
  megabatch convert series.h5 windows.h5 --to windows --compression lzf
  megabatch convert windows.h5 faster.h5 --chunk-rows 64 --compression gzip:4
  megabatch convert windows.h5 plain.h5 --storage contiguous")]
pub(crate) struct Args {
    /// The file to read
    input: PathBuf,
    /// The file to write
    out: PathBuf,
    /// Layout of the new file
    #[arg(long, value_enum)]
    to: Option<LayoutArg>,
    /// One block a table, or chunks of whole rows
    #[arg(long, value_enum)]
    storage: Option<StorageArg>,
    /// Samples, or bars, in a chunk; about 1 MiB if neither asked for nor there before
    #[arg(long)]
    chunk_rows: Option<NonZeroUsize>,
    /// Compression of chunks: none, gzip:LEVEL (0 to 9) or lzf
    #[arg(long, value_name = "none|gzip:LEVEL|lzf")]
    compression: Option<Filter>,
    /// Name in the series for the one timeframe of a file that has its windows in /features, such
    /// as M1
    #[arg(long, value_name = "NAME")]
    timeframe: Option<String>,
    /// Memory for values, about
    #[arg(long, default_value = "512MiB")]
    memory: ByteSize,
    /// Threads that compress; one a core if not given
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum LayoutArg {
    /// Bars once; a window is an index into them
    Series,
    /// Every window whole
    Windows,
}

#[derive(Clone, Copy, ValueEnum)]
enum StorageArg {
    /// One block, no chunks
    Contiguous,
    /// Chunks of whole rows
    Chunked,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let options = Options {
        to: args.to.map(|to| match to {
            LayoutArg::Series => Layout::Series,
            LayoutArg::Windows => Layout::Windows,
        }),
        storage: args.storage.map(|storage| match storage {
            StorageArg::Contiguous => StorageForm::Contiguous,
            StorageArg::Chunked => StorageForm::Chunked,
        }),
        chunk_rows: args.chunk_rows,
        compression: args.compression,
        timeframe: args.timeframe.clone(),
        memory: args.memory,
        threads: args.threads,
    };
    Ok(convert(&args.input, &args.out, &options, &host())?.into())
}
