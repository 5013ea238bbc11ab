//! Conversion of files: windows ⇄ series, another chunk size, another compression.

mod bulk;
mod calendar;
mod chains;
mod copying;
mod journal;
mod overlap;
mod packing;
mod placed_samples;
mod raw;
mod rewrite;
mod rewrite_task;
mod row_source;
mod scan;
mod series_index;
mod to_series;
mod windows_file;
mod windows_input;
mod work;

use std::fs;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::UNIX_EPOCH;

use megabatch_atomic_file::{beside, check_replaceable, remove_stale, resolve_target};
use megabatch_gpu_core::Scope;
use serde::Serialize;
use work::ConversionContext;

use crate::atomic::not_writable;
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::source::Layout;
use crate::storage::{Compression, Storage};

/// Options of [`convert`].
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// Layout of the new file; that of the old one if `None`.
    pub to: Option<Layout>,
    /// Storage of tables.
    pub storage: StorageChoice,
    /// Name that a timeframe without one gets in a series; `features` if `None`.
    pub timeframe: Option<String>,
    /// Approximate bytes of values and indices in memory at a time. Times, instruments and the
    /// order of the samples of a windows file come on top.
    pub memory_bytes: usize,
    /// Threads that compress; 0 for one a core.
    pub threads: usize,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        ConvertOptions {
            to: None,
            storage: StorageChoice::default(),
            timeframe: None,
            memory_bytes: 512 << 20,
            threads: 0,
        }
    }
}

/// Storage of the new file's tables. A `None` keeps the old file's storage if the layout stays, and
/// means [`Storage::default`] if it changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct StorageChoice {
    /// Contiguous or chunked.
    pub form: Option<StorageForm>,
    /// Rows of the first axis in a chunk of a table; lists such as those of times keep chunks of
    /// about 1 MiB.
    pub chunk_rows: Option<NonZeroUsize>,
    /// Compression of a chunk.
    pub compression: Option<Compression>,
}

/// Storage layouts of HDF5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageForm {
    /// One block.
    Contiguous,
    /// Pieces of whole rows.
    Chunked,
}

/// Progress of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionProgress {
    /// Current stage.
    pub stage: ConversionStage,
    /// Bytes done, of all stages.
    pub done_bytes: u64,
    /// Bytes to be done in all.
    pub total_bytes: u64,
}

/// The stages of a conversion, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConversionStage {
    /// Values are read and worked on; an interrupted conversion is continued here.
    Converting,
    /// The new file is written.
    Writing,
    /// The new file is compared with the old one.
    Verifying,
}

/// Called with the progress of a conversion; may stop it.
pub type Observer<'a> = dyn FnMut(ConversionProgress) -> ControlFlow<()> + 'a;

/// Result of a conversion.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Conversion {
    /// Layout of the old file.
    pub from: Layout,
    /// Layout of the new file.
    pub to: Layout,
    /// Number of samples; 0 for a file of neither layout.
    pub samples: usize,
    /// Bars by timeframe, shortest first, where one of the files is a series.
    pub bars: Vec<(String, usize)>,
    /// Length of the old file.
    pub bytes_before: u64,
    /// Length of the new file.
    pub bytes_after: u64,
    /// True if every table of the new file was read back and compared with the old one: always, as
    /// nothing else is published.
    pub verified: bool,
    /// True if an interrupted conversion was continued.
    pub continued: bool,
    /// Notes about the new file, a sentence each.
    pub notes: Vec<String>,
}

/// Makes the file `out` of the file `input` as `options` say.
///
/// `out` appears whole, after every table was read back from it and compared with the old file's,
/// bit for bit; before that, whatever was there stays. Values keep their type and byte order. The
/// work of a killed or interrupted conversion is kept beside `out`, and the same call continues it,
/// see [`Conversion::continued`]. Buffers are booked on `scope`.
///
/// # Errors
/// [`Error::Invalid`] if the file breaks a rule of its layout, or windows contradict the overlap
/// that they show, naming dataset, sample and step; [`Error::NothingSaved`] if a series would be no
/// smaller; [`Error::BadRequest`] for options that contradict each other; [`Error::Interrupted`] if
/// `observe` stops it; [`Error::Locked`] while another process does the same conversion.
pub fn convert<'a>(
    input: impl AsRef<Path>,
    out: &Path,
    options: &ConvertOptions,
    scope: &Scope,
    observe: &'a mut Observer<'a>,
) -> Result<Conversion> {
    let input = InputFile::open(input.as_ref())?;
    let target = resolve_target(out).map_err(not_writable(out))?;
    check_replaceable(&target).map_err(not_writable(out))?;
    convert_to(&input, &target, options, scope, observe)
}

