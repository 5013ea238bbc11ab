//! Lines of a file that grows, or of any other source.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use megabatch_bars::{ByteOrder, LINE_BYTES_MAX, bar_files};

use super::growing_file::GrowingFile;
use crate::error::{Error, Result};

/// Interval between checks of a file for new lines: far below the time of a bar, and little work.
const INTERVAL: Duration = Duration::from_millis(20);

/// First bytes of gzip files.
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Behaviour at the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// More is awaited.
    Wait,
    /// It is the end.
    Stop,
}

/// Where lines of bars come from.
pub enum BarSource<'a> {
    /// A file, which may grow.
    File {
        /// The file.
        path: &'a Path,
        /// Behaviour at its end.
        at_end: AtEnd,
    },
    /// Any other source. It ends at its last line.
    Lines {
        /// Its name in messages.
        name: &'a str,
        /// The lines.
        lines: Box<dyn BufRead + 'a>,
        /// Callback for a row that cannot be used, before the next one. `None` ends the stream at
        /// such a row.
        refused: Option<Box<dyn FnMut(Error) + 'a>>,
    },
}

impl BarSource<'_> {
    /// Name in messages.
    pub(super) fn name(&self) -> &Path {
        match self {
            BarSource::File { path, .. } => path,
            BarSource::Lines { name, .. } => Path::new(*name),
        }
    }

    /// Refuses a folder, with the file in it that was written last.
    ///
    /// # Errors
    /// A data error.
    pub(super) fn require_file(&self) -> Result<()> {
        let path = match self {
            BarSource::File { path, .. } if path.is_dir() => path,
            _ => return Ok(()),
        };
        let modified = |file: &PathBuf| file.metadata().and_then(|found| found.modified()).ok();
        let newest = bar_files(path).unwrap_or_default().into_iter().max_by_key(modified);
        let newest = newest.map_or_else(
            || "there is no file of bars in it".to_owned(),
            |newest| format!("the newest in it is {}", newest.display()),
        );
        Err(Error::data(format!("{}: is a folder, and one file is followed; {newest}", path.display())))
    }
}

/// Lines as they come, in UTF-8 or, as MetaTrader writes them, in UTF-16.
pub(super) struct Tail<'a> {
    name: PathBuf,
    input: Input<'a>,
    text: TextPosition,
    /// False once the last line was given and had no end.
    has_end: bool,
    refused: Option<Box<dyn FnMut(Error) + 'a>>,
}

enum Input<'a> {
    Lines(Box<dyn BufRead + 'a>),
    File {
        reader: BufReader<GrowingFile>,
        at_end: AtEnd,
        /// The line whose end was not there yet.
        begun: Vec<u8>,
    },
}

/// Encodings of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16(ByteOrder),
}

/// Place in a text that is read.
#[derive(Default)]
struct TextPosition {
    /// Bytes before it, but for those of UTF-8.
    bytes: u64,
    /// The byte before it.
    last: u8,
    /// Encoding of the text, once its beginning is there.
    encoding: Option<Encoding>,
}

/// The part of a line that a read added.
struct LinePart {
    bytes: usize,
    /// True if the line ends with it.
    is_last: bool,
}

/// U+FFFD, as which `ingest` reads half a unit too: no field that ends with it is a number.
const CUT: u16 = 0xfffd;
const LINE_FEED: u16 = 0x0a;

impl Encoding {
    /// The encoding of a text whose first line is `line`.
    fn recognised(line: &[u8]) -> Self {
        ByteOrder::recognised(&line[..line.len().min(4)]).map_or(Encoding::Utf8, Encoding::Utf16)
    }

    /// The text in UTF-8 of `line`. Half a unit at the end is no character, but for the first half
    /// of a line feed: the text was cut in it.
    fn to_utf8(self, line: &[u8]) -> Option<String> {
        let Encoding::Utf16(byte_order) = self else { return None };
        let units = line.chunks(2).map(|bytes| match *bytes {
            [first, second] => byte_order.unit([first, second]),
            [b'\n'] if byte_order == ByteOrder::LittleEndian => LINE_FEED,
            _ => CUT,
        });
        Some(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
    }
}

impl TextPosition {
    /// Moves the bytes of `buffer` up to the end of a line to `line`, as far as there is space.
    fn take(&mut self, buffer: &[u8], line: &mut Vec<u8>) -> LinePart {
        if self.encoding == Some(Encoding::Utf8) {
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let text = &buffer[..end.unwrap_or(buffer.len())];
            line.extend_from_slice(&text[..text.len().min(LINE_BYTES_MAX.saturating_sub(line.len()))]);
            line.extend(end.map(|_| b'\n'));
            return LinePart { bytes: text.len() + usize::from(end.is_some()), is_last: end.is_some() };
        }
        for (place, &byte) in buffer.iter().enumerate() {
            if line.len() < LINE_BYTES_MAX {
                line.push(byte);
            }
            if self.ends_line(byte, line) {
                return LinePart { bytes: place + 1, is_last: true };
            }
        }
        LinePart { bytes: buffer.len(), is_last: false }
    }

