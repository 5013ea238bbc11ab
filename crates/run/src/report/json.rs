//! JSON of any form as tables.

mod cell;

use serde_json::{Map, Value};

use super::html::{Table, escape, paragraph};
use crate::text::number::grouped;
use cell::{cell, title, words};

/// Most rows of a table. Longer lists show their beginning and their length.
const ROWS_MAX: usize = 400;
/// Most levels of nesting. Deeper ones are written as JSON.
const DEPTH_MAX: usize = 10;
/// Keys that may name a record.
const NAMES: [&str; 5] = ["symbol", "instrument", "file", "path", "name"];

/// `value`, called `name`, as headings, tables and lists.
pub(crate) fn to_html(name: &str, value: &Value) -> String {
    render(Caption { own: name, nested: "" }, &[(String::new(), value)], 0)
}

/// A value and its owner, such as `EURUSD`; empty without one.
type Owned<'a> = (String, &'a Value);

/// Caption of a table.
#[derive(Clone, Copy)]
struct Caption<'a> {
    own: &'a str,
    /// Prefix of the captions of nested tables.
    nested: &'a str,
}

/// The values of one key, put together from all records that have it.
fn render(caption: Caption<'_>, items: &[Owned<'_>], depth: usize) -> String {
    let name = caption.own;
    let owned = |wanted: fn(&Value) -> bool| -> Vec<Owned<'_>> {
        items.iter().filter(|(_, value)| !is_empty(value) && wanted(value)).cloned().collect()
    };
    if depth >= DEPTH_MAX {
        return list(name, &owned(|_| true));
    }
    let (objects, arrays) = (owned(Value::is_object), owned(Value::is_array));
    let mut html = list(name, &owned(|value| !is_nested(value)));
    if !arrays.is_empty() {
        // The elements say whose they are.
        html.push_str(&render(Caption { nested: "", ..caption }, &elements(&arrays), depth + 1));
    }
    if !objects.is_empty() && objects.iter().all(|(_, value)| is_tally(value)) {
        html.push_str(&records(name, &entries(&objects)));
    } else if !objects.is_empty() {
        html.push_str(&render_objects(caption, &objects, depth));
    }
    html
}

/// A table of the objects' plain values, then what is nested in them, key by key.
fn render_objects(caption: Caption<'_>, objects: &[Owned<'_>], depth: usize) -> String {
    let mut html = match objects {
        [(owner, Value::Object(object))] if owner.is_empty() => facts(caption.own, object),
        _ => records(caption.own, objects),
    };
    for key in keys(objects, is_nested) {
        let nested: Vec<Owned<'_>> = objects.iter().map(|(owner, object)| (owner.clone(), &object[key])).collect();
        let own =
            if caption.nested.is_empty() { key.to_owned() } else { format!("{}: {}", caption.nested, words(key)) };
        html.push_str(&render(Caption { own: &own, nested: &own }, &nested, depth + 1));
    }
    html
}

/// Each element of lists, with the name of the element, or else the owner of the list.
fn elements<'a>(arrays: &[Owned<'a>]) -> Vec<Owned<'a>> {
    let each =
        arrays.iter().flat_map(|(owner, array)| array.as_array().into_iter().flatten().map(move |item| (owner, item)));
    each.map(|(owner, item)| (joined(owner, own_name(item).unwrap_or_default()), item)).collect()
}

/// Each entry of objects that hold records by name.
fn entries<'a>(objects: &[Owned<'a>]) -> Vec<Owned<'a>> {
    let each = objects
        .iter()
        .flat_map(|(owner, object)| object.as_object().into_iter().flatten().map(move |entry| (owner, entry)));
    each.map(|(owner, (key, record))| (joined(owner, &words(key)), record)).collect()
}

fn joined(owner: &str, name: &str) -> String {
    match (owner, name) {
        ("", name) => name.to_owned(),
        (owner, "") => owner.to_owned(),
        (owner, name) => format!("{owner}, {name}"),
    }
}

fn own_name(item: &Value) -> Option<&str> {
    let (key, name) = NAMES.iter().find_map(|key| Some((*key, item.get(*key)?.as_str()?)))?;
    Some(if matches!(key, "file" | "path") { name.rsplit('/').next().unwrap_or(name) } else { name })
}

/// The plain values of one object, a row each.
fn facts(name: &str, object: &Map<String, Value>) -> String {
    let plain = object.iter().filter(|(_, value)| !is_nested(value) && !is_empty(value));
    let rows: Vec<Vec<String>> = plain.map(|(key, value)| vec![words(key), cell(key, value)]).collect();
    if rows.is_empty() {
        return String::new();
    }
    Table { caption: title(name), head: vec![String::new(), String::new()], rows }.to_html()
}

