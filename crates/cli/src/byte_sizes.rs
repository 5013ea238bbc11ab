//! Sizes in bytes, for people.

/// A size as people read it, in powers of 1000.
pub(crate) fn bytes(size: usize) -> String {
    let (mut value, mut unit) = (size as f64, "B");
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, larger);
    }
    if unit == "B" { format!("{value} B") } else { format!("{value:.3} {unit}") }
}

/// `text` with every large number of bytes as people read it: sizes that libraries tell to the
/// byte.
pub(crate) fn with_readable_sizes(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    // `train` of a model too large for a GPU said "3215392416 bytes".
    #[test]
    fn sizes_in_messages_read_well() {
        for (text, readable) in [
            ("asked for 3215392416 bytes, and 100 bytes are free", "asked for 3.215 GB, and 100 bytes are free"),
            ("of 1000000 bytes", "of 1.000 MB"),
            ("12345678 steps; 7654321 bytes; more", "12345678 steps; 7.654 MB; more"),
            ("no size at all", "no size at all"),
        ] {
            assert_eq!(with_readable_sizes(text), readable);
        }
    }

    #[test]
    fn sizes_read_well() {
        for (size, text) in [(0, "0 B"), (999, "999 B"), (1_000, "1.000 kB"), (44_180_000_000, "44.180 GB")] {
            assert_eq!(bytes(size), text);
        }
    }
}
