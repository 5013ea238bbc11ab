//! Parsed bars of each symbol in a folder beside the output, so that text is parsed once, also by
//! a process that goes on after another was killed.
//!
//! ```text
//! .OUT.spool/lock        held by the process that works there
//! .OUT.spool/KEY.bars    bars of one symbol
//! .OUT.spool/KEY-H1.bars own bars of a longer timeframe
//! .OUT.spool/KEY.json    summary and hash of the bars; written last, so that it vouches for them
//! ```
//!
//! KEY is a hash of the version, of how files are read, and of each file's path, length and time of
//! change.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use megabatch_atomic_file as atomic_file;
use megabatch_bars::{BarSource as _, BinClock, ReadOptions, ReadSummary, SpooledBars, SpooledRecording};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::provenance::{Fingerprints, fingerprint};
use crate::error::{Context as _, Error, Result};

/// Temporary bytes of a row with `columns` further columns while it is parsed, beside those of its
/// bar.
pub(crate) fn parsed_row_bytes(columns: usize) -> u64 {
    80 + 8 * columns as u64
}

/// Files that a process has open beside those of bars.
const OTHER_FILES: u64 = 256;

/// Lets this process have as many files of bars open, as far as the system allows it: the usual
/// limit is 1,024, and 256 on macOS.
pub(super) fn allow_open_files(count: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let (mut limit, needed) = (getrlimit(Resource::Nofile), count as u64 + OTHER_FILES);
    if limit.current.is_some_and(|current| current < needed) {
        limit.current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // Where it fails, opening a file says what is wrong.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// The folder of parsed bars of one output; removed when the work ends by itself.
pub(crate) struct SpoolFolder {
    path: PathBuf,
    /// Held as long as the folder is in use.
    _lock: File,
}

/// Files of bars of one symbol.
#[derive(Clone, Debug, Default)]
pub(super) struct SymbolFiles {
    pub(super) symbol: String,
    /// Files of bars, or of the bid.
    pub(super) bars: Vec<PathBuf>,
    /// Files of the ask.
    pub(super) ask: Vec<PathBuf>,
}

/// A recording in the folder.
pub(super) struct Parsed {
    pub(super) recording: SpooledRecording,
    /// Fingerprints of the files that were read, by path.
    pub(super) fingerprints: BTreeMap<PathBuf, String>,
    /// True if an earlier process parsed it.
    pub(super) is_found: bool,
}

impl Parsed {
    /// The recording with its own bars in the place of those that its bars make in bins of `clock`.
    pub(super) fn with_own_bars(self, clock: &BinClock, folder: &Path) -> megabatch_bars::Result<Self> {
        Ok(Parsed { recording: self.recording.with_own_bars(clock, folder)?, ..self })
    }
}

#[derive(Serialize, Deserialize)]
struct Entry {
    bars: usize,
    /// Fingerprint of the file of bars.
    xxh3_128: String,
    /// Number of own bars of each longer timeframe, and fingerprint of their file.
    own: Vec<(usize, String)>,
    symbol: String,
    summary: ReadSummary,
    files: BTreeMap<PathBuf, String>,
}

impl SpoolFolder {
    /// Opens the folder of `out`, or makes it.
    ///
    /// # Errors
    /// A usage error where another process writes the same output.
    pub(crate) fn open(out: &Path) -> Result<Self> {
        let path = atomic_file::beside(out, "spool");
        let work = || format!("cannot keep parsed bars in {}", path.display());
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
            return Err(Error::usage(format!("{}: this is not a folder of this program; remove it", path.display())));
        }
        fs::create_dir_all(&path).with_context(work)?;
        let lock = File::create(path.join("lock")).with_context(work)?;
        match lock.try_lock() {
            // A file system without locks has one user at a time, as far as can be told.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(SpoolFolder { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::usage(format!(
                "{}: another process is writing this file; wait for it, or name another",
                out.display()
            ))),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the folder and what this program writes there.
    pub(crate) fn remove(self) {
        // What cannot be removed is found by the next process.
        for file in self.path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()) {
            let is_bars = file.extension().is_some_and(|ending| ending == "bars" || ending == "json");
            if is_bars || file.file_name().is_some_and(|name| name == "lock") {
                let _ = fs::remove_file(&file);
            }
        }
        let _ = fs::remove_dir(&self.path);
    }

    /// Bytes that are there.
    pub(super) fn bytes(&self) -> u64 {
        let entries = self.path.read_dir().into_iter().flatten().flatten();
        entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
    }

    /// The recording of `files` from an earlier process, or from `read`. Fingerprints that are not
    /// `known` are taken after that.
    pub(super) fn parsed(
        &self,
        files: &SymbolFiles,
        options: &ReadOptions,
        known: &Fingerprints,
        read: impl FnOnce(&Path) -> megabatch_bars::Result<SpooledRecording>,
    ) -> Result<megabatch_bars::Result<Parsed>> {
        let key = key(files, options);
        let [bars, entry] = ["bars", "json"].map(|ending| self.path.join(format!("{key}.{ending}")));
        if let Some(found) = found(&bars, &entry, options.all_columns()) {
            return Ok(Ok(found));
        }
        let recording = match read(&bars) {
            Ok(recording) => recording,
            Err(error) => {
                // Of a recording that is refused nothing is kept.
                let _ = fs::remove_file(&bars);
                return Ok(Err(error));
            }
        };
        let mut fingerprints = BTreeMap::new();
        let summary = &recording.summary;
        let compared = summary.compared.iter().flat_map(|compared| &compared.paths);
        let files = summary.files.iter().chain(summary.own.iter().flat_map(|own| &own.summary.files));
        for path in files.map(|file| &file.path).chain(compared) {
            fingerprints.insert(path.clone(), known.get(path)?);
        }
        let kept = Entry {
            bars: recording.bars.len(),
            xxh3_128: fingerprint(&bars)?,
            own: recording
                .own
                .iter()
                .map(|own| Ok((own.len(), fingerprint(&SpooledRecording::own_path(&bars, own.timeframe()))?)))
                .collect::<Result<_>>()?,
            symbol: recording.symbol.clone(),
            summary: recording.summary.clone(),
            files: fingerprints.clone(),
        };
        let text = serde_json::to_vec(&kept).map_err(Error::from_cause)?;
        fs::write(&entry, text).with_context(|| format!("cannot write {}", entry.display()))?;
        Ok(Ok(Parsed { recording, fingerprints, is_found: false }))
    }
}

