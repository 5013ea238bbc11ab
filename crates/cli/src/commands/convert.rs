//! `megabatch convert`: windows into a series and back, and files into other chunks or another
//! compression.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::convert::{ChunkRows, Filter, Layout, Options, StorageForm, convert};
use megabatch_run::text::ByteSize;

use crate::answer::Answer;
use crate::commands::choice;
use crate::host::host;

/// Convert windows to a series or back, or store a file with other chunks; verified bit for bit
///
/// Overlapping windows become a series, which holds every bar once: hundreds of times smaller, with
/// the same samples. Without --to the layout changes to the other one, or stays if a storage option
/// is given. After an interruption, repeat the command to continue. OUT appears whole or not at
/// all.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch convert windows.h5 series.h5
  megabatch convert series.h5 windows.h5 --to windows --compression lzf
  megabatch convert windows.h5 faster.h5 --chunk-rows 64 --compression gzip:4
  megabatch convert series.h5 faster.h5 --chunk-rows auto
  megabatch convert windows.h5 plain.h5 --storage contiguous")]
pub(crate) struct Args {
    /// The file to read
    input: PathBuf,
    /// The file to write
    out: PathBuf,
    /// Layout of the new file
    #[arg(long, value_enum)]
    to: Option<LayoutArg>,
    /// Contiguous tables, or chunks of whole rows
    #[arg(long, value_enum)]
    storage: Option<StorageArg>,
    /// Samples or bars in a chunk, or auto: those that plan names for a compressed series that it
    /// streams [default: as in the input, or about 1 MiB]
    #[arg(long, value_name = "ROWS|auto")]
    chunk_rows: Option<ChunkRows>,
    /// Compression of chunks: none, gzip:LEVEL (0 to 9) or lzf
    #[arg(long, value_name = "none|gzip:LEVEL|lzf")]
    compression: Option<Filter>,
    /// Name, such as M1, for the only timeframe of a file with windows in /features
    #[arg(long, value_name = "NAME")]
    timeframe: Option<String>,
    /// Approximate memory for values
    #[arg(long, default_value = "512MiB")]
    memory: ByteSize,
    /// Threads that compress [default: one a core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
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
    enum StorageArg => StorageForm {
        /// One block, no chunks
        Contiguous => Contiguous,
        /// Chunks of whole rows
        Chunked => Chunked,
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let options = Options {
        to: args.to.map(Into::into),
        storage: args.storage.map(Into::into),
        chunk_rows: args.chunk_rows,
        compression: args.compression,
        timeframe: args.timeframe.clone(),
        memory: args.memory,
        threads: args.threads,
    };
    Ok(convert(&args.input, &args.out, &options, &host())?.into())
}
