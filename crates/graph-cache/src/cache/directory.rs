//! Cache directory of graph files, named by content hash, with a size limit.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use megabatch_atomic_file::folder_of;
use xxhash_rust::xxh3::xxh3_128;

use super::lock::Lock;
use super::{BuildOptions, Stale, Watch, build_cached};
use crate::builder::Builder;
use crate::error::{Error, Result};
use crate::file::{Collection, GraphFile};

/// Cache directory: files of graphs are named by a hash of their inputs. Any number of processes
/// may use it at once.
///
/// Above the size limit, the least recently used files are removed first. Files that are open or
/// being built stay. Only files with names of the cache count and are removed. Without file locks,
/// a removed file stays readable for those who have it open.
#[derive(Clone, Debug)]
pub struct GraphCache {
    folder: PathBuf,
    limit_bytes: u64,
}

/// Result of removing files of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Removed files.
    pub removed: Vec<PathBuf>,
    /// Bytes of the remaining files; above the limit if the files in use are.
    pub left_bytes: u64,
}

/// A requested file, and the files removed for it.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The file, which stays as long as it is open.
    pub file: GraphFile,
    /// Removed files, and the bytes left including this one.
    pub collected: Collected,
}

impl GraphCache {
    /// The cache in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn open(folder: impl AsRef<Path>, limit_bytes: u64) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        let io = |source| Error::Io { path: folder.clone(), action: "make the folder", source };
        fs::create_dir_all(&folder).map_err(io)?;
        Ok(GraphCache { folder, limit_bytes })
    }

    /// The file of the graphs of `builder`, built by [`build_cached`] if it is missing. Others may
    /// be removed for it.
    ///
    /// # Errors
    /// As [`build_cached`]; files are never stale here, as graphs of other inputs have another
    /// name.
    pub fn get(&self, builder: &dyn Builder, options: &BuildOptions, progress: Watch<'_>) -> Result<Fetched> {
        let options = BuildOptions { stale: Stale::Replace, ..options.clone() };
        let file = build_cached(self.path(builder, &options)?, builder, &options, progress)?;
        // Records the last use. For another user's file, the time of its creation counts instead.
        let _ = File::open(file.path()).and_then(|opened| opened.set_modified(SystemTime::now()));
        let collected = self.collect()?;
        Ok(Fetched { file, collected })
    }

    /// Path of the file of the graphs of `builder`, whether it exists or not.
    ///
    /// # Errors
    /// [`Error::SameKey`].
    pub fn path(&self, builder: &dyn Builder, options: &BuildOptions) -> Result<PathBuf> {
        let collection = Collection::for_builder(builder, options.widths)?;
        let name = xxh3_128(&collection.preamble.concat());
        Ok(self.folder.join(format!("{name:032x}.mbg")))
    }

    /// Removes the least recently used files until the others are within the limit.
    ///
    /// # Errors
    /// [`Error::Io`] where the folder cannot be read or a file not be removed.
    pub fn collect(&self) -> Result<Collected> {
        let mut files = self.files()?;
        files.sort();
        let mut collected = Collected { removed: Vec::new(), left_bytes: files.iter().map(|file| file.bytes).sum() };
        for file in files {
            if collected.left_bytes <= self.limit_bytes {
                break;
            }
            if remove_unless_used(&file)? {
                collected.left_bytes -= file.bytes;
                collected.removed.push(file.path);
            }
        }
        Ok(collected)
    }

    /// Files that a cache made in the folder, finished or not.
    fn files(&self) -> Result<Vec<CachedFile>> {
        let io = |source| Error::Io { path: self.folder.clone(), action: "list the folder", source };
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if !is_cached(&name) && !unfinished(&name).is_some_and(is_cached) {
                continue;
            }
            // Another process may have removed it since.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if !metadata.is_file() {
                continue;
            }
            files.push(CachedFile { used: metadata.modified().map_err(io)?, bytes: metadata.len(), path });
        }
        Ok(files)
    }
}

/// Hexadecimal digits of the hash that names a file.
const HASH_DIGITS: usize = 32;

/// True if a cache gives its files such names: [`GraphCache::path`].
fn is_cached(name: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.strip_suffix(".mbg").is_some_and(|hash| hash.len() == HASH_DIGITS && hash.bytes().all(is_digit))
}

/// The name that an unfinished file will have.
fn unfinished(name: &str) -> Option<&str> {
    name.strip_prefix('.').and_then(|name| name.strip_suffix(".partial"))
}

/// A file of the cache, in the order in which they are removed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CachedFile {
    used: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// True if the file was removed, by this process or another.
fn remove_unless_used(file: &CachedFile) -> Result<bool> {
    let io = |source| Error::Io { path: file.path.clone(), action: "remove the file", source };
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    let _building = match unfinished(&name).map(|finished| Lock::try_take(&folder_of(&file.path).join(finished))) {
        None => None,
        Some(Ok(Some(lock))) => Some(lock),
        Some(Ok(None)) => return Ok(false),
        Some(Err(source)) => return Err(io(source)),
    };
    let opened = match File::open(&file.path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(io(error)),
    };
    // Readers share the lock. A reader who opens the file now keeps it after its removal.
    let is_used = matches!(opened.try_lock(), Err(fs::TryLockError::WouldBlock));
    let was_used = || opened.metadata().and_then(|now| now.modified()).is_ok_and(|now| now != file.used);
    if is_used || was_used() {
        return Ok(false);
    }
    match fs::remove_file(&file.path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(error)),
        _ => Ok(true),
    }
}
