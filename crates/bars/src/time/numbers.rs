//! Numbers at the beginning of a field of a timestamp.

use std::ops::RangeInclusive;

pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// Nanoseconds of `.123…`; digits beyond the ninth are below a nanosecond.
pub(crate) fn split_fraction(field: &[u8]) -> (i64, &[u8]) {
    let Some(digits) = field.strip_prefix(b".") else { return (0, field) };
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let at = |place: usize| if place < len { i64::from(digits[place] - b'0') } else { 0 };
    ((0..9).fold(0, |ns, place| ns * 10 + at(place)), &digits[len..])
}

/// The number that a field begins with, and the rest. It has as many digits as `lengths` allows.
pub(crate) fn split_digits(field: &[u8], lengths: RangeInclusive<usize>) -> Option<(i64, &[u8])> {
    let len = field.iter().take(*lengths.end()).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = field.split_at(len);
    let number = digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    lengths.contains(&len).then_some((number, rest))
}
