//! Made-up data: the demo and the tests run on them, and a user tries a set-up with them before his
//! own are ready. The same seed gives the same file.

mod bars;
pub(crate) mod random;
mod samples;
mod shares;

use std::io::{BufWriter, Write as _};
use std::num::NonZeroUsize;
use std::path::Path;

use megabatch_atomic_file as atomic_file;
use megabatch_atomic_file::NewFile;
use megabatch_chunk_io::{Compression, Storage, WriteOptions};
use megabatch_gpu_core::Device;
use serde_json::json;

use crate::command_report::CommandReport;
use crate::error::{Error, Result};
use crate::ingest::Windows;
use crate::ingest::disk::{require_free, target_folder};
use crate::output;
use crate::setup::free_memory_bytes;
use crate::text::{bytes, shown};

pub(crate) use bars::write_csv;
pub use megabatch_chunk_io::Layout;
#[cfg(test)]
pub(crate) use shares::csv_files as share_files;

/// Samples to make up.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Layout of the file: bars once, or every window whole.
    pub layout: Layout,
    /// Number of samples, N.
    pub samples: NonZeroUsize,
    /// Windows of a sample.
    pub windows: SampleWindows,
    /// Features of a bar, F.
    pub features: NonZeroUsize,
    /// Targets of a sample, K.
    pub targets: NonZeroUsize,
    /// Compression of the file.
    pub compression: Filter,
    /// Samples or bars in a chunk of the file; as many as make about 1 MiB if `None`.
    pub chunk_rows: Option<NonZeroUsize>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// Windows of synthetic samples.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleWindows {
    /// A window a timeframe.
    Named(Windows),
    /// The window of a single timeframe without a name, in bars; windows layout only.
    Unnamed(NonZeroUsize),
}

/// Compression of synthetic samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// One block, no chunks.
    Contiguous,
    /// Chunks without filters.
    None,
    /// Shuffle and deflate.
    Gzip,
    /// Shuffle and LZF.
    Lzf,
}

impl Default for SampleOptions {
    fn default() -> Self {
        let count = |count| NonZeroUsize::new(count).expect("above zero");
        SampleOptions {
            layout: Layout::Series,
            samples: count(1000),
            windows: SampleWindows::Named(Windows::default()),
            features: count(16),
            targets: count(36),
            compression: Filter::Gzip,
            chunk_rows: None,
            seed: 0,
        }
    }
}

/// Writes `count` shares, a file of `days` calendar days of daily bars each, into the new folder
/// `folder`.
///
/// # Errors
/// A usage error where the folder is not empty or cannot be made, and for no days;
/// [`Kind::Capacity`](crate::Kind::Capacity) where the disk has no room for them.
pub fn make_shares(folder: &Path, count: NonZeroUsize, days: u32, seed: u64) -> Result<CommandReport> {
    require_days(days)?;
    let failed = |error: &dyn std::fmt::Display| Error::usage(format!("{}: {error}", folder.display()));
    if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(failed(&"is there already and not empty; name another folder"));
    }
    std::fs::create_dir_all(folder).map_err(|error| failed(&format!("cannot be made: {error}")))?;
    let files = shares::csv_files(count.get(), days, seed);
    let bars = files.first().map_or(0, |(_, csv)| csv.lines().count() - 1);
    let needed: usize = files.iter().map(|(_, csv)| csv.len()).sum();
    require_free(folder, needed as u64, "the bars of the shares")?;
    for (name, csv) in &files {
        atomic_file::write(&folder.join(format!("{name}.csv")), csv.as_bytes())?;
    }
    let text = format!("{}: {count} shares with {bars} daily bars each", folder.display());
    Ok(CommandReport::new(text, &json!({ "folder": shown(folder), "shares": count, "bars": bars })))
}

/// Refuses bars of no day, which would be a header alone.
fn require_days(days: u32) -> Result<()> {
    if days == 0 {
        return Err(Error::usage("days is 0: expected 1 or more"));
    }
    Ok(())
}

/// Bytes of a calendar day of one-minute bars as text, the mean over a week, rounded down.
const DAY_BYTES: u64 = 50_000;

