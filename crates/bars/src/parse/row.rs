use crate::error::message::shortened;
use crate::error::row_error::{RowError, RowFix};
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::time::timestamp::{DAY_NS, RowTime};

/// Rounding of products in double precision, relative to the price.
const ROUNDING_MAX: f64 = 1e-12;

/// Half a unit of the last place of single precision, relative to the number.
pub(crate) const NOISE_MAX: f64 = 1.0 / (1 << 24) as f64;

/// One row of a file, not yet checked against its neighbours.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BarRow {
    pub(crate) stamp: RowTime,
    /// Nanoseconds east of UTC on the clock whose offset the row states; `None` where it is UTC.
    pub(crate) east_ns: Option<i64>,
    pub(crate) open: f64,
    pub(crate) high: f64,
    pub(crate) low: f64,
    pub(crate) close: f64,
    /// NaN where the row says that there is none.
    pub(crate) volume: f64,
    /// In the unit of the file.
    pub(crate) spread: f64,
    /// Further columns, NaN where the row says that there is no value.
    pub(crate) columns: Box<[f64]>,
    /// Adjustment of the prices.
    pub(crate) event: RowAdjustment,
    /// Line number from 1.
    pub(crate) line: u64,
}

/// Adjustment in one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RowAdjustment {
    /// Factor of the prices.
    pub(crate) factor: f64,
    /// New shares for an old one; 1 on most days.
    pub(crate) split: f64,
    /// Dividend of a share; 0 on most days.
    pub(crate) dividend: f64,
}

impl RowAdjustment {
    /// A day on which nothing is adjusted.
    pub(crate) const NONE: RowAdjustment = RowAdjustment { factor: 1.0, split: 1.0, dividend: 0.0 };
}

/// Open, high, low and close times the factor of an adjustment, 1 for none. High and low hold open
/// and close, where they miss them by the rounding of such a product.
fn adjusted_prices(quoted: [f64; 4], factor: f64) -> [f64; 4] {
    let [open, high, low, close] = quoted.map(|price| price * factor);
    let (top, bottom) = (open.max(close), open.min(close));
    let misses_top = high < top && high >= top * (1.0 - ROUNDING_MAX);
    let misses_bottom = low > bottom && low <= bottom * (1.0 + ROUNDING_MAX);
    [open, if misses_top { top } else { high }, if misses_bottom { bottom } else { low }, close]
}

/// Error of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowFault {
    pub(crate) kind: RowError,
    /// Expected form of the row.
    pub(crate) expected: String,
}

impl BarRow {
    /// Reads the row in line number `line`, without further columns; its numbers may still
    /// contradict each other.
    ///
    /// If the format names an adjusted close, all prices are scaled with it.
    pub(crate) fn parse(fields: &RowFields<'_>, format: &RowFormat, line: u64) -> Result<BarRow, RowFault> {
        let columns = &format.columns;
        let number = |column: usize, what: &str| fields.number(column).ok_or_else(|| no_number(fields, column, what));
        let or_zero = |column: Option<usize>, what: &str| column.map_or(Ok(0.0), |column| number(column, what));
        let volume = |column: usize| fields.volume(column).ok_or_else(|| no_number(fields, column, "volume"));
        let len_min = 1 + columns.time.max(columns.prices().into_iter().max().unwrap_or(0));
        if fields.len() < len_min {
            let expected = format!("{len_min} fields or more, and there are {}", fields.len());
            return Err(RowFault::unreadable(expected));
        }
        let stamp = fields.stamp(columns, format.style).ok_or_else(|| {
            let found = found(fields, columns.time);
            RowFault::unreadable(format!("a timestamp of format {} in field {}{found}", format.name, columns.time + 1))
        })?;
        let east_ns = stamp.is_utc().then(|| fields.stated_offset(columns)).flatten();
        let mut row = BarRow {
            stamp,
            east_ns,
            open: number(columns.open, "open")?,
            high: number(columns.high, "high")?,
            low: number(columns.low, "low")?,
            close: number(columns.close, "close")?,
            volume: columns.volume.map_or(Ok(0.0), volume)?,
            spread: or_zero(columns.spread, "spread")?,
            columns: Box::default(),
            event: RowAdjustment::NONE,
            line,
        };
        if let Some(column) = columns.adjusted {
            let factor = number(column, "the adjusted close")? / row.close;
            // The factor includes splits and dividends already; the vendor's values are only
            // reported.
            let told = |column: Option<usize>| {
                column.and_then(|column| fields.number(column)).filter(|number| number.is_finite())
            };
            // yfinance writes 0 on days without a split.
            let split = told(columns.split).filter(|split| *split != 0.0).unwrap_or(1.0);
            row.event = RowAdjustment { factor, split, dividend: told(columns.dividend).unwrap_or(0.0) };
        }
        let quoted = [row.open, row.high, row.low, row.close];
        [row.open, row.high, row.low, row.close] = adjusted_prices(quoted, row.event.factor);
        Ok(row)
    }

