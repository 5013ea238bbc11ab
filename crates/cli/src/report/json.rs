//! Facts of any form as tables: what a program wrote about its work, read by someone who does not know its keys.

use serde_json::{Map, Value};

use super::html::{Table, escape, paragraph};
use super::number::{grouped, instant, seconds, significant};
use crate::plan::bytes;

/// Rows of one table; of longer lists the beginning is shown, and how many there are.
const ROWS_MAX: usize = 400;
/// Levels of nesting that are followed; deeper ones are written as JSON.
const DEPTH_MAX: usize = 5;

/// `value`, called `name`, as headings, tables and lists.
pub(crate) fn to_html(name: &str, value: &Value) -> String {
    render(name, value, 0)
}

fn render(name: &str, value: &Value, depth: usize) -> String {
    match value {
        _ if is_empty(value) => String::new(),
        Value::Object(object) if depth < DEPTH_MAX => render_object(name, object, depth),
        Value::Array(items) if depth < DEPTH_MAX => render_list(name, items, depth),
        _ => paragraph(&format!("{}: {}", words(name), cell(name, value))),
    }
}

/// Records by name become a table; of another object, its plain values become one, and what is nested follows it.
fn render_object(name: &str, object: &Map<String, Value>, depth: usize) -> String {
    if object.len() > 1 && object.values().all(is_flat_record) || is_tally(object) {
        let key = String::new();
        let records: Vec<(String, &Value)> = object.iter().map(|(key, record)| (words(key), record)).collect();
        return records_table(name, &key, &records);
    }
    let plain: Vec<Vec<String>> = object
        .iter()
        .filter(|(_, value)| !is_nested(value) && !is_empty(value))
        .map(|(key, value)| vec![words(key), cell(key, value)])
        .collect();
    let mut html = String::new();
    if !plain.is_empty() {
        html.push_str(&Table { caption: title(name), head: vec![String::new(), String::new()], rows: plain }.to_html());
    }
    for (key, value) in object.iter().filter(|(_, value)| is_nested(value)) {
        let title = if depth == 0 { key.clone() } else { format!("{name}: {key}") };
        html.push_str(&render(&title, value, depth + 1));
    }
    html
}

/// Objects become a table, with what is nested in them below; plain values become a list.
fn render_list(name: &str, items: &[Value], depth: usize) -> String {
    if items.iter().all(|item| !is_nested(item)) {
        let entries: String =
            items.iter().take(ROWS_MAX).map(|item| format!("<li>{}</li>", escape(&cell(name, item)))).collect();
        return format!(
            "<h4>{}</h4>\n<ul class=\"plain\">{entries}</ul>\n{}",
            escape(&words(name)),
            rest_of(items.len())
        );
    }
    let numbered: Vec<(String, &Value)> =
        items.iter().enumerate().map(|(k, item)| ((k + 1).to_string(), item)).collect();
    let mut html = records_table(name, "", &numbered);
    for (k, item) in items.iter().take(ROWS_MAX).enumerate() {
        let Value::Object(record) = item else { continue };
        for (key, value) in record.iter().filter(|(_, value)| is_nested(value)) {
            html.push_str(&render(&format!("{}: {}", title_of(record, k), words(key)), value, depth + 1));
        }
    }
    html
}

/// One row a record, one column a plain key that any of them has.
fn records_table(name: &str, key: &str, records: &[(String, &Value)]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for (_, record) in records {
        for (key, value) in record.as_object().into_iter().flatten() {
            if !is_nested(value) && !columns.contains(&key.as_str()) {
                columns.push(key);
            }
        }
    }
    let row = |(first, record): &(String, &Value)| {
        let plain = (!record.is_object()).then(|| cell(name, record));
        let cells = columns.iter().map(|column| cell(column, &record[*column]));
        std::iter::once(first.clone()).chain(cells).chain(plain).collect::<Vec<String>>()
    };
    let mut head: Vec<String> =
        std::iter::once(key.to_owned()).chain(columns.iter().map(|column| words(column))).collect();
    if records.iter().any(|(_, record)| !record.is_object()) {
        head.push("count".to_owned());
    }
    let rows = records.iter().take(ROWS_MAX).map(row).collect();
    Table { caption: title(name), head, rows }.to_html() + &rest_of(records.len())
}

fn rest_of(count: usize) -> String {
    if count <= ROWS_MAX {
        return String::new();
    }
    paragraph(&format!("The first {ROWS_MAX} of {} are shown.", grouped(count as u64)))
}

