//! Sizes in bytes, as people read and write them.

use std::str::FromStr;

use super::number::significant;

/// A size as people read it, in powers of 1000, with three significant digits.
pub fn bytes(size: usize) -> String {
    let (mut value, mut unit) = (size as f64, "B");
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    if unit == "B" { format!("{value} B") } else { format!("{} {unit}", significant(value, 3)) }
}

/// `text` with every large number of bytes as people read it: sizes that libraries tell to the
/// byte.
pub fn with_readable_sizes(text: &str) -> String {
    const UNIT: &str = " bytes";
    const DIGITS_MIN: usize = 6;
    let mut pieces = text.split(UNIT).peekable();
    let mut readable = String::new();
    while let Some(piece) = pieces.next() {
        let before = piece.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = &piece[before.len()..];
        readable.push_str(before);
        match number.parse() {
            Ok(size) if number.len() >= DIGITS_MIN && pieces.peek().is_some() => readable.push_str(&bytes(size)),
            _ => readable.push_str(number),
        }
        if number.len() < DIGITS_MIN && pieces.peek().is_some() {
            readable.push_str(UNIT);
        }
    }
    readable
}

/// An amount of memory, from one byte on: `1048576`, `512MiB`, `44.18GiB`, `16GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(
    /// In bytes.
    pub usize,
);

const UNITS: [(&str, u128); 9] = [
    ("", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}` is no amount of memory; expected bytes, or a number with kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 44.18GiB"
            )
        };
        let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
        let &(_, unit) = known.ok_or_else(fault)?;
        let (whole, part) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
        if whole.is_empty() || !(whole.to_owned() + part).bytes().all(|digit| digit.is_ascii_digit()) || part.len() > 18
        {
            return Err(fault());
        }
        // In whole numbers, so that 44.18GiB is the same on every machine: the bytes below it.
        let scale = 10_u128.pow(part.len() as u32);
        let digits: u128 = (whole.to_owned() + part).parse().map_err(|_| fault())?;
        let bytes = digits.checked_mul(unit).ok_or_else(fault)? / scale;
        match usize::try_from(bytes) {
            Ok(bytes) if (1..=1 << 48).contains(&bytes) => Ok(ByteSize(bytes)),
            _ => Err(format!("`{text}`: expected from one byte to 256TiB")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // `train` of a model too large for a GPU said "3215392416 bytes".
    #[test]
    fn sizes_in_messages_read_well() {
        for (text, readable) in [
            ("asked for 3215392416 bytes, and 100 bytes are free", "asked for 3.22 GB, and 100 bytes are free"),
            ("of 1000000 bytes", "of 1.00 MB"),
            ("12345678 steps; 7654321 bytes; more", "12345678 steps; 7.65 MB; more"),
            ("no size at all", "no size at all"),
        ] {
            assert_eq!(with_readable_sizes(text), readable);
        }
    }

    #[test]
    fn sizes_read_well() {
        for (size, text) in [(0, "0 B"), (999, "999 B"), (1_000, "1.00 kB"), (44_180_000_000, "44.2 GB")] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn amounts_are_read_exactly() {
        for (text, bytes) in [
            ("1", 1),
            ("1048576", 1 << 20),
            ("512MiB", 512 << 20),
            ("512 mib", 512 << 20),
            ("16GB", 16_000_000_000),
            ("0.5kB", 500),
            ("1.5KiB", 1536),
            ("44.18GiB", 47_437_913_784),
            ("256TiB", 1 << 48),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for text in [
            "",
            "GiB",
            "-1",
            "1e9",
            "1.2.3",
            "12 parsecs",
            "0",
            "0.1",
            "257TiB",
            "99999999999999999999999999999999999999999",
            ".5GiB",
            "+5",
        ] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
