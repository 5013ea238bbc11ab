use std::io::Write as _;

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::{Offset, TimeZone};
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::{ParquetError, Result};
use parquet::schema::types::ColumnDescriptor;

use crate::parse::parquet_text::pandas::{PandasTable, push_quoted};
use crate::time::numbers::SECOND_NS;
use crate::time::timestamp::{is_utc_name, write_on_clock};

/// Bytes of the longest decimal number that is read.
const DECIMAL_BYTES_MAX: usize = 16;

/// A column of scalars.
pub(super) struct TextColumn {
    /// Its place among the leaves of the schema.
    place: usize,
    name: String,
    meaning: Meaning,
    /// Level at which a value is there; below it there is none.
    present_level: i16,
}

/// Meaning of a column's numbers or bytes.
#[derive(Clone, Debug)]
enum Meaning {
    /// As they are.
    Plain,
    Unsigned,
    /// Whole numbers in units of ten to the power of minus `scale`.
    Decimal {
        scale: usize,
    },
    /// Days since 1970.
    Date,
    /// Time since midnight.
    Clock {
        per_second: i64,
    },
    /// Time since 1970: in UTC where there is a zone, and by a clock that is not known otherwise.
    Stamp {
        per_second: i64,
        zone: Option<TimeZone>,
    },
}

/// A value as it is stored.
enum Stored<'a> {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Bytes(&'a [u8]),
}

/// Texts of some rows of one column.
#[derive(Default)]
pub(super) struct CellText {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl CellText {
    pub(super) fn get(&self, row: usize) -> &[u8] {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start..self.ends[row]]
    }

    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}

impl TextColumn {
    /// The column of a leaf of the schema; `None` for one that is no scalar, or within another.
    pub(super) fn new(place: usize, leaf: &ColumnDescriptor, pandas: &PandasTable) -> Option<Self> {
        if leaf.path().parts().len() != 1 || leaf.max_rep_level() > 0 {
            return None;
        }
        let name = leaf.name().to_owned();
        let meaning = Meaning::find(leaf, pandas.zone(&name).as_ref())?;
        Some(TextColumn { place, name, meaning, present_level: leaf.max_def_level() })
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Replaces `cells` by the text of the next `rows` rows.
    pub(super) fn read(&self, reader: &mut ColumnReader, rows: usize, cells: &mut CellText) -> Result<()> {
        match reader {
            ColumnReader::BoolColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Bool(*value))
            }
            ColumnReader::Int32ColumnReader(reader) if matches!(self.meaning, Meaning::Unsigned) => {
                self.read_values(reader, rows, cells, |value| Stored::Integer(i64::from(value.cast_unsigned())))
            }
            ColumnReader::Int32ColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Integer(i64::from(*value)))
            }
            ColumnReader::Int64ColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Integer(*value))
            }
            ColumnReader::Int96ColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Integer(value.to_nanos()))
            }
            ColumnReader::FloatColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Float(f64::from(*value)))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Float(*value))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Bytes(value.data()))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                self.read_values(reader, rows, cells, |value| Stored::Bytes(value.data()))
            }
        }
    }

    fn read_values<T: DataType>(
        &self,
        reader: &mut ColumnReaderImpl<T>,
        rows: usize,
        cells: &mut CellText,
        stored: impl for<'v> Fn(&'v T::T) -> Stored<'v>,
    ) -> Result<()> {
        let (mut levels, mut values) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut found = 0;
        while found < rows {
            let (records, ..) = reader.read_records(rows - found, Some(&mut levels), None, &mut values)?;
            if records == 0 {
                return Err(ParquetError::EOF(format!("the column `{}` has too few rows", self.name)));
            }
            found += records;
        }
        if self.present_level == 0 {
            levels = vec![0; rows];
        }
        cells.clear();
        let mut values = values.iter();
        for level in levels {
            let value = (level == self.present_level).then(|| values.next()).flatten();
            if let Some(value) = value {
                self.meaning.push(&stored(value), &mut cells.text);
            }
            cells.ends.push(cells.text.len());
        }
        Ok(())
    }
}

