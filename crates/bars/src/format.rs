use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::header::{self, Header};
use crate::timestamp::{DateStyle, Stamp, is_date, parse_date_and_clock, parse_stamp};

/// Fields of a row that are looked at; a row may have more.
const FIELDS_MAX: usize = 32;
const DELIMITERS: [u8; 3] = [b'\t', b';', b','];
pub(crate) const TRIED: &str = "HistData ASCII (`20180131 170000;open;high;low;close;volume`), \
    MetaTrader (`2018.01.31,17:00,open,high,low,close,volume`) and \
    ISO (`2018-01-31 17:00:00+00:00,open,high,low,close,volume`), each with `,`, `;` or tabs, with or without a header";

/// The family of layouts that a file belongs to. It is told from how the date is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormatName {
    /// `20180131 170000`: HistData's ASCII bars. The time is the bar's open.
    HistData,
    /// `2018.01.31` and `17:00` or `17:00:00`: exports of MetaTrader 4 and 5. The time is the bar's open.
    MetaTrader,
    /// `2018-01-31 17:00:00` with `T` or a space, with or without seconds, fraction and offset. The time is the bar's open.
    Iso,
}

impl FormatName {
    /// Every family.
    pub const ALL: [FormatName; 3] = [FormatName::HistData, FormatName::MetaTrader, FormatName::Iso];

    /// The name by which the format can be chosen: `histdata`, `metatrader` or `iso`.
    pub const fn name(self) -> &'static str {
        match self {
            FormatName::HistData => "histdata",
            FormatName::MetaTrader => "metatrader",
            FormatName::Iso => "iso",
        }
    }

    pub(crate) const fn date_style(self) -> DateStyle {
        match self {
            FormatName::HistData => DateStyle::Compact,
            FormatName::MetaTrader => DateStyle::Dotted,
            FormatName::Iso => DateStyle::Dashed,
        }
    }
}

impl fmt::Display for FormatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FormatName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        FormatName::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
            let expected = FormatName::ALL.map(FormatName::name).join(", ");
            Error::UnknownName { what: "format", name: name.to_owned(), expected }
        })
    }
}

/// Which field of a row holds what, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    /// Date and time, or the date alone.
    pub(crate) time: usize,
    /// The time of day, where it stands apart from the date.
    pub(crate) clock: Option<usize>,
    /// Open.
    pub(crate) open: usize,
    /// High.
    pub(crate) high: usize,
    /// Low.
    pub(crate) low: usize,
    /// Close.
    pub(crate) close: usize,
    /// Volume; none means zero.
    pub(crate) volume: Option<usize>,
}

/// How the rows of one file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// The family.
    pub(crate) name: FormatName,
    /// What stands between two fields.
    pub(crate) delimiter: u8,
    /// Which field holds what.
    pub(crate) columns: Columns,
    /// Line number, from 1, of the header, where there is one.
    pub(crate) header_line: Option<u64>,
}

impl Format {
    /// Recognises the format from the first lines of a file, of one family where one is `wanted`; or says what is missing.
    ///
    /// Lines that fit nothing are passed over: they will be unreadable rows.
    pub(crate) fn detect(head: &[(u64, Vec<u8>)], wanted: Option<FormatName>) -> Result<Format, String> {
        let families: Vec<FormatName> =
            FormatName::ALL.into_iter().filter(|name| wanted.is_none_or(|wanted| wanted == *name)).collect();
        for delimiter in DELIMITERS {
            if let Some(format) = Format::detect_delimited(head, delimiter, &families)? {
                return Ok(format);
            }
        }
        let family = wanted.map(|name| format!("{name} ")).unwrap_or_default();
        Err(format!("no line has a {family}timestamp and four prices"))
    }

    fn detect_delimited(
        head: &[(u64, Vec<u8>)],
        delimiter: u8,
        families: &[FormatName],
    ) -> Result<Option<Format>, String> {
        let mut header = None;
        for (line, text) in head {
            let fields = Fields::split(text, delimiter);
            match header::parse(&fields) {
                Some(Header::Partial { missing }) => {
                    return Err(format!("the header in line {line} names some columns, but not `{missing}`"));
                }
                Some(found) => header = Some((*line, found)),
                None => {}
            }
            for &name in families {
                let columns = match header {
                    Some((_, Header::Named(columns))) => Some(columns),
                    _ => by_position(&fields, name),
                };
                if let Some(columns) = columns.filter(|columns| fields.fit(columns, name)) {
                    let header_line = header.map(|(line, _)| line);
                    return Ok(Some(Format { name, delimiter, columns, header_line }));
                }
            }
        }
        Ok(None)
    }
}

/// The columns of a row without names: time, perhaps a clock apart, open, high, low, close, perhaps volume.
fn by_position(fields: &Fields<'_>, name: FormatName) -> Option<Columns> {
    let style = name.date_style();
    let (first, second) = (fields.get(0)?, fields.get(1)?);
    let apart = parse_date_and_clock(first, second, style).is_some();
    let open = if apart { 2 } else { 1 };
    // A date alone and six numbers are Yahoo's: the fifth is the adjusted close, and the last the volume.
    let yahoo = !apart && fields.len() == 7 && is_date(first, style);
    let volume = if yahoo { 6 } else { open + 4 };
    let volume = (volume < fields.len()).then_some(volume);
    Some(Columns { time: 0, clock: apart.then_some(1), open, high: open + 1, low: open + 2, close: open + 3, volume })
}

