use crate::unknown_name::UnknownName;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Place of the symbol in a file's name: `{}` is the symbol, `*` anything, and every other
/// character itself, in either case.
///
/// It is held against the name without `.gz` and one more ending: `DA-{}-T-*` finds `BRK.B` in
/// `DA-BRK.B-T-2021-04-21.csv`. Where it fits in several ways, the symbol is the shortest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolPattern {
    text: String,
    before: String,
    after: String,
}

const SYMBOL: &str = "{}";

impl SymbolPattern {
    /// The symbol of a file, in upper case; `None` where the name does not fit.
    pub fn symbol_of(&self, path: &Path) -> Option<String> {
        let stem = stem_of(path);
        let ends =
            |start: usize| stem[start..].char_indices().skip(1).map(move |(at, _)| start + at).chain([stem.len()]);
        let starts = stem.char_indices().map(|(start, _)| start).filter(|&start| matches(&self.before, &stem[..start]));
        let symbols = starts.flat_map(|start| ends(start).map(move |end| start..end));
        let fitting = symbols.filter(|symbol| matches(&self.after, &stem[symbol.end..]));
        fitting.min_by_key(ExactSizeIterator::len).map(|symbol| stem[symbol].to_owned())
    }
}

/// The endings of tables of bars, each perhaps with `.gz` behind it.
pub(crate) const TABLE_ENDINGS: [&str; 5] = ["csv", "tsv", "txt", "parquet", "pq"];

/// The file's name in upper case, without `.gz` and one more ending, as without `.zip` and that of
/// a table before it.
pub(crate) fn stem_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    let is_known = |ending: &str| TABLE_ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending));
    let is_table = |rest: &&str| rest.rsplit_once('.').is_some_and(|(_, ending)| is_known(ending));
    let stem = name.strip_suffix(".GZ").or_else(|| name.strip_suffix(".ZIP").filter(is_table)).unwrap_or(&name);
    stem.rsplit_once('.').map_or(stem, |(stem, _)| stem).to_owned()
}

/// True if a text matches a pattern in which `*` is anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((literal, rest)) = pattern.split_once('*') else { return pattern == text };
    text.strip_prefix(literal).is_some_and(|text| {
        let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        ends.into_iter().any(|at| matches(rest, &text[at..]))
    })
}

impl fmt::Display for SymbolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for SymbolPattern {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let expected = "one {} for the symbol, and * for anything else, such as DA-{}-T-*";
        let unknown = || UnknownName::new("pattern of file names", text, expected);
        let (before, after) =
            text.split_once(SYMBOL).filter(|(_, after)| !after.contains(SYMBOL)).ok_or_else(unknown)?;
        Ok(SymbolPattern { text: text.to_owned(), before: before.to_uppercase(), after: after.to_uppercase() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_the_symbol() {
        let cases = [
            ("DA-{}-T-*", "DA-BRK.B-T-2021-04-21.csv", Some("BRK.B")),
            ("DA-{}-T-*", "da-t-t-2021-04-21.csv.gz", Some("T")),
            ("DA-{}-T-*", "DA--T-2021-04-21.csv", None),
            ("DA-{}-T-*", "AAPL.csv", None),
            ("{}", "aapl.csv", Some("AAPL")),
            ("{}", "BRK-B", Some("BRK-B")),
            ("*_{}", "daily_adjusted_IBM.csv", Some("IBM")),
            ("*_{}_*", "x_A_B_y.csv", Some("A")),
            ("{}.US", "aapl.us.txt", Some("AAPL")),
            ("ö{}*", "Öé.csv", Some("É")),
            ("{}", "", None),
        ];
        for (pattern, name, symbol) in cases {
            let pattern: SymbolPattern = pattern.parse().unwrap();
            assert_eq!(pattern.symbol_of(Path::new(name)).as_deref(), symbol, "{pattern} {name}");
        }
        for text in ["", "DA-*", "{}{}", "{x}"] {
            assert!(text.parse::<SymbolPattern>().unwrap_err().to_string().contains("{} for the symbol"), "{text}");
        }
    }
}
