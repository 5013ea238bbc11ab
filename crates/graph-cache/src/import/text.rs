use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use crate::error::{Error, Result};

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
/// Largest expansion of a compressed text: a factor of its own length, and a minimum in bytes that
/// small files never reach. Text of numbers expands three- to tenfold, deflate goes up to a
/// thousandfold.
const EXPANSION_MAX: (usize, usize) = (100, 1 << 20);

/// A text file in memory, decompressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Text {
    /// Reads a file, plain or compressed with gzip, whatever its name.
    ///
    /// # Errors
    /// [`Error::Io`], and as [`new`](Self::new).
    pub fn read(path: &Path) -> Result<Self> {
        Text::new(path, Error::read_file(path)?)
    }

    /// The text in `bytes`, plain or compressed with gzip; `path` is for errors.
    ///
    /// # Errors
    /// [`Error::Io`] for a stream that breaks off; [`Error::Contradiction`] for one that expands
    /// more than a hundredfold.
    pub fn new(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Result<Self> {
        let path = path.into();
        if !bytes.starts_with(GZIP_MAGIC) {
            return Ok(Text { path, bytes });
        }
        match decompressed(&bytes) {
            Ok(Some(bytes)) => Ok(Text { path, bytes }),
            Ok(None) => Err(Error::Contradiction {
                path,
                found: format!("{} compressed bytes that expand more than {}-fold", bytes.len(), EXPANSION_MAX.0),
                expected: "a text; if it is right, decompress it first".to_owned(),
            }),
            Err(source) => Err(Error::Io { path, action: "decompress the file", source }),
        }
    }

    /// A text that is not compressed.
    pub(crate) fn plain(path: impl Into<PathBuf>, bytes: Vec<u8>) -> Self {
        Text { path: path.into(), bytes }
    }

    /// The texts in a folder whose names, without `.gz`, end in one of `endings`, in the order of
    /// their names.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn in_folder(folder: &Path, endings: &[&str]) -> Result<Vec<Self>> {
        let unreadable = |source| Error::Io { path: folder.to_owned(), action: "read the file", source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if endings.iter().any(|ending| plain_name(&path).ends_with(ending)) {
                paths.push(path);
            }
        }
        paths.sort();
        paths.iter().map(|path| Text::read(path)).collect()
    }

    /// The file that it is from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes, decompressed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The file's name without `.gz`.
    pub(super) fn name(&self) -> &str {
        plain_name(&self.path)
    }

    pub(super) fn contradiction(&self, found: impl Into<String>, expected: impl Into<String>) -> Error {
        Error::Contradiction { path: self.path.clone(), found: found.into(), expected: expected.into() }
    }

    /// The error of a field at a line and a column, both from 1.
    pub(super) fn field(&self, line: u64, column: usize, found: &[u8], expected: impl Into<String>) -> Error {
        Error::Field { path: self.path.clone(), line, column, expected: expected.into(), found: shortened(found) }
    }
}

fn plain_name(path: &Path) -> &str {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_suffix(".gz").unwrap_or(name)
}

fn decompressed(bytes: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let limit = bytes.len().saturating_mul(EXPANSION_MAX.0).saturating_add(EXPANSION_MAX.1);
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes).take(limit as u64 + 1).read_to_end(&mut text)?;
    Ok((text.len() <= limit).then_some(text))
}

/// `text` cut to a length that fits a message, with marks in place of what would disturb a
/// terminal.
fn shortened(text: &[u8]) -> String {
    const CHARS_MAX: usize = 60;
    let text = String::from_utf8_lossy(&text[..text.len().min(8 * CHARS_MAX)]);
    let visible = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    let mut chars = text.trim_end().chars();
    let shown: String = chars.by_ref().take(CHARS_MAX).map(visible).collect();
    if chars.next().is_some() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_told_from_the_bytes_and_bounded() {
        assert_eq!(Text::new("a.gz", b"plain".to_vec()).unwrap().bytes(), b"plain");
        assert_eq!(Text::new("a.csv", gzip(b"packed")).unwrap().bytes(), b"packed");
        let bomb = Text::new("a", gzip(&vec![b'0'; 4 << 20])).unwrap_err().to_string();
        assert!(bomb.contains("decompress it first"), "{bomb}");
        let half = gzip(b"packed")[..12].to_vec();
        assert!(matches!(Text::new("a", half), Err(Error::Io { .. })));
    }

    #[test]
    fn a_folder_gives_the_files_of_the_format() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b_A.txt", "a_A.txt.gz", "README.txt"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        let texts = Text::in_folder(folder.path(), &["_A.txt"]).unwrap();
        assert_eq!(texts.iter().map(Text::name).collect::<Vec<_>>(), ["a_A.txt", "b_A.txt"]);
        assert!(matches!(Text::in_folder(&folder.path().join("no"), &[]), Err(Error::Io { .. })));
    }

    #[test]
    fn what_is_shown_of_a_field_is_short_and_visible() {
        for (text, expected) in [("a \n", "a".to_owned()), ("\0x", "\u{fffd}x".to_owned())] {
            assert_eq!(shortened(text.as_bytes()), expected);
        }
        assert_eq!(shortened(&[b'a'; 1000]), format!("{}…", "a".repeat(60)));
    }
}
