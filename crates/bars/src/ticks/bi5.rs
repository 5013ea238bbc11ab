//! Dukascopy's files of one hour: LZMA over records of 20 bytes, big-endian.
//!
//! ```text
//! u32 milliseconds since the hour
//! u32 ask, u32 bid             in points
//! f32 ask's volume, f32 bid's
//! ```

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use crate::error::row_error::RowError;
use crate::error::tick_error::TickError;
use crate::error::{Error, Result};
use crate::parse::symbol::{pip_size_of, symbol_of};
use crate::place::ObserveBytes;
use crate::ticks::row::{TickFault, TickRow};
use crate::time::timestamp::{DateStyle, HOUR_NS, MILLISECOND_NS, RowTime, parse_stamp};

/// Bytes of a record.
const RECORD_BYTES: usize = 20;
/// Most bytes of an hour, 3.3 million ticks, so that no file fills the memory.
const HOUR_BYTES_MAX: usize = 64 << 20;
/// Dukascopy's volumes have no more decimals; further ones are those of single precision.
const VOLUME_POINTS: f64 = 1e6;
/// A point is a tenth of a pip.
const POINTS_PER_PIP: f64 = 10.0;

/// True for a name such as `22h_ticks.bi5`.
pub(crate) fn is_bi5(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("bi5"))
}

/// Hour and prices of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bi5Scale {
    /// Start of the hour, in nanoseconds since 1970 UTC.
    hour_ns: i64,
    /// Points in one unit of the price.
    points_per_unit: f64,
}

impl Bi5Scale {
    /// Takes the hour from a path such as `EURUSD/2018/00/02/22h_ticks.bi5`, whose months begin at
    /// 0, and the size of a point from the pair in it if it is not stated.
    pub(crate) fn from_path(path: &Path, point: Option<f64>) -> Result<Self> {
        let hour_ns = hour_of(path).ok_or_else(|| TickError::NoHour { path: path.to_owned() })?;
        let point = match point {
            Some(point) => point,
            None => {
                let symbol = path.ancestors().nth(4).map(symbol_of).unwrap_or_default();
                let pip =
                    pip_size_of(&symbol).map_err(|_| TickError::UnknownPoint { path: path.to_owned(), symbol })?;
                pip / POINTS_PER_PIP
            }
        };
        let inverse = 1.0 / point;
        // 100,000 and not 99,999.99999999999.
        let whole = inverse.round();
        let points_per_unit = if (inverse - whole).abs() < 1e-6 * inverse { whole } else { inverse };
        Ok(Bi5Scale { hour_ns, points_per_unit })
    }
}

/// The hour in the last four parts of a path.
fn hour_of(path: &Path) -> Option<i64> {
    let mut parts = path.iter().rev().map(|part| part.to_str());
    let (file, day, month, year) = (parts.next()??, parts.next()??, parts.next()??, parts.next()??);
    let hour = file.split_once("h_ticks").map(|(hour, _)| hour)?;
    let month: u32 = month.parse().ok()?;
    let stamp = format!("{year}-{:02}-{day} {hour:0>2}:00", month + 1);
    parse_stamp(stamp.as_bytes(), DateStyle::Dashed).map(RowTime::ns)
}

/// The records of one file.
pub(crate) struct Bi5Records {
    scale: Bi5Scale,
    bytes: Vec<u8>,
    /// Number of records read so far.
    read: usize,
}

impl Bi5Records {
    /// Unpacks a file. An empty one is an hour without ticks.
    pub(crate) fn open(path: &Path, scale: Bi5Scale, observe: ObserveBytes<'_>) -> Result<Self> {
        let failed = |source: io::Error| Error::Open { path: path.to_owned(), source };
        let mut packed = Vec::new();
        let file = File::open(path).map_err(failed)?;
        file.take(HOUR_BYTES_MAX as u64).read_to_end(&mut packed).map_err(failed)?;
        if let ControlFlow::Break(()) = observe(packed.len() as u64) {
            return Err(Error::Interrupted);
        }
        let bytes = if packed.is_empty() { Vec::new() } else { unpacked(&packed).map_err(failed)? };
        Ok(Bi5Records { scale, bytes, read: 0 })
    }

