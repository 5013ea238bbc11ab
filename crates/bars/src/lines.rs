use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};

/// Bytes of a line that are kept; the rest of a longer one is skipped, so that a binary file cannot fill the memory.
const LINE_BYTES_MAX: u64 = 1 << 16;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a text file, plain or compressed with gzip, one at a time.
pub(crate) struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    line: u64,
}

impl Lines {
    /// Opens a file; gzip is told from the first two bytes, whatever the name.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let open = |path: &Path| -> io::Result<Box<dyn BufRead>> {
            let mut file = BufReader::new(File::open(path)?);
            if file.fill_buf()?.starts_with(&GZIP_MAGIC) {
                return Ok(Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))));
            }
            Ok(Box::new(file))
        };
        let reader = open(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
        Ok(Lines { path: path.to_owned(), reader, line: 0 })
    }

    /// Puts the next line, without its end, into `line`, and gives its number from 1; `None` after the last.
    pub(crate) fn read_into(&mut self, line: &mut Vec<u8>) -> Result<Option<u64>> {
        line.clear();
        let read =
            self.fill(line).map_err(|source| Error::Read { path: self.path.clone(), line: self.line, source })?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        while line.last().is_some_and(u8::is_ascii_whitespace) {
            line.pop();
        }
        if self.line == 1 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some(self.line))
    }

    fn fill(&mut self, line: &mut Vec<u8>) -> io::Result<usize> {
        let read = self.reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
        if read as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            self.reader.skip_until(b'\n')?;
        }
        Ok(read)
    }
}

/// The text of one line, for a message; empty where the file can no longer be read.
pub(crate) fn text_of_line(path: &Path, wanted: u64) -> Vec<u8> {
    let mut line = Vec::new();
    let Ok(mut lines) = Lines::open(path) else { return line };
    while let Ok(Some(number)) = lines.read_into(&mut line) {
        if number == wanted {
            return line;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn lines_of(bytes: &[u8]) -> Result<Vec<(u64, String)>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let mut lines = Lines::open(file.path())?;
        let (mut line, mut all) = (Vec::new(), Vec::new());
        while let Some(number) = lines.read_into(&mut line)? {
            all.push((number, String::from_utf8_lossy(&line).into_owned()));
        }
        Ok(all)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn ends_of_lines_and_the_byte_order_mark_are_taken_off() {
        let text = b"\xef\xbb\xbfa,b\r\n\nc\t\n d".as_slice();
        let expected = [(1, "a,b"), (2, ""), (3, "c"), (4, " d")].map(|(number, line)| (number, line.to_owned()));
        assert_eq!(lines_of(text).unwrap(), expected);
        assert_eq!(lines_of(&gzip(text)).unwrap(), expected);
        assert_eq!(lines_of(b"").unwrap(), []);
    }

    #[test]
    fn members_of_a_gzip_file_are_joined_and_a_cut_one_is_an_error() {
        let two = [gzip(b"a\n"), gzip(b"b\n")].concat();
        assert_eq!(lines_of(&two).unwrap().len(), 2);
        let cut = &gzip(&b"0123456789\n".repeat(1000))[..40];
        assert!(matches!(lines_of(cut), Err(Error::Read { .. })));
    }

    #[test]
    fn an_endless_line_is_cut_and_counted_once() {
        let mut bytes = vec![b'x'; 3 * LINE_BYTES_MAX as usize];
        bytes.extend(b"\nnext");
        let lines = lines_of(&bytes).unwrap();
        assert_eq!(lines[0].1.len() as u64, LINE_BYTES_MAX);
        assert_eq!(lines[1..], [(2, "next".to_owned())]);
    }
}