    /// True if the numbers agree with each other.
    pub(crate) fn check(&self) -> Result<(), RowFault> {
        let prices = [self.open, self.high, self.low, self.close];
        let checks = [
            (prices.iter().all(|price| price.is_finite() && *price > 0.0), "prices that are finite and above zero"),
            (self.low <= self.open.min(self.close), "a low at or below open and close"),
            (self.high >= self.open.max(self.close), "a high at or above open and close"),
            (self.volume.is_finite() && self.volume >= 0.0, "a volume that is finite and not negative"),
            (self.spread.is_finite() && self.spread >= 0.0, "a spread that is finite and not negative"),
        ];
        let Some((_, expected)) = checks.into_iter().find(|(holds, _)| !holds) else { return Ok(()) };
        Err(RowFault { kind: RowError::Inconsistent, expected: expected.to_owned() })
    }

    /// Makes sure that the first further columns, those of `names`, have values. The first row of
    /// a file that does sets `have_values`; rows before it are of the columns' warm-up.
    pub(crate) fn check_columns(&self, names: &[String], have_values: &mut bool) -> Result<(), RowFault> {
        let Some(place) = self.columns.iter().zip(names).position(|(value, _)| value.is_nan()) else {
            *have_values = true;
            return Ok(());
        };
        let kind = if *have_values { RowError::NoValue } else { RowError::WarmUp };
        Err(RowFault { kind, expected: format!("a number for {}, as rows before this one have", names[place]) })
    }

    /// The row with a volume of 0, if it says that there is none.
    pub(crate) fn without_volume(&self) -> Option<BarRow> {
        self.volume.is_nan().then(|| BarRow { volume: 0.0, ..self.clone() })
    }

    /// The row with high and low fixed, if they are exchanged or miss open or close by noise.
    pub(crate) fn fixed(&self) -> Option<(BarRow, RowFix)> {
        let (top, bottom) = (self.open.max(self.close), self.open.min(self.close));
        let fixed = if self.is_in_range_but_for_noise() {
            (BarRow { high: self.high.max(top), low: self.low.min(bottom), ..self.clone() }, RowFix::Widened)
        } else if self.high < self.low {
            (BarRow { high: self.low, low: self.high, ..self.clone() }, RowFix::Exchanged)
        } else {
            return None;
        };
        fixed.0.check().is_ok().then_some(fixed)
    }

    /// True if high and low hold open and close, or miss them by no more than single precision can
    /// tell.
    pub(crate) fn is_in_range_but_for_noise(&self) -> bool {
        let (top, bottom) = (self.open.max(self.close), self.open.min(self.close));
        self.high >= top * (1.0 - NOISE_MAX) && self.low <= bottom * (1.0 + NOISE_MAX)
    }

    /// The row's time on the clock whose offset it states.
    pub(crate) fn stated_time(&self) -> Option<i64> {
        let RowTime::Utc(ns) = self.stamp else { return None };
        self.east_ns.map(|east_ns| ns + east_ns)
    }

    /// The row's date on the clock whose offset it states.
    pub(crate) fn stated_day(&self) -> Option<RowTime> {
        self.stated_time().map(|time| RowTime::Wall(time - time.rem_euclid(DAY_NS)))
    }

    /// True for a row at midnight on the clock whose offset it states.
    pub(crate) fn is_at_stated_midnight(&self) -> bool {
        self.stated_time().is_some_and(|time| time % DAY_NS == 0)
    }

    /// True for a row at midnight on the clock whose offset it states, or on its own.
    pub(crate) fn is_at_midnight(&self) -> bool {
        self.stated_time().unwrap_or(self.stamp.ns()) % DAY_NS == 0
    }