    /// The next record, and its number from 1.
    pub(crate) fn next(&mut self) -> Option<(u64, Result<TickRow, TickFault>)> {
        let start = self.read * RECORD_BYTES;
        let record = self.bytes.get(start..start + RECORD_BYTES)?;
        self.read += 1;
        let word = |place: usize| [0, 1, 2, 3].map(|byte| record[4 * place + byte]);
        let millis = i64::from(u32::from_be_bytes(word(0)));
        let price = |place: usize| f64::from(u32::from_be_bytes(word(place))) / self.scale.points_per_unit;
        let volume = |place: usize| {
            let volume = f64::from(f32::from_be_bytes(word(place)));
            (volume * VOLUME_POINTS).round() / VOLUME_POINTS
        };
        let number = self.read as u64;
        if millis * MILLISECOND_NS >= HOUR_NS {
            let expected = "less than 3,600,000 milliseconds since the hour";
            return Some((number, Err(TickFault::new(RowError::Unreadable, expected))));
        }
        Some((
            number,
            Ok(TickRow {
                time: RowTime::Utc(self.scale.hour_ns + millis * MILLISECOND_NS),
                ask: price(1),
                bid: price(2),
                last: f64::NAN,
                volume: volume(3) + volume(4),
                decimals: self.scale.points_per_unit.log10().ceil().max(0.0) as usize,
            }),
        ))
    }

    /// The last record in words.
    pub(crate) fn text(&self) -> String {
        let record = &self.bytes[(self.read - 1) * RECORD_BYTES..self.read * RECORD_BYTES];
        record.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut hour = HourBytes(Vec::new());
    let damaged = |error: lzma_rs::error::Error| io::Error::new(ErrorKind::InvalidData, format!("{error:?}"));
    lzma_rs::lzma_decompress(&mut BufReader::new(packed), &mut hour).map_err(damaged)?;
    match hour.0.len() % RECORD_BYTES {
        0 => Ok(hour.0),
        rest => Err(io::Error::new(
            ErrorKind::InvalidData,
            format!("its last record has {rest} bytes in place of {RECORD_BYTES}"),
        )),
    }
}

/// Bytes of an hour, no more than [`HOUR_BYTES_MAX`].
struct HourBytes(Vec<u8>);

impl Write for HourBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > HOUR_BYTES_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "it is longer than any hour of ticks"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_points_come_from_the_path() {
        let scale = |path: &str, point| Bi5Scale::from_path(Path::new(path), point);
        let hour = |text: &str| parse_stamp(text.as_bytes(), DateStyle::Dashed).unwrap().ns();
        let found = scale("data/EURUSD/2018/00/02/22h_ticks.bi5", None).unwrap();
        assert_eq!(found, Bi5Scale { hour_ns: hour("2018-01-02 22:00"), points_per_unit: 1e5 });
        let found = scale("USDJPY/2018/11/31/05h_ticks.bi5", None).unwrap();
        assert_eq!(found, Bi5Scale { hour_ns: hour("2018-12-31 05:00"), points_per_unit: 1e3 });
        let found = scale("BTCUSD/2018/11/31/05h_ticks.bi5", Some(0.1)).unwrap();
        assert_eq!(found.points_per_unit, 10.0);
        let error = scale("BTCUSD/2018/11/31/05h_ticks.bi5", None).unwrap_err().to_string();
        assert!(error.contains("the price of a point of `BTCUSD` is not known"), "{error}");
        for path in ["22h_ticks.bi5", "EURUSD/2018/12/01/22h_ticks.bi5", "EURUSD/2018/00/02/ticks.bi5"] {
            assert!(matches!(scale(path, None), Err(Error::Tick(TickError::NoHour { .. }))), "{path}");
        }
    }
}