/// The fields of one row, without quotes and spaces around them.
pub(crate) struct Fields<'a> {
    fields: [&'a [u8]; FIELDS_MAX],
    len: usize,
}

impl<'a> Fields<'a> {
    /// Cuts a line at each delimiter. Quotes protect nothing: no field that we read holds a delimiter.
    pub(crate) fn split(line: &'a [u8], delimiter: u8) -> Self {
        let mut fields: [&[u8]; FIELDS_MAX] = [b""; FIELDS_MAX];
        let mut len = 0;
        for (slot, field) in fields.iter_mut().zip(line.split(|&byte| byte == delimiter)) {
            *slot = unquoted(field);
            len += 1;
        }
        Fields { fields, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, column: usize) -> Option<&'a [u8]> {
        self.fields[..self.len].get(column).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.fields[..self.len].iter().copied()
    }

    /// The row's time.
    pub(crate) fn stamp(&self, columns: &Columns, style: DateStyle) -> Option<Stamp> {
        let time = self.get(columns.time)?;
        match columns.clock {
            Some(clock) => parse_date_and_clock(time, self.get(clock)?, style),
            None => parse_stamp(time, style),
        }
    }

    /// The number in a column.
    pub(crate) fn number(&self, column: usize) -> Option<f64> {
        std::str::from_utf8(self.get(column)?).ok()?.parse().ok()
    }

    fn fit(&self, columns: &Columns, name: FormatName) -> bool {
        let prices = [columns.open, columns.high, columns.low, columns.close];
        self.stamp(columns, name.date_style()).is_some() && prices.iter().all(|&price| self.number(price).is_some())
    }
}

fn unquoted(mut field: &[u8]) -> &[u8] {
    while let [b'"' | b' ', rest @ ..] | [rest @ .., b'"' | b' '] = field {
        field = rest;
    }
    field
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn detect(text: &str) -> Result<Format, String> {
        let head: Vec<(u64, Vec<u8>)> = (1..).zip(text.lines().map(|line| line.as_bytes().to_vec())).collect();
        Format::detect(&head, None)
    }

    #[test]
    fn formats_are_recognised_from_their_first_lines() {
        use FormatName::{HistData, Iso, MetaTrader};
        // Text, family, delimiter, column of the open, of the volume, line of the header.
        let cases = [
            ("20180101 170000;1.2;1.3;1.1;1.2;0", HistData, b';', 1, Some(5), None),
            ("2018.01.01,17:00,1.2,1.3,1.1,1.2,7", MetaTrader, b',', 2, Some(6), None),
            ("\"2018.01.01,17:00,1.2,1.3,1.1,1.2,7\"", MetaTrader, b',', 2, Some(6), None),
            ("2018.01.01 17:00:00,1.2,1.3,1.1,1.2", MetaTrader, b',', 1, None, None),
            (
                "<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\n2018.01.01\t1.2\t1.3\t1.1\t1.2\t7",
                MetaTrader,
                b'\t',
                1,
                Some(5),
                Some(1),
            ),
            (
                "date\ttime\topen\thigh\tlow\tclose\ttickvolume\n2018.06.01\t00:00:00\t1.1\t1.1\t1.1\t1.1\t8",
                MetaTrader,
                b'\t',
                2,
                Some(6),
                Some(1),
            ),
            ("timestamp,open,high,low,close\n2013-02-01 00:00:00+00:00,91,91,91,91", Iso, b',', 1, None, Some(1)),
            ("2016-06-27,67.4,67.6,66.4,67.1,64.0,180700", Iso, b',', 1, Some(6), None),
            ("-(2018-10-12 12:00,1,1,1,1,9\n2018-10-12 12:15,1,1,1,1,9", Iso, b',', 1, Some(5), None),
            ("kell;a;b;c;d\n2018-10-12 12:15;1;1;1;1;9", Iso, b';', 1, Some(5), Some(1)),
            ("close;volume;date;open;high;low\n1;7;20180102;1;1;1", HistData, b';', 3, Some(1), Some(1)),
        ];
        for (text, name, delimiter, open, volume, header_line) in cases {
            let format = detect(text).unwrap_or_else(|reason| panic!("{text}: {reason}"));
            assert_eq!((format.name, format.delimiter, format.header_line), (name, delimiter, header_line), "{text}");
            assert_eq!((format.columns.open, format.columns.volume), (open, volume), "{text}");
        }
    }

    #[test]
    fn what_fits_nothing_is_refused() {
        for text in ["", "{\nError Message\n}", "a,b,c,d,e", "2018-01-01,1,1,1", "1,2,3,4,5", "01/02/2018,1,1,1,1"] {
            assert!(detect(text).unwrap_err().contains("timestamp and four prices"), "{text}");
        }
        let partial = detect("Date,Price,Open,High,Low\n2018-01-01,1,1,1,1").unwrap_err();
        assert_eq!(partial, "the header in line 1 names some columns, but not `close`");
        let head = [(1, b"20180101 170000;1.2;1.3;1.1;1.2;0".to_vec())];
        assert!(Format::detect(&head, Some(FormatName::HistData)).is_ok());
        assert!(Format::detect(&head, Some(FormatName::Iso)).unwrap_err().contains("iso timestamp"));
    }

    proptest! {
        #[test]
        fn never_panics(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..8)) {
            let head: Vec<(u64, Vec<u8>)> = (1..).zip(lines).collect();
            let _ = Format::detect(&head, None);
        }
    }
}
