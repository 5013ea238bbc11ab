//! `megabatch convert`: windows into a series and back, and files into other chunks or another
//! compression.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::ValueEnum;
use megabatch_chunk_io::{
    Compression, Conversion, ConversionProgress, ConversionStage, ConvertOptions, Layout, StorageChoice, StorageForm,
    convert, layout_of,
};
use megabatch_gpu_core::Device;

use super::memory::size::ByteSize;
use crate::answer::{Answer, shown};
use crate::byte_sizes::bytes;
use crate::interruption::Interruption;
use crate::output;
use crate::progress::Progress;

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
    to: Option<To>,
    /// One block a table, or chunks of whole rows
    #[arg(long, value_enum)]
    storage: Option<Form>,
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
enum To {
    /// Bars once; a window is an index into them
    Series,
    /// Every window whole
    Windows,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// One block, no chunks
    Contiguous,
    /// Chunks of whole rows
    Chunked,
}

/// A compression as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Filter(Compression);

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
        let level: Option<u8> = match level {
            None => None,
            Some(level) => Some(level.parse().ok().filter(|level| *level <= 9).ok_or("expected a level from 0 to 9")?),
        };
        match (name, level) {
            ("none", None) => Ok(Filter(Compression::None)),
            ("lzf", None) => Ok(Filter(Compression::Lzf)),
            ("gzip", level) => Ok(Filter(Compression::Gzip { level: level.unwrap_or(4) })),
            _ => Err(format!("`{text}` is no compression; expected none, gzip, gzip:LEVEL or lzf")),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let start = Instant::now();
    output::require_ending(&args.out, &["h5", "hdf5"])?;
    output::check(&args.out, &[&args.input])?;
    let options = options(args)?;
    // What is in the spool is safe at any moment.
    let interruption = Interruption::watch(Duration::from_secs(5))?;
    let mut progress: Option<Progress> = None;
    let mut observe = |report: ConversionProgress| {
        // Work of an earlier run is the first report.
        let bar = progress.get_or_insert_with(|| {
            let mut bar = Progress::start("convert", report.total_bytes, "bytes");
            bar.begin_at(report.done_bytes);
            bar
        });
        bar.at(report.done_bytes, stage(report.stage));
        if interruption.is_asked() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let scope = Device::cpu().scope("convert");
    let done = convert(&args.input, &args.out, &options, &scope, &mut observe);
    drop(progress);
    Ok(answer(args, &done?, start.elapsed().as_secs_f64()))
}

fn stage(stage: ConversionStage) -> &'static str {
    match stage {
        ConversionStage::Converting => "converting",
        ConversionStage::Writing => "writing",
        _ => "verifying",
    }
}

fn options(args: &Args) -> Result<ConvertOptions> {
    let storage = StorageChoice {
        form: args.storage.map(|form| match form {
            Form::Contiguous => StorageForm::Contiguous,
            Form::Chunked => StorageForm::Chunked,
        }),
        chunk_rows: args.chunk_rows,
        compression: args.compression.map(|Filter(compression)| compression),
    };
    let stored_anew = storage.form.is_some() || storage.chunk_rows.is_some() || storage.compression.is_some();
    let to = match args.to {
        Some(To::Series) => Some(Layout::Series),
        Some(To::Windows) => Some(Layout::Windows),
        None if stored_anew => None,
        None => Some(match layout_of(&args.input)? {
            Layout::Series => Layout::Windows,
            _ => Layout::Series,
        }),
    };
    let threads = args.threads.map_or(0, NonZeroUsize::get);
    Ok(ConvertOptions { to, storage, timeframe: args.timeframe.clone(), memory_bytes: args.memory.0, threads })
}

fn answer(args: &Args, done: &Conversion, seconds: f64) -> Answer {
    let ratio = done.bytes_before as f64 / done.bytes_after.max(1) as f64;
    let mut text = format!("{}: {} → {} layout, {} samples", args.out.display(), done.from, done.to, done.samples);
    for (name, bars) in &done.bars {
        text.push_str(&format!("\n{name:>4}: {bars} bars"));
    }
    let (before, after) = (bytes(done.bytes_before as usize), bytes(done.bytes_after as usize));
    let change =
        if ratio < 1.0 { format!("{:.1} times larger", 1.0 / ratio) } else { format!("{ratio:.1} times smaller") };
    text.push_str(&format!("\n{before} → {after}, {change}, in {seconds:.2} s"));
    if done.continued {
        text.push_str(", going on where an earlier run was");
    }
    text.push_str("\nverified: every table was read back and is the same, bit for bit");
    done.notes.iter().for_each(|note| text.push_str(&format!("\nnote: {note}")));
    let mut json = serde_json::to_value(done).expect("a conversion serialises without error");
    json["out"] = shown(&args.out).into();
    json["bars"] = done.bars.iter().map(|(name, bars)| (name.clone(), serde_json::json!(bars))).collect();
    json["ratio"] = ratio.into();
    json["seconds"] = seconds.into();
    Answer::new(text, &json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressions_are_read() {
        for (text, compression) in [
            ("none", Compression::None),
            ("lzf", Compression::Lzf),
            ("gzip", Compression::Gzip { level: 4 }),
            ("gzip:0", Compression::Gzip { level: 0 }),
            ("gzip:9", Compression::Gzip { level: 9 }),
        ] {
            assert_eq!(text.parse(), Ok(Filter(compression)), "{text}");
        }
        for wrong in ["", "gzip:10", "gzip:", "gzip:-1", "lzf:1", "none:0", "zstd"] {
            assert!(wrong.parse::<Filter>().is_err(), "{wrong}");
        }
    }
}
