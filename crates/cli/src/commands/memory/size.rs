use std::str::FromStr;

/// An amount of memory, from one byte on: `1048576`, `512MiB`, `44.18GiB`, `16GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteSize(pub(crate) usize);

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
