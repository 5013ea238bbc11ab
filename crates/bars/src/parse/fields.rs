use smallvec::SmallVec;

use crate::parse::columns::BarColumns;
use crate::time::timestamp::{DateStyle, RowTime, is_date, parse_date_and_clock, parse_stamp, stated_offset};

/// Fields of a row that need no memory of their own.
const FIELDS_INLINE: usize = 24;
/// Bytes of the longest number with thousands groups that is read.
const GROUPED_MAX: usize = 32;
/// Fields that say that there is no number. Of a volume, -1 says so too.
const NOTHING: [&[u8]; 9] = [b"", b"-", b"--", b"null", b"nan", b"nat", b"n/a", b"na", b"none"];
const QUOTE: &[u8] = b"\"";
/// A quote within a field that is itself quoted.
const DOUBLED: &[u8] = b"\"\"";

/// The fields of one row, without quotes and spaces around them.
pub(crate) struct RowFields<'a> {
    fields: SmallVec<[&'a [u8]; FIELDS_INLINE]>,
    /// True where empty fields at the end are missing: tabs are cut off there as spaces are.
    is_open_ended: bool,
}

/// Meaning of commas in prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commas {
    /// A number with a comma is no price.
    Refused,
    /// A number with a comma is read without it.
    PassedOver,
}

impl<'a> RowFields<'a> {
    /// Cuts a line at each delimiter outside of quotes, as RFC 4180 has them; a line that is quoted
    /// as a whole is cut inside.
    ///
    /// A quote that nothing closes, or that something follows, stays in its field: such a field is
    /// no number and no time. So does a doubled quote, as no field that is read has quotes in it.
    pub(crate) fn split(line: &'a [u8], delimiter: u8) -> Self {
        if !line.contains(&b'"') {
            return RowFields::collect(line.split(|&byte| byte == delimiter).map(trimmed), delimiter);
        }
        match cut(trimmed(line), QUOTE, delimiter) {
            (inner, None) if inner.len() + 2 <= trimmed(line).len() => RowFields::quoted(inner, DOUBLED, delimiter),
            _ => RowFields::quoted(line, QUOTE, delimiter),
        }
    }

    fn quoted(line: &'a [u8], quote: &[u8], delimiter: u8) -> Self {
        let mut rest = Some(line);
        let fields = std::iter::from_fn(|| {
            let (field, after) = cut(rest?, quote, delimiter);
            rest = after;
            Some(trimmed(field))
        });
        RowFields::collect(fields, delimiter)
    }

    fn collect(cut: impl Iterator<Item = &'a [u8]>, delimiter: u8) -> Self {
        RowFields { fields: cut.collect(), is_open_ended: delimiter == b'\t' }
    }

    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn get(&self, column: usize) -> Option<&'a [u8]> {
        self.fields.get(column).copied().or(self.is_open_ended.then_some(b""))
    }

    /// The same fields, the last of which is that of `column`.
    pub(crate) fn ending_as(&self, column: usize) -> RowFields<'a> {
        let mut fields = self.fields.clone();
        if let Some((last, own)) = fields.last_mut().zip(self.get(column)) {
            *last = own;
        }
        RowFields { fields, is_open_ended: self.is_open_ended }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.fields.iter().copied()
    }

    /// The row's time.
    pub(crate) fn stamp(&self, columns: &BarColumns, style: DateStyle) -> Option<RowTime> {
        let time = self.get(columns.time)?;
        match columns.clock {
            Some(clock) => parse_date_and_clock(time, self.get(clock)?, style),
            None => parse_stamp(time, style),
        }
    }

    /// True for a row whose time is a date, without a time of day in it or in a column of its own.
    pub(crate) fn is_date_alone(&self, columns: &BarColumns, style: DateStyle) -> bool {
        columns.clock.is_none() && self.get(columns.time).is_some_and(|time| is_date(time, style))
    }

    /// Nanoseconds east of UTC on the clock whose offset the row's time states; `None` for a time
    /// in UTC.
    pub(crate) fn stated_offset(&self, columns: &BarColumns) -> Option<i64> {
        self.get(columns.clock.unwrap_or(columns.time)).and_then(stated_offset)
    }

    /// The number in a column.
    pub(crate) fn number(&self, column: usize) -> Option<f64> {
        std::str::from_utf8(self.get(column)?).ok()?.parse().ok()
    }

    /// The number in a column of amounts, which may be written in groups of thousands and in
    /// thousands, millions or billions: 1,234 is 1234 there, and 14.80M is 14,800,000.
    pub(crate) fn amount(&self, column: usize) -> Option<f64> {
        self.number(column).or_else(|| abbreviated(self.get(column)?))
    }

    /// The number in a column of volumes; NaN where the field says that there is none.
    pub(crate) fn volume(&self, column: usize) -> Option<f64> {
        let field = self.get(column)?;
        if says_nothing(field) {
            return Some(f64::NAN);
        }
        self.amount(column).map(|volume| if volume == -1.0 { f64::NAN } else { volume })
    }

    /// True if a column holds a number with commas, be they decimal commas or between thousands.
    pub(crate) fn has_commas(&self, column: usize) -> bool {
        let is_of_a_number = |byte: &u8| byte.is_ascii_digit() || b"+-.,".contains(byte);
        self.get(column).is_some_and(|field| {
            field.contains(&b',') && field.iter().any(u8::is_ascii_digit) && field.iter().all(is_of_a_number)
        })
    }

    /// True if the columns hold a time and four numbers.
    pub(crate) fn fit(&self, columns: &BarColumns, style: DateStyle, commas: Commas) -> bool {
        let is_price =
            |&price: &usize| self.number(price).is_some() || (commas == Commas::PassedOver && self.has_commas(price));
        self.stamp(columns, style).is_some() && columns.prices().iter().all(is_price)
    }
}

