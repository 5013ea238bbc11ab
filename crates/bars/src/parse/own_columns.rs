//! Further columns that a user asks for by their names in the header.

use std::path::Path;

use crate::error::column_fault::ColumnFault;
use crate::error::message::shortened;
use crate::error::{Error, Result};
use crate::parse::fields::{RowFields, says_nothing};
use crate::parse::format::RowFormat;
use crate::parse::header::has_role;
use crate::parse::options::WantedColumn;
use crate::parse::row::{BarRow, RowFault};
use crate::time::numbers::SECOND_NS;
use crate::time::timestamp::{DateStyle, RowTime, parse_stamp};

/// Columns of one file beside those of times, prices, volume and spread.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnColumns {
    /// Columns that are read.
    wanted: Vec<PlacedColumn>,
    /// Names of further columns that are not.
    pub(crate) unused: Vec<String>,
    /// Reason why a wanted column cannot be read.
    fault: Option<ColumnFault>,
}

#[derive(Clone, Debug)]
struct PlacedColumn {
    wanted: WantedColumn,
    /// Its place in a row, counted from 0. `None` where the file has no such column.
    place: Option<usize>,
}

impl OwnColumns {
    /// Columns of a file without a header.
    pub(crate) fn without_header(wanted: Vec<WantedColumn>) -> Self {
        let fault = wanted.first().map(|column| ColumnFault::Missing {
            name: column.name.clone(),
            found: "no header that names the columns".to_owned(),
        });
        let wanted = wanted.into_iter().map(|wanted| PlacedColumn { wanted, place: None }).collect();
        OwnColumns { wanted, unused: Vec::new(), fault }
    }

    /// Columns that the header `text` names.
    pub(crate) fn in_header(text: &[u8], format: &RowFormat, wanted: Vec<WantedColumn>) -> Self {
        // Headers of several lines name symbols as well, and headers of unknown words nothing.
        if format.header_lines > 1 || !format.is_named {
            return OwnColumns::without_header(wanted);
        }
        let fields = RowFields::split(text, format.delimiter);
        let names: Vec<String> = fields.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let mut fault = None;
        let place_of = |column: &WantedColumn| {
            let name = &column.name;
            let mut places = names.iter().enumerate().filter(|(_, own)| *own == name).map(|(place, _)| place);
            let first = places.next();
            let found = match (first, places.next()) {
                (Some(_), None) => return first,
                (Some(first), Some(second)) => format!("two, fields {} and {}", first + 1, second + 1),
                (None, _) => format!("the columns {}", names.join(", ")),
            };
            fault.get_or_insert(ColumnFault::Missing { name: name.clone(), found });
            None
        };
        let places: Vec<Option<usize>> = wanted.iter().map(place_of).collect();
        // A time may have its zone in its name, such as `datetime (UTC)`.
        let is_time = |place: usize| place == format.columns.time || Some(place) == format.columns.clock;
        let is_used = |(place, name): &(usize, &String)| {
            is_time(*place) || places.contains(&Some(*place)) || has_role(name.as_bytes())
        };
        let unused = names.iter().enumerate().filter(|column| !is_used(column));
        let unused = unused.map(|(_, name)| name.clone()).filter(|name| !name.is_empty()).collect();
        let placed = |(wanted, place)| PlacedColumn { wanted, place };
        OwnColumns { wanted: wanted.into_iter().zip(places).map(placed).collect(), unused, fault }
    }

    /// The columns that are read.
    pub(crate) fn wanted(&self) -> Vec<WantedColumn> {
        self.wanted.iter().map(|column| column.wanted.clone()).collect()
    }

    /// Refuses a file in which a wanted column is missing, or there twice.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        self.fault.clone().map_or(Ok(()), |fault| Err(Error::columns(path, fault)))
    }

    /// Gives a row its values of the columns, NaN where a field says that there is none. Dates have
    /// the `style` of the file.
    pub(crate) fn read_into(&self, row: &mut BarRow, fields: &RowFields<'_>, style: DateStyle) -> Result<(), RowFault> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let stamp = row.stamp;
        let values = self.wanted.iter().map(|column| column.value(fields, stamp, style));
        row.columns = values.collect::<Result<_, _>>()?;
        Ok(())
    }
}