    /// True if both have the same four prices.
    pub(crate) fn has_prices_of(&self, other: &BarRow) -> bool {
        let prices = |row: &BarRow| [row.open, row.high, row.low, row.close];
        prices(self) == prices(other)
    }

    /// True if both have the same values.
    pub(crate) fn is_copy_of(&self, other: &BarRow) -> bool {
        let numbers = |row: &BarRow| [row.open, row.high, row.low, row.close, row.volume, row.spread];
        let own = self.columns.iter().map(|value| value.to_bits());
        numbers(self) == numbers(other) && own.eq(other.columns.iter().map(|value| value.to_bits()))
    }
}

#[cfg(test)]
impl BarRow {
    /// A row whose four prices are `price`, for tests.
    pub(crate) fn flat(stamp: RowTime, price: f64, line: u64) -> BarRow {
        BarRow::new(stamp, price, price, price, price, line)
    }

    /// A row of open, high, low and close, for tests.
    pub(crate) fn new(stamp: RowTime, open: f64, high: f64, low: f64, close: f64, line: u64) -> BarRow {
        BarRow {
            stamp,
            east_ns: None,
            open,
            high,
            low,
            close,
            volume: 0.0,
            spread: 0.0,
            columns: Box::default(),
            event: RowAdjustment::NONE,
            line,
        }
    }
}

impl RowFault {
    pub(crate) fn unreadable(expected: String) -> Self {
        RowFault { kind: RowError::Unreadable, expected }
    }

    /// The same fault in a last line without an end, which may be a part of a row.
    pub(crate) fn without_end_of_line(self) -> Self {
        let expected =
            format!("{} (this last line has no end, as in a file that is still being written)", self.expected);
        RowFault { kind: RowError::Unfinished, expected }
    }

    /// The fault of a row that names no symbol, among rows of several.
    pub(crate) fn without_symbol() -> Self {
        RowFault::unreadable("a symbol in its column, as other rows have".to_owned())
    }
}

fn no_number(fields: &RowFields<'_>, column: usize, what: &str) -> RowFault {
    let commas = if fields.has_commas(column) {
        ": write it with a decimal point (decimal commas, and commas between the thousands of a price, are not read)"
    } else {
        ""
    };
    RowFault::unreadable(format!("a number for {what} in field {}{}{commas}", column + 1, found(fields, column)))
}

