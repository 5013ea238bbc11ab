//! Small files that tests write.

use std::path::PathBuf;

use megabatch_bars::{OnError, ReadOptions, Recording, Result, read};

/// Writes each text to a file of its name and hands the paths over.
pub(crate) fn with_files<T>(files: &[(&str, &[u8])], used: impl FnOnce(&[PathBuf]) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let write = |(name, bytes): &(&str, &[u8])| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let paths: Vec<PathBuf> = files.iter().map(write).collect();
    used(&paths)
}

/// Reads texts as files of these names.
pub(crate) fn read_texts(files: &[(&str, &str)], options: &ReadOptions) -> Result<Recording> {
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
    with_files(&files, |paths| read(paths, options))
}

/// Minutes from the start of an hour of 2018-07-02 on.
pub(crate) fn minutes(hour: &str, count: usize) -> String {
    (0..count).map(|minute| format!("2018-07-02 {hour}:{minute:02},1,1,1,1,2\n")).collect()
}

/// Repairs, and everything else as it is told from the files.
pub(crate) fn repair() -> ReadOptions {
    ReadOptions { on_error: OnError::Repair, ..ReadOptions::default() }
}