/// Parsed bars of an earlier process, if they are complete.
fn found(bars: &Path, entry: &Path, columns: usize) -> Option<Parsed> {
    let Entry { bars: len, xxh3_128, own, symbol, summary, files } =
        serde_json::from_slice(&fs::read(entry).ok()?).ok()?;
    let spooled = SpooledBars::open(bars, summary.base, len, columns).ok()?;
    let own = summary.own.iter().zip(&own).map(|(account, (len, xxh3_128))| {
        let path = SpooledRecording::own_path(bars, account.summary.base);
        let own = SpooledBars::open(&path, account.summary.base, *len, 0).ok()?;
        (fingerprint(&path).ok()? == *xxh3_128).then_some(own)
    });
    let own = own.collect::<Option<Vec<_>>>()?;
    (fingerprint(bars).ok()? == xxh3_128).then(|| Parsed {
        recording: SpooledRecording { symbol, bars: spooled, own, summary },
        fingerprints: files,
        is_found: true,
    })
}

/// Hash of everything that decides what is read.
fn key(files: &SymbolFiles, options: &ReadOptions) -> String {
    let identity = |path: &PathBuf| {
        let found = path.metadata().ok();
        let changed = found.as_ref().and_then(|found| found.modified().ok()?.duration_since(UNIX_EPOCH).ok());
        format!("{path:?} {:?} {changed:?}", found.map(|found| found.len()))
    };
    let all: Vec<String> = files.bars.iter().chain(&files.ask).map(identity).collect();
    let text = format!("{} {} {options:?} {} {all:?}", env!("CARGO_PKG_VERSION"), files.symbol, files.bars.len());
    let mut hash = Xxh3::new();
    hash.update(text.as_bytes());
    format!("{:032x}", hash.digest128())
}