/// Writes one-minute bars of `days` calendar days to the CSV file `out`.
///
/// # Errors
/// A usage error where the file cannot be written, and for no days;
/// [`Kind::Capacity`](crate::Kind::Capacity) where the disk has no room for them.
pub fn make_bars(out: &Path, days: u32, seed: u64) -> Result<CommandReport> {
    require_days(days)?;
    output::check(out, &[])?;
    require_free(&target_folder(out), u64::from(days) * DAY_BYTES, "the file of bars")?;
    let failed = |action| move |source| atomic_file::WriteError { path: out.to_owned(), action, source };
    let new = NewFile::create(out).map_err(failed("make a file beside it"))?;
    let mut csv = BufWriter::with_capacity(1 << 20, new.file());
    let count = write_csv(&mut csv, days, seed).and_then(|count| csv.flush().map(|()| count));
    let count = count.map_err(failed("write"))?;
    drop(csv);
    new.publish(out)?;
    let text = format!("{}: {count} one-minute bars of {days} days", out.display());
    Ok(CommandReport::new(text, &json!({ "file": shown(out), "bars": count })))
}

/// Writes samples to the HDF5 file `out`.
///
/// # Errors
/// [`Kind::Capacity`](crate::Kind::Capacity) for samples that do not fit into memory while they are
/// made, or on the disk; a usage error where the file cannot be written.
pub fn make_samples(out: &Path, options: &SampleOptions) -> Result<CommandReport> {
    output::check(out, &[])?;
    let spec = samples::Spec {
        samples: options.samples.get(),
        windows: match &options.windows {
            SampleWindows::Unnamed(steps) => samples::SynthWindows::Unnamed(steps.get()),
            SampleWindows::Named(windows) => samples::SynthWindows::Named(windows.0.clone()),
        },
        features: options.features.get(),
        targets: options.targets.get(),
        seed: options.seed,
    };
    let (needed, available) = (spec.held_bytes(), free_memory_bytes(&Device::cpu()));
    if needed > available {
        return Err(Error::capacity(format!(
            "making {} samples takes {} of memory and {} are free; ask for fewer",
            options.samples,
            bytes(needed),
            bytes(available)
        )));
    }
    let stored_bytes = spec.stored_bytes(options.layout);
    let needed = match options.compression {
        Filter::Contiguous | Filter::None => stored_bytes,
        // Random numbers have little in them that can be compressed.
        Filter::Gzip | Filter::Lzf => stored_bytes / 2,
    };
    require_free(&target_folder(out), needed, "the file of samples")?;
    let storage = WriteOptions { storage: storage(options) };
    match options.layout {
        Layout::Windows => samples::write_windows_file(out, &spec, &storage)?,
        _ => samples::write_series_file(out, &spec, &storage)?,
    }
    let size = std::fs::metadata(out)?.len();
    let text = format!("{}: {} samples, {}", out.display(), options.samples, bytes(size as usize));
    Ok(CommandReport::new(text, &json!({ "file": shown(out), "samples": options.samples, "bytes": size })))
}

fn storage(options: &SampleOptions) -> Storage {
    let compression = match options.compression {
        Filter::Contiguous => return Storage::Contiguous,
        Filter::None => Compression::None,
        Filter::Gzip => Compression::Gzip { level: 4 },
        Filter::Lzf => Compression::Lzf,
    };
    Storage::Chunked { rows: options.chunk_rows, compression }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn no_file_is_begun_for_which_the_disk_has_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("bars.csv");
        let refused = |error: Error, purpose: &str| {
            assert_eq!(error.kind(), Kind::Capacity, "{error}");
            assert!(error.to_string().contains(purpose), "{error}");
            assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        };
        refused(make_bars(&out, u32::MAX, 0).unwrap_err(), "the file of bars takes about");
        let count = |count| NonZeroUsize::new(count).unwrap();
        for compression in [Filter::Contiguous, Filter::None, Filter::Gzip, Filter::Lzf] {
            let options = SampleOptions {
                samples: count(10_000_000),
                windows: SampleWindows::Unnamed(count(100_000)),
                features: count(100),
                targets: count(1),
                layout: Layout::Windows,
                compression,
                ..SampleOptions::default()
            };
            let error = make_samples(&folder.path().join("samples.h5"), &options).unwrap_err();
            refused(error, "the file of samples takes about");
        }
    }

    #[test]
    fn files_are_as_large_as_was_reckoned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bars.csv");
        make_bars(&path, 28, 1).unwrap();
        let written = std::fs::metadata(&path).unwrap().len() as f64;
        let reckoned = (28 * DAY_BYTES) as f64;
        assert!(reckoned <= written && reckoned > 0.8 * written, "{reckoned} for {written}");
        let spec = samples::Spec {
            samples: 20_000,
            windows: samples::SynthWindows::Named("M1:8,M5:4".parse::<Windows>().unwrap().0),
            features: 4,
            targets: 2,
            seed: 0,
        };
        assert_eq!(spec.stored_bytes(Layout::Windows), 20_000 * (12 * 4 + 2) * 4);
        assert_eq!(spec.stored_bytes(Layout::Series), 20_000 * (4 + 2) * 4 + 4_000 * 4 * 4);
    }
}
