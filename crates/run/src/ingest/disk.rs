//! Free disk space, checked before work.

use std::path::{Path, PathBuf};

use megabatch_atomic_file::{folder_of, resolve_target};

use crate::error::{Error, Result};
use crate::text::bytes;

/// Refuses work for `purpose` that needs more bytes in `folder` than are free there.
///
/// # Errors
/// [`Kind::Capacity`](crate::Kind::Capacity) with both numbers. Nothing is refused if the free
/// space is unknown.
pub(crate) fn require_free(folder: &Path, needed: u64, purpose: &str) -> Result<()> {
    let Some(free) = free_bytes(folder).filter(|&free| free < needed) else { return Ok(()) };
    Err(Error::capacity(format!(
        "{}: {purpose} takes about {} and {} are free on this disk; free some, or write to another disk",
        folder.display(),
        bytes(needed as usize),
        bytes(free as usize)
    )))
}

/// The folder that takes a file written to `out`: where a link leads, which may be another disk.
pub(crate) fn target_folder(out: &Path) -> PathBuf {
    let target = resolve_target(out);
    folder_of(target.as_deref().unwrap_or(out)).to_owned()
}

/// Share of `instruments` that are worked on at once, a thread each.
pub(crate) fn share_under_way(instruments: usize) -> f64 {
    (rayon::current_num_threads() as f64 / instruments as f64).min(1.0)
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let folder = tempfile::tempdir().unwrap();
        assert!(require_free(folder.path(), 1, "one byte").is_ok());
        let error = require_free(folder.path(), u64::MAX, "the series").unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Capacity);
        assert!(error.to_string().contains("the series takes about"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_leads_to_the_folder_that_takes_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().canonicalize().unwrap().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("a.h5"), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.join("a.h5"), folder.path().join("a.h5")).unwrap();
        assert_eq!(target_folder(&folder.path().join("a.h5")), elsewhere);
        assert_eq!(target_folder(&folder.path().join("b.h5")), folder.path());
        assert_eq!(target_folder(Path::new("b.h5")), Path::new("."));
    }
}
