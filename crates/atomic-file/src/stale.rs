//! Temporary files that killed processes left.

use std::fs::{self, File};
use std::path::Path;

use crate::target::folder_of;

/// Ending of a temporary file's name.
pub(crate) const SUFFIX: &str = ".tmp";
/// Letters and digits that `tempfile` puts into a name.
const RANDOM_LEN: usize = 6;

/// Removes temporary files of writes to `target` whose process no longer lives. One that cannot be
/// removed stays.
pub fn remove_stale(target: &Path) {
    let Some(name) = target.file_name() else { return };
    remove_where(folder_of(target), |found| {
        found.strip_prefix(b".").and_then(|found| found.strip_prefix(name.as_encoded_bytes())).is_some_and(is_random)
    });
}

/// Removes temporary files of writes to any file in `folder` whose process no longer lives.
pub fn remove_stale_in(folder: &Path) {
    remove_where(folder, |found| {
        let end = found.len().saturating_sub(1 + RANDOM_LEN + SUFFIX.len());
        end > 1 && found[0] == b'.' && is_random(&found[end..])
    });
}

/// True if `ending` is what follows the target's name in a temporary one: `.RANDOM.tmp`.
fn is_random(ending: &[u8]) -> bool {
    let random = ending.strip_prefix(b".").and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
    random.is_some_and(|random| random.len() == RANDOM_LEN && random.iter().all(u8::is_ascii_alphanumeric))
}

fn remove_where(folder: &Path, is_temporary: impl Fn(&[u8]) -> bool) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_temporary(entry.file_name().as_encoded_bytes()) {
            remove_if_abandoned(&entry.path());
        }
    }
}

/// A file that nobody has locked has lost its process.
fn remove_if_abandoned(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return;
    }
    let Ok(file) = File::open(path) else { return };
    if file.try_lock().is_ok() {
        // It may be another user's; then it stays.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewFile;

    // `megabatch ingest bars.csv --out a.h5`, killed while it wrote, left `.a.h5.Xy3kQ9.tmp` for
    // ever.
    #[test]
    fn files_without_a_process_go_and_all_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let kept = [".a.h5.notes.tmp", ".a.h5.Xy3kQ9", "a.h5.Xy3kQ9.tmp", ".a.h5.Xy3k-9.tmp", ".Xy3kQ9.tmp"];
        let stale = [".a.h5.Xy3kQ9.tmp", ".b.h5.Xy3kQ9.tmp"];
        kept.iter().chain(&stale).for_each(|name| fs::write(at(name), "").unwrap());
        let alive = NewFile::create(&at("a.h5")).unwrap();
        assert_eq!(stale.map(|name| at(name).exists()), [false, true]);
        remove_stale_in(folder.path());
        assert_eq!(stale.map(|name| at(name).exists()), [false, false]);
        assert!(kept.iter().all(|name| at(name).exists()));
        assert!(alive.temporary_path().exists());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_with_such_a_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "").unwrap();
        std::os::unix::fs::symlink("precious", at(".a.h5.Xy3kQ9.tmp")).unwrap();
        remove_stale(&at("a.h5"));
        assert!(at("precious").exists() && fs::symlink_metadata(at(".a.h5.Xy3kQ9.tmp")).is_ok());
    }
}