    /// Goes on by `byte`, the last of `line`; true if it ends this. Characters of two bytes may
    /// have that of a line feed in them.
    fn ends_line(&mut self, byte: u8, line: &[u8]) -> bool {
        self.bytes += 1;
        if self.encoding.is_none() && (self.bytes == 4 || byte == b'\n') {
            self.encoding = Some(Encoding::recognised(line));
        }
        let last = std::mem::replace(&mut self.last, byte);
        match self.encoding {
            None => false,
            Some(Encoding::Utf8) => byte == b'\n',
            Some(Encoding::Utf16(byte_order)) => {
                self.bytes.is_multiple_of(2) && byte_order.unit([last, byte]) == LINE_FEED
            }
        }
    }
}

impl<'a> Tail<'a> {
    /// Opens the source.
    pub(super) fn open(source: BarSource<'a>) -> Result<Self> {
        let (path, at_end) = match source {
            BarSource::Lines { name, lines, refused } => {
                return Ok(Tail {
                    name: name.into(),
                    input: Input::Lines(lines),
                    text: TextPosition::default(),
                    has_end: true,
                    refused,
                });
            }
            BarSource::File { path, at_end } => (path, at_end),
        };
        let file = File::open(path).map_err(|error| unusable(path, "opened", &error))?;
        let found = file.metadata().map_err(|error| unusable(path, "read", &error))?;
        let mut reader = BufReader::new(GrowingFile::new(file, &found));
        if reader.fill_buf().map_err(|error| unusable(path, "read", &error))?.starts_with(GZIP_MAGIC) {
            let path = path.display();
            return Err(Error::data(format!(
                "{path}: is compressed with gzip; bars are followed as plain lines: `zcat {path} | megabatch predict --follow - …`"
            )));
        }
        Ok(Tail {
            name: path.to_owned(),
            input: Input::File { reader, at_end, begun: Vec::new() },
            text: TextPosition::default(),
            has_end: true,
            refused: None,
        })
    }

    /// Name in messages.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Reports a row that cannot be used.
    ///
    /// # Errors
    /// `error`, without a callback.
    pub(super) fn refuse(&mut self, error: Error) -> Result<()> {
        match &mut self.refused {
            Some(refused) => {
                // A bar comes without options.
                refused(error.without_advice());
                Ok(())
            }
            None => Err(error),
        }
    }

    /// Puts the next line into `line` once it is whole, or where nothing follows; false after the
    /// last.
    pub(super) fn next_into(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        loop {
            if self.next_ready(line)? {
                return Ok(true);
            }
            match &mut self.input {
                Input::Lines(lines) => {
                    line.clear();
                    let part = read_line(lines, line, &mut self.text)?;
                    self.has_end = part.is_last;
                    self.decode(line);
                    return Ok(part.bytes > 0);
                }
                Input::File { at_end: AtEnd::Stop, .. } => return Ok(false),
                Input::File { reader, .. } => wait(&self.name, reader.get_ref())?,
            }
        }
    }

    /// Puts the next line of a file into `line` if it is whole now; false where more may come.
    /// Other sources are not asked: their lines may have to be waited for.
    pub(super) fn next_ready(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        let Input::File { reader, at_end, begun } = &mut self.input else { return Ok(false) };
        let LinePart { is_last, .. } = match read_line(reader, begun, &mut self.text) {
            Err(_) if reader.get_ref().is_changed() => return Err(replaced(&self.name)),
            read => read.map_err(|error| unusable(&self.name, "read", &error))?,
        };
        let is_whole = is_last || (*at_end == AtEnd::Stop && !begun.is_empty());
        if is_whole {
            std::mem::swap(line, begun);
            begun.clear();
            self.has_end = is_last;
            self.decode(line);
        }
        Ok(is_whole)
    }

    /// True if the last line that was given had its end.
    pub(super) fn has_end(&self) -> bool {
        self.has_end
    }

    /// Turns a line into UTF-8.
    fn decode(&mut self, line: &mut Vec<u8>) {
        if line.is_empty() {
            return;
        }
        let encoding = *self.text.encoding.get_or_insert_with(|| Encoding::recognised(line));
        if let Some(text) = encoding.to_utf8(line) {
            *line = text.into_bytes();
        }
    }