/// [`convert`], where `out` is no link.
fn convert_to<'a>(
    input: &InputFile,
    out: &'a Path,
    options: &ConvertOptions,
    scope: &Scope,
    observe: &'a mut Observer<'a>,
) -> Result<Conversion> {
    if matches!((fs::canonicalize(&input.path), fs::canonicalize(out)), (Ok(a), Ok(b)) if a == b) {
        return Err(refused(out, "a conversion of the file into itself", "the two must be different files"));
    }
    options.storage.check(out)?;
    let from = Layout::recognise(input)?;
    let to = options.to.unwrap_or(from);
    let mut work = ConversionContext::new(out, options, scope, observe)?;
    let identity = identity(input, to, options)?;
    let (journal, found) = journal::Journal::open(beside(out, "convert"), &identity)?;
    // A killed run may have left a file as large as the output; there is room for it now rather
    // than when the new one is written.
    remove_stale(out);
    if found.discarded {
        work.notes.push("what another conversion into this file had done so far was discarded".to_owned());
    }
    let job = ConversionJob { input, out, scope, options, records: found.records };
    let bytes_before = length(&input.path)?;
    let continued = !job.records.is_empty();
    let done = match (from, to) {
        (Layout::Windows, Layout::Series) => to_series::run(&job, journal, &mut work),
        (Layout::Series, Layout::Windows) => rewrite::to_windows(&job, journal, &mut work),
        _ => rewrite::same_layout(&job, journal, &mut work),
    };
    match done {
        Ok(Done { samples, bars }) => Ok(Conversion {
            from,
            to,
            samples,
            bars,
            bytes_before,
            bytes_after: length(out)?,
            verified: true,
            continued,
            notes: work.notes,
        }),
        Err(error) => {
            if !is_worth_continuing(&error, out) {
                // The first error matters more than a file that cannot be removed.
                let _ = fs::remove_file(beside(out, "convert"));
            }
            Err(error)
        }
    }
}

/// Bytes that [`convert`] still writes on the disk of `out`, about: the new file and the work
/// beside it. Of compressed tables a few chunks are packed to tell how small they become. A series
/// made of windows may take more, as only they tell how many bars it has.
///
/// # Errors
/// As [`convert`], as far as the tables that are looked at go.
pub fn conversion_bytes(input: impl AsRef<Path>, out: &Path, options: &ConvertOptions, scope: &Scope) -> Result<u64> {
    let input = InputFile::open(input.as_ref())?;
    let target = resolve_target(out).map_err(not_writable(out))?;
    options.storage.check(out)?;
    let from = Layout::recognise(&input)?;
    let mut observe = |_: ConversionProgress| ControlFlow::Continue(());
    let work = ConversionContext::new(&target, options, scope, &mut observe)?;
    let job = ConversionJob { input: &input, out: &target, scope, options, records: Vec::new() };
    let bytes = match (from, options.to.unwrap_or(from)) {
        (Layout::Windows, Layout::Series) => to_series::bytes_min(&job, &work)?,
        (Layout::Series, Layout::Windows) => rewrite::windows_bytes(&job, &work)?,
        _ => rewrite::same_layout_bytes(&job, &work)?,
    };
    // The journal of an earlier run is continued, or makes room.
    let journal_bytes = fs::metadata(beside(&target, "convert")).map_or(0, |found| found.len());
    Ok(bytes.saturating_sub(journal_bytes))
}

/// The layout of the file at `path`, without opening its tables. A file without the attribute has
/// windows, if anything.
///
/// # Errors
/// As [`SeriesFile::open`](crate::SeriesFile::open), as far as the file as a whole goes.
pub fn layout_of(path: impl AsRef<Path>) -> Result<Layout> {
    Layout::recognise(&InputFile::open(path.as_ref())?)
}

/// Inputs of every kind of conversion.
struct ConversionJob<'a> {
    input: &'a InputFile,
    out: &'a Path,
    scope: &'a Scope,
    options: &'a ConvertOptions,
    /// Records of an earlier, interrupted run.
    records: Vec<journal::Record>,
}

/// Result of every kind of conversion.
struct Done {
    samples: usize,
    bars: Vec<(String, usize)>,
}

impl StorageChoice {
    fn check(&self, out: &Path) -> Result<()> {
        if self.form == Some(StorageForm::Contiguous) && (self.chunk_rows.is_some() || self.compression.is_some()) {
            let fix = "contiguous tables have no chunks and no compression; leave out one or the other";
            return Err(refused(out, "contiguous tables with a size of chunks or a compression", fix));
        }
        Ok(())
    }

    /// Storage of lists and other small datasets of the new file.
    fn for_lists(&self) -> Storage {
        match (self.form, self.compression) {
            (Some(StorageForm::Contiguous), _) => Storage::Contiguous,
            (_, Some(compression)) => Storage::Chunked { rows: None, compression },
            _ => Storage::default(),
        }
    }
}

fn refused(out: &Path, asked: &str, fix: &str) -> Error {
    Error::BadRequest {
        path: out.to_owned(),
        asked: asked.to_owned(),
        found: "that cannot be".to_owned(),
        fix: fix.to_owned(),
    }
}

/// Settings that must be equal to continue a conversion. Memory and threads need not be.
fn identity(input: &InputFile, to: Layout, options: &ConvertOptions) -> Result<String> {
    let io = |source| Error::Io { path: input.path.clone(), action: "look at the file", source };
    let metadata = fs::metadata(&input.path).map_err(io)?;
    let path = fs::canonicalize(&input.path).map_err(io)?;
    let modified = metadata.modified().map_err(io)?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let ConvertOptions { storage, timeframe, .. } = options;
    Ok(format!("{path:?} {} {} {to} {storage:?} {timeframe:?}", metadata.len(), modified.as_nanos()))
}

/// True if the same call may continue the work later: the fault lies outside the input and the
/// options.
fn is_worth_continuing(error: &Error, out: &Path) -> bool {
    match error {
        Error::Interrupted { .. } | Error::Io { .. } | Error::NotWritable { .. } | Error::Memory { .. } => true,
        Error::Hdf5 { path, .. } => path == out,
        _ => false,
    }
}

fn length(path: &Path) -> Result<u64> {
    let io = |source| Error::Io { path: path.to_owned(), action: "look at the file", source };
    Ok(fs::metadata(path).map_err(io)?.len())
}