/// Content of a field, for a message.
fn found(fields: &RowFields<'_>, column: usize) -> String {
    match fields.get(column) {
        // The whole line is shown anyway.
        Some(_) if fields.len() == 1 => String::new(),
        None => ", which is missing".to_owned(),
        Some(b"") => ", which is empty".to_owned(),
        Some(field) => format!(", which is `{}`", shortened(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BarRow, RowFault> {
        let format = RowFormat::detect(&[(1, b"2018-01-01 00:00,1,1,1,1,1".to_vec())], None, None).unwrap();
        let row = BarRow::parse(&RowFields::split(text.as_bytes(), b','), &format, 7)?;
        row.check().map(|()| row)
    }

    /// Prices that were adjusted each by itself stopped a file.
    #[test]
    fn high_and_low_hold_what_they_miss_by_the_rounding_of_a_product() {
        let row = parse("2018-01-01 00:00,63.300371187399996,63.30037118739999,62.1,62.09999999999999,1").unwrap();
        assert_eq!((row.high, row.low), (63.300371187399996, 62.09999999999999));
    }

    #[test]
    fn good_rows() {
        let row = parse("2018-01-01 00:00,1.25,1.5,1,1.125,9,more").unwrap();
        assert_eq!([row.open, row.high, row.low, row.close, row.volume], [1.25, 1.5, 1.0, 1.125, 9.0]);
        assert_eq!((row.stamp, row.line), (RowTime::Wall(17_532 * 86_400_000_000_000), 7));
        assert!(parse("\"2018-01-01 00:00\", 1.0,1.0,1.0,1.0,0").is_ok());
        assert_eq!(parse("2018-01-01 00:00,1,1,1,1,\"1,234\"").unwrap().volume, 1234.0);
        let comma = parse("2018-01-01 00:00,\"1,1789\",1,1,1,1").unwrap_err();
        assert!(comma.kind == RowError::Unreadable && comma.expected.contains("decimal commas"), "{comma:?}");
    }

    #[test]
    fn bad_rows_say_what_was_expected() {
        let cases = [
            (
                "2018-01-01 00:00,null,null,null,null,null",
                RowError::Unreadable,
                "a number for open in field 2, which is `null`",
            ),
            ("2018-01-01 00:00,1,1,1,1", RowError::Unreadable, "a number for volume in field 6, which is missing"),
            (
                "-(2018-01-01 00:00,1,1,1,1,1",
                RowError::Unreadable,
                "a timestamp of format iso in field 1, which is `-(2018-01-01 00:00`",
            ),
            ("2018-01-01 00:00,1,NaN,1,1,1", RowError::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,1,inf,1,1,1", RowError::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,1,1,0,1,1", RowError::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,-1,1,-1,1,1", RowError::Inconsistent, "prices that are finite and above zero"),
            ("2018-01-01 00:00,2,3,2.5,3,1", RowError::Inconsistent, "a low at or below open and close"),
            ("2018-01-01 00:00,2,2.5,2,3,1", RowError::Inconsistent, "a high at or above open and close"),
            ("2018-01-01 00:00,2,2.99999999,2,3,1", RowError::Inconsistent, "a high at or above open and close"),
            ("2018-01-01 00:00,1,1,1,1,-1", RowError::Inconsistent, "a volume that is finite and not negative"),
        ];
        for (text, kind, expected) in cases {
            assert_eq!(parse(text), Err(RowFault { kind, expected: expected.to_owned() }), "{text}");
        }
    }

    #[test]
    fn only_what_is_plain_is_mended() {
        let cases = [
            ([1.0, 0.5, 2.0, 1.5], Some(([2.0, 0.5], RowFix::Exchanged))),
            ([1.0, 0.5, 2.0, 3.0], None),
            ([1.0, 0.999_999_999, 0.5, 1.0], Some(([1.0, 0.5], RowFix::Widened))),
            ([1.0, 2.0, 1.000_000_01, 1.5], Some(([2.0, 1.0], RowFix::Widened))),
            ([1.00001, 1.0, 0.5, 1.0], None),
            ([1.0, 2.0, -1.0, 1.0], None),
            ([f64::NAN, 2.0, 1.0, 1.0], None),
            ([1.0, f64::INFINITY, 1.0, 1.0], None),
        ];
        for (prices, expected) in cases {
            let fixed = BarRow::new(RowTime::Utc(0), prices[0], prices[1], prices[2], prices[3], 1)
                .fixed()
                .map(|(row, fix)| ([row.high, row.low], fix));
            assert_eq!(fixed, expected, "{prices:?}");
        }
    }

    #[test]
    fn prices_are_scaled_with_the_adjusted_close() {
        let head =
            [(1, b"date,open,high,low,close,adj close,volume".to_vec()), (2, b"2018-01-01,4,8,2,4,2,9".to_vec())];
        let format = RowFormat::detect(&head, None, None).unwrap();
        let parse = |text: &str| BarRow::parse(&RowFields::split(text.as_bytes(), b','), &format, 2);
        let row = parse("2018-01-01,4,8,2,4,2,9").unwrap();
        assert_eq!([row.open, row.high, row.low, row.close, row.volume], [2.0, 4.0, 1.0, 2.0, 9.0]);
        assert_eq!(
            parse("2018-01-01,4,8,2,4,null,9").unwrap_err().expected,
            "a number for the adjusted close in field 6, which is `null`"
        );
        assert!(parse("2018-01-01,4,8,2,4,-1,9").unwrap().check().is_err());
    }

    #[test]
    fn a_day_without_a_split_has_0_or_1_in_its_column() {
        let head = [
            (1, b"date,open,high,low,close,adj close,volume,stock splits".to_vec()),
            (2, b"2018-01-01,4,8,2,4,2,9,0".to_vec()),
        ];
        let format = RowFormat::detect(&head, None, None).unwrap();
        for (written, split) in [("0.0", 1.0), ("1", 1.0), ("7.0", 7.0), ("", 1.0), ("NaN", 1.0)] {
            let line = format!("2018-01-01,4,8,2,4,2,9,{written}");
            let row = BarRow::parse(&RowFields::split(line.as_bytes(), b','), &format, 2).unwrap();
            assert_eq!(row.event.split, split, "{written}");
        }
    }
}
