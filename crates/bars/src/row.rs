use crate::format::{Fields, Format};
use crate::timestamp::Stamp;
use crate::trouble::Trouble;

/// One row of a file, checked by itself but not yet against its neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) stamp: Stamp,
    pub(crate) open: f64,
    pub(crate) high: f64,
    pub(crate) low: f64,
    pub(crate) close: f64,
    pub(crate) volume: f64,
    /// Line number from 1.
    pub(crate) line: u64,
}

/// Why a row was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) trouble: Trouble,
    /// What a good row would have had.
    pub(crate) expected: String,
}

impl Row {
    /// Reads the row in line number `line`.
    pub(crate) fn parse(text: &[u8], format: &Format, line: u64) -> Result<Row, Fault> {
        let fields = Fields::split(text, format.delimiter);
        let columns = &format.columns;
        let number = |column: usize, what: &str| {
            fields
                .number(column)
                .ok_or_else(|| Fault::unreadable(format!("a number for {what} in field {}", column + 1)))
        };
        let stamp = fields.stamp(columns, format.name.date_style()).ok_or_else(|| {
            Fault::unreadable(format!("a timestamp of format {} in field {}", format.name, columns.time + 1))
        })?;
        let row = Row {
            stamp,
            open: number(columns.open, "open")?,
            high: number(columns.high, "high")?,
            low: number(columns.low, "low")?,
            close: number(columns.close, "close")?,
            volume: columns.volume.map_or(Ok(0.0), |column| number(column, "volume"))?,
            line,
        };
        row.check().map_err(|expected| Fault { trouble: Trouble::Inconsistent, expected: expected.to_owned() })?;
        Ok(row)
    }

    fn check(&self) -> Result<(), &'static str> {
        let prices = [self.open, self.high, self.low, self.close];
        let checks = [
            (prices.iter().all(|price| price.is_finite() && *price > 0.0), "prices that are finite and above zero"),
            (self.low <= self.open.min(self.close), "a low at or below open and close"),
            (self.high >= self.open.max(self.close), "a high at or above open and close"),
            (self.volume.is_finite() && self.volume >= 0.0, "a volume that is finite and not negative"),
        ];
        checks.into_iter().try_for_each(|(holds, expected)| if holds { Ok(()) } else { Err(expected) })
    }
}

impl Fault {
    fn unreadable(expected: String) -> Self {
        Fault { trouble: Trouble::Unreadable, expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Row, Fault> {
        let format = Format::detect(&[(1, b"2018-01-01 00:00,1,1,1,1,1".to_vec())], None).unwrap();
        Row::parse(text.as_bytes(), &format, 7)
    }

    #[test]
    fn good_rows() {
        let row = parse("2018-01-01 00:00,1.25,1.5,1,1.125,9,more").unwrap();
        assert_eq!([row.open, row.high, row.low, row.close, row.volume], [1.25, 1.5, 1.0, 1.125, 9.0]);
        assert_eq!((row.stamp, row.line), (Stamp::Wall(17_532 * 86_400_000_000_000), 7));
        assert!(parse("\"2018-01-01 00:00\", 1.0,1.0,1.0,1.0,0").is_ok());
    }

    #[test]
    fn bad_rows_say_what_was_expected() {
        let cases = [
            ("2018-01-01 00:00,null,null,null,null,null", Trouble::Unreadable, "a number for open in field 2"),
            ("2018-01-01 00:00,1,1,1,1", Trouble::Unreadable, "a number for volume in field 6"),
            ("-(2018-01-01 00:00,1,1,1,1,1", Trouble::Unreadable, "a timestamp of format iso in field 1"),
            ("2018-01-01 00:00,1,NaN,1,1,1", Trouble::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,1,inf,1,1,1", Trouble::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,1,1,0,1,1", Trouble::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,-1,1,-1,1,1", Trouble::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,2,3,2.5,3,1", Trouble::Inconsistent, "a low at or below open and close"),
            ("2018-01-01 00:00,2,2.5,2,3,1", Trouble::Inconsistent, "a high at or above open and close"),
            ("2018-01-01 00:00,1,1,1,1,-1", Trouble::Inconsistent, "a volume that is finite and not negative"),
        ];
        for (text, trouble, expected) in cases {
            assert_eq!(parse(text), Err(Fault { trouble, expected: expected.to_owned() }), "{text}");
        }
    }
}