    /// True if a part of the next line is there, and more of it may come.
    pub(super) fn has_begun_line(&self) -> bool {
        matches!(&self.input, Input::File { begun, .. } if !begun.is_empty())
    }
}

/// Reads bytes of the text at `text` up to the end of a line, or of the file. A line longer than
/// [`LINE_BYTES_MAX`] is cut.
fn read_line(reader: &mut dyn BufRead, line: &mut Vec<u8>, text: &mut TextPosition) -> io::Result<LinePart> {
    let mut bytes = 0;
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            buffer => buffer?,
        };
        let is_end = buffer.is_empty();
        let part = text.take(buffer, line);
        reader.consume(part.bytes);
        bytes += part.bytes;
        if part.is_last || is_end {
            return Ok(LinePart { bytes, ..part });
        }
    }
}

fn unusable(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::data(format!("{}: cannot be {what}: {error}", path.display()))
}

/// The error for a file that does not have any longer what was read of it.
fn replaced(path: &Path) -> Error {
    Error::data(format!(
        "{}: was cut or replaced while it was followed; a file that is followed may only grow",
        path.display()
    ))
}

/// Waits a while for the file to grow. One that has become shorter, or has another inode, is
/// another file.
fn wait(path: &Path, opened: &GrowingFile) -> Result<()> {
    if !opened.is_at(path) {
        return Err(replaced(path));
    }
    std::thread::sleep(INTERVAL);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_line_without_its_end_is_whole_where_nothing_follows() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("live.csv");
        let path = file.as_path();
        std::fs::write(path, "one\ntw").unwrap();
        let open = |at_end| Tail::open(BarSource::File { path, at_end }).unwrap();
        let (mut waiting, mut ending, mut line) = (open(AtEnd::Wait), open(AtEnd::Stop), Vec::new());
        for tail in [&mut waiting, &mut ending] {
            assert!(tail.next_ready(&mut line).unwrap() && line == b"one\n");
        }
        assert!(ending.has_end() && ending.next_ready(&mut line).unwrap() && line == b"tw" && !ending.has_end());
        assert!(!ending.next_into(&mut line).unwrap());
        assert!(!waiting.next_ready(&mut line).unwrap());
        assert_eq!([&waiting, &ending].map(Tail::has_begun_line), [true, false]);
        File::options().append(true).open(path).unwrap().write_all(b"o\nthree\n").unwrap();
        assert!(waiting.next_into(&mut line).unwrap() && line == b"two\n");
        assert!(waiting.next_into(&mut line).unwrap() && line == b"three\n" && waiting.has_end());
        assert!(!waiting.next_ready(&mut line).unwrap() && !waiting.has_begun_line());
        let mut piped =
            Tail::open(BarSource::Lines { name: "-", lines: Box::new(&b"one"[..]), refused: None }).unwrap();
        assert!(!piped.next_ready(&mut line).unwrap());
        assert!(piped.next_into(&mut line).unwrap() && line == b"one");
        assert!(!piped.next_into(&mut line).unwrap());
    }

    /// A folder was taken for a file without a name of a symbol.
    #[test]
    fn a_folder_is_refused_with_its_newest_file() {
        fn source(path: &Path) -> BarSource<'_> {
            BarSource::File { path, at_end: AtEnd::Stop }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let refused = || source(path).require_file().unwrap_err().to_string();
        assert!(refused().ends_with(": is a folder, and one file is followed; there is no file of bars in it"));
        for (name, seconds) in [("a.csv", 3), ("b.csv", 5), ("c.csv", 4), ("notes.md", 6)] {
            let file = File::create(path.join(name)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
        }
        assert!(refused().ends_with(&format!("; the newest in it is {}", path.join("b.csv").display())));
        source(&path.join("a.csv")).require_file().unwrap();
        source(&path.join("absent.csv")).require_file().unwrap();
    }

    /// An export that MetaTrader wrote over the one before was read on in the middle of a line.
    #[test]
    fn a_file_that_is_written_anew_in_place_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("live.csv");
        let path = file.as_path();
        let encode = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        for (before, after) in [("one\ntwo\n", "two\nthree\nfour\n"), ("one\ntw", "one\nto\nthree\n")] {
            for [before, after] in [[before, after].map(|text| text.as_bytes().to_vec()), [before, after].map(encode)] {
                std::fs::write(path, &before).unwrap();
                let mut tail = Tail::open(BarSource::File { path, at_end: AtEnd::Wait }).unwrap();
                let mut line = Vec::new();
                while tail.next_ready(&mut line).unwrap() {}
                std::fs::write(path, &after).unwrap();
                let error = tail.next_into(&mut line).unwrap_err().to_string();
                assert!(error.contains("live.csv: was cut or replaced while it was followed"), "{error}");
            }
        }
    }

    /// A file of MetaTrader in UTF-16, which `ingest` reads, had no line that was a bar.
    #[test]
    fn lines_in_utf_16_come_in_utf_8() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("live.csv");
        let path = file.as_path();
        let little_endian = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        let big_endian = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<u8>>();
        for encode in [&little_endian as &dyn Fn(&str) -> Vec<u8>, &big_endian] {
            for mark in ["\u{feff}", ""] {
                std::fs::write(path, encode(&format!("{mark}one\r\nzwölf\n"))).unwrap();
                let open = |at_end| Tail::open(BarSource::File { path, at_end }).unwrap();
                let (mut waiting, mut ending, mut line) = (open(AtEnd::Wait), open(AtEnd::Stop), Vec::new());
                for tail in [&mut waiting, &mut ending] {
                    assert!(tail.next_ready(&mut line).unwrap() && line == format!("{mark}one\r\n").as_bytes());
                    assert!(tail.next_ready(&mut line).unwrap() && line == "zwölf\n".as_bytes());
                    assert!(!tail.next_ready(&mut line).unwrap() && !tail.has_begun_line());
                }
                let mut grown = File::options().append(true).open(path).unwrap();
                grown.write_all(&encode("thr")).unwrap();
                assert!(!waiting.next_ready(&mut line).unwrap() && waiting.has_begun_line());
                assert!(ending.next_ready(&mut line).unwrap() && line == b"thr");
                grown.write_all(&encode("ee\n")).unwrap();
                assert!(waiting.next_into(&mut line).unwrap() && line == b"three\n");
                let bytes = encode("one\ntwo");
                let lines = Box::new(&bytes[..]);
                let mut piped = Tail::open(BarSource::Lines { name: "-", lines, refused: None }).unwrap();
                assert!(piped.next_into(&mut line).unwrap() && line == b"one\n" && piped.has_end());
                assert!(piped.next_into(&mut line).unwrap() && line == b"two" && !piped.has_end());
            }
        }
    }

    /// A line was cut in a character that has the byte of a line feed.
    #[test]
    fn characters_with_the_byte_of_a_line_feed_end_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("live.csv");
        let text = "\u{feff}a上\u{a05}\u{a0a}b\n上\nlast";
        let little_endian: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big_endian: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [little_endian, big_endian] {
            std::fs::write(&path, &bytes).unwrap();
            let file = Tail::open(BarSource::File { path: &path, at_end: AtEnd::Stop }).unwrap();
            // Each byte comes alone.
            let lines = Box::new(BufReader::with_capacity(1, &bytes[..]));
            let piped = Tail::open(BarSource::Lines { name: "-", lines, refused: None }).unwrap();
            for mut tail in [file, piped] {
                let mut line = Vec::new();
                for expected in text.split_inclusive('\n') {
                    assert!(tail.next_into(&mut line).unwrap());
                    assert_eq!(String::from_utf8_lossy(&line), expected);
                }
                assert!(!tail.next_into(&mut line).unwrap());
            }
        }
    }

    /// The price of a bar that was being written ended with half a digit, and counted.
    #[test]
    fn half_a_character_is_no_digit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("live.csv");
        let text = "one\n1.25";
        let little_endian: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big_endian: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [little_endian, big_endian] {
            std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            let mut line = Vec::new();
            let mut ending = Tail::open(BarSource::File { path: &path, at_end: AtEnd::Stop }).unwrap();
            assert!(ending.next_into(&mut line).unwrap() && line == b"one\n");
            assert!(ending.next_into(&mut line).unwrap() && line == "1.2\u{fffd}".as_bytes());
        }
    }

    // `head -c 1500000000 /dev/zero | megabatch predict --run run --follow -` took as much memory.
    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut reader = BufReader::with_capacity(1 << 12, io::repeat(b'x').take(50 << 20).chain(&b"\nnext\nlast"[..]));
        let (mut line, mut text) = (Vec::new(), TextPosition::default());
        let mut next = || {
            line.clear();
            let read = read_line(&mut reader, &mut line, &mut text).unwrap();
            assert!(line.capacity() <= 4 * LINE_BYTES_MAX);
            (read.bytes, line.len())
        };
        assert_eq!(next(), ((50 << 20) + 1, LINE_BYTES_MAX + 1));
        assert_eq!([next(), next(), next()], [(5, 5), (4, 4), (0, 0)]);
    }
}
