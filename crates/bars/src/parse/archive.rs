//! The file of bars in a zip archive, as HistData and Binance deliver them.
//!
//! Source: APPNOTE.TXT 6.3.10 by PKWARE, of which an archive may use stored and deflated members.

use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};

/// The first bytes of an archive with a member.
pub(crate) const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";
/// Endings of tables. An archive of HistData has a report in `.txt` beside the table.
const TABLE_ENDINGS: [&str; 2] = [".csv", ".tsv"];

/// Place and form of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Bytes of the archive that it takes.
    start: u64,
    packed_bytes: u64,
    bytes: u64,
    crc32: u32,
    is_deflated: bool,
}

impl Member {
    /// Finds the only file of bars in the archive `file`.
    ///
    /// # Errors
    /// If there is none, or more than one; if it is encrypted, or compressed otherwise; if the
    /// archive is damaged.
    pub(crate) fn find(file: &File) -> io::Result<Self> {
        let damaged = |error: rawzip::Error| invalid(format!("the zip archive is damaged: {error}"));
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file.try_clone()?, &mut buffer).map_err(damaged)?;
        let mut found = Vec::new();
        let mut entries = archive.entries(&mut buffer);
        while let Some(entry) = entries.next_entry().map_err(damaged)? {
            if !entry.is_dir() {
                let name = String::from_utf8_lossy(entry.file_path().as_ref()).into_owned();
                let bytes = entry.uncompressed_size_hint();
                found.push((name, entry.wayfinder(), entry.flags(), entry.compression_method(), bytes, entry.crc32()));
            }
        }
        let place = only_table(&found.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>())?;
        let (name, wayfinder, flags, method, bytes, crc32) = found.swap_remove(place);
        if flags.is_encrypted() {
            return Err(invalid(format!("{name} in the zip archive is encrypted; unpack it")));
        }
        let is_deflated = match method {
            CompressionMethod::STORE => false,
            CompressionMethod::DEFLATE => true,
            _ => return Err(invalid(format!("{name} in the zip archive is not compressed by deflate; unpack it"))),
        };
        let (start, end) = archive.get_entry(wayfinder).map_err(damaged)?.compressed_data_range();
        Ok(Member { start, packed_bytes: end - start, bytes, crc32, is_deflated })
    }

    /// Moves `file` to the member.
    pub(crate) fn seek(&self, file: &mut File) -> io::Result<()> {
        file.seek(SeekFrom::Start(self.start)).map(|_| ())
    }

    /// The member's text, from a reader of the archive that [`Member::seek`] has moved. Its end is
    /// an error where length or checksum are not the archive's.
    pub(crate) fn unpacked<'a>(self, archive: impl BufRead + 'a) -> Box<dyn BufRead + 'a> {
        let packed = archive.take(self.packed_bytes);
        let text: Box<dyn Read + 'a> =
            if self.is_deflated { Box::new(DeflateDecoder::new(packed)) } else { Box::new(packed) };
        let checked = Checked { text, sum: Crc::new(), bytes: 0, member: self };
        Box::new(BufReader::with_capacity(1 << 16, checked))
    }
}