/// What a record calls itself, or its place in the list.
fn title_of(record: &Map<String, Value>, place: usize) -> String {
    let own = ["file", "path", "name", "instrument", "symbol"].iter().find_map(|key| record.get(*key)?.as_str());
    own.map_or_else(|| (place + 1).to_string(), |own| own.rsplit('/').next().unwrap_or(own).to_owned())
}

fn is_nested(value: &Value) -> bool {
    matches!(value, Value::Object(_) | Value::Array(_))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn is_flat_record(value: &Value) -> bool {
    value.as_object().is_some_and(|record| !record.values().any(is_nested))
}

/// One record by its name, where the name is no key of a program: it has blanks in it.
fn is_tally(object: &Map<String, Value>) -> bool {
    object.iter().any(|(key, value)| key.contains(' ') && is_flat_record(value)) && object.values().all(is_flat_record)
}

/// A key as words.
fn words(key: &str) -> String {
    let bare = ["_ns", "_bytes", "_s"].iter().find_map(|unit| key.strip_suffix(unit)).unwrap_or(key);
    bare.replace('_', " ")
}

/// A key as a heading.
fn title(key: &str) -> String {
    let words = words(key);
    if words.contains(": ") {
        return words;
    }
    let mut rest = words.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

/// A plain value as its key's unit asks.
fn cell(key: &str, value: &Value) -> String {
    match (value, value.as_i64(), value.as_f64()) {
        (Value::Null, ..) => "-".to_owned(),
        (Value::Bool(flag), ..) => if *flag { "yes" } else { "no" }.to_owned(),
        (Value::String(text), ..) => text.clone(),
        (_, Some(ns), _) if key.ends_with("time_ns") || (is_end(key) && ns.unsigned_abs() > 10_u64.pow(15)) => {
            instant(ns)
        }
        (_, _, Some(ns)) if key.ends_with("_ns") => seconds(ns / 1e9),
        (_, _, Some(duration_s)) if key.ends_with("_s") => seconds(duration_s),
        (_, Some(size), _) if key.ends_with("_bytes") => bytes(usize::try_from(size).unwrap_or(0)),
        (_, Some(count), _) if count >= 0 => grouped(count.unsigned_abs()),
        (_, None, Some(number)) => significant(number, 5),
        _ => value.to_string(),
    }
}

/// Whether a key names an end of a span of time.
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
            ("data_bytes", json!(1_500), "1.500 kB"),
            ("share", json!(0.123_456), "0.12346"),
            ("shift", json!(-5), "-5"),
            ("zone", json!(null), "-"),
            ("quoted", json!(true), "yes"),
        ] {
            assert_eq!(cell(key, &value), text, "{key}");
        }
    }

    #[test]
    fn what_ingest_writes_becomes_tables() {
        let html = to_html(
            "source",
            &json!({
                "base": "M1",
                "gaps": { "count": 54, "weekends": 52 },
                "warnings": ["a <b>"],
                "files": [
                    { "file": "/data/a.csv", "rows": 10, "dropped": { "an empty row": { "rows": 2, "first_line": 7 } } },
                    { "file": "/data/b.csv", "rows": 20, "zone": "UTC", "dropped": {} },
                ],
                "repaired": { "clock": { "rows": 60 }, "order": { "rows": 1 } },
                "counts": { "bad price": 3 },
                "holes": [{ "from_ns": 1_514_764_800_000_000_000_i64, "bars": 3 }],
            }),
        );
        for part in [
            "<caption>Files</caption>",
            "a.csv: dropped",
            "an empty row",
            "first line",
            "<td class=\"n\">52</td>",
            "<li>a &lt;b&gt;</li>",
            "2018-01-01 00:00 UTC",
            "<caption>Repaired</caption>",
            "bad price",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("b.csv: dropped"), "nothing was");
    }

    #[test]
    fn anything_is_shown_and_long_lists_are_cut() {
        assert!(to_html("x", &json!([])).is_empty() && to_html("x", &Value::Null).is_empty());
        assert!(to_html("x", &json!([1, { "a": 2 }, [3]])).contains("<caption>X</caption>"));
        let deep = json!({ "a": { "b": { "c": { "d": { "e": { "f": { "g": 1 } } } } } } });
        assert!(to_html("x", &deep).contains("{&quot;g&quot;:1}"), "{}", to_html("x", &deep));
        let html = to_html("holes", &json!(vec![json!({ "bars": 1 }); 5_000]));
        assert!(html.contains("The first 400 of 5,000 are shown."));
        assert!(html.len() < 40_000, "{}", html.len());
    }
}