/// True for a field that says that there is no number.
pub(crate) fn says_nothing(field: &[u8]) -> bool {
    NOTHING.iter().any(|nothing| field.eq_ignore_ascii_case(nothing))
}

/// The first field of a line, and what follows its delimiter.
fn cut<'a>(line: &'a [u8], quote: &[u8], delimiter: u8) -> (&'a [u8], Option<&'a [u8]>) {
    let inner = trimmed(line).strip_prefix(quote);
    if let Some((field, rest)) = inner.and_then(|inner| closed(inner, quote)) {
        match trimmed(rest) {
            [] => return (field, None),
            [first, rest @ ..] if *first == delimiter => return (field, Some(rest)),
            _ => {}
        }
    }
    match line.iter().position(|&byte| byte == delimiter) {
        Some(end) => (&line[..end], Some(&line[end + 1..])),
        None => (line, None),
    }
}

/// Text before the quote that closes a field, and text after it; two quotes in a row close nothing.
fn closed<'a>(inner: &'a [u8], quote: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut at = 0;
    loop {
        at += inner[at..].iter().position(|&byte| byte == b'"')?;
        match inner[at..].strip_prefix(quote) {
            None => at += 1,
            Some(after) if after.starts_with(quote) => at += 2 * quote.len(),
            Some(after) => return Some((&inner[..at], after)),
        }
    }
}

/// The number before `K`, `M` or `B`, if there is one of them, perhaps in groups of thousands.
fn abbreviated(field: &[u8]) -> Option<f64> {
    let (exponent, digits) = match field {
        [digits @ .., b'K' | b'k'] => ("e3", digits),
        [digits @ .., b'M' | b'm'] => ("e6", digits),
        [digits @ .., b'B' | b'b'] => ("e9", digits),
        _ => return grouped(field, ""),
    };
    if digits.contains(&b',') {
        return grouped(digits, exponent);
    }
    let is_plain = digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    format!("{}{exponent}", std::str::from_utf8(digits).ok()?).parse().ok().filter(|_| is_plain)
}

/// The number in digits with a comma before each group of three, such as 1,234,567 or 1,234.5,
/// times an exponent.
fn grouped(field: &[u8], exponent: &str) -> Option<f64> {
    let point = field.iter().position(|&byte| byte == b'.').unwrap_or(field.len());
    let mut groups = field[..point].split(|&byte| byte == b',');
    let digits = |group: &[u8]| group.iter().all(u8::is_ascii_digit);
    let first = groups.next()?;
    let is_grouped =
        (1..=3).contains(&first.len()) && digits(first) && groups.all(|group| group.len() == 3 && digits(group));
    let mut plain = [0; GROUPED_MAX];
    let mut len = 0;
    for &byte in field.iter().filter(|&&byte| byte != b',') {
        *plain.get_mut(len)? = byte;
        len += 1;
    }
    if !is_grouped || field[point..].contains(&b',') {
        return None;
    }
    format!("{}{exponent}", std::str::from_utf8(&plain[..len]).ok()?).parse().ok()
}

