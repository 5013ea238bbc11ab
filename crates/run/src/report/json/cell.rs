//! Keys and plain values as words.

use serde_json::Value;

use crate::text::number::{grouped, seconds, significant};
use crate::text::{bytes, utc};

/// A key as words.
pub(super) fn words(key: &str) -> String {
    let bare = ["_ns", "_bytes", "_s"].iter().find_map(|unit| key.strip_suffix(unit)).unwrap_or(key);
    bare.replace('_', " ")
}

/// A key as a heading.
pub(super) fn title(key: &str) -> String {
    let words = words(key);
    let mut rest = words.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// A plain value as its key's unit asks.
pub(super) fn cell(key: &str, value: &Value) -> String {
    match (value, value.as_i64(), value.as_f64()) {
        (Value::Null, ..) => "-".to_owned(),
        (Value::Bool(flag), ..) => if *flag { "yes" } else { "no" }.to_owned(),
        (Value::String(text), ..) if is_hash(text) => format!("{}…", &text[..HASH_SHOWN]),
        (Value::String(text), ..) => text.clone(),
        (_, Some(ns), _) if key.ends_with("time_ns") || (is_end(key) && ns.unsigned_abs() > 10_u64.pow(15)) => utc(ns),
        (_, _, Some(ns)) if key.ends_with("_ns") => seconds(ns / 1e9),
        (_, _, Some(duration_s)) if key.ends_with("_s") => seconds(duration_s),
        (_, Some(size), _) if key.ends_with("_bytes") => bytes(usize::try_from(size).unwrap_or(0)),
        (_, Some(count), _) if count >= 0 => grouped(count.unsigned_abs()),
        (_, None, Some(number)) => trimmed(&significant(number, 5)),
        _ => value.to_string(),
    }
}

/// Digits of a hash that are enough to compare by eye.
const HASH_SHOWN: usize = 8;

fn is_hash(text: &str) -> bool {
    text.len() >= 24 && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// A number without zeros at the end of its fraction.
fn trimmed(number: &str) -> String {
    if number.contains('.') && !number.contains('e') {
        return number.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    number.to_owned()
}

/// True if a key names an end of a span of time.
fn is_end(key: &str) -> bool {
    ["from", "to", "start", "end", "first", "last", "at", "since", "until"]
        .iter()
        .any(|end| key.trim_end_matches("_ns").split('_').any(|word| word == *end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_told_in_the_unit_of_their_key() {
        for (key, value, text) in [
            ("rows", json!(12_345), "12,345"),
            ("first_open_time_ns", json!(1_514_764_800_000_000_000_i64), "2018-01-01 00:00 UTC"),
            ("from_ns", json!(1_514_764_800_000_000_000_i64), "2018-01-01 00:00 UTC"),
            ("longest_ns", json!(7_200_000_000_000_i64), "2 h 0 min"),
            ("wait_s", json!(0.25), "250 ms"),
            ("data_bytes", json!(1_500), "1.50 kB"),
            ("share", json!(0.123_456), "0.12346"),
            ("pip_size", json!(0.0001), "0.0001"),
            ("shift", json!(-5), "-5"),
            ("zone", json!(null), "-"),
            ("hash", json!("5a03362f8f55ae3d3300cce0ce6ef629"), "5a03362f…"),
            ("quoted", json!(true), "yes"),
        ] {
            assert_eq!(cell(key, &value), text, "{key}");
        }
    }
}
