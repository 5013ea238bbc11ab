//! The checksums of a checkpoint's files: a line a file, `<XXH3-128 in hexadecimal>  <name>`, as
//! `xxh128sum` prints and checks them (Collet, "XXH3", canonical form). The list itself needs none:
//! damage to it makes it disagree with the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_128;

use crate::error::{Error, Result};

/// The name of the list.
pub(super) const FILE: &str = "checksums.xxh128";

/// The list for `files`, names and bytes.
pub(super) fn list(files: &[(&str, Vec<u8>)]) -> String {
    files.iter().map(|(name, bytes)| format!("{}  {name}\n", checksum(bytes))).collect()
}

fn checksum(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// The list of a folder, through which its files are read.
#[derive(Debug)]
pub(super) struct Checksums {
    folder: PathBuf,
    by_name: BTreeMap<String, String>,
}

impl Checksums {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let bytes = fs::read(&path).map_err(Error::file(&path, "read"))?;
        let text = String::from_utf8_lossy(&bytes);
        let by_name = text.lines().filter_map(|line| line.split_once("  "));
        let by_name = by_name.map(|(sum, name)| (name.to_owned(), sum.to_owned())).collect();
        Ok(Checksums { folder: folder.to_owned(), by_name })
    }

    /// The bytes of a file, which are those that were written.
    pub(super) fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.folder.join(name);
        let bytes = fs::read(&path).map_err(Error::file(&path, "read"))?;
        let found = checksum(&bytes);
        let why = match self.by_name.get(name) {
            Some(written) if *written == found => return Ok(bytes),
            Some(written) => format!("its checksum is {found}, but {FILE} says {written}"),
            None => format!("{FILE} does not name it"),
        };
        let folder = self.folder.display();
        let reason = format!("damaged: {why}; remove the folder {folder}, and the checkpoint before it is used");
        Err(Error::Checkpoint { path, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums as the reference implementation gives them.
    #[test]
    fn lists_are_those_of_xxh128sum() {
        let files = [("empty", vec![]), ("one two", vec![1, 2])];
        let expected = "99aa06d3014798d86001c324468d497f  empty\nd2f0f9428898845f08130b77ddef5807  one two\n";
        assert_eq!(list(&files), expected);
    }

    #[test]
    fn every_bit_counts_in_the_files_and_in_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = b"weights".to_vec();
        let sums = list(&[("a", bytes.clone())]).into_bytes();
        let reads = || Checksums::open(folder.path()).and_then(|sums| sums.read("a"));
        let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        let advice = format!("; remove the folder {}, and the checkpoint before it is used", folder.path().display());
        put("a", &bytes);
        put(FILE, &sums);
        assert_eq!(reads().unwrap(), bytes);
        for (name, whole) in [("a", &bytes), (FILE, &sums)] {
            // The end of the last line means nothing.
            let bits = 8 * whole.len() - if name == FILE { 8 } else { 0 };
            for bit in 0..bits {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                put(name, &damaged);
                let error = reads().unwrap_err().to_string();
                assert!(error.contains("/a: damaged: "), "bit {bit} of {name}: {error}");
                assert!(error.contains(&advice), "bit {bit} of {name}: {error}");
            }
            put(name, &whole[..whole.len() - 2]);
            assert!(reads().is_err());
            put(name, whole);
        }
    }
}
