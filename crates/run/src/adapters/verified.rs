//! Series files without a mark of verification that an earlier process verified, with their
//! fingerprints.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use megabatch_atomic_file as atomic_file;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Kind, Result};
use crate::host::{Host, Progress, Work};

/// Age of a file below which it is not remembered: a second write could leave the same time.
const SETTLED: Duration = Duration::from_secs(2);

/// Folder of the files that were verified; nothing is remembered without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct VerifiedFiles {
    folder: Option<PathBuf>,
}

/// Identity of a file in the file system. It changes with the content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileState {
    path: PathBuf,
    device: u64,
    inode: u64,
    bytes: u64,
    modified_s: i64,
    modified_ns: i64,
    /// Time of the last change of contents or name, which no program can set back.
    changed_s: i64,
    changed_ns: i64,
}

/// Entry of the folder.
#[derive(Serialize, Deserialize)]
struct Verified {
    file: FileState,
    fingerprint: String,
}

impl VerifiedFiles {
    /// Marks of verification below `cache_folder`; none are kept without it.
    pub(crate) fn below(cache_folder: Option<&Path>) -> Self {
        VerifiedFiles { folder: cache_folder.map(|folder| folder.join("verified")) }
    }

    /// The state of the file at `path` now, and its fingerprint if it was verified in this state.
    pub(crate) fn look_up(&self, path: &Path) -> (Option<FileState>, Option<String>) {
        let Some(state) = FileState::read(path) else { return (None, None) };
        let read = || serde_json::from_str::<Verified>(&fs::read_to_string(self.entry(&state)?).ok()?).ok();
        let found = read().filter(|verified| verified.file == state);
        (Some(state), found.map(|verified| verified.fingerprint))
    }

    /// Remembers that the file with `state` was verified, unless it has changed since. A failure to
    /// do so is no error: the file is verified again.
    pub(crate) fn remember(&self, state: &FileState, fingerprint: &str) {
        let Some(entry) = self.entry(state) else { return };
        if FileState::read(&state.path).as_ref() != Some(state) || !state.is_settled() {
            return;
        }
        let verified = Verified { file: state.clone(), fingerprint: fingerprint.to_owned() };
        let text = serde_json::to_string(&verified).expect("strings and numbers");
        if entry.parent().is_some_and(|folder| fs::create_dir_all(folder).is_ok()) {
            let _ = atomic_file::write(&entry, text.as_bytes());
        }
    }

    fn entry(&self, state: &FileState) -> Option<PathBuf> {
        let name = format!("{:016x}.json", xxh3_64(state.path.as_os_str().as_encoded_bytes()));
        Some(self.folder.as_ref()?.join(name))
    }
}

impl FileState {
    fn read(path: &Path) -> Option<Self> {
        let path = path.canonicalize().ok()?;
        let metadata: Metadata = fs::metadata(&path).ok()?;
        Some(FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_s: metadata.mtime(),
            modified_ns: metadata.mtime_nsec(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
            path,
        })
    }

    fn is_settled(&self) -> bool {
        let changed = u64::try_from(self.changed_s.max(self.modified_s)).unwrap_or(u64::MAX);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(SETTLED) > Duration::from_secs(changed)
    }
}

/// Verification under way, shown and ended by the host.
pub(crate) struct VerificationWatch<'a> {
    host: &'a Host<'a>,
    progress: Box<dyn Progress>,
}

impl<'a> VerificationWatch<'a> {
    /// A part of verification of `total` units begins.
    pub(crate) fn begin(host: &'a Host<'a>, label: &'static str, total: usize, unit: &'static str) -> Self {
        VerificationWatch { host, progress: host.observer.begin(Work { label, total: total as u64, unit }) }
    }

    /// `done` units are done.
    ///
    /// # Errors
    /// [`Kind::Cancelled`] where the host ends it.
    pub(crate) fn at(&mut self, done: usize) -> Result<()> {
        self.progress.at(done as u64, "");
        require_going_on(self.host)
    }
}

/// Ends a verification where the host wants it.
///
/// # Errors
/// [`Kind::Cancelled`].
pub(crate) fn require_going_on(host: &Host<'_>) -> Result<()> {
    match host.cancel.is_requested() {
        true => Err(Error::new(Kind::Cancelled, "interrupted while the data were verified; nothing is changed")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_is_known_until_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("series.h5");
        fs::write(&path, "bars").unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(100);
        let verified = VerifiedFiles::below(Some(folder.path()));
        let (state, none) = verified.look_up(&path);
        assert_eq!(none, None);
        // Written just now.
        verified.remember(state.as_ref().unwrap(), "1f");
        assert_eq!(verified.look_up(&path).1, None);
        let settled = FileState { changed_s: 0, modified_s: 0, ..state.unwrap() };
        assert!(settled.is_settled());

        // As if it had been written long ago: the entry is made by hand, as no program sets the
        // time of a change.
        let (state, _) = verified.look_up(&path);
        let state = state.unwrap();
        let entry = Verified { file: state.clone(), fingerprint: "1f".to_owned() };
        let name = verified.entry(&state).unwrap();
        fs::create_dir_all(name.parent().unwrap()).unwrap();
        fs::write(&name, serde_json::to_string(&entry).unwrap()).unwrap();
        assert_eq!(verified.look_up(&path).1.as_deref(), Some("1f"));
        // The same size and time of writing, and yet another state.
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        assert_eq!(verified.look_up(&path).1, None);
        assert_eq!(VerifiedFiles::default().look_up(&path).1, None);
    }
}