fn trimmed(mut field: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = field {
        field = rest;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_each_delimiter_outside_of_quotes() {
        let cases: [(&str, &[&str]); 14] = [
            ("2018.01.31, 17:00 ,,1.5", &["2018.01.31", "17:00", "", "1.5"]),
            ("\"2018.01.31\", \"17:00\" ,\"\",1.5", &["2018.01.31", "17:00", "", "1.5"]),
            ("1,\"1,234\",2", &["1", "1,234", "2"]),
            ("\"1,234\"", &["1", "234"]),
            ("\"1\",\"1,234\"", &["1", "1,234"]),
            ("\"a \"\"b,c\"\"\",d", &["a \"\"b,c\"\"", "d"]),
            ("\"a,b,,c\"", &["a", "b", "", "c"]),
            (" \"a, \"\"1,234\"\" ,c\" ", &["a", "1,234", "c"]),
            ("a,\"b", &["a", "\"b"]),
            ("\"a,b", &["\"a", "b"]),
            ("\"a\"b,c", &["\"a\"b", "c"]),
            ("a\",b\"", &["a\"", "b\""]),
            ("\"", &["\""]),
            ("", &[""]),
        ];
        for (line, expected) in cases {
            let fields = RowFields::split(line.as_bytes(), b',');
            let found: Vec<&str> = fields.iter().map(|field| std::str::from_utf8(field).unwrap()).collect();
            assert_eq!(found, expected, "{line}");
        }
        assert_eq!(RowFields::split(&[b','; 9_999], b',').len(), 10_000);
    }

    #[test]
    fn only_amounts_may_have_groups_of_thousands() {
        let cases = [
            ("\"1,234\"", None, Some(1234.0)),
            ("\"1,234,567.5\"", None, Some(1_234_567.5)),
            ("\"1,1789\"", None, None),
            ("\"1234,567\"", None, None),
            ("\",234\"", None, None),
            ("\"1,234.5,678\"", None, None),
            ("12.5", Some(12.5), Some(12.5)),
            ("null", None, None),
            ("14.80M", None, Some(14.8e6)),
            ("2k", None, Some(2000.0)),
            ("\"1,234.5B\"", None, Some(1.2345e12)),
            ("M", None, None),
            ("1e3M", None, None),
            ("-1K", None, None),
        ];
        for (text, number, amount) in cases {
            let line = format!("x,{text},y");
            let fields = RowFields::split(line.as_bytes(), b',');
            assert_eq!((fields.number(1), fields.amount(1)), (number, amount), "{text}");
            let is_of_digits = !text.ends_with("B\"");
            assert_eq!(fields.has_commas(1), text.contains(',') && is_of_digits, "{text}");
        }
        assert_eq!(grouped(&b"1,234,".repeat(9), ""), None);
    }

    proptest::proptest! {
        /// A row as the `csv` rules would write it is read back, whether or not its line is quoted
        /// once more.
        #[test]
        fn what_is_quoted_is_read_back(
            written in proptest::collection::vec(("[0-9a-z,;]([0-9a-z,; ]{0,4}[0-9a-z,;])?", proptest::bool::ANY), 2..9),
        ) {
            let quoted = |(field, quotes): &(String, bool)| match *quotes || field.contains(',') {
                true => format!("\"{field}\""),
                false => field.clone(),
            };
            let line = written.iter().map(quoted).collect::<Vec<_>>().join(",");
            let whole = format!("\"{}\"", line.replace('"', "\"\""));
            for line in [line, whole] {
                let fields = RowFields::split(line.as_bytes(), b',');
                let expected: Vec<&[u8]> = written.iter().map(|(field, _)| field.as_bytes()).collect();
                proptest::prop_assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
            }
        }
    }
}
