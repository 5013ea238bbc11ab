use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, ErrorKind, Read, Seek};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, Result};
use crate::parse::archive::{Member, ZIP_MAGIC};
use crate::parse::encoding::{ByteOrder, Utf16Reader};
use crate::parse::parquet_text::{PARQUET_MAGIC, ParquetText};
use crate::place::{ObserveBytes, Stopped, tell_read};

/// Bytes of a line that are kept; the rest of a longer one is skipped, so that a binary file cannot
/// fill the memory.
pub const LINE_BYTES_MAX: usize = 1 << 18;
/// End of a line that was cut: no field of which the rest is missing is a number.
const CUT: &[u8] = "…".as_bytes();
/// Bytes of the file that are read at once.
const READ_BYTES: usize = 1 << 16;
/// Lines from which the format is recognised.
const HEAD_LINES: usize = 64;
/// Objects in the place of a file of bars, and remedies.
const FOLDER: &str = "a folder; name a file in it";
const PIPE: &str = "a pipe or a device; bars are read more than once, so save what a pipe gives in a file";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The lines of a text file, plain, compressed with gzip or in a zip archive, in UTF-8 or UTF-16,
/// one at a time; or those of the [text](ParquetText) of a Parquet file.
///
/// Lines end with a line feed, a carriage return, or both. Bytes that are no UTF-8 stay as they
/// are.
pub(crate) struct TextLines<'a> {
    path: PathBuf,
    reader: Box<dyn BufRead + 'a>,
    line: u64,
    /// The last line ended with a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    /// The last line ended.
    has_end: bool,
}

impl<'a> TextLines<'a> {
    /// Opens a file; gzip, zip, Parquet and UTF-16 are told from its first bytes, whatever its
    /// name. A pipe is refused: a file is opened more than once, and its hash is taken after it was
    /// read.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        TextLines::observed(path, &|_| ControlFlow::Continue(()))
    }

    /// The same; `observe` gets the number of bytes of every read and may end the reading.
    pub(crate) fn observed(path: &Path, observe: ObserveBytes<'a>) -> Result<Self> {
        let failed = |source: io::Error| match is_stopped(&source) {
            true => Error::Interrupted,
            false => Error::Open { path: path.to_owned(), source },
        };
        let mut file = File::open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            let kind = if found.is_dir() { FOLDER } else { PIPE };
            return Err(Error::NotAFile { path: path.to_owned(), kind });
        }
        let text = || -> io::Result<Box<dyn BufRead + 'a>> {
            match container(&mut file)? {
                Container::Parquet => Ok(Box::new(ParquetText::open(file, observe)?)),
                Container::Zip => {
                    let member = Member::find(&file)?;
                    member.seek(&mut file)?;
                    decoded(member.unpacked(observed(file, observe)))
                }
                Container::None => decoded(decompressed(observed(file, observe))?),
            }
        };
        let reader = text().map_err(failed)?;
        Ok(TextLines { path: path.to_owned(), reader, line: 0, after_return: false, has_end: true })
    }

    /// The lines from which a file's format is recognised, with their numbers: its first ones.
    pub(crate) fn read_head(&mut self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut head = Vec::new();
        let mut text = Vec::new();
        while head.len() < HEAD_LINES
            && let Some(line) = self.read_into(&mut text)?
        {
            head.push((line, text.clone()));
        }
        Ok(head)
    }

    /// Puts the next line, without its end, into `line`, and gives its number from 1; `None` after
    /// the last.
    pub(crate) fn read_into(&mut self, line: &mut Vec<u8>) -> Result<Option<u64>> {
        line.clear();
        let found = self.fill(line).map_err(|source| match is_stopped(&source) {
            true => Error::Interrupted,
            false => Error::Read { path: self.path.clone(), line: self.line, source },
        })?;
        if !found {
            return Ok(None);
        }
        self.line += 1;
        while line.last().is_some_and(u8::is_ascii_whitespace) {
            line.pop();
        }
        // Files that were joined have the mark of each.
        if line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(Some(self.line))
    }

    /// False if the last line that was read goes to the end of the file without an end of its own:
    /// the rest of it may not be written yet.
    pub(crate) fn has_end(&self) -> bool {
        self.has_end
    }

    /// Takes the bytes up to the next end of a line; false where there are none left.
    fn fill(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        let (mut found, mut is_cut) = (false, false);
        loop {
            let buffer = match self.reader.fill_buf() {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                buffer => buffer?,
            };
            let Some(&first) = buffer.first() else {
                line.extend(CUT.iter().filter(|_| is_cut));
                self.has_end &= !found;
                return Ok(found);
            };
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                self.reader.consume(1);
                continue;
            }
            found = true;
            let end = buffer.iter().position(|&byte| byte == b'\n' || byte == b'\r');
            let text = &buffer[..end.unwrap_or(buffer.len())];
            let kept = text.len().min(LINE_BYTES_MAX - line.len());
            is_cut |= kept < text.len();
            line.extend_from_slice(&text[..kept]);
            let Some(end) = end else {
                let read = buffer.len();
                self.reader.consume(read);
                continue;
            };
            self.after_return = buffer[end] == b'\r';
            self.has_end = true;
            self.reader.consume(end + 1);
            line.extend(CUT.iter().filter(|_| is_cut));
            return Ok(true);
        }
    }
}

/// A file whose bytes are counted.
struct ObservedFile<'a> {
    file: File,
    observe: ObserveBytes<'a>,
}

/// True for the error of a read that the observer ended.
pub(crate) fn is_stopped(error: &io::Error) -> bool {
    error.get_ref().and_then(|cause| cause.downcast_ref::<Stopped>()).is_some()
}

