//! Files with known names beside an output, which a later process finds and continues.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// `.NAME.<ending>` in the folder of `path`.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// Opens the file at `path` for reading and writing, or creates it; its bytes stay. No link is
/// followed.
///
/// # Errors
/// Errors of the file system, and [`ErrorKind::InvalidInput`] for a link, a file with other names,
/// and whatever is no file.
pub fn open_sibling(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    let is_link = || fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let refused = || {
        let reason = format!("{} is not a file of this program; remove it", path.display());
        io::Error::new(ErrorKind::InvalidInput, reason)
    };
    let file = match options.open(path) {
        Err(_) if is_link() => return Err(refused()),
        opened => opened?,
    };
    if is_alone(&file.metadata()?) && is_at(path, &file) { Ok(file) } else { Err(refused()) }
}

#[cfg(unix)]
fn is_alone(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    found.is_file() && found.nlink() == 1
}

#[cfg(not(unix))]
fn is_alone(found: &fs::Metadata) -> bool {
    found.is_file()
}

/// True if `path` leads to `file` without a link, and not to one that took its place after it was
/// removed.
#[cfg(unix)]
pub fn is_at(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let (named, open) = (fs::symlink_metadata(path).map(identity), file.metadata().map(identity));
    matches!((named, open), (Ok(named), Ok(open)) if named == open)
}

/// Elsewhere a file that is open is not removed.
#[cfg(not(unix))]
pub fn is_at(path: &Path, _file: &File) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    // `ln -s precious .a.mbg.partial; megabatch graph build … --out a.mbg` overwrote `precious`.
    #[cfg(unix)]
    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("precious"), "kept").unwrap();
        std::os::unix::fs::symlink("precious", at("link")).unwrap();
        std::os::unix::fs::symlink("absent", at("nowhere")).unwrap();
        fs::hard_link(at("precious"), at("second")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for name in ["link", "nowhere", "second"] {
            let error = open_sibling(&at(name)).unwrap_err();
            assert!(error.to_string().contains("remove it"), "{name}: {error}");
        }
        assert!(open_sibling(&at("folder")).is_err());
        assert!(!at("absent").exists());
        assert_eq!(fs::read(at("precious")).unwrap(), b"kept");
    }

    #[test]
    fn a_file_keeps_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = beside(&folder.path().join("a.mbg"), "partial");
        assert!(path.ends_with(".a.mbg.partial"));
        open_sibling(&path).unwrap();
        fs::write(&path, "so far").unwrap();
        assert_eq!(open_sibling(&path).unwrap().metadata().unwrap().len(), 6);
    }
}
