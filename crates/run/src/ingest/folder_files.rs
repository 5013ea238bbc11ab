//! Files of bars in a folder, where one symbol is stated for all.

use std::path::{Path, PathBuf};

use megabatch_bars::{bar_files, likely_symbol, listed, named_symbol, symbols_in_file};

use crate::error::Result;

/// Files of bars that a path stands for.
pub(super) struct FolderFiles {
    /// Files that are read: if some are evidently of the stated symbol, no others.
    pub(super) read: Vec<PathBuf>,
    /// Names of the others.
    left_out: Vec<String>,
}

impl FolderFiles {
    /// The files of `path`, which may be a folder, with bars of `symbol` if it is stated.
    ///
    /// # Errors
    /// As [`bar_files`].
    pub(super) fn find(path: &Path, symbol: Option<&str>) -> Result<Self> {
        let files = bar_files(path)?;
        let Some(symbol) = symbol.filter(|_| path.is_dir()) else {
            return Ok(FolderFiles { read: files, left_out: Vec::new() });
        };
        let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(|file| tells(file, symbol));
        if own.is_empty() {
            return Ok(FolderFiles { read: others, left_out: Vec::new() });
        }
        let names = others.iter().filter_map(|file| file.file_name());
        Ok(FolderFiles { read: own, left_out: names.map(|name| name.to_string_lossy().into_owned()).collect() })
    }

    /// A note on the files of `folder` that are not read.
    pub(super) fn note(&self, folder: &Path, symbol: &str) -> Option<String> {
        (!self.left_out.is_empty()).then(|| {
            format!(
                "{}: its files of {symbol}, by name or rows, are read, and not the others: {}",
                folder.display(),
                listed(&self.left_out)
            )
        })
    }
}

/// True if the name or the rows of a file tell `symbol`.
fn tells(file: &Path, symbol: &str) -> bool {
    let stated = [symbol.to_owned()];
    let is_stated = |name: &String| likely_symbol(name, &stated).is_some();
    let is_in_name = match named_symbol(file) {
        Some(name) => is_stated(&name),
        // Its ending is no symbol, though `TXT` is that of a share.
        None => has_word(&file.file_stem().unwrap_or_default().to_string_lossy(), symbol),
    };
    is_in_name || symbols_in_file(file).iter().any(is_stated)
}

/// True if `text` has `word`, in upper or lower case, with neither letter nor digit beside it.
fn has_word(text: &str, word: &str) -> bool {
    let (text, word) = (text.to_uppercase(), word.to_uppercase());
    text.match_indices(&word).any(|(start, found)| {
        let (before, after) = (&text[..start], &text[start + found.len()..]);
        !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder of several symbols was refused where one of them was stated.
    #[test]
    fn the_files_of_the_stated_symbol_are_told_by_name_or_rows() {
        let folder = tempfile::tempdir().unwrap();
        let rows = |symbols: &[&str]| -> String {
            let row = |(k, symbol): (usize, &&str)| format!("2018-07-{:02},1,1,1,1,{symbol}\n", k + 1);
            format!("date,open,high,low,close,symbol\n{}", symbols.iter().enumerate().map(row).collect::<String>())
        };
        for (name, text) in [
            ("AAPL_2018.csv", rows(&[])),
            ("DA-T-T-2018.csv", rows(&[])),
            ("EURUSD_2018.csv", rows(&[])),
            ("GBPUSDm.csv", rows(&[])),
            ("all.csv", rows(&["T", "EURUSD", "T"])),
            ("one.csv", rows(&["MSFT", "MSFT"])),
            ("txt.us.txt", rows(&[])),
            ("wide.txt", rows(&[])),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let all = [
            "AAPL_2018.csv",
            "DA-T-T-2018.csv",
            "EURUSD_2018.csv",
            "GBPUSDm.csv",
            "all.csv",
            "one.csv",
            "txt.us.txt",
            "wide.txt",
        ];
        for (symbol, expected) in [
            (Some("EURUSD"), &["EURUSD_2018.csv", "all.csv"][..]),
            (Some("gbpusd"), &["GBPUSDm.csv"]),
            (Some("T"), &["DA-T-T-2018.csv", "all.csv"]),
            (Some("aapl"), &["AAPL_2018.csv"]),
            (Some("MSFT"), &["one.csv"]),
            (Some("TXT"), &["txt.us.txt"]),
            (Some("USDJPY"), &all),
            (None, &all),
        ] {
            let found = FolderFiles::find(folder.path(), symbol).unwrap();
            let paths: Vec<PathBuf> = expected.iter().map(|name| folder.path().join(name)).collect();
            assert_eq!(found.read, paths, "{symbol:?}");
            let note = found.note(folder.path(), symbol.unwrap_or_default());
            assert_eq!(note.is_some(), expected.len() < all.len(), "{note:?}");
            let others = all.iter().filter(|name| !expected.contains(name));
            assert!(note.is_none_or(|note| others.clone().all(|name| note.contains(name))), "{symbol:?}");
        }
        let named = folder.path().join("GBPUSDm.csv");
        assert_eq!(FolderFiles::find(&named, Some("EURUSD")).unwrap().read, [named]);
    }
}
