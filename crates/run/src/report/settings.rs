//! The configuration, with values that differ from the defaults marked.

use super::html::{Section, Table, paragraph};
use crate::config::Config;
use crate::text::number::plural;

/// `notes` are the plan's on the settings.
pub(crate) fn section(config: &Config, notes: &[String]) -> Section {
    let rows: Vec<Vec<String>> = config
        .settings()
        .map(|(key, text)| match key.default {
            default if default == text => vec![key.path.to_owned(), text.to_owned(), String::new()],
            "" => vec![key.path.to_owned(), text.to_owned(), "none".to_owned()],
            default => vec![key.path.to_owned(), text.to_owned(), default.to_owned()],
        })
        .collect();
    let changed = rows.iter().filter(|row| !row[2].is_empty()).count();
    let table = Table::new("Settings", ["key", "value", "default, where it differs"], rows).to_html();
    let notes: String = notes.iter().map(|note| paragraph(&format!("Note: {note}."))).collect();
    let body = paragraph(&format!("{} set; the others are defaults.", plural(changed, "key"))) + &notes + &table;
    Section { id: "configuration", title: "Configuration", body }
}