/// The place of the only table among the names of an archive's files, or of the only file.
fn only_table(names: &[&str]) -> io::Result<usize> {
    let is_table = |name: &str| TABLE_ENDINGS.iter().any(|ending| name.to_lowercase().ends_with(ending));
    let tables: Vec<usize> = (0..names.len()).filter(|&place| is_table(names[place])).collect();
    match (tables.as_slice(), names) {
        (&[table], _) => Ok(table),
        ([], [_]) => Ok(0),
        ([], []) => Err(invalid("the zip archive is empty".to_owned())),
        ([], _) => Err(invalid("the zip archive has no .csv; unpack it and give the file of bars".to_owned())),
        ([first, second, ..], _) => Err(invalid(format!(
            "the zip archive has {} tables ({}, {}…); unpack it and give the files or their folder",
            tables.len(),
            names[*first],
            names[*second]
        ))),
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// A member's text, compared with its length and checksum at the end.
struct Checked<R> {
    text: R,
    sum: Crc,
    bytes: u64,
    member: Member,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.text.read(buffer)?;
        self.sum.update(&buffer[..count]);
        self.bytes += count as u64;
        let is_end = count == 0 && !buffer.is_empty();
        if is_end && (self.bytes, self.sum.sum()) != (self.member.bytes, self.member.crc32) {
            return Err(invalid("the zip archive is damaged: another checksum or length".to_owned()));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;
    use rawzip::ZipArchiveWriter;

    use super::*;

    fn archive(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut archive = ZipArchiveWriter::new(&mut bytes);
        for (name, text) in members {
            let (mut entry, config) = archive.new_file(name).compression_method(method).start().unwrap();
            let descriptor = if method == CompressionMethod::DEFLATE {
                let mut writer = config.wrap(DeflateEncoder::new(&mut entry, Compression::default()));
                writer.write_all(text).unwrap();
                let (encoder, descriptor) = writer.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut writer = config.wrap(&mut entry);
                writer.write_all(text).unwrap();
                writer.finish().unwrap().1
            };
            entry.finish(descriptor).unwrap();
        }
        archive.finish().unwrap();
        bytes
    }

    fn text(archive: &[u8]) -> io::Result<Vec<u8>> {
        let mut file = tempfile::tempfile()?;
        file.write_all(archive)?;
        let member = Member::find(&file)?;
        member.seek(&mut file)?;
        let mut text = Vec::new();
        member.unpacked(BufReader::new(file)).read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn the_table_is_read_whatever_is_beside_it() {
        let bars = b"20180101 170000;1.2;1.3;1.1;1.2;0\n".repeat(3000);
        for method in [CompressionMethod::STORE, CompressionMethod::DEFLATE] {
            for members in [
                &[("DAT_ASCII_EURUSD_M1_2018.csv", bars.as_slice()), ("DAT_ASCII_EURUSD_M1_2018.txt", b"gaps")][..],
                &[("report.txt", b"gaps"), ("folder/BARS.CSV", &bars)],
                &[("bars.data", &bars)],
            ] {
                assert_eq!(text(&archive(members, method)).unwrap(), bars);
            }
        }
    }

    #[test]
    fn other_archives_are_refused() {
        let refusal = |members: &[(&str, &[u8])], method| text(&archive(members, method)).unwrap_err().to_string();
        let deflate = CompressionMethod::DEFLATE;
        let two = refusal(&[("a.csv", b"1"), ("b.csv", b"2"), ("c.txt", b"3")], deflate);
        assert_eq!(two, "the zip archive has 2 tables (a.csv, b.csv…); unpack it and give the files or their folder");
        let none = refusal(&[("a.txt", b"1"), ("b.txt", b"2")], deflate);
        assert!(none.starts_with("the zip archive has no .csv; "), "{none}");
        assert_eq!(refusal(&[], deflate), "the zip archive is empty");
        let other = refusal(&[("a.csv", b"1")], CompressionMethod::BZIP2);
        assert_eq!(other, "a.csv in the zip archive is not compressed by deflate; unpack it");
    }

    #[test]
    fn damage_is_seen() {
        let bars: Vec<u8> = (0..5000_u32).flat_map(|number| format!("{number},1.5\n").into_bytes()).collect();
        for method in [CompressionMethod::STORE, CompressionMethod::DEFLATE] {
            let whole = archive(&[("a.csv", &bars)], method);
            assert_eq!(text(&whole).unwrap(), bars);
            for place in (100..whole.len() - 200).step_by(997) {
                let mut damaged = whole.clone();
                damaged[place] ^= 4;
                assert!(text(&damaged).is_err(), "{place} of {}", whole.len());
            }
            assert!(text(&whole[..whole.len() / 2]).unwrap_err().to_string().contains("damaged"));
        }
    }
}