/// A row for each record, a column for each plain key.
fn records(name: &str, records: &[Owned<'_>]) -> String {
    let named = records.iter().any(|(_, record)| own_name(record).is_some());
    let is_name = |key: &str| {
        named && NAMES.iter().find(|name| records.iter().any(|(_, record)| record.get(**name).is_some())) == Some(&key)
    };
    let columns: Vec<&str> =
        keys(records, |value| !is_nested(value) && !is_empty(value)).into_iter().filter(|key| !is_name(key)).collect();
    if columns.is_empty() {
        return String::new();
    }
    let row = |(owner, record): &Owned<'_>| {
        std::iter::once(owner.clone()).chain(columns.iter().map(|key| cell(key, &record[*key]))).collect()
    };
    let head = std::iter::once(String::new()).chain(columns.iter().map(|key| words(key))).collect();
    let rows = records.iter().take(ROWS_MAX).map(row).collect();
    Table { caption: title(name), head, rows }.to_html() + &rest_of(records.len())
}

/// Keys with a `wanted` value in any of the objects, in the order of their first appearance.
fn keys<'a>(objects: &[Owned<'a>], wanted: fn(&Value) -> bool) -> Vec<&'a str> {
    let mut keys: Vec<&str> = Vec::new();
    for (key, value) in objects.iter().filter_map(|(_, object)| object.as_object()).flatten() {
        if wanted(value) && !keys.contains(&key.as_str()) {
            keys.push(key);
        }
    }
    keys
}

/// Plain values: sentences one below the other, words in one line.
fn list(name: &str, items: &[Owned<'_>]) -> String {
    let entry = |(owner, value): &Owned<'_>| match owner.as_str() {
        "" => cell(name, value),
        owner => format!("{owner}: {}", cell(name, value)),
    };
    let entries: Vec<String> = items.iter().take(ROWS_MAX).map(entry).collect();
    let heading = format!("<h4>{}</h4>\n", escape(&title(name)));
    if entries.is_empty() {
        return String::new();
    }
    if entries.iter().all(|entry| !entry.contains(' ')) {
        return heading + &format!("<p class=\"code\">{}</p>\n", escape(&entries.join(" "))) + &rest_of(items.len());
    }
    let entries: String = entries.iter().map(|entry| format!("<li>{}</li>", escape(entry))).collect();
    heading + &format!("<ul class=\"plain\">{entries}</ul>\n") + &rest_of(items.len())
}

fn rest_of(count: usize) -> String {
    if count <= ROWS_MAX {
        return String::new();
    }
    paragraph(&format!("The first {ROWS_MAX} of {} are shown.", grouped(count as u64)))
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

/// True if an object holds records by name only, such as counts of rows by defect.
fn is_tally(value: &Value) -> bool {
    let is_record = |value: &Value| value.as_object().is_some_and(|record| !record.values().any(is_nested));
    value.as_object().is_some_and(|object| object.values().all(is_record))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_ingest_writes_becomes_tables() {
        let html = to_html(
            "source",
            &json!({
                "recipe": ["--time=open", "--", "/data/a.csv"],
                "instruments": [
                    {
                        "symbol": "EURUSD",
                        "rows": 10,
                        "bars": { "all": 1000, "flat": 8 },
                        "gaps": {
                            "count": 54,
                            "kinds": { "weekend": { "count": 52 }, "hours": { "count": 2 } },
                            "longest": [{ "from_ns": 1_514_764_800_000_000_000_i64 }],
                        },
                        "pair": null,
                        "files": [{
                            "file": "/data/a.csv",
                            "dropped": { "an empty row": { "rows": 2, "first_line": 7 } },
                            "repaired": {},
                        }],
                    },
                    { "symbol": "GBPUSD", "rows": 20, "bars": { "all": 2000, "flat": 9 }, "files": [] },
                ],
                "warnings": ["a <b> of two"],
            }),
        );
        for part in [
            "<h4>Recipe</h4>\n<p class=\"code\">--time=open -- /data/a.csv</p>",
            "<caption>Instruments</caption>",
            "<th scope=\"row\">GBPUSD</th><td class=\"n\">20</td>",
            "<th scope=\"row\">GBPUSD</th><td class=\"n\">2,000</td><td class=\"n\">9</td>",
            "<caption>Gaps: kinds</caption>",
            "<th scope=\"row\">EURUSD, weekend</th><td class=\"n\">52</td>",
            "<th scope=\"row\">EURUSD</th><td>2018-01-01 00:00 UTC</td>",
            "<th scope=\"row\">EURUSD, a.csv, an empty row</th><td class=\"n\">2</td><td class=\"n\">7</td>",
            "<li>a &lt;b&gt; of two</li>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("symbol") && !html.contains("repaired") && !html.contains("pair"), "{html}");
    }

    #[test]
    fn anything_is_shown_and_long_lists_are_cut() {
        assert!(to_html("x", &json!([])).is_empty() && to_html("x", &Value::Null).is_empty());
        let mixed = to_html("x", &json!([1, { "a": 2 }, [3, "four five"]]));
        for part in ["<caption>X</caption>", "<p class=\"code\">1</p>", "<li>four five</li>"] {
            assert!(mixed.contains(part), "{part}: {mixed}");
        }
        let deep = (0..40).fold(json!(1), |inner, _| json!([{ "a": inner }]));
        assert!(to_html("x", &deep).contains("{&quot;a&quot;:["));
        let html = to_html("holes", &json!(vec![json!({ "bars": 1 }); 5_000]));
        assert!(html.contains("The first 400 of 5,000 are shown."));
        assert!(html.len() < 40_000, "{}", html.len());
    }
}