impl PlacedColumn {
    fn value(&self, fields: &RowFields<'_>, stamp: RowTime, style: DateStyle) -> Result<f64, RowFault> {
        let Some(place) = self.place else { return Ok(f64::NAN) };
        let field = fields.get(place).unwrap_or(b"");
        if says_nothing(field) {
            return Ok(f64::NAN);
        }
        let value = match self.wanted.is_time {
            true => parse_stamp(field, style)
                .filter(|time| time.is_on_the_clock_of(stamp))
                .map(|time| whole_seconds_ns(time.ns()) as f64),
            // Values are stored in single precision.
            false => fields.number(place).filter(|number| number.abs() <= f64::from(f32::MAX)),
        };
        value.ok_or_else(|| {
            let (name, found) = (&self.wanted.name, shortened(field));
            let kind = if self.wanted.is_time { "a time, written as that of the row," } else { "a finite number" };
            RowFault::unreadable(format!("{kind} for {name} in field {}, which is `{found}`", place + 1))
        })
    }
}

/// The time, or the next whole second after it. In multiples of 2^9 ns it is exact in 64 bits.
fn whole_seconds_ns(ns: i64) -> i64 {
    let early = ns.rem_euclid(SECOND_NS);
    if early == 0 { ns } else { ns - early + SECOND_NS }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "time,open,high,low,close,volume,rsi_14,\"my column\",note,note";

    fn columns(header: &str, wanted: &[&str]) -> (OwnColumns, RowFormat) {
        let head = [(1, header.as_bytes().to_vec()), (2, b"2018-01-01 00:00,1,1,1,1,5,50,-0.5,x,y".to_vec())];
        let format = RowFormat::detect(&head, None, None).unwrap();
        let column = |&name: &&str| WantedColumn { name: name.to_owned(), is_time: name == "end" };
        let wanted = wanted.iter().map(column).collect();
        (OwnColumns::in_header(header.as_bytes(), &format, wanted), format)
    }

    fn error(header: &str, wanted: &[&str]) -> String {
        columns(header, wanted).0.check(Path::new("X.csv")).unwrap_err().to_string()
    }

    #[test]
    fn columns_are_found_by_their_exact_names_and_others_are_listed() {
        let (own, format) = columns(HEADER, &["my column", "rsi_14", "volume"]);
        own.check(Path::new("X.csv")).unwrap();
        assert_eq!(own.unused, ["note", "note"]);
        let zoned = HEADER.replacen("time", "datetime (UTC)", 1);
        assert_eq!(columns(&zoned, &[]).0.unused, ["rsi_14", "my column", "note", "note"]);
        let values = |line: &str| {
            let fields = RowFields::split(line.as_bytes(), format.delimiter);
            let mut row = BarRow::parse(&fields, &format, 2).unwrap();
            own.read_into(&mut row, &fields, format.style).map(|()| row.columns)
        };
        assert_eq!(*values("2018-01-01 00:00,1,1,1,1,5,50,-0.5,x,y").unwrap(), [-0.5, 50.0, 5.0]);
        let none = values("2018-01-01 00:00,1,1,1,1,5,NaN").unwrap();
        assert!(none[0].is_nan() && none[1].is_nan() && none[2] == 5.0);
        for bad in ["high", "inf", "1e39", "\"1,5\""] {
            let fault = values(&format!("2018-01-01 00:00,1,1,1,1,5,{bad},0")).unwrap_err();
            assert!(fault.expected.starts_with("a finite number for rsi_14 in field 7, which is `"), "{fault:?}");
        }
    }

    #[test]
    fn missing_and_doubled_columns_are_refused() {
        let missing = error(HEADER, &["RSI_14"]);
        let expected = "X.csv: no column RSI_14: found the columns time, open, high, low, close, volume, rsi_14, my column, note, note";
        assert!(missing.starts_with(expected), "{missing}");
        assert!(error(HEADER, &["note"]).starts_with("X.csv: no column note: found two, fields 9 and 10"));
        let words = "kuupäev,avamine,kõrgeim,madalaim,sulgemine,maht,rsi_14,b,c,d";
        assert!(error(words, &["rsi_14"]).contains("no header that names the columns"));
    }
}