impl Meaning {
    /// The meaning of a leaf's values; `None` for one that has no text.
    fn find(leaf: &ColumnDescriptor, zone: Option<&TimeZone>) -> Option<Self> {
        let stamp = |per_second, is_utc: bool| Meaning::Stamp {
            per_second,
            zone: is_utc.then(|| zone.filter(|zone| !is_utc_clock(zone)).cloned().unwrap_or(TimeZone::UTC)),
        };
        let decimal = |scale: i32| {
            let is_short =
                leaf.physical_type() != Type::FIXED_LEN_BYTE_ARRAY || leaf.type_length() <= DECIMAL_BYTES_MAX as i32;
            usize::try_from(scale).ok().filter(|_| is_short).map(|scale| Meaning::Decimal { scale })
        };
        match leaf.logical_type_ref() {
            Some(LogicalType::Timestamp(time)) => return Some(stamp(per_second(time.unit), time.is_adjusted_to_u_t_c)),
            Some(LogicalType::Time(time)) => return Some(Meaning::Clock { per_second: per_second(time.unit) }),
            Some(LogicalType::Date) => return Some(Meaning::Date),
            Some(LogicalType::Decimal(number)) => return decimal(number.scale),
            Some(LogicalType::Integer(number)) if !number.is_signed => return Some(Meaning::Unsigned),
            _ => {}
        }
        match (leaf.converted_type(), leaf.physical_type()) {
            (ConvertedType::TIMESTAMP_MILLIS, _) => Some(stamp(1000, true)),
            (ConvertedType::TIMESTAMP_MICROS, _) => Some(stamp(1_000_000, true)),
            (ConvertedType::TIME_MILLIS, _) => Some(Meaning::Clock { per_second: 1000 }),
            (ConvertedType::TIME_MICROS, _) => Some(Meaning::Clock { per_second: 1_000_000 }),
            (ConvertedType::DATE, _) => Some(Meaning::Date),
            (ConvertedType::DECIMAL, _) => decimal(leaf.type_scale()),
            (ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64, _) => {
                Some(Meaning::Unsigned)
            }
            // Deprecated, and written without a zone.
            (_, Type::INT96) => Some(stamp(SECOND_NS, false)),
            (_, Type::FIXED_LEN_BYTE_ARRAY) => None,
            _ => Some(Meaning::Plain),
        }
    }

    fn push(&self, stored: &Stored<'_>, text: &mut Vec<u8>) {
        let written = match (stored, self) {
            (Stored::Bool(value), _) => write!(text, "{value}"),
            // With a point, and with as many digits as it takes to read the same number again.
            (Stored::Float(value), _) => write!(text, "{value:?}"),
            (Stored::Integer(value), Meaning::Plain) => write!(text, "{value}"),
            (Stored::Integer(value), Meaning::Unsigned) => write!(text, "{}", value.cast_unsigned()),
            (Stored::Integer(value), Meaning::Decimal { scale }) => {
                push_decimal(i128::from(*value), *scale, text);
                Ok(())
            }
            (Stored::Integer(days), Meaning::Date) => match date(*days) {
                Some(date) => write!(text, "{date}"),
                None => write!(text, "{days}"),
            },
            (Stored::Integer(value), Meaning::Clock { per_second }) => match clock(*value, *per_second) {
                Some(clock) => write!(text, "{clock}"),
                None => write!(text, "{value}"),
            },
            (Stored::Integer(value), Meaning::Stamp { per_second, zone }) => match stamp(*value, *per_second) {
                Some(stamp) => match zone {
                    Some(zone) if *zone == TimeZone::UTC => write!(text, "{}", stamp.display_with_offset(Offset::UTC)),
                    Some(zone) => write_on_clock(text, stamp, zone.to_offset(stamp)),
                    None => write!(text, "{}", TimeZone::UTC.to_datetime(stamp)),
                },
                None => write!(text, "{value}"),
            },
            (Stored::Bytes(bytes), Meaning::Decimal { scale }) => {
                match big_endian(bytes) {
                    Some(value) => push_decimal(value, *scale, text),
                    None => text.extend_from_slice(b"too long"),
                }
                Ok(())
            }
            (Stored::Bytes(bytes), _) => {
                push_quoted(bytes, text);
                Ok(())
            }
        };
        written.expect("a vector takes every byte");
    }
}

fn is_utc_clock(zone: &TimeZone) -> bool {
    zone.iana_name().is_some_and(is_utc_name)
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::MILLIS => 1000,
        TimeUnit::MICROS => 1_000_000,
        TimeUnit::NANOS => SECOND_NS,
    }
}

/// The time since 1970; `None` for one before the year -9999 or after 9999.
fn stamp(value: i64, per_second: i64) -> Option<Timestamp> {
    let nanoseconds = value.rem_euclid(per_second) * (SECOND_NS / per_second);
    Timestamp::new(value.div_euclid(per_second), i32::try_from(nanoseconds).ok()?).ok()
}

fn date(days: i64) -> Option<Date> {
    let stamp = Timestamp::from_second(days.checked_mul(24 * 3600)?).ok()?;
    Some(TimeZone::UTC.to_datetime(stamp).date())
}

fn clock(value: i64, per_second: i64) -> Option<Time> {
    let stamp = stamp(value, per_second).filter(|stamp| (0..24 * 3600).contains(&stamp.as_second()))?;
    Some(TimeZone::UTC.to_datetime(stamp).time())
}

/// A number in two's complement, the highest byte first.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let first = *bytes.first()?;
    let mut all = [if first >= 0x80 { 0xff } else { 0 }; DECIMAL_BYTES_MAX];
    let start = DECIMAL_BYTES_MAX.checked_sub(bytes.len())?;
    all[start..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(all))
}

/// Adds `value` divided by ten to the power of `scale`.
fn push_decimal(value: i128, scale: usize, text: &mut Vec<u8>) {
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if value < 0 {
        text.push(b'-');
    }
    text.extend_from_slice(whole.as_bytes());
    if scale > 0 {
        text.push(b'.');
        text.extend_from_slice(fraction.as_bytes());
    }
}