impl Read for ObservedFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        tell_read(self.observe, count as u64)?;
        Ok(count)
    }
}

/// Kinds of files that hold a table in more than its compressed bytes.
enum Container {
    None,
    Zip,
    Parquet,
}

/// Recognises the kind of a file at its start, where it is left.
fn container(file: &mut File) -> io::Result<Container> {
    let mut head = Vec::with_capacity(ZIP_MAGIC.len());
    file.by_ref().take(ZIP_MAGIC.len() as u64).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(match head {
        _ if head == ZIP_MAGIC => Container::Zip,
        _ if head == PARQUET_MAGIC => Container::Parquet,
        _ => Container::None,
    })
}

fn observed(file: File, observe: ObserveBytes<'_>) -> BufReader<ObservedFile<'_>> {
    BufReader::with_capacity(READ_BYTES, ObservedFile { file, observe })
}

fn decompressed<'a>(file: BufReader<ObservedFile<'a>>) -> io::Result<Box<dyn BufRead + 'a>> {
    let (head, file) = with_head::<2, _>(file)?;
    Ok(match head == GZIP_MAGIC {
        true => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(file))),
        false => Box::new(file),
    })
}

fn decoded<'a>(reader: Box<dyn BufRead + 'a>) -> io::Result<Box<dyn BufRead + 'a>> {
    let (head, reader) = with_head::<4, _>(reader)?;
    Ok(match ByteOrder::recognised(&head) {
        Some(byte_order) => Box::new(Utf16Reader::new(reader, byte_order)),
        None => Box::new(reader),
    })
}

/// A reader whose first bytes were looked at and are given once more.
type Rewound<R> = Chain<Cursor<Vec<u8>>, R>;

/// The first bytes, at most `N`, and a reader of all.
fn with_head<const N: usize, R: BufRead>(mut reader: R) -> io::Result<(Vec<u8>, Rewound<R>)> {
    let mut head = Vec::with_capacity(N);
    reader.by_ref().take(N as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Cursor::new(head).chain(reader)))
}

/// The text of one line, for a message; empty where the file can no longer be read.
pub(crate) fn text_of_line(path: &Path, wanted: u64) -> Vec<u8> {
    let mut line = Vec::new();
    let Ok(mut lines) = TextLines::open(path) else { return line };
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
        let mut lines = TextLines::open(file.path())?;
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
        let text = b"\xef\xbb\xbfa,b\r\n\nc\t\n d\r\re\r\n".as_slice();
        let expected = [(1, "a,b"), (2, ""), (3, "c"), (4, " d"), (5, ""), (6, "e")];
        let expected = expected.map(|(number, line)| (number, line.to_owned()));
        assert_eq!(lines_of(text).unwrap(), expected);
        assert_eq!(lines_of(&gzip(text)).unwrap(), expected);
        assert_eq!(lines_of(b"").unwrap(), []);
        // A file behind another one, each with a mark.
        let joined = lines_of(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n").unwrap();
        assert_eq!(joined, [(1, "a".to_owned()), (2, "b".to_owned())]);
    }

    #[test]
    fn a_last_line_without_an_end_is_told() {
        for (text, has_end) in [("a\nb\n", true), ("a\nb", false), ("", true)] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let mut lines = TextLines::open(file.path()).unwrap();
            lines.read_head().unwrap();
            assert_eq!(lines.has_end(), has_end, "{text:?}");
        }
    }

    #[test]
    fn utf_16_is_decoded() {
        let units: Vec<u16> = "\u{feff}a,ö\r\nb".encode_utf16().collect();
        let expected = [(1, "a,ö".to_owned()), (2, "b".to_owned())];
        for mark in [0, 1] {
            let little: Vec<u8> = units[mark..].iter().flat_map(|unit| unit.to_le_bytes()).collect();
            let big: Vec<u8> = units[mark..].iter().flat_map(|unit| unit.to_be_bytes()).collect();
            for bytes in [gzip(&little), little, big] {
                assert_eq!(lines_of(&bytes).unwrap(), expected);
            }
        }
    }

    #[test]
    fn members_of_a_gzip_file_are_joined_and_a_cut_one_is_an_error() {
        let two = [gzip(b"a\n"), gzip(b"b\n")].concat();
        assert_eq!(lines_of(&two).unwrap().len(), 2);
        let cut = &gzip(&b"0123456789\n".repeat(1000))[..40];
        assert!(matches!(lines_of(cut), Err(Error::Read { .. })));
    }

    // `megabatch ingest <(cat bars.csv) --out a.h5` kept the hash of nothing, as the pipe had been
    // read.
    #[test]
    fn only_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = "a pipe or a device; bars are read more than once, so save what a pipe gives in a file";
        for (path, found) in [(folder.path(), "a folder; name a file in it"), (Path::new("/dev/null"), pipe)] {
            let error = TextLines::open(path).err().unwrap();
            assert_eq!(error.to_string(), format!("{}: expected a file of bars, found {found}", path.display()));
        }
    }

    #[test]
    fn an_endless_line_is_cut_and_counted_once() {
        let mut bytes = vec![b'1'; 3 * LINE_BYTES_MAX];
        bytes.extend(b"\nnext\n");
        bytes.resize(bytes.len() + LINE_BYTES_MAX + 1, b'2');
        let lines = lines_of(&bytes).unwrap();
        let cut = |digit: &str| format!("{}…", digit.repeat(LINE_BYTES_MAX));
        assert_eq!(lines, [(1, cut("1")), (2, "next".to_owned()), (3, cut("2"))]);
    }
}
