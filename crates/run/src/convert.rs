//! Windows into a series and back, and files into other chunks or another
//! compression.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

use megabatch_atomic_file::{remove_stale, resolve_target};
use megabatch_chunk_io::{
    Conversion, ConversionProgress, ConversionStage, ConvertOptions, StorageChoice, conversion_bytes, layout_of,
};
use megabatch_gpu_core::Device;

use crate::adapters::data::refuse_graphs;
use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::host::{Host, PATIENCE, Progress, Work};
use crate::ingest::disk::{require_free, target_folder};
use crate::output;
use crate::plan::{PlanRequest, plan};
use crate::text::{ByteSize, bytes, shown};

pub use megabatch_chunk_io::{Compression, Layout, StorageForm};

/// Options of a conversion.
#[derive(Clone, Debug)]
pub struct Options {
    /// Layout of the new file; the other one if `None`, or the same where its storage is chosen.
    pub to: Option<Layout>,
    /// Contiguous tables, or chunks of whole rows.
    pub storage: Option<StorageForm>,
    /// Samples or bars in a chunk [default: as in the input, or about 1 MiB].
    pub chunk_rows: Option<ChunkRows>,
    /// Compression of chunks.
    pub compression: Option<Filter>,
    /// Name in the series for the one timeframe of a file that has its windows in `/features`.
    pub timeframe: Option<String>,
    /// Approximate memory for values.
    pub memory: ByteSize,
    /// Threads that compress; one a core if `None`.
    pub threads: Option<NonZeroUsize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            to: None,
            storage: None,
            chunk_rows: None,
            compression: None,
            timeframe: None,
            memory: ByteSize(512 << 20),
            threads: None,
        }
    }
}

/// Samples or bars in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkRows {
    /// A given number.
    Rows(NonZeroUsize),
    /// The number that [`plan`] suggests for a compressed series that it streams, with the default
    /// settings and those of the environment. Without a suggestion it is that of the input.
    Planned,
}

impl FromStr for ChunkRows {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(ChunkRows::Planned),
            rows => rows.parse().map(ChunkRows::Rows).map_err(|_| "expected auto or a number above 0".to_owned()),
        }
    }
}

/// A compression as people write it: `none`, `gzip:4`, `lzf`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Filter(
    /// The compression.
    pub Compression,
);

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

/// Turns the windows in `input` into a series, or a series into windows, or stores a file in other
/// chunks; the new file is checked bit for bit. Interrupted, the same call goes on where it was;
/// `out` appears whole or not at all.
///
/// # Errors
/// [`Kind::Cancelled`](crate::Kind::Cancelled) where the host ended it,
/// [`Kind::Data`](crate::Kind::Data) for windows that do not overlap as those of a series do.
pub fn convert(input: &Path, out: &Path, options: &Options, host: &Host<'_>) -> Result<CommandReport> {
    let start = Instant::now();
    output::require_ending(out, &["h5", "hdf5"])?;
    output::check(out, &[input])?;
    refuse_graphs(input)?;
    let (planned, options) = options.resolve(input, host)?;
    let scope = Device::cpu().scope("convert");
    // What a killed run left is as large as the output, and no room that is missing.
    resolve_target(out).iter().for_each(|target| remove_stale(target));
    // A file that cannot be read fails below, with more to say.
    let needed = conversion_bytes(input, out, &options, &scope).unwrap_or_default();
    require_free(&target_folder(out), needed, "the conversion")?;
    // What is in the spool is safe at any moment.
    host.cancel.watch(PATIENCE)?;
    let mut progress: Option<Box<dyn Progress>> = None;
    let mut observe = |report: ConversionProgress| {
        // Work of an earlier run is the first report.
        let bar = progress.get_or_insert_with(|| {
            let work = Work { label: "convert", total: report.total_bytes, unit: "bytes" };
            let mut bar = host.observer.begin(work);
            bar.begin_at(report.done_bytes);
            bar
        });
        bar.at(report.done_bytes, stage(report.stage));
        if host.cancel.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let done = megabatch_chunk_io::convert(input, out, &options, &scope, &mut observe);
    drop(progress);
    Ok(describe(out, &done?, planned, start.elapsed().as_secs_f64()))
}

fn stage(stage: ConversionStage) -> &'static str {
    match stage {
        ConversionStage::Converting => "converting",
        ConversionStage::Writing => "writing",
        _ => "verifying",
    }
}

/// Chunks that a plan was asked for.
#[derive(Clone, Copy, Debug)]
struct PlannedChunks {
    /// Rows of a chunk; `None` where the plan names none.
    rows: Option<NonZeroUsize>,
}

impl PlannedChunks {
    /// Chunks for a series, which stays one.
    fn new(input: &Path, to: Option<Layout>, host: &Host<'_>) -> Result<Self> {
        if layout_of(input)? != Layout::Series || to.is_some_and(|to| to != Layout::Series) {
            return Err(Error::usage(format!(
                "{}: chunk_rows is auto: expected a series that stays one, as `plan` names chunks of series alone; give a number",
                input.display()
            )));
        }
        let request = PlanRequest { data: Some(input.to_owned()), device: "cpu".to_owned(), ..PlanRequest::default() };
        Ok(PlannedChunks { rows: plan(&request, host)?.suited_chunk_rows() })
    }

