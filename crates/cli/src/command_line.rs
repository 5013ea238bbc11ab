//! The words of the command line, as they were given.

use std::ffi::OsString;
use std::sync::OnceLock;

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Remembers the words, of which the first names the program. A process has one command line.
pub(crate) fn remember(words: impl IntoIterator<Item = OsString>) -> &'static [OsString] {
    WORDS.get_or_init(|| words.into_iter().collect())
}

/// True if the command line has `--json`.
pub(crate) fn asks_for_json() -> bool {
    WORDS.get().is_some_and(|words| words.iter().any(|word| word == "--json"))
}

/// The correct form of `--set KEY VALUE`, which names no setting and leaves a word over.
pub(crate) fn set_without_equals(words: &[OsString]) -> Option<String> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.windows(3).find_map(|words| match words {
        [set, key, value] if set == "--set" && !key.contains('=') && !value.starts_with('-') => {
            Some(format!("--set {key} {value}: a setting and its value are one word; write --set {key}={value}"))
        }
        _ => None,
    })
}