    fn note(self) -> String {
        match self.rows {
            Some(rows) => format!("chunks have {rows} rows, as `megabatch plan` advises for the input"),
            None => "chunks have as many rows as those of the input: `megabatch plan` advises no others, since the series stays in memory or its chunks suit".to_owned(),
        }
    }
}

impl Options {
    fn resolve(&self, input: &Path, host: &Host<'_>) -> Result<(Option<PlannedChunks>, ConvertOptions)> {
        let (planned, chunk_rows) = match self.chunk_rows {
            None => (None, None),
            Some(ChunkRows::Rows(rows)) => (None, Some(rows)),
            Some(ChunkRows::Planned) => {
                let planned = PlannedChunks::new(input, self.to, host)?;
                (Some(planned), planned.rows)
            }
        };
        let storage = StorageChoice {
            form: self.storage,
            chunk_rows,
            compression: self.compression.map(|Filter(compression)| compression),
        };
        let stored_anew = storage.form.is_some() || self.chunk_rows.is_some() || storage.compression.is_some();
        let to = match self.to {
            Some(layout) => Some(layout),
            None if stored_anew => None,
            None => Some(match layout_of(input)? {
                Layout::Series => Layout::Windows,
                _ => Layout::Series,
            }),
        };
        let (ByteSize(memory_bytes), threads) = (self.memory, self.threads.map_or(0, NonZeroUsize::get));
        Ok((planned, ConvertOptions { to, storage, timeframe: self.timeframe.clone(), memory_bytes, threads }))
    }
}

fn describe(out: &Path, done: &Conversion, planned: Option<PlannedChunks>, seconds: f64) -> CommandReport {
    let ratio = done.bytes_before as f64 / done.bytes_after.max(1) as f64;
    let mut text = format!("{}: {} → {} layout, {} samples", out.display(), done.from, done.to, done.samples);
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
    let notes = planned.map(PlannedChunks::note).into_iter().chain(done.notes.iter().cloned());
    notes.for_each(|note| text.push_str(&format!("\nnote: {note}")));
    let mut json = serde_json::to_value(done).expect("a conversion serialises without error");
    json["out"] = shown(out).into();
    json["bars"] = done.bars.iter().map(|(name, bars)| (name.clone(), serde_json::json!(bars))).collect();
    if let Some(PlannedChunks { rows }) = planned {
        json["planned_chunk_rows"] = serde_json::json!(rows);
    }
    json["ratio"] = ratio.into();
    json["seconds"] = seconds.into();
    CommandReport::new(text, &json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth::{Filter as SynthFilter, SampleOptions, SampleWindows, make_samples};

    #[test]
    fn rows_of_chunks_are_read() {
        assert_eq!("auto".parse(), Ok(ChunkRows::Planned));
        assert_eq!("16".parse(), Ok(ChunkRows::Rows(NonZeroUsize::new(16).unwrap())));
        for wrong in ["", "0", "-1", "Auto", "1.5"] {
            assert!(wrong.parse::<ChunkRows>().is_err(), "{wrong}");
        }
    }

    /// A conversion of 148 GB was begun on a disk with 66 GB.
    #[test]
    fn room_is_asked_for_before_a_file_is_converted() {
        let folder = tempfile::tempdir().unwrap();
        let count = |count| NonZeroUsize::new(count).unwrap();
        let made = |name: &str, compression| {
            let path = folder.path().join(name);
            let options = SampleOptions {
                samples: count(20_000),
                windows: SampleWindows::Named("M1:8,M5:4".parse().unwrap()),
                features: count(4),
                targets: count(2),
                compression,
                ..SampleOptions::default()
            };
            make_samples(&path, &options).unwrap();
            path
        };
        let plain = made("plain.h5", SynthFilter::Contiguous);
        let windows = folder.path().join("windows.h5");
        let compression = Some(Filter(Compression::None));
        let options = Options { to: Some(Layout::Windows), compression, ..Options::default() };
        convert(&plain, &windows, &options, &Host::silent()).unwrap();
        let inputs = [plain, made("packed.h5", SynthFilter::Gzip), windows];
        let (out, scope) = (folder.path().join("out.h5"), Device::cpu().scope("test"));
        let compressions = [None, Some(Compression::None), Some(Compression::Lzf)];
        for input in &inputs {
            for (to, compression) in
                [Layout::Series, Layout::Windows].into_iter().flat_map(|to| compressions.map(|own| (to, own)))
            {
                let storage = StorageChoice { compression, ..StorageChoice::default() };
                let resolved = ConvertOptions { to: Some(to), storage, ..ConvertOptions::default() };
                let needed = conversion_bytes(input, &out, &resolved, &scope).unwrap() as f64;
                let options = Options { to: Some(to), compression: compression.map(Filter), ..Options::default() };
                convert(input, &out, &options, &Host::silent()).unwrap();
                let written = std::fs::metadata(&out).unwrap().len() as f64;
                // The packed chunks are beside the new file until it is whole. Only windows tell
                // how many bars there are.
                let makes_bars = layout_of(input).unwrap() == Layout::Windows && to == Layout::Series;
                let least = if makes_bars { 0.0 } else { 1.2 * written };
                let case = format!("{} to {to}, {compression:?}: {needed} for {written}", input.display());
                assert!(needed > least && needed <= 2.1 * written, "{case}");
            }
        }
    }

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
